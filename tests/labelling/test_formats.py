"""Rounds as files: what is written comes back, whatever program saved it, and what each annotation tool exports."""

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdl.files.file_paths import UnreadableError
from smdl.files.output import unmarked
from smdl.labelling.annotation_formats import Said
from smdl.labelling.round_files import FORMATS, read_answers, round_bytes, suffix_of_format

LINES = [{"row": 7, "id": "00123", "text": 'She said "no", then\nleft; über'}, {"row": 3, "id": "b", "text": "=1+1"}]


def pairs(path):
    return [(int(said.row), said.value) for said in read_answers(path)[0]]


def filled(content, separator=",", encoding="utf-8-sig"):
    """What a spreadsheet saves after a person has typed two labels into it."""
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    for row, label in zip(rows, ("yes", "no"), strict=True):
        row["label"] = label
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(reversed(rows))
    return text.getvalue().encode(encoding, errors="replace")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1))
def test_texts_come_back_to_the_letter_and_none_is_a_formula(text):
    line = {"row": 1, "text": text, "label": "a"}
    content = round_bytes("csv", [line], {1: "a"}).decode("utf-8-sig")
    (_, cells), names = list(csv.reader(io.StringIO(content, newline=""))), ["row", "text", "label"]
    assert not re.match(r"[=+\-@\t\r]", cells[1]) or re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", cells[1])
    assert [unmarked(cell) for cell in cells] == ["1", text, "a"] == [str(line[name]) for name in names]


@pytest.mark.parametrize(
    ("separator", "encoding"), [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-16"), (";", "cp1252")]
)
def test_answers_are_read_from_what_spreadsheets_save(tmp_path, separator, encoding):
    path = tmp_path / "round-1.csv"
    path.write_bytes(filled(round_bytes("csv", LINES, {}), separator, encoding))
    said, notes, _ = read_answers(path)
    assert [(each.row, each.value, each.beside["text"]) for each in said] == [
        ("3", "no", "=1+1"),
        ("7", "yes", LINES[0]["text"]),
    ]
    assert len(notes) == (encoding in ("utf-16", "cp1252"))


def test_a_mark_of_the_encoding_that_was_saved_twice_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "round-1.csv"
    path.write_bytes("\ufeffrow,label\n7,yes\n".encode("utf-8-sig"))
    assert pairs(path) == [(7, "yes")]


def test_empty_labels_are_no_answers_and_question_marks_are_none(tmp_path):
    path = tmp_path / "round-1.csv"
    path.write_text("row,label\n1,\n2,  \n3,?\n4,Cannot say\n\n5,a\n")
    assert pairs(path) == [(3, None), (4, None), (5, "a")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,label\n1,a,b\n", "line 2 has 3 cells"),
        ("row,answer\n1,a\n", "one column label, got the columns row, answer"),
        ("row,label,label\n1,a,b\n", "one column label"),
        ("", "no lines"),
        ("\x00\x01\x02PK" + 500 * "x", "got the columns ���PKx{195}…$"),
    ],
)
def test_a_damaged_table_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "round-1.csv"
    path.write_text(text)
    with pytest.raises(UnreadableError, match=message):
        read_answers(path)
    assert path.read_text() == text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_writes_the_rows_and_no_answers(tmp_path, name):
    path = tmp_path / f"round-1{suffix_of_format(name)}"
    path.write_bytes(round_bytes(name, LINES, {}))
    assert pairs(path) == []
    assert b"00123" in path.read_bytes() or name in ("prodigy", "doccano")


def test_tables_keep_answers_that_are_known(tmp_path):
    for name in ("csv", "parquet"):
        path = tmp_path / f"round-1.{name}"
        path.write_bytes(round_bytes(name, LINES, {3: "no"}))
        assert pairs(path) == [(3, "no")]


