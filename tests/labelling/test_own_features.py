"""Embeddings that there are already, and the texts that people see: --text with --features."""

import csv
from pathlib import Path

import numpy as np
import pytest

from smdl.cli.commands import main

pytestmark = pytest.mark.usefixtures("reviews")
COLUMNS = ("--features", "a,b,c", "--text", "body")
FILE = ("--features", "vectors.npy", "--text", "body")


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """A table of texts with three columns of features, the same features as a file, and a column of other numbers."""
    monkeypatch.chdir(tmp_path)
    features = (4 * np.eye(3)[np.arange(40) % 3] + np.random.default_rng(0).normal(size=(40, 3))).astype(np.float32)
    np.save("vectors.npy", features)
    with Path("reviews.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "a", "b", "c", "body", "stars", "kind"])
        for row, each in enumerate(features.tolist()):
            writer.writerow([f"{row:03}", *each, f"text <{row}>, 007", 1000 * row, f"kind {row % 3}"])


def label(*words):
    return main(["label", *words, "--quiet"])


def lines_of(name):
    with Path(name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def write(name, lines):
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows(lines)


def test_texts_are_shown_and_the_features_are_those_of_the_columns_or_of_the_file():
    assert label("reviews.csv", *COLUMNS, "--ids", "key", "--size", "5") == 0
    assert label("reviews.csv", *FILE, "--ids", "key", "--size", "5", "--out", "file") == 0
    assert label("reviews.csv", "--features", "a,b,c", "--size", "5", "--out", "plain") == 0
    head, *lines = lines_of("reviews.labels/round-1.csv")
    assert head == ["row", "id", "text", "label"]
    assert lines == [[row, f"{int(row):03}", f"text <{row}>, 007", ""] for row, *_ in lines]
    assert lines_of("file/round-1.csv") == [head, *lines]
    assert [line[0] for line in lines_of("plain/round-1.csv")] == ["row", *(line[0] for line in lines)]
    assert f"text &lt;{lines[0][0]}&gt;, 007" in Path("file/report.html").read_text()


@pytest.mark.parametrize("options", [COLUMNS, FILE])
def test_a_project_with_own_features_resumes_and_compares_the_texts(options, capsys):
    assert label("reviews.csv", *options, "--size", "5") == 0
    head, *lines = lines_of("reviews.labels/round-1.csv")
    texts = [text for _, text, _ in lines]
    lines = [[row, text, "kind 0"] for (row, *_), text in zip(lines, [texts[1], texts[0], *texts[2:]], strict=True)]
    with Path("reviews.labels/round-1.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *lines])
    assert label("reviews.labels") == 1
    assert f"line 2: the text is not that of row {lines[0][0]}, so its answer is not used" in capsys.readouterr().out
    assert len(lines_of("reviews.labels/labels.csv")) == 1 + 3


@pytest.mark.parametrize(("column", "name"), [(0, "ids"), (4, "text"), (6, "labels")])
@pytest.mark.parametrize("options", [COLUMNS, FILE])
def test_a_changed_table_beside_the_features_is_refused(options, column, name, capsys):
    lines = [[*line[:6], line[6] if row < 20 else ""] for row, line in enumerate(lines_of("reviews.csv"))]
    write("reviews.csv", lines)
    assert label("reviews.csv", *options, "--ids", "key", "--labels", "kind", "--size", "5") == 0
    assert label("reviews.labels") == 0
    lines[10][column], lines[11][column] = lines[11][column], lines[10][column]
    write("reviews.csv", lines)
    assert label("reviews.labels") == 2
    assert f"has changed (other {name})" in capsys.readouterr().err


def test_a_simulation_takes_features_of_a_file():
    options = ("--labels", "kind", "--size", "3", "--seeds", "2", "--rounds", "2", "--methods", "random")
    assert label("simulate", "reviews.csv", *FILE, *options) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--features", "short.npy", "--text", "body"),
            "short.npy must have one row per row of the input, got 7 for 40",
        ),
        (("--features", "none.npy"), "none.npy"),
        (("--features", "a,b,c", "--text", "bodies"), "unknown column of text 'bodies'; did you mean 'body'?"),
        (("--features", "a,body", "--text", "body"), "the features must be numbers, got body of text"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(options, message, capsys):
    np.save("short.npy", np.ones((7, 3)))
    assert label("reviews.csv", *options) == 2
    assert message in capsys.readouterr().err
    assert not Path("reviews.labels").exists()
