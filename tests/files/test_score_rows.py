"""smdl score: the columns are those of smdl.score, and bad input writes nothing."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

import smdl
from smdl.cli.commands import main

pytestmark = pytest.mark.usefixtures("rows")


def test_the_output_has_the_scores_of_every_row(rows, capsys):
    assert main(["score", "shards", "--neighbours", "5", "--similarity", "0.9", "--out", "s.csv", "--quiet"]) == 0
    expected = smdl.score(rows, neighbours=5, similarity=0.9)
    with Path("s.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    for name in ("density", "distance", "copies", "rank", "gain"):
        np.testing.assert_allclose([float(line[name]) for line in lines], getattr(expected, name), atol=1e-6)
    assert [(lines[150]["shard"], lines[150]["row"])] == [("shards/1.npy", "50")]
    page = Path("s.score/report.html").read_text()
    assert f"{expected.distance.max():.3f}" in page
    assert "300 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("shards --similarity 1.5", "similarity"),
        ("shards --neighbours 0", "whole number ≥ 1"),
        ("shards --out s.npy", "--out must be a table"),
        ("zeros.npy", "1 row has numbers that, as float32, are not finite or zeros alone: zeros.npy row 3"),
        ("one.npy", "at least two rows"),
        ("column.npy", "they need at least two numbers, got one column: features"),
        ("shards --text body", "--text needs --model"),
    ],
)
def test_bad_input_is_named(arguments, message, rows, capsys):
    bad = rows.copy()
    bad[3] = 0
    np.save("zeros.npy", bad)
    np.save("one.npy", rows[:1])
    np.save("column.npy", rows[:, :1])
    assert main(["score", *arguments.split(), "--quiet"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("scores.csv").exists()


def test_a_file_that_changes_meanwhile_is_an_error(rows, monkeypatch, capsys):
    def changing(*given, **options):
        np.save("shards/0.npy", rows[:100] + 1)
        os.utime("shards/0.npy", ns=(1, 1))
        return smdl.score(*given, **options)

    monkeypatch.setattr("smdl.files.score_rows.score", changing)
    assert main(["score", "shards", "--quiet"]) == 2
    assert "shards/0.npy has changed since the command started" in capsys.readouterr().err
    assert not Path("scores.csv").exists()