def written(name):
    text = round_bytes(name, LINES, {}).decode()
    return json.loads(text) if name in ("label-studio", "argilla") else [json.loads(line) for line in text.splitlines()]


def test_label_studio_comes_back(tmp_path):
    """The export of a project with Choices: https://labelstud.io/guide/task_format"""
    first, second = written("label-studio")
    choices = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": ["yes"]}}
    first |= {
        "id": 1,
        "annotations": [{"completed_by": {"email": "ann@x"}, "result": [choices], "was_cancelled": False}],
    }
    second |= {"id": 2, "annotations": [{"completed_by": 4, "result": [], "was_cancelled": True}], "predictions": []}
    path = tmp_path / "export.json"
    path.write_text(json.dumps([first, second]))
    assert read_answers(path)[0] == [Said(1, 7, "yes", "ann@x"), Said(2, 3, None, "4")]


def test_argilla_comes_back(tmp_path):
    """What `dataset.records.to_json` writes."""
    first, second = written("argilla")
    first["responses"] = {"label": [{"value": "yes", "user_id": "u1"}, {"value": "no", "user_id": "u2"}]}
    second["responses"] = {"label": [{"value": None, "user_id": "u1", "status": "discarded"}]}
    path = tmp_path / "records.json"
    path.write_text(json.dumps([first, second]))
    found = read_answers(path)[0]
    assert found == [Said(1, 7, "yes", "u1"), Said(1, 7, "no", "u2"), Said(2, 3, None, "u1")]


def test_prodigy_comes_back(tmp_path):
    """What `prodigy db-out` writes: choices in `accept`, or one `label`; answers accept, reject, ignore."""
    first, second = written("prodigy")
    lines = [
        {
            **first,
            "options": [{"id": "yes", "text": "Yes"}],
            "accept": ["yes"],
            "answer": "accept",
            "_annotator_id": "a",
        },
        {**second, "answer": "ignore", "_session_id": "s"},
        {**second, "label": "no", "answer": "accept", "_session_id": "t"},
        {**second, "label": "no", "answer": "reject", "_session_id": "u"},
    ]
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_answers(path)[0]
    assert found == [Said(1, 7, "yes", "a"), Said(2, 3, None, "s"), Said(3, 3, "no", "t")]


def test_doccano_comes_back(tmp_path):
    """Its export has an id, the labels as a list, and what was beside the text."""
    first, second = written("doccano")
    lines = [{"id": 1, **first, "label": ["yes"], "Comments": []}, {"id": 2, **second, "label": []}]
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert pairs(path) == [(7, "yes")]


@pytest.mark.parametrize(
    "tool", [{"annotation_id": 5, "label": "yes"}, {"label": ["yes"]}, {"label": {"choices": ["yes"]}}]
)
def test_only_our_own_lines_have_the_paths_of_images(tmp_path, tool):
    """For Label Studio people write URLs in place of them."""
    path = tmp_path / "all.jsonl"
    line = {"row": 7, "image": "https://images/7.png", "text": "a"}
    path.write_text(json.dumps({**line, **tool}) + "\n" + json.dumps({**line, "label": "yes"}) + "\n")
    theirs, ours = read_answers(path).said
    assert dict(theirs.beside) == {"text": "a"}
    assert dict(ours.beside) == {"text": "a", "image": "https://images/7.png"}


def test_several_classes_of_one_row_are_refused(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text(json.dumps({"text": "a", "row": 1, "label": ["yes", "no"]}) + "\n")
    with pytest.raises(UnreadableError, match="entry 1 has 2 classes, yes, no"):
        read_answers(path)


def test_a_file_that_is_open_elsewhere_is_read_with_a_note(tmp_path):
    path = tmp_path / "round-1.csv"
    path.write_text("row,label\n1,a\n")
    (tmp_path / ".~lock.round-1.csv#").touch()
    said, notes, _ = read_answers(path)
    assert len(said) == 1
    assert "open in another program" in notes[0]
