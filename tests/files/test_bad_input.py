"""Bad input of smdl select is found before the long work starts: one line, exit code 2 (or 1), nothing written."""

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from smdl.cli.commands import main
from smdl.files.job import Job

pytestmark = pytest.mark.usefixtures("rows")


def refused(arguments, capsys, monkeypatch, code=2):
    """Return the message of a command that must neither choose nor write."""
    monkeypatch.setattr(Job, "run", lambda *_: pytest.fail("the long work has started"))
    before = {path: path.stat().st_mtime_ns for path in Path.cwd().rglob("*")}
    assert main(["select", *arguments.split()]) == code
    message = capsys.readouterr().err
    assert message.startswith("smdl: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message
    assert {path: path.stat().st_mtime_ns for path in Path.cwd().rglob("*")} == before
    return message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("shards", "give --size or --fraction"),
        ("shards --size 5 --fraction 0.1", "give --size or --fraction"),
        ("shards --size 5,,10", "expected a whole number ≥ 1, got ''"),
        ("shards --size 5,301", "size must be at most the 300 rows that may be chosen, got 301"),
        ("shards --size 0", "expected a whole number ≥ 1, got '0'"),
        ("shards --size 301", "size must be at most the 300 rows that may be chosen, got 301"),
        ("shards --size 201 --exclude first.npy", "size must be at most the 200 rows that may be chosen, got 201"),
        ("shards --fraction 1.5", "fraction must be a number in (0, 1], got 1.5"),
        ("shards --size 5 --partitions 0", "whole number ≥ 1"),
        ("shards --size 5 --seed -1", "seed must be a whole number ≥ 0"),
        ("shards --size 5 --engine rey", "unknown engine 'rey'; did you mean 'ray'?"),
        ("shards --size 5 --objective facility", "did you mean 'facility_location'?"),
        ("shards --size 5 --objective.redundncy 1", "did you mean 'redundancy'?"),
        ("shards --size 5 --objective paper", "needs probabilities"),
        ("shards --size 5 --objective class_balance --labels label", "unknown column of labels 'label'"),
        ("shards --size 5 --objective class_balance --labels fractions.npy", "labels must be whole class numbers"),
        ("shards --size 5 --labels ones.npy", "--labels: no term of the objective reads them"),
        ("shards --size 5 --objective class_balance", "the objective needs labels: name them by --labels COLUMN"),
        ("shards --size 9,5 --groups ones.npy --per_group 6", "size must be at most the 6 rows that --per_group allow"),
        ("shards --size 5 --groups first.npy", "first.npy must have as many rows as the input, 300, got 100"),
        ("shards --per_group 5", "--per_group needs --groups"),
        ("shards --size 5 --shares uniform", "--shares needs --groups"),
        ("shards --size 5 --at_least 2", "--at_least needs --shares"),
        ("shards --size 5,9 --shares uniform --groups ones.npy", "--shares needs one --size"),
        ("shards --per_group 5 --shares uniform --groups ones.npy", "--shares needs --size or --fraction"),
        ("shards --size 5 --shares equal --groups ones.npy", "--shares must be uniform, input, or a file with the col"),
        ("shards --size 5 --shares ones.npy --groups ones.npy", "ones.npy must have the columns group and share"),
        ("shards --size 5 --utility ones.npy", "weight: --objective.facility_location 1 --objective.utility 0.2"),
        ("shards --size 5 --utility nan.npy --objective utility", "got nan in row 0 of shards/0.npy, column nan.npy"),
        ("shards --size 5 --utility words.npy --objective utility", "got 'a' in row 0 of shards/0.npy, column words"),
        ("shards --size 5 --objective utility", "needs utility: name them by --utility COLUMN"),
        ("shards --size 5 --importance nan.npy", "not all of them 0, got nan in row 0 of shards/0.npy, column nan.npy"),
        ("shards --size 5 --importance zeros.npy", "--importance must be a column of finite numbers ≥ 0, not all"),
        ("shards --size 5 --importance first.npy", "first.npy must have as many rows as the input, 300, got 100"),
        ("shards --size 5 --importance ones.npy --objective redundancy", "--importance is about facility_location"),
        (
            "shards --size 5 --importance ones.npy --objective.facility_location 1 --objective.importance uncertainty",
            "--importance and --objective.importance are both given",
        ),
        ("shards --size 5 --away_from other/1.npy", "--away_from must have the width of the input, 4, got 3"),
        ("shards --size 5 --away_from other/2.npy --skip_nan", "--away_from: row 3 of other/2.npy has numbers that"),
        ("shards --size 5 --away_from shards/0.npy --objective redundancy", "away_from is about facility_location"),
        ("shards --budget 5", "--costs and --budget belong together"),
        ("shards --costs fractions.npy --size 5", "--costs and --budget belong together"),
        ("shards --costs fractions.npy --budget 5", "--costs must be finite numbers above 0"),
        ("shards --costs ones.npy --budget 0.5", "no row may be chosen"),
        ("shards --costs ones.npy --budget 5 --size 5", "leave out --size and --fraction"),
        ("shards --size 201 --initial first.npy", "size must be at most the 200 rows that may be chosen, got 201"),
        ("shards --size 5 --query other/1.npy", "--query must have the width of the input, 4, got 3"),
        ("shards --size 5 --query shards/0.npy --objective redundancy", "query is about facility_location"),
        ("nowhere --size 5", "nowhere cannot be read"),
        ("nowhere.npy --size 5", "nowhere.npy cannot be read: No such file"),
        ("empty --size 5", "the folder empty holds no file to read"),
        ("other --size 5", "shards must have one width, got 4 in other/0.npy and 3 in other/1.npy"),
        ("short.npy --size 5", "short.npy cannot be read: features of shape (300, 4) needs"),
        ("shards --size 5 --exclude beyond.npy", "must be rows in 0..299, got 300"),
        ("shards --size 5 --exclude fractions.npy", "must be row numbers, got float64"),
        ("shards --size 5 --out chosen.txt", "--out must be a file of the kind .parquet, .csv, .jsonl, .json, .npy"),
        ("shards --size 5 --out s3://bucket/chosen.csv", "--out must be a local file"),
        ("shards/0.npy --size 5 --out shards/0.npy", "must not be one of the input files"),
        ("shards/0.npy --size 5 --out shards/../shards/0.npy", "must not be one of the input files"),
        ("shards --size 5 --out first.npy", "first.npy exists, and smdl did not write it"),
        ("shards --size 5 --out first.npy/chosen.csv", "first.npy is a file, not a folder"),
        ("shards --size 5 --out shards/chosen.npy", "--out must not be in the input folder shards: the next"),
        ("shards --size 5 --out /proc/chosen.csv", "/proc/chosen.csv cannot be written"),
        ("shards --size 5 --out taken.csv", "taken.csv cannot be written: taken.select, the folder of"),
        ("dimensions --size 5", "shards must have one width, got 4 in dimensions/0.npy and 1 in dimensions/1.npy"),
        ("nothing.npy --size 5", "nothing.npy cannot be read: the file is empty"),
        ("shards/0.npy ./shards/0.npy --size 5", "shards/0.npy is given twice"),
        ("shards --size 1 --exclude all.npy", "no row may be chosen: see --exclude, --initial, --dedup, --skip_nan"),
        ("shards --size 5 --out folder.csv", "--out must be a file, got the folder folder.csv"),
        ("shards --size 5 --probabilities shards/0.npy", "--probabilities: no term of the objective reads them"),
        ("shards --size 5 --dedup 2", "--dedup must be a number in (0, 1], got 2.0"),
        ("shards --size 5 --out .", "--out must be a file, got '.'"),
        ("shards --size 5 --objective.redundancy nan", "redundancy must be"),
        ("shards --size 5 --objective.redundancy inf", "redundancy must be"),
        ("shards --per_group 1 --groups shards/0.npy", "groups must be one column with one value per row, got"),
        ("shards --size 5 --features features,features", "features must name each column once, got features, features"),
        ("shards --size 5 --threads 100000", "threads must be at most the"),
        ("shards --size 5 --partitions 100000000000", "partitions must be at most the 300 rows that may be chosen"),
        ("beyond.safetensors --size 5", "beyond.safetensors cannot be read: X of shape (300, 4) needs"),
        ("list.safetensors --size 5", "the header of safetensors must be a JSON object, got a list"),
        ("negative.safetensors --size 5", "X must have lengths ≥ 0, got shape (-300, 4)"),
        ("huge.npy --size 5", "huge.npy cannot be read: features of shape (4611686018427387904, 4) needs"),
        ("negative.npy --size 5", "features must have lengths ≥ 0, got shape (-3, 4)"),
        ("huge.npz --size 5", "huge.npz cannot be read: X of shape (4611686018427387904, 4) needs"),
    ],
)  # fmt: skip
def test_it_is_found_before_the_work_starts(arguments, message, rows, capsys, monkeypatch):
    for folder in ("empty", "other", "folder.csv", "dimensions"):
        Path(folder).mkdir()
    np.save("other/0.npy", rows)
    np.save("other/1.npy", rows[:, :3])
    np.save("other/2.npy", np.where(np.arange(300)[:, None] == 3, np.nan, rows))
    np.save("words.npy", np.array(["a"] * 300))
    np.save("dimensions/0.npy", rows)
    np.save("dimensions/1.npy", rows[:, 0])
    for name in ("nothing.npy", "taken.select"):
        Path(name).touch()
    np.save("all.npy", np.arange(300))
    np.save("first.npy", np.arange(100))
    np.save("beyond.npy", np.array([300]))
    np.save("fractions.npy", np.arange(300) / 2)
    np.save("ones.npy", np.ones(300))
    np.save("zeros.npy", np.zeros(300))
    np.save("nan.npy", np.full(300, np.nan))
    _hostile_files(rows)
    np.save("short.npy", rows)
    Path("short.npy").write_bytes(Path("short.npy").read_bytes()[:-100])
    assert message in refused(arguments, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("group,share\na,\nb,1\n", "share of shares.csv must be a number ≥ 0, got nan for the group 'a'"),
        ("group,share\na,-1\nb,1\n", "share of shares.csv must be a number ≥ 0, got -1.0 for the group 'a'"),
        ("group,share\na,inf\nb,1\n", "share of shares.csv must be a number ≥ 0, got inf for the group 'a'"),
        ("group,share,minimum\na,1,1.5\n", "minimum of shares.csv must be a whole number ≥ 0, got 1.5 for the group"),
        ("group,share,maximum\na,1,-2\n", "maximum of shares.csv must be a whole number ≥ 0, got -2.0 for the group"),
        ("group,share,maximum\na,1,x\n", "maximum of shares.csv must be numbers"),
        ("group,share\na,1\na,2\n", "shares.csv must name each group once"),
        ("group,share\nc,1\n", "shares names the group 'c', which no candidate has"),
    ],
)
def test_a_file_of_shares_is_checked_by_group(content, message, capsys, monkeypatch):
    np.save("groups.npy", np.array(["a", "b"] * 150))
    Path("shares.csv").write_text(content)
    assert message in refused("shards --size 5 --groups groups.npy --shares shares.csv", capsys, monkeypatch)


