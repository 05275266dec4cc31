"""JSON lines as input and output: values as they are written, and what is wrong is named by its line."""

import json
from pathlib import Path

import numpy as np
import pytest

from smdl.cli.commands import main
from smdl.files.rows import open_file, open_rows
from smdl.files.texts import open_text

EVERY = np.arange(3)


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_missing_values_and_empty_lines(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        {"x": 1, "v": [1, 2.5], "t": "a"},
        "",
        {"x": None, "ok": True},
        {"x": 3, "t": "ü"},
    )
    file = open_file(path)
    assert file.rows == 3
    found = file.take(["x", "v", "t", "ok"], EVERY)
    np.testing.assert_array_equal(found["x"], [1, np.nan, 3])
    np.testing.assert_array_equal(found["v"], [[1, 2.5], [np.nan] * 2, [np.nan] * 2])
    assert found["t"].tolist() == ["a", "", "ü"]
    np.testing.assert_array_equal(found["ok"], [np.nan, 1, np.nan])
    assert file.exact("t", np.array([0, 1])).tolist() == ["a", None]


def test_ids_keep_their_type_and_their_digits(tmp_path):
    ids = ["00123", 2**60 + 1, None]
    path = write(tmp_path / "a.jsonl", *({"id": each, "x": [1.0, 2.0]} for each in ids))
    assert open_rows([path], roles={"ids": "id"}).column("ids").tolist() == ids


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"x": 1}', '{"x": 1'], "line 2 is no JSON"),
        (['{"x": 1}', "[1, 2]"], "line 2 must be an object"),
        (['{"x": 1, "x": 2}'], "line 1: it has the name 'x' twice"),
        (['{"v": [1, 2]}', '{"v": [1, 2, 3]}'], "column v holds numbers, and a list of 3 in row 1, not a list of 2"),
        (['{"v": [1], "q": 1}'] * 2 + ['{"v": "oops", "q": 1}'], "column v holds numbers, and 'oops' in row 2, not a"),
        (['{"v": [1], "q": 1}'] * 2 + ['{"v": [[2]], "q": 1}'], "column v holds numbers, and [[2]] in row 2, not a"),
        (['{"v": [1], "q": 1}'] * 2 + ['{"v": [], "q": 1}'], "column v holds numbers, and [] in row 2, not a"),
        (['{"q": 1, "r": 1}'] * 2 + ['{"q": [1], "r": 1}'], "the column q holds numbers, and a list of 1 in row 2"),
        (['{"x": 1}', '{"x": 2}', '{"x": "n.a."}'], "the column x holds numbers, and 'n.a.' in row 2"),
        (['{"t": "a"}'], "has no column of numbers"),
        (['{"v": {"a": 1}}'], "has no column of numbers"),
        ([""], "has no rows"),
    ],
)
def test_bad_lines_are_named(lines, message, tmp_path):
    path = write(tmp_path / "a.jsonl", *lines)
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        open_rows([path])


def test_rows_come_and_go_as_json_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(40, 8))
    values[30:] = values[:10]
    np.save("a.npy", values.astype(np.float64))
    write(tmp_path / "a.jsonl", *({"id": f"r{i}", "v": row} for i, row in enumerate(values.tolist())))
    for name in ("npy", "jsonl"):
        assert main(["select", f"a.{name}", "--size", "5", "--out", f"{name}.jsonl", "--quiet"]) == 0
    assert [line["index"] for line in read("jsonl.jsonl")] == [line["index"] for line in read("npy.jsonl")]
    assert main(["dedup", "a.jsonl", "--ids", "id", "--keep", "first", "--out", "kept.jsonl", "--quiet"]) == 0
    lines = read("kept.jsonl")
    assert [line["copy_of"] for line in lines[30:]] == list(range(10))
    assert lines[7]["id"] == "r7"
    assert main(["select", "a.jsonl", "--size", "5", "--exclude", "kept.jsonl", "--out", "third.jsonl", "--quiet"]) == 0
    assert all(line["index"] < 30 for line in read("third.jsonl"))


def test_lists_of_several_lengths_matter_only_where_they_are_read(tmp_path):
    lines = [{"x": [1.0, 2.0], "tokens": [1] * (1 + row % 2), "t": "a", "n": {"a": 1}} for row in range(4)]
    path = write(tmp_path / "a.jsonl", *lines)
    assert open_rows([path], ["x"]).width == 2
    assert len(open_text([path], "t", {}, "embeddings.npy")) == 4
    with pytest.raises(ValueError, match="the column tokens cannot be read as features: it holds a list of 2 in row 1"):
        open_rows([path], ["tokens"])
    with pytest.raises(ValueError, match="the column n cannot be read as ids: it holds object"):
        open_rows([path], ["x"], {"ids": "n"})
