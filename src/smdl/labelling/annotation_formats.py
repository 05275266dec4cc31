"""Rounds as files of annotation tools: what each tool imports, and the answers in what it exports.

Every line carries the number of its row, which comes back with the answer: Label Studio keeps it in `data`, Argilla in
`metadata`, Prodigy in `meta`, doccano beside the text.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

#: What a person may type for "cannot say".
CANNOT_SAY = ("?", "cannot say", "can't say", "n/a")


Line = dict[str, Any]
#: What people may see of a row, the most telling first.
SHOWN = ("text", "image", "id")


class Said(NamedTuple):
    """An answer as a file has it. `row` and `value` are texts or numbers; value None means "cannot say", and "" that
    there is no answer yet; `beside` is what the file shows of the row, by the names in SHOWN."""

    line: int
    row: Any
    value: Any
    annotator: str = ""
    beside: Mapping[str, Any] = MappingProxyType({})


def tool_bytes(name: str, lines: list[Line]) -> bytes:
    """Return lines as a tool imports them: JSON, or one object per line."""
    suffix, record = TOOLS[name]
    records = [record(line) for line in lines]
    if suffix == ".json":
        return (json.dumps(records, ensure_ascii=False, indent=1) + "\n").encode()
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records).encode()


def _argilla(line: Line) -> Line:
    """Return a record for `dataset.records.from_json`: the row is metadata and the id, the rest are fields."""
    fields = {name: str(value) for name, value in line.items() if name != "row"}
    known = {"id": str(line["row"]), "fields": fields, "metadata": {"row": line["row"]}}
    return {**known, "suggestions": {}, "responses": {}, "vectors": {}}


#: The suffix of a tool's files, and a line as the tool imports it. Label Studio needs <Choices name="label"
#: toName="text">, Prodigy `textcat.manual` or another recipe of texts, doccano a project of text classification.
TOOLS: dict[str, tuple[str, Callable[[Line], Line]]] = {
    "jsonl": (".jsonl", lambda line: {**line, "label": ""}),
    "label-studio": (".json", lambda line: {"data": line}),
    "argilla": (".json", _argilla),
    "prodigy": (".jsonl", lambda line: {"text": shown(line), "meta": {"row": line["row"]}}),
    "doccano": (".jsonl", lambda line: {"text": shown(line), "label": [], "row": line["row"]}),
}


def shown(line: Line) -> str:
    """Return what a person sees of a row: its text, or else its path, id or number."""
    for name in (*SHOWN, "row"):
        if name in line:
            return str(line[name])
    return ""


def said_in(records: list[Any], first: int = 1) -> Iterator[Said]:
    """Yield the answers in the export of a tool, or the lines of our own, whichever they are. `first` is the number of
    the first line."""
    for place, record in enumerate(records, first):
        if not isinstance(record, dict):
            raise ValueError(f"entry {place} must be an object with a row, got {record!r}"[:200])
        yield from _reader(record)(place, record)


def _reader(record: Line) -> Callable[[int, Line], Iterator[Said]]:
    if "data" in record and isinstance(record["data"], dict):
        return _from_label_studio
    if "fields" in record:
        return _from_argilla
    if "answer" in record:
        return _from_prodigy
    return _from_lines


def _from_label_studio(place: int, task: Line) -> Iterator[Said]:
    row = task["data"].get("row")
    for note in task.get("annotations") or task.get("completions") or ():
        by = note.get("completed_by", "")
        name = str(by.get("email") or by.get("id") or "") if isinstance(by, dict) else str(by)
        picked = [each["value"]["choices"] for each in note.get("result") or () if "choices" in each.get("value", {})]
        if note.get("was_cancelled"):
            yield Said(place, row, None, name)
        elif picked:
            yield Said(place, row, _one(place, picked[0]), name)


def _from_argilla(place: int, record: Line) -> Iterator[Said]:
    row = (record.get("metadata") or {}).get("row", record.get("id"))
    questions = record.get("responses") or {}
    if len(questions) > 1 and "label" not in questions:
        raise ValueError(f"entry {place} answers several questions, {', '.join(questions)}: call one of them label")
    for response in questions.get("label") or next(iter(questions.values()), ()):
        status, name = response.get("status", "submitted"), str(response.get("user_id") or "")
        if status == "discarded":
            yield Said(place, row, None, name)
        elif status == "submitted" and response.get("value") not in (None, [], ""):
            yield Said(place, row, _one(place, response["value"]), name)


def _from_prodigy(place: int, task: Line) -> Iterator[Said]:
    row, name = (task.get("meta") or {}).get("row"), str(task.get("_annotator_id") or task.get("_session_id") or "")
    if task["answer"] == "ignore":
        yield Said(place, row, None, name)
    elif task["answer"] == "accept":
        picked = task.get("accept") or task.get("label")
        if picked:
            yield Said(place, row, _one(place, picked), name)


def _from_lines(place: int, line: Line) -> Iterator[Said]:
    """doccano's lines have a list of labels; ours and those of a table have one text. Tools count by ids of their own,
    and show images by URLs: only in our lines they are those of the row."""
    value, is_ours = line.get("label", line.get("labels")), "annotation_id" not in line
    if isinstance(value, list):
        value, is_ours = _one(place, value) if value else "", False
    if isinstance(value, dict):  # Label Studio's JSON-MIN
        value, is_ours = _one(place, value.get("choices", [])), False
    if value is None or not str(value).strip():
        value = ""
    beside = {name: line[name] for name in SHOWN if line.get(name) is not None and (is_ours or name == "text")}
    if line:
        yield Said(place, line.get("row"), value, str(line.get("annotator") or ""), beside)


def _one(place: int, values: Any) -> Any:
    """Return the only class of an answer."""
    if not isinstance(values, list):
        return values
    if len(values) != 1:
        raise ValueError(f"entry {place} has {len(values)} classes, {', '.join(map(str, values))}: one is needed")
    return values[0]