@pytest.mark.parametrize("names", [(1, "1"), (None, "None"), (True, "True")])
def test_groups_that_are_written_alike_are_refused(names, capsys, monkeypatch):
    Path("groups.jsonl").write_text("".join(json.dumps({"group": name}) + "\n" for name in names * 150))
    for limit in ("--per_group 2", "--shares uniform"):
        message = refused(f"shards --size 4 --groups groups.jsonl {limit}", capsys, monkeypatch)
        assert f"--groups holds {names[0]!r} and {names[1]!r}, which are written alike" in message


def _hostile_files(rows):
    """Files whose headers promise more than they hold, or less than nothing."""
    for name, shape, start in (("beyond", [300, 4], 10**9), ("negative", [-300, 4], 0)):
        size = 16 * 300
        entry = {"X": {"dtype": "F32", "shape": shape, "data_offsets": [start, start + size]}}
        header = json.dumps(entry).encode()
        Path(f"{name}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + rows.tobytes())
    Path("list.safetensors").write_bytes(struct.pack("<Q", 6) + b"[1, 2]" + rows.tobytes())
    for name, shape in (("huge", (2**62, 4)), ("negative", (-3, 4))):
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        Path(f"{name}.npy").write_bytes(file.getvalue() + rows.tobytes())
        with zipfile.ZipFile(f"{name}.npz", "w") as archive:
            archive.writestr("X.npy", file.getvalue() + rows.tobytes())


def test_rows_that_are_not_finite_are_counted_and_named(capsys, monkeypatch):
    broken = np.load("shards/2.npy")
    broken[3, 1] = np.nan
    np.save("shards/2.npy", broken)
    message = refused("shards --size 5", capsys, monkeypatch)
    assert "1 row has numbers that are not finite: shards/2.npy row 3. " in message
    assert "--skip_nan" in message
    broken[10:20] = np.inf
    np.save("shards/2.npy", broken)
    message = refused("shards --size 5", capsys, monkeypatch)
    assert "11 rows have numbers that are not finite: shards/2.npy row 3, shards/2.npy row 10" in message
    assert "row 13 and 6 more" in message
    message = refused("shards --size 290 --skip_nan", capsys, monkeypatch)
    assert "size must be at most the 289 rows that may be chosen, got 290" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(capsys, monkeypatch):
    Path("closed").mkdir(mode=0o500)
    assert "permission is denied" in refused("shards --size 5 --out closed/x.csv", capsys, monkeypatch, code=1)


def test_a_full_disk_is_one_line(capsys):
    from tests.faults import failing_disk, full

    with failing_disk(Path.cwd(), 3, full):
        assert main(["select", "shards", "--size", "5", "--partitions", "2", "--out", "chosen.csv", "--quiet"]) == 1
    message = capsys.readouterr().err
    assert "the disk is full. What was written before is intact" in message
    assert main(["select", "shards", "--size", "5", "--partitions", "2", "--out", "chosen.csv", "--quiet"]) == 0


def test_missing_pyarrow_is_named_with_the_command_that_installs_it(capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    message = refused("shards --size 5 --out chosen.parquet", capsys, monkeypatch)
    assert "pip install 'submodular-data-loader[select]'" in message


def test_missing_ray_is_named_with_the_command_that_installs_it(capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'submodular-data-loader[ray]'" in refused("shards --size 5 --engine ray", capsys, monkeypatch)


def test_another_process_in_the_same_folder_is_refused(capsys):
    from smdl.common.storage import locked

    Path("chosen.select").mkdir()
    with locked(Path("chosen.select")):
        assert main(["select", "shards", "--size", "5", "--quiet"]) == 2
    assert "another process is at work" in capsys.readouterr().err
