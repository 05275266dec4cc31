"""Simulated rounds: what each method may see, and what the summary says."""

from pathlib import Path

import numpy as np
import pytest

from smdl.cli.commands import main
from smdl.common.progress import Display
from smdl.labelling.input_rows import LabelSettings
from smdl.labelling.simulation import METHODS, SimulatedCurve, draw, run_rounds, savings
from smdl.labelling.simulation_job import SimulationJob, summarise


def data(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(5, size=rows)
    return (3 * np.eye(5, 8)[targets] + rng.normal(size=(rows, 8))).astype(np.float32), targets


def test_a_draw_tests_on_other_rows_than_it_chooses_from():
    features, targets = data()
    features[:, 0] = np.arange(400)
    found = draw(features, targets, 0)
    assert not set(found.features[:, 0]) & set(found.test[:, 0])
    assert (targets[found.features[:, 0].astype(int)] == found.targets).all()
    assert (draw(features, targets, 1).test[:, 0] != found.test[:, 0]).any()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_labels_new_rows_in_every_round(method):
    seen = []

    def answer(rows):
        seen.extend(rows.tolist())
        return found.targets[rows]

    found = draw(*data(), 0)
    curve = run_rounds(found, method, 0, size=10, rounds=4, answer=answer)
    assert curve.labels == [10, 20, 30, 40]
    assert len(set(seen)) == 40
    assert curve.accuracy[-1] > 60


def test_the_pile_ends_before_the_rounds_do():
    assert run_rounds(draw(*data(60), 0), "labels", 0, size=20, rounds=9).labels == [20, 40]


def test_labels_needed_are_interpolated():
    assert savings([50.0, 70.0, 90.0], [10, 20, 30], 80.0) == 25
    assert savings([50.0, 70.0], [10, 20], 40.0) == 10
    assert savings([50.0, 70.0], [10, 20], 71.0) is None


def test_the_summary_compares_by_pairs_and_says_what_was_saved():
    counts, seeds = [10, 20, 30], range(4)
    random = [SimulatedCurve("random", seed, counts, [40 + seed, 50 + seed, 60 + seed], [0, 0, 0]) for seed in seeds]
    ours = [
        SimulatedCurve("labels", seed, counts, [50 + seed, 62 + seed, 70 + 1.1 * seed], [1, 1, 1]) for seed in seeds
    ]
    curves = {"random": random, "labels": ours}
    found = summarise(curves)
    by_chance, chosen = found["methods"]
    assert found["target"] == 61.5
    assert by_chance["ratio"] == 1.0
    assert chosen["area"] == pytest.approx(67.575)
    assert chosen["difference"] == pytest.approx(11.075)
    assert 10 < chosen["labels_needed"] < 20
    assert found["answer"].startswith("It pays. Chosen labels: +11.1 ± 0.1")


def test_labels_that_teach_nothing_save_nothing():
    noise = np.random.default_rng(0).normal(33, 1, size=(2, 4, 3)).tolist()
    found = summarise(
        {
            name: [SimulatedCurve(name, seed, [10, 20, 30], row, [0, 0, 0]) for seed, row in enumerate(rows)]
            for name, rows in zip(("random", "labels"), noise, strict=True)
        }
    )
    assert [(row["labels_needed"], row["ratio"]) for row in found["methods"]] == [(None, None)] * 2
    assert found["answer"].startswith("More random labels did not raise the accuracy of 3")


def test_a_simulation_resumes_and_gives_the_same_numbers(tmp_path):
    features, targets = data()
    np.savez(tmp_path / "rows.npz", features=features, kind=targets.astype(str))
    settings = LabelSettings((str(tmp_path / "rows.npz"),), features=("features",), labels="kind", size=10)
    job = SimulationJob(tmp_path / "one", settings, ("labels",), seeds=2, rounds=3)
    first = job.run(Display())
    log = tmp_path / "one" / "runs.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join(lines[:2]) + '\n{"cut')
    again = SimulationJob(tmp_path / "one", settings, ("labels",), seeds=2, rounds=3).run(Display())
    strip = [{key: value for key, value in row.items() if key != "seconds"} for row in first["methods"]]
    assert strip == [{key: value for key, value in row.items() if key != "seconds"} for row in again["methods"]]


def test_the_command_prints_whether_it_pays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    features, targets = data()
    np.savez("rows.npz", features=features, kind=targets.astype(str))
    command = "label simulate rows.npz --features features --labels kind --size 5 --seeds 3 --rounds 3 --quiet"
    assert main(command.split()) == 0
    out = capsys.readouterr().out
    assert "Chosen labels:" in out
    page = Path("rows.simulation/report.html").read_text()
    assert "Does it pay on this data?" in page
    assert main(["report", "rows.simulation"]) == 0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (["a"] * 400, "at least two classes"),
        (["a", ""] * 200, "200 have none"),
        ([str(i) for i in range(400)], "too few"),
    ],
)
def test_labels_that_cannot_be_simulated_are_refused(tmp_path, kind, message):
    np.savez(tmp_path / "rows.npz", features=data()[0], kind=np.array(kind))
    settings = LabelSettings((str(tmp_path / "rows.npz"),), features=("features",), labels="kind", size=10)
    with pytest.raises(ValueError, match=message):
        SimulationJob(tmp_path / "one", settings).run(Display())
