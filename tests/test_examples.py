"""The examples show what the README says they show."""

import json
import runpy
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(monkeypatch, capsys):

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_own_loop_compares_three_methods_at_equal_steps(run, tmp_path):
    printed = run("own_loop.py", "--steps", 12, "--seeds", 2, "--jobs", 1, "--out", tmp_path / "e")
    assert "At equal steps, against uniform over 2 seeds" in printed
    for method in ("uniform", "balanced", "recommended"):
        assert method in printed
    assert f"report: {tmp_path / 'e' / 'report.html'}" in printed
    assert (tmp_path / "e" / "report.html").exists()


def test_the_demo_shows_labels_first_and_then_training(run, tmp_path, monkeypatch):
    monkeypatch.setattr("smdl.cli.commands.main", lambda _: 0)  # the comparison has tests of its own
    with pytest.raises(SystemExit, match="0"):
        run("demo.py", "--out", tmp_path, "--draws", 3)
    found = json.loads((tmp_path / "labels.json").read_text())
    random, chosen = [row["accuracy"][1] for row in found["methods"]]
    assert found["labels"][1] == 20
    assert chosen > random + 10
    page = (tmp_path / "index.html").read_text()
    assert f"20 labels: {chosen:.0f} % chosen, {random:.0f} % at random" in page
    assert imread(tmp_path / "labels.png").std() > 0.05, "something is drawn"


def test_selection_prints_both_tables_and_writes_the_picture(run, tmp_path):
    picture = tmp_path / "new folder" / "selection.png"
    printed = run("selection.py", "--out", picture)
    for word in ("uncertainty", "redundancy", "mean_closeness", "feature_match", "facility_location", "F(S)"):
        assert word in printed
    assert imread(picture).std() > 0.05, "something is drawn"
    assert [path.name for path in picture.parent.iterdir()] == ["selection.png"], "nothing half written is left"


@pytest.mark.slow
def test_docstrings_writes_a_table_of_texts(run, tmp_path):
    assert "docstrings of" in run("docstrings.py", "--out", tmp_path / "docstrings.parquet")
    table = pq.read_table(tmp_path / "docstrings.parquet").to_pydict()
    assert list(table) == ["name", "module", "text"]
    place = table["name"].index("json.dumps")
    assert table["module"][place] == "json"
    assert table["text"][place].startswith("Serialize ``obj`` to a JSON formatted ``str``.")
