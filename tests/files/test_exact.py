"""What a file holds is what the output holds: ids, groups and features to the letter, or an error. Nothing a person
wrote is lost."""

import csv
import json
import os
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smdl.cli.commands import main
from smdl.common.progress import Display
from smdl.common.storage import ChangedOutputError, ProtectedOutput
from smdl.files.choose import Chooser
from smdl.files.output import marked, unmarked
from smdl.files.request import SelectRequest
from smdl.files.rows import open_rows
from tests.conftest import examples


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_csv(name, columns):
    with open(name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Drawing takes ten times as long as choosing, and is tested elsewhere."""
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)


def select(arguments, code=0):
    assert main(["select", *arguments.split()]) == code


def numbers(count, seed=0):
    return np.random.default_rng(seed).normal(size=count).round(6).tolist()


@pytest.mark.parametrize(
    "ids",
    [
        ["00123", "1e5", "0x1F", " 7", "1.50", "true", "2020-01-01", "NA", str(2**60 + 1), ""],
        ["00123", "00124", "7"],
        [str(2**60 + i) for i in range(9)],
        ["1.50", "1.5", "1e0", "-0"],
        ["true", "True", "false"],
        ["2020-01-01", "2020-1-1"],
    ],
    ids=["mixed", "zeros", "large", "decimals", "booleans", "dates"],
)
def test_ids_of_a_csv_are_kept_to_the_letter(ids):
    rows = len(ids)
    write_csv("x.csv", {"id": ids, "a": numbers(rows), "b": numbers(rows, 1)})
    select(f"x.csv --ids id --features a,b --size {rows}")
    with open("chosen.csv", newline="") as file:
        assert sorted(row["id"] for row in csv.DictReader(file)) == sorted(ids)


@pytest.mark.parametrize(
    "values",
    [
        [2**60 + i for i in range(60)],
        [None, *(2**60 + i for i in range(59))],
        [2**63 + i for i in range(60)],
        [Decimal(i) / 8 for i in range(60)],
        [date.fromordinal(730000 + i) for i in range(60)],
        [i % 2 == 0 for i in range(60)],
        [None if i == 3 else i % 2 == 0 for i in range(60)],
        [f"{i}\0" for i in range(60)],
    ],
    ids=["large", "nullable", "unsigned", "decimal", "date", "boolean", "nullable boolean", "nul"],
)
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_ids_of_a_parquet_file_are_kept(values, encoded):
    kind = pa.uint64() if values[0] == 2**63 else None
    column = pa.array(values, kind)
    pq.write_table(pa.table({"id": column.dictionary_encode() if encoded else column, "a": numbers(60)}), "x.parquet")
    select("x.parquet --ids id --features a --size 60 --out chosen.parquet")
    found = pq.read_table("chosen.parquet").to_pydict()
    assert [values[index] for index in found["index"]] == found["id"]


def test_large_groups_stay_apart():
    groups = [2**60 + i % 3 for i in range(60)]
    write_csv("x.csv", {"g": groups, "a": numbers(60)})
    select("x.csv --groups g --features a --per_group 1 --out one.csv")
    pq.write_table(pa.table({"g": pa.array([None, *groups[1:]]), "a": numbers(60)}), "x.parquet")
    select("x.parquet --groups g --features a --per_group 1 --out two.csv")
    with open("one.csv") as one, open("two.csv") as two:
        assert len(list(csv.DictReader(one))) == 3
        assert sorted(row["group"] for row in csv.DictReader(two)) == ["", *(str(2**60 + i) for i in range(3))]


@pytest.mark.parametrize("cell", ["n.a.", "1,5", "3\0", "-"])
def test_a_cell_of_text_in_a_column_of_numbers_is_an_error(cell, capsys):
    write_csv("x.csv", {"a": numbers(20), "b": [*numbers(19), cell]})
    select("x.csv --size 3", code=2)
    assert f"x.csv: the column b holds numbers, and {cell!r} in row 19. Repair it" in capsys.readouterr().err
    select("x.csv --size 3 --features b", code=2)
    assert "in row 19" in capsys.readouterr().err
    select("x.csv --size 3 --features a")


def test_the_first_line_names_the_features_and_what_is_left_out(capsys):
    write_csv("x.csv", {"": range(20), "a": numbers(20), "b": numbers(20), "note": ["", *["x"] * 19]})
    select("x.csv --size 3")
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "features: a, b; left out: the column without a name (an index without a name), note (text)"
    pq.write_table(pa.table({"a": numbers(20), "t": [{"x": 1}] * 20}), "x.parquet")
    select("x.parquet --size 3 --out other.csv")
    assert capsys.readouterr().out.splitlines()[0] == "features: a; left out: t (struct<x: int64>)"


@pytest.mark.parametrize("lines", ["0.5,0.25", "5,3", "a,0.5", "7,7"])
def test_a_csv_without_a_line_of_names_is_an_error(lines, capsys):
    Path("x.csv").write_text("\n".join([lines] * 5) + "\n")
    select("x.csv --size 2", code=2)
    assert "x.csv cannot be read: it" in capsys.readouterr().err


@pytest.mark.parametrize("names", [["0", "1", "2"], ["2019", "2020", "2021"], ["x", "1", "2"]])
def test_numbers_may_be_names(names):
    write_csv("x.csv", {name: numbers(5, seed) for seed, name in enumerate(names)})
    select("x.csv --size 2")


def test_two_columns_of_one_name_are_an_error(capsys):
    Path("x.csv").write_text("a,b,a\n1,2,3\n4,5,6\n")
    select("x.csv --size 1", code=2)
    assert "it has two columns of the name 'a'" in capsys.readouterr().err
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["a", "a"]), "x.parquet")
    select("x.parquet --size 1", code=2)
    assert "it has two columns of the name 'a'" in capsys.readouterr().err


def test_a_csv_is_no_file_of_python_for_pyarrow(monkeypatch):
    """Its threads would release such a file after Python has ended, and abort."""
    given, open_csv = [], pa_csv.open_csv
    monkeypatch.setattr(pa_csv, "open_csv", lambda file, *options: (given.append(file), open_csv(file, *options))[1])
    write_csv("x.csv", {"id": range(20), "a": numbers(20)})
    select("x.csv --ids id --features a --size 3")
    assert given
    assert {type(file) for file in given} == {pa.OSFile}


def test_shards_with_other_columns_of_numbers_are_an_error(capsys):
    write_csv("0.csv", {"a": numbers(5)})
    write_csv("1.csv", {"a": numbers(5), "b": numbers(5)})
    select("0.csv 1.csv --size 1", code=2)
    assert "0.csv and 1.csv differ in b. Name the features by --features" in capsys.readouterr().err


@pytest.mark.parametrize("size", [40, 200_000])
def test_an_input_of_the_same_size_and_time_with_other_content_is_chosen_from_again(size):
    values = np.random.default_rng(0).normal(size=(size, 8)).astype(np.float32)
    np.save("x.npy", values)
    stamp = os.stat("x.npy")
    select("x.npy --size 4 --quiet --objective redundancy")
    before = Path("chosen.csv").read_text()
    np.save("x.npy", values[::-1].copy())
    os.utime("x.npy", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    select("x.npy --size 4 --quiet --objective redundancy")
    assert Path("chosen.csv").read_text() != before


def test_a_changed_output_is_not_replaced(capsys):
    np.save("x.npy", np.random.default_rng(0).normal(size=(40, 3)))
    select("x.npy --size 4")
    written = Path("chosen.csv").read_text()
    select("x.npy --size 5")  # nothing was changed
    typed = Path("chosen.csv").read_text().replace("gain", "gain,label")
    Path("chosen.csv").write_text(typed)
    capsys.readouterr()
    select("x.npy --size 4", code=2)
    assert "chosen.csv was changed after smdl wrote it: choose another --out, or" in capsys.readouterr().err
    assert Path("chosen.csv").read_text() == typed
    select("x.npy --size 4 --force")
    assert "it is now chosen.before-1.csv" in capsys.readouterr().out
    assert Path("chosen.csv").read_text() == written
    assert Path("chosen.before-1.csv").read_text() == typed
    select("x.npy --size 4")


def test_a_protected_output_keeps_every_change_and_survives_a_kill(tmp_path, monkeypatch):
    output = ProtectedOutput(tmp_path / "round.csv", tmp_path / "work", force=True)
    for number in range(3):
        assert output.write(b"ours") == (tmp_path / f"round.before-{number}.csv" if number else None)
        output.path.write_text(f"theirs {number}")
    assert [path.read_text() for path in sorted(tmp_path.glob("round.before-*"))] == ["theirs 0", "theirs 1"]
    careful = ProtectedOutput(output.path, tmp_path / "work")
    with pytest.raises(ChangedOutputError):
        careful.write(b"ours")
    output.write(b"first")
    written: list = []
    monkeypatch.setattr("smdl.common.storage.write_bytes", lambda path, content: written.append((path, content)))
    careful.write(b"second")
    monkeypatch.undo()
    record, content = written[0]
    for left in (b"first", b"second"):  # killed before, and after, the output was replaced
        record.write_bytes(content)
        output.path.write_bytes(left)
        careful.check()


@given(st.text(st.sampled_from("'=+-@a1.\t\r"), max_size=5))
def test_a_mark_against_formulas_is_removed_exactly(text):
    assert unmarked(marked(text)) == text
    if marked(text).startswith(("=", "+", "-", "@")):
        float(text)


def test_spreadsheet_safe_marks_texts_and_no_ids():
    groups = ["=1+1", "-5", "@x", "plain"]
    write_csv("x.csv", {"id": ["=id"] * 4, "g": groups, "a": numbers(4)})
    select("x.csv --ids id --groups g --features a --size 4 --spreadsheet_safe --out safe.csv")
    select("x.csv --ids id --groups g --features a --size 4 --out plain.csv")
    with open("safe.csv") as safe, open("plain.csv") as plain:
        rows = list(csv.DictReader(safe))
        assert sorted(row["group"] for row in rows) == sorted(["'=1+1", "-5", "'@x", "plain"])
        assert {row["id"] for row in rows} == {"=id"}
        assert sorted(row["group"] for row in csv.DictReader(plain)) == sorted(groups)


def four(values):
    return st.lists(values, min_size=4, max_size=4)


WHOLE = st.integers(-(2**63), 2**63 - 1)
#: Four values of one column.
COLUMNS = st.one_of(
    four(WHOLE),
    four(st.none() | WHOLE),
    four(st.booleans() | st.none()),
    four(st.dates()),
    four(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-99, max_value=99)),
    four(st.text(st.characters(codec="utf-8"), max_size=6)),
    four(st.none() | st.text("ab\0 01", max_size=4)),
)
FEATURES = four(st.floats(-1e6, 1e6, width=32))
#: Files per writer.
WRITTEN = 30
#: A file per example, in one folder.
FUZZ = settings(examples(WRITTEN), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def chosen(source, out):
    """Choose all rows, without a report."""
    Chooser(SelectRequest((source,), Path(out), 4, features=("a",), ids="id", groups="g", force=True)).run(Display())


def check_parquet(ids, groups, features):
    """The output holds what x.parquet holds."""
    chosen("x.parquet", "chosen.parquet")
    found = pq.read_table("chosen.parquet").to_pydict()
    assert [ids[row] for row in found["index"]] == found["id"]
    assert [groups[row] for row in found["index"]] == found["group"]
    assert open_rows(["x.parquet"], ["a"]).whole()[:, 0].tolist() == features


def check_csv(features):
    """The output holds what x.csv holds. Return False if the file is refused."""
    with open("x.csv", newline="") as file:
        written = list(csv.DictReader(file))
    try:
        chosen("x.csv", "chosen.json")
    except ValueError:
        return False
    for row in json.loads(Path("chosen.json").read_text()):
        assert row["id"] == written[row["index"]]["id"]
        assert row["group"] == written[row["index"]]["g"]
    assert open_rows(["x.csv"], ["a"]).whole()[:, 0].tolist() == features
    return True


def written_by_pyarrow(ids, groups, features, encoded):
    columns = {"id": pa.array(ids), "g": pa.array(groups)}
    if encoded:
        columns = {  # pyarrow writes no dictionary of nothing
            name: column if pa.types.is_null(column.type) else column.dictionary_encode()
            for name, column in columns.items()
        }
    pq.write_table(pa.table({**columns, "a": features}), "x.parquet")
    check_parquet(ids, groups, features)
    return True


def written_by_csv(ids, groups, features):
    write_csv("x.csv", {"id": ids, "g": groups, "a": features})
    return check_csv(features)


#: What draws the files of each writer; `benchmarks/reliability.py` draws more.
WRITERS = {
    "pyarrow": (written_by_pyarrow, (COLUMNS, COLUMNS, FEATURES, st.booleans())),
    "the csv module": (written_by_csv, (COLUMNS, COLUMNS, FEATURES)),
}


@pytest.mark.parametrize(("writer", "columns"), WRITERS.values(), ids=WRITERS)
@FUZZ
@given(data=st.data())
def test_what_is_written_is_what_the_output_holds(writer, columns, data):
    writer(*(data.draw(column) for column in columns))
