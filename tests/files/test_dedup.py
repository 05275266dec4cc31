"""smdl dedup: which row is a copy of which, another threshold without another search, leaks, new shards, bad input."""

import csv
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smdl
from smdl.cli.commands import main
from smdl.engine import near_copies
from smdl.report.dedup_page import render_dedup


@pytest.fixture(autouse=True)
def values(tmp_path, monkeypatch):
    """x.npy: 200 rows, of which 80 are near-copies of others."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    found = rng.normal(size=(200, 8)).astype(np.float32)
    found[120:] = found[:80] + 0.05 * rng.normal(size=(80, 8)).astype(np.float32)
    np.save("x.npy", found)
    return found


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch, request):
    if "page" not in request.node.name:
        monkeypatch.setattr("smdl.report.dedup_page.render_dedup", lambda folder: folder)


def dedup(arguments, code=0):
    assert main(["dedup", *arguments.split()]) == code


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_output_says_of_every_row_what_it_is_a_copy_of(values, capsys):
    dedup("x.npy --similarity 0.95 --out kept.csv")
    found, lines = smdl.deduplicate(values, 0.95), read("kept.csv")
    assert capsys.readouterr().out.splitlines()[-2] == f"{len(found.kept)} of 200 rows kept, " \
        f"{200 - len(found.kept)} near-copies: kept.csv"  # fmt: skip
    assert [line["kept"] == "True" for line in lines] == [row in found.kept for row in range(200)]
    for row, line in enumerate(lines):
        assert (line["shard"], line["row"], line["index"]) == ("x.npy", str(row), str(row))
        assert line["copy_of"] == ("" if row in found.kept else str(found.copy_of[row]))
        assert found.kept[int(line["group"])] == found.copy_of[row]
        assert line["similarity"] == "" or float(line["similarity"]) >= 0.95
    dedup("x.npy --out kept.npy")
    assert np.load("kept.npy").tolist() == found.kept.tolist()


def test_another_threshold_needs_no_other_search(monkeypatch, capsys, values):
    dedup("x.npy --similarity 0.95")
    expected = smdl.deduplicate(values, 0.99).kept.tolist()
    monkeypatch.setattr(near_copies, "similar_pairs", lambda *_: pytest.fail("another search"))
    dedup("x.npy --similarity 0.99")
    assert "the neighbours are kept from an earlier search" in capsys.readouterr().out
    kept = [line["kept"] == "True" for line in read("kept.csv")]
    assert np.flatnonzero(kept).tolist() == expected


def test_a_column_says_which_row_of_a_group_is_kept(values):
    score = np.arange(200) % 7
    pq.write_table(pa.table({"X": list(values), "score": score, "id": [f"{i:05}" for i in range(200)]}), "x.parquet")
    dedup("x.parquet --features X --keep_by score --ids id")
    lines = read("kept.csv")
    kept = np.flatnonzero([line["kept"] == "True" for line in lines])
    assert kept.tolist() == smdl.deduplicate(values, 0.95, keep_by=score).kept.tolist()
    assert lines[7]["id"] == "00007"


def test_leaks_are_rows_like_those_of_another_file(values, capsys):
    np.save("test.npy", values[:10] + np.float32(0.001))
    dedup("x.npy --against test.npy")
    assert ", 20 of them of --against: kept.csv" in capsys.readouterr().out
    lines = read("kept.csv")
    assert [lines[row]["copy_of_against"] for row in (0, 9, 120, 129)] == ["0", "9", "0", "9"]
    assert lines[0]["kept"] == "False"


def test_new_shards_are_compared_with_what_was_kept_before(values):
    np.save("old.npy", values[:120])
    np.save("new.npy", values[120:])
    dedup("old.npy --out old.parquet")
    dedup("new.npy --against old.parquet --out new.csv")
    kept = smdl.deduplicate(values[:120]).kept
    expected = smdl.deduplicate(values[120:], against=values[:120][kept])
    assert [line["kept"] == "True" for line in read("new.csv")] == np.isin(np.arange(80), expected.kept).tolist()


def test_rows_without_a_direction_are_named_or_left_out(values, capsys):
    values[3], values[5, 2] = 0.0, np.nan
    np.save("bad.npy", values)
    dedup("bad.npy", code=2)
    assert "2 rows have numbers that, as float32, are not finite or zeros alone: bad.npy row 3, bad.npy row 5" in (
        capsys.readouterr().err
    )
    assert not Path("kept.csv").exists()
    dedup("bad.npy --skip_nan")
    assert [int(line["index"]) for line in read("kept.csv")] == [row for row in range(200) if row not in (3, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("x.npy --similarity 0", "similarity must be a number in (0, 1], got 0.0"),
        ("x.npy --similarity 1.1", "similarity must be a number in (0, 1], got 1.1"),
        ("x.npy --similarity nan", "similarity must be a finite number, got 'nan'"),
        ("x.npy --keep last", "unknown keep 'last'"),
        ("x.npy --keep first --keep_by q.npy", "--keep first and --keep_by both say which row is kept"),
        ("x.npy --keep_by score", "unknown column of keep_by 'score'"),
        ("x.npy --against narrow.npy", "--against must have the width of the input, 8, got 3"),
        ("x.npy --against nan.npy", "--against: 1 rows of nan.npy have numbers that, as float32, are not finite"),
        ("x.npy --against nan.npy --skip_nan", "Repair or remove them: --skip_nan is for rows of the input"),
        ("x.npy --against x.npy", "--against must not be one of the input files, got x.npy"),
        ("flat.npy", "they need at least two numbers, got one column: features"),
        ("x.npy --out x.npy", "--out must not be one of the input files"),
        ("x.npy --out .", "--out must be a file"),
        ("x.npy --text body", "If you have embeddings, leave out --text and name their columns by --features"),
        ("x.npy --threads 100000", "threads must be at most the"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(arguments, message, capsys):
    np.save("narrow.npy", np.ones((2, 3)))
    np.save("nan.npy", np.full((1, 8), np.nan))
    np.save("flat.npy", np.arange(1.0, 9.0))
    before = sorted(Path().iterdir())
    dedup(arguments, code=2)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("kind", ["npy", "parquet", "jsonl"])
def test_files_of_all_kinds_give_the_same_errors_and_rows(kind, values, capsys):
    def write(name, rows):
        if kind == "npy":
            np.save(f"{name}.npy", rows)
        elif kind == "parquet":
            pq.write_table(pa.table({"embedding": list(rows), "text": ["a"] * len(rows)}), f"{name}.parquet")
        else:
            lines = [json.dumps({"embedding": row.tolist(), "text": "a"}) for row in rows]
            Path(f"{name}.jsonl").write_text("\n".join(lines))

    write("zeros", np.zeros((5, 8)))
    dedup(f"zeros.{kind} --skip_nan", code=2)
    assert "no row is left: all 5 rows have numbers that" in capsys.readouterr().err
    assert not Path("kept.csv").exists()
    write("one", values[:1])
    dedup(f"one.{kind} --out one.csv")
    assert [line["kept"] for line in read("one.csv")] == ["True"]
    write("same", np.repeat(values[:1], 20, axis=0))
    dedup(f"same.{kind} --out same.csv")
    assert [line["copy_of"] for line in read("same.csv")] == ["", *["0"] * 19]
    assert [line["similarity"] for line in read("same.csv")] == ["", *["1.0"] * 19]


def test_a_missing_number_in_a_list_is_a_row_without_a_direction(capsys):
    rows = ["[1, 2]", "null", "[1, null]"]
    Path("x.jsonl").write_text("".join(f'{{"embedding": {row}}}\n' for row in rows))
    pq.write_table(pa.table({"embedding": [json.loads(row) for row in rows]}), "x.parquet")
    for kind in ("jsonl", "parquet"):
        dedup(f"x.{kind}", code=2)
        error = capsys.readouterr().err
        assert "2 rows have numbers that, as float32, are not finite or zeros alone" in error
        assert f"x.{kind} row 1, x.{kind} row 2" in error
        dedup(f"x.{kind} --skip_nan --out {kind}.csv")
        assert [line["row"] for line in read(f"{kind}.csv")] == ["0"]


def test_columns_that_are_taken_as_features_without_a_name_are_named(capsys):
    """Whoever forgets --text sees that the texts are not read."""
    pq.write_table(pa.table({"text": ["a", "b"], "length": [1, 1], "likes": [0, 7]}), "x.parquet")
    dedup("x.parquet")
    assert "features: length, likes; left out: text (text)" in capsys.readouterr().out
    dedup("x.parquet --features length,likes --force")
    assert "features:" not in capsys.readouterr().out


def test_a_changed_output_is_kept(capsys):
    dedup("x.npy")
    Path("kept.csv").write_text("mine")
    dedup("x.npy", code=2)
    assert "kept.csv was changed after smdl wrote it" in capsys.readouterr().err
    dedup("x.npy --force")
    assert Path("kept.before-1.csv").read_text() == "mine"


def test_the_page_shows_pairs_on_both_sides_and_needs_nothing_else():
    dedup("x.npy --similarity 0.9988")
    page = html.unescape(re.sub(r"<[^>]+>", " ", (Path("kept.dedup") / "report.html").read_text()))
    found = json.loads(Path("kept.dedup/dedup.json").read_text())
    assert found["above"]
    assert found["below"]
    for pair in (*found["above"], *found["below"]):
        assert f"{pair['similarity']:.4f}" in page
    assert all(pair["similarity"] >= 0.9988 - 1e-5 for pair in found["above"])
    assert all(pair["similarity"] < 0.9988 + 1e-5 for pair in found["below"])
    assert found["curve"]["kept"] == sorted(found["curve"]["kept"])
    assert main(["report", "kept.dedup"]) == 0
    assert render_dedup(Path("kept.dedup")) == Path("kept.dedup/report.html")


def test_select_may_leave_out_near_copies_first(values, monkeypatch):
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    kept = smdl.deduplicate(values, 0.95).kept
    assert main(["select", "x.npy", "--size", "20", "--dedup", "0.95"]) == 0
    chosen = [int(line["index"]) for line in read("chosen.csv")]
    assert chosen == kept[smdl.select(values[kept], "facility_location", 20).indices].tolist()
    assert main(["select", "x.npy", "--size", "190", "--dedup", "0.95"]) == 2


@pytest.mark.parametrize("command", ["select x0.npy --size 10 --out", "label x0.npy --size 5 --out"])
def test_a_row_of_zeros_is_an_error_of_dedup_or_left_out(command, values, monkeypatch, capsys):
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    values[7] = 0
    np.save("x0.npy", values)
    assert main([*command.split(), "a.csv", "--dedup", "0.95"]) == 2
    message = "1 row has numbers that, as float32, are not finite or zeros alone: x0.npy row 7"
    assert message in capsys.readouterr().err
    assert main([*command.split(), "b.csv", "--dedup", "0.95", "--skip_nan"]) == 0


@pytest.mark.parametrize("option", ["--initial", "--exclude"])
def test_select_chooses_no_copies_of_taken_rows(option, values, monkeypatch):
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    taken = [123, 160, 110]
    np.save("taken.npy", np.array(taken))
    words = ["select", "x.npy", option, "taken.npy", "--dedup", "0.95", "--quiet"]
    others = smdl.deduplicate(np.delete(values, taken, axis=0), 0.95, against=values[taken])
    expected = np.delete(np.arange(200), taken)[others.kept]
    assert {3, 40}.isdisjoint(expected)
    assert main([*words, "--size", str(len(expected))]) == 0
    assert sorted(int(line["index"]) for line in read("chosen.csv")) == expected.tolist()
    assert main([*words, "--size", str(len(expected) + 1)]) == 2


def test_initial_rows_count_though_they_have_copies(values, monkeypatch):
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    np.save("first.npy", np.array([123, 124]))
    assert main(["select", "x.npy", "--initial", "first.npy", "--dedup", "0.95", "--size", "5", "--quiet"]) == 0
    rest = smdl.deduplicate(np.delete(values, [123, 124], axis=0), 0.95, against=values[[123, 124]])
    rows = np.union1d([123, 124], np.delete(np.arange(200), [123, 124])[rest.kept])
    first = np.searchsorted(rows, [123, 124])
    expected = rows[smdl.select(values[rows], "facility_location", 5, initial=first).indices]
    assert [int(line["index"]) for line in read("chosen.csv")] == expected.tolist()


def test_rows_whose_copies_are_excluded_by_dedup_may_be_chosen(values, monkeypatch):
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    dedup("x.npy --out kept.csv")
    kept = smdl.deduplicate(values).kept
    words = ["select", "x.npy", "--exclude", "kept.csv", "--dedup", "0.95", "--quiet"]
    assert main([*words, "--size", str(len(kept))]) == 0
    assert sorted(int(line["index"]) for line in read("chosen.csv")) == kept.tolist()


def test_numbers_to_keep_by_are_finite_in_the_rows_that_are_compared(values, capsys):
    score = np.arange(200.0)
    score[5] = np.nan
    values[5] = np.nan
    text = [str(number) if number != 7 else "n.a." for number in range(200)]
    pq.write_table(pa.table({"X": list(values), "score": score, "late": np.roll(score, 2), "text": text}), "x.parquet")
    dedup("x.parquet --keep_by score", code=2)
    rule = "--keep_by must be a column of finite numbers, got"
    assert f"{rule} nan in row 5 of x.parquet, column score" in capsys.readouterr().err
    dedup("x.parquet --keep_by score --skip_nan --features X")
    assert len(read("kept.csv")) == 199
    dedup("x.parquet --keep_by late --skip_nan --features X", code=2)
    assert f"{rule} nan in row 7 of x.parquet, column late" in capsys.readouterr().err
    dedup("x.parquet --keep_by text --skip_nan --features X", code=2)
    assert f"{rule} 'n.a.' in row 7 of x.parquet, column text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("select x.npy --size 5 --dedup 1.1", "--dedup must be a number in (0, 1], got 1.1"),
        ("label x.npy --dedup 0", "--dedup must be a number in (0, 1], got 0"),
        (
            "select x.npy --size 5 --exclude twice.npy",
            "--exclude: twice.npy must name each row once, got row 7 3 times",
        ),
    ],
)
def test_messages_name_the_option_and_the_value(arguments, message, capsys):
    np.save("twice.npy", np.array([3, 7, 4, 7, 7]))
    assert main([*arguments.split(), "--out", "o.csv", "--quiet"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--initial", "--exclude", "--query", "--away_from"])
def test_an_output_does_not_replace_a_file_that_is_read(option, values, monkeypatch, capsys):
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    assert main(["select", "x.npy", "--size", "5", "--out", "io.csv", "--quiet"]) == 0
    file = "io.csv" if option in ("--initial", "--exclude") else "io.npy"
    np.save("io.npy", values)
    before = Path(file).read_bytes()
    assert main(f"select x.npy --size 5 {option} {file} --out ./{file} --force --quiet".split()) == 2
    assert f"--out must not be one of the files of {option}, got {file}" in capsys.readouterr().err
    assert main(f"select x.npy --size 5 {option} {file[:-1]}? --out {file} --force --quiet".split()) == 2
    assert Path(file).read_bytes() == before


def test_select_excludes_the_copies_of_an_earlier_dedup(values, monkeypatch):
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    dedup("x.npy --out kept.parquet")
    assert main(["select", "x.npy", "--size", "30", "--exclude", "kept.parquet"]) == 0
    assert {int(line["index"]) for line in read("chosen.csv")} <= set(smdl.deduplicate(values).kept.tolist())


@pytest.mark.parametrize("kind", ["<f2", "<f4", "<f8"])
def test_a_table_in_a_file_is_that_in_memory(kind, values, monkeypatch):
    given = values.astype(kind)
    given[7] = np.nan
    for number, part in enumerate(np.split(given, [70])):
        pq.write_table(pa.table({"X": list(part)}), f"part-{number}.parquet", row_group_size=30)
    dedup("part-*.parquet --skip_nan --out memory.csv")
    monkeypatch.setattr("smdl.files.file_features.IN_MEMORY", 0)
    dedup("part-*.parquet --skip_nan --out file.csv")
    assert read("file.csv") == read("memory.csv")
    assert len(list(Path("file.dedup").iterdir())) == len(list(Path("memory.dedup").iterdir()))


LIMITED = """
import resource, sys
from smdl.cli.commands import main

main(["dedup", "small.parquet", "--out", "small.csv"])  # compile first: the compiler needs memory too
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used + (int(sys.argv[1]) << 20), resource.RLIM_INFINITY))
sys.exit(main(["dedup", "big.parquet", "--out", "big.csv"]))
"""


def run_limited(megabytes):
    # The pool of pyarrow's own reserves more than it uses, and all of it would count.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    command = [sys.executable, "-c", LIMITED, str(megabytes)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc and do not enforce RLIMIT_DATA")
def test_a_table_need_not_fit_the_memory():
    """The table has 384 MB, and the process may use 370 MB more than before, or 60."""
    rng, kind = np.random.default_rng(0), pa.list_(pa.float32(), 512)
    with pq.ParquetWriter("big.parquet", pa.schema([("X", kind)])) as file:
        for number in range(24):
            rows = rng.standard_normal((1 << 13, 512), np.float32)
            rows[-1] = 1.0  # each part has one copy of the others
            table = pa.table({"X": pa.FixedSizeListArray.from_arrays(rows.ravel(), 512)})
            file.write_table(table)
            if number == 0:
                pq.write_table(table.slice(0, 3000), "small.parquet")
    ended = run_limited(370)
    assert ended.returncode == 0, ended.stderr
    assert "196,585 of 196,608 rows kept" in ended.stdout
    assert not list(Path("big.dedup").glob("tmp*"))
    Path("big.csv").unlink()
    failed = run_limited(60)
    assert failed.returncode in (1, 2)
    assert "Traceback" not in failed.stderr
    assert "memory" in failed.stderr
