"""smdl.compare: the user's training function in the same harness, with the same files and the same tests."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import smdl
from smdl.common.interrupts import Interrupted
from smdl.experiments import experiment as experiment_module
from smdl.experiments.comparison_plan import read_plan
from smdl.experiments.experiment import BudgetError
from smdl.judging.run_loader import LoaderFactory
from smdl.loading.methods import METHODS as METHOD_TABLE
from smdl.report.rendering import render
from smdl.report.text_tables import markdown
from tests.judging import own_training
from tests.judging.own_training import dataset, train

METHODS = ("uniform", "balanced")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Draw no report: that takes longer than all else."""
    monkeypatch.setattr("smdl.report.rendering.render", lambda folder: folder / "report.html")


def compare(folder, function=train, **options):
    usual = {"methods": METHODS, "seeds": 3, "batch_size": 20, "out": folder, "jobs": 1, "quiet": True}
    length = {} if {"minutes", "epochs", "steps"} & set(options) else {"steps": 6}
    return smdl.compare(function, dataset(), **{**usual, **length, **options})


def test_every_run_gets_as_many_batches_as_planned_and_the_same_seeds(tmp_path):
    seen = []

    def counting(make_loader, seed):
        model = nn.Linear(4, 2)
        loader = make_loader(model)
        assert make_loader(model) is loader, "the same loader for the same model"
        assert len(loader) == loader.total_steps == 6
        assert loader.steps_per_epoch == 4
        seen.append((loader.method.name, seed, sum(1 for _ in loader)))
        assert not list(loader), "it is over"
        return {"accuracy": 0.5}

    compare(tmp_path / "e", counting)
    assert sorted(seen) == sorted((method, seed, 6) for method in METHODS for seed in range(3))


def test_the_report_has_the_tests_the_metrics_and_says_equal_steps(tmp_path):
    report = compare(tmp_path / "e")
    assert report.results.equal == {"steps": "steps"}
    (test,) = report.results.tests
    rows = {row.arm: row for row in report.results.rows}
    gap = rows["balanced"].metrics["accuracy"].mean - rows["uniform"].metrics["accuracy"].mean
    assert test.difference == pytest.approx(gap)
    assert test.margin == pytest.approx(0.005 * rows["uniform"].metrics["accuracy"].mean)
    assert "At equal steps" in report.verdict
    assert report.page == render(report.folder)
    page = report.page.read_text()
    for word in (
        "accuracy",
        "loss",
        "what it\nreturned at its end",
        "not timed",
        "At equal steps",
        "Equal steps: each",
    ):
        assert word in page
    assert "test accuracy, %" not in page
    assert (tmp_path / "e" / "results.csv").read_text().startswith("protocol,arm,seed,steps,accuracy,loss,process")
    assert max(map(len, str(report).splitlines()[:4])) <= 80


def test_every_other_metric_is_tested_too(tmp_path):
    def grouped(make_loader, seed):
        loader = make_loader(nn.Linear(4, 2))
        gain = (0.3 + 0.01 * (seed % 2)) * (loader.method.name == "balanced")
        return {"accuracy": 0.5 + 0.01 * sum(1 for _ in loader), "worst": 0.2 + 0.01 * seed + gain}

    (test,) = compare(tmp_path / "e", grouped).results.secondary
    assert (test.arm, test.measure, round(test.difference, 1)) == ("balanced", "worst", 0.3)
    assert test.p_holm < 0.05


def test_a_loss_is_better_where_it_is_lower(tmp_path):
    def biased(make_loader, seed):
        loader = make_loader(nn.Linear(4, 2))
        for _ in loader:
            pass
        return {"loss": 1.0 + 0.01 * seed - (0.5 + 0.01 * (seed % 2)) * (loader.method.name == "balanced")}

    (test,) = compare(tmp_path / "down", biased, metric="loss", higher_is_better=False).results.tests
    assert (test.verdict, round(test.difference, 1)) == ("better", -0.5)
    report = compare(tmp_path / "up", biased, metric="loss")
    assert report.results.tests[0].verdict == "worse"
    assert report.answer == "No: at equal steps, uniform is better."


def test_finished_runs_are_kept_and_an_interrupted_comparison_resumes(tmp_path):
    calls = tmp_path / "calls"

    def interrupted(make_loader, seed):
        with calls.open("a") as file:
            file.write(f"{seed}\n")
        if _lines(calls) == 3:
            raise KeyboardInterrupt
        for _ in make_loader(nn.Linear(4, 2)):
            pass
        return {"accuracy": 0.5 + 0.1 * seed}

    with pytest.raises(Interrupted, match="the same call again: finished runs are kept, the others start again"):
        compare(tmp_path / "e", interrupted)
    report = compare(tmp_path / "e", interrupted)
    assert report.folder == tmp_path / "e"
    assert _lines(calls) == 7, "two runs were finished, the third was interrupted, four were left"
    assert not report.results.problems
    compare(tmp_path / "e", interrupted)
    assert _lines(calls) == 7


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_another_function_gets_another_folder(tmp_path):
    compare(tmp_path / "e")
    assert compare(tmp_path / "e", lambda make_loader, _: _use(make_loader)).folder == tmp_path / "e-2"
    assert compare(tmp_path / "e", steps=7).folder == tmp_path / "e-3"


OWN = METHOD_TABLE["uniform"]


def test_a_name_that_means_another_method_by_now_gets_another_folder(tmp_path, monkeypatch):
    methods = ("uniform", f"{__name__}:OWN")
    compare(tmp_path / "e", methods=methods)
    assert compare(tmp_path / "e", methods=methods).folder == tmp_path / "e"
    monkeypatch.setattr(sys.modules[__name__], "OWN", METHOD_TABLE["balanced"])
    assert compare(tmp_path / "e", methods=methods).folder == tmp_path / "e-2"
    monkeypatch.setattr("smdl.judging.comparison.__version__", "0.0.9")
    assert compare(tmp_path / "e", methods=methods).folder == tmp_path / "e-3"


def rated(make_loader, seed, lr=0.1):
    return {**_use(make_loader), "accuracy": lr + 0.01 * seed}


def closed_over(lr):
    return lambda make_loader, seed: {**_use(make_loader), "accuracy": lr + 0.01 * seed}


class Rated:
    def __init__(self, lr):
        self.lr = lr

    def __call__(self, make_loader, seed):
        return {**_use(make_loader), "accuracy": self.lr + 0.01 * seed}

    def method(self, make_loader, seed):
        return self(make_loader, seed)


@pytest.mark.parametrize(
    "make",
    [lambda lr: partial(rated, lr=lr), closed_over, Rated, lambda lr: Rated(lr).method],
    ids=["partial", "closure", "object", "method"],
)
def test_the_same_code_with_another_value_is_another_function(tmp_path, make):
    first, second = (compare(tmp_path / "e", make(lr)) for lr in (0.1, 3.0))
    assert first.folder != second.folder
    means = [report.results.rows[0].metrics["accuracy"].mean for report in (first, second)]
    assert means == pytest.approx([0.11, 3.01])
    assert compare(tmp_path / "e", make(0.1)).folder == first.folder, "the first one's is still known"


def test_a_global_that_the_function_reads_is_a_part_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(own_training, "RATE", 0.1)
    first = compare(tmp_path / "e").folder
    monkeypatch.setattr(own_training, "RATE", 0.2)
    assert compare(tmp_path / "e").folder != first


def test_other_data_of_the_same_length_is_another_comparison(tmp_path):
    first = compare(tmp_path / "e").folder
    features, targets = dataset().tensors
    other = TensorDataset(features + 1, targets)
    options = {"seeds": 3, "steps": 6, "batch_size": 20, "out": tmp_path / "e", "jobs": 1, "quiet": True}
    assert smdl.compare(train, other, METHODS, **options).folder != first


def test_a_function_that_cannot_be_compared_shares_no_folder_and_that_is_said(tmp_path, capsys):
    with (tmp_path / "log").open("w") as log:

        def logging(make_loader, _):
            log.write("run")
            return _use(make_loader)

        folders = [compare(tmp_path / "e", logging, quiet=False).folder for _ in range(2)]
    assert folders == [tmp_path / "e", tmp_path / "e-2"]
    assert "the same call will not resume this comparison: in the training function, a _io" in capsys.readouterr().out


def test_a_function_may_change_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def moving(make_loader, _):
        os.chdir(tmp_path / "elsewhere")
        return _use(make_loader)

    report = compare("e", moving)
    assert not report.results.problems
    assert report.folder == tmp_path / "e"


def test_a_metric_without_a_mean_is_a_failed_run(tmp_path):
    def huge(make_loader, seed):
        return {**_use(make_loader), "accuracy": 1e308 if seed else 0.5, "loss": 1e308}

    report = compare(tmp_path / "e", huge, seeds=4)
    assert len(report.results.problems) == 6
    assert "accuracy is 1e+308: there is no mean or interval of such values" in report.results.problems[0]
    assert "too few seeds" in str(report)


def _use(make_loader):
    for _ in make_loader(nn.Linear(4, 2)):
        pass
    return {"accuracy": 0.5}


def test_a_metric_that_is_not_finite_is_a_failed_run(tmp_path):
    def diverging(make_loader, seed):
        return {**_use(make_loader), "accuracy": float("nan") if seed == 1 else 0.5 + 0.01 * seed}

    report = compare(tmp_path / "e", diverging)
    assert len(report.results.problems) == 2
    assert "seed 1" in report.results.problems[0]
    assert "accuracy is nan" in report.results.problems[0]
    assert report.results.tests[0].pairs == 2


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"f1": 0.4}, "must return the metric 'accuracy', got f1"),
        (0.4, "must return a dict of metrics such as"),
        ({"accuracy": "high"}, "must return numbers, got 'accuracy': 'high'"),
    ],
)
def test_what_is_no_metric_is_refused(tmp_path, returned, message):
    def wrong(make_loader, _):
        _use(make_loader)
        return returned

    with pytest.raises((TypeError, ValueError), match=message):
        compare(tmp_path / "e", wrong)


def test_a_method_takes_options_and_its_comparison_resumes(tmp_path):
    calls = tmp_path / "calls"

    def watched(make_loader, _):
        loader = make_loader(nn.Linear(4, 2))
        with calls.open("a") as file:
            file.write(f"{loader.method.name} {dict(loader.method.options)} {sum(1 for _ in loader)}\n")
        return {"accuracy": 0.5}

    methods = ("uniform", "recommended[check_labels=false]", "balanced")
    report = compare(tmp_path / "e", watched, methods=methods, seeds=1)
    assert calls.read_text().splitlines() == ["uniform {} 6", "recommended {'check_labels': False} 6", "balanced {} 6"]
    assert compare(tmp_path / "e", watched, methods=methods, seeds=1).folder == report.folder
    assert _lines(calls) == 3
    assert "for recommended[check_labels=false] (" in report.verdict
    assert "recommended[check_labels=false]" in render(report.folder).read_text()


def test_a_function_that_stops_early_is_refused(tmp_path):
    def early(make_loader, _):
        next(iter(make_loader(nn.Linear(4, 2))))
        return {"accuracy": 0.5}

    with pytest.raises(ValueError, match=r"used 1 of 6 batches .*: iterate over make_loader\(model\) until it ends"):
        compare(tmp_path / "e", early)


def test_a_function_that_ignores_the_weights_of_a_method_is_refused(tmp_path):
    def weighted(make_loader, seed):
        model = nn.Linear(4, 2)
        loader = make_loader(model)
        for inputs, targets in loader:
            losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
            smdl.weighted_mean(losses, loader.selection).backward()
        return {"accuracy": 0.5 + 0.01 * seed}

    methods = ("uniform", "infobatch")
    assert not compare(tmp_path / "e", weighted, methods=methods, steps=12).results.problems
    with pytest.raises(ValueError, match="method infobatch weights the losses and the training function ignores that"):
        compare(tmp_path / "f", methods=methods, steps=12)


def test_an_error_of_the_function_names_method_and_seed(tmp_path):
    def broken(*_):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError) as caught:
        compare(tmp_path / "e", broken)
    assert caught.value.__notes__ == ["method uniform, seed 0. Finished runs are kept"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 1, "steps": 5}, "give one of minutes="),
        ({"steps": 0}, "steps must be a whole number ≥ 1"),
        ({"methods": ("uniform",)}, "a comparison needs two methods or more"),
        ({"methods": ("uniform", "balancd")}, "unknown method 'balancd'; did you mean 'balanced'"),
        ({"methods": "uniform"}, "methods must be a sequence of names"),
        ({"methods": ("uniform", smdl.Method("mine", smdl.Strategy))}, '"package.module:name" of a smdl.Method, got'),
        ({"methods": ("uniform", "loss[pressur=4]")}, "unknown option of method loss 'pressur'; did you"),
        ({"minutes": 0}, "minutes must be a positive number"),
        ({"function": 3}, "train must be a function"),
        ({"margin": -1}, "margin must be a number ≥ 0"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        compare(tmp_path / "e", **options)
    assert not (tmp_path / "e").exists()


def test_make_loader_takes_options_of_the_loader_but_not_those_of_the_comparison():
    make_loader = LoaderFactory(dataset(), "observed", 20, 0, 6)
    with pytest.raises(ValueError, match=r"`batch_size` cannot be set in make_loader: smdl\.compare sets it"):
        make_loader(nn.Linear(4, 2), batch_size=3)
    loader = make_loader(nn.Linear(4, 2), drop_last=True, scoring_dataset=dataset())
    assert loader.drop_last
    assert loader.selection is None
    next(iter(loader))
    assert loader.counts.sum() == 20 == len(loader.selection)


def test_samples_are_scored_with_the_evaluation_transform_if_it_is_given():
    class Read(TensorDataset):
        rows = 0

        def __getitem__(self, row):
            Read.rows += 1
            return super().__getitem__(row)

    count = len(dataset())  # type: ignore[arg-type]
    scoring = Read(torch.randn(count, 4), torch.arange(count) % 2)
    next(iter(LoaderFactory(dataset(), "fresh", 20, 0, 6)(nn.Linear(4, 2), scoring_dataset=scoring)))
    assert Read.rows >= 60, "the pool of a step"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(experiment_module, "STARTING", 0.0)
    monkeypatch.setattr("smdl.experiments.calibration.ROUNDS", 2)


@pytest.mark.usefixtures("quick")
def test_minutes_give_every_method_the_same_time(tmp_path):
    turns = []

    def slow(make_loader, seed):
        loader = make_loader(nn.Linear(4, 2))
        for _ in loader:
            turns.append(loader.method.name)
            time.sleep(0.004 if loader.method.name == "balanced" else 0.001)
        return {"accuracy": 0.5 + 0.01 * seed}

    report = compare(tmp_path / "e", slow, minutes=0.03)
    plan, results = read_plan(report.folder), report.results
    timed = turns[: 2 * 3 * 10]
    assert timed == (["uniform"] * 10 + ["balanced"] * 10) * 3, "the methods take turns, in three rounds"
    assert results.equal == {"time": "time"}
    cost = results.calibration
    assert cost["balanced"]["seconds_per_step"] > cost["uniform"]["seconds_per_step"]
    steps = {run.arm: run.steps for run in plan.runs}
    assert steps["uniform"] == plan.base["steps"] > steps["balanced"]
    spent = {arm: steps[arm] * cost[arm]["seconds_per_step"] for arm in METHODS}
    assert spent["balanced"] == pytest.approx(spent["uniform"], rel=0.05)
    assert 6 * spent["uniform"] < 0.03 * 60
    assert set(cost["uniform"]["parts"]) == {"data", "scoring", "selection", "training"}


@pytest.mark.usefixtures("quick")
def test_minutes_that_buy_less_than_an_epoch_are_refused_with_what_is_enough(tmp_path):
    with pytest.raises(BudgetError, match=r"minutes=0.0001 is too short: .* one epoch has 4\. Use minutes="):
        compare(tmp_path / "e", minutes=0.0001)
    assert not (tmp_path / "e").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("steps", [0, 3])
def test_a_function_that_ignores_the_loader_is_refused_while_it_is_timed(tmp_path, steps):
    def early(make_loader, _):
        batches = iter(make_loader(nn.Linear(4, 2)))
        for _ in range(steps):
            next(batches)
        return {"accuracy": 0.5}

    with pytest.raises(ValueError, match=f"ended after {steps} batches while it was timed"):
        compare(tmp_path / "e", early, minutes=1)


@pytest.mark.usefixtures("quick")
def test_a_wrong_metric_is_found_before_any_run(tmp_path):
    with pytest.raises(ValueError, match="must return the metric 'f1', got accuracy, loss, process"):
        compare(tmp_path / "e", metric="f1", minutes=1)
    assert not (tmp_path / "e" / "runs").exists()


def test_what_other_processes_cannot_get_is_refused_where_jobs_ask_for_them(tmp_path):
    with pytest.raises(ValueError, match="jobs= needs a training function that another process can import"):
        compare(tmp_path / "e", lambda make_loader, _: _use(make_loader), jobs=2)
    unpicklable = TensorDataset(torch.zeros(3))
    vars(unpicklable)["function"] = lambda: 0
    with pytest.raises(ValueError, match="Pass a function that returns it"):
        smdl.compare(train, unpicklable, METHODS, steps=2, jobs=2, out=tmp_path / "e", quiet=True)
    assert not (tmp_path / "e").exists()


@pytest.mark.slow
def test_seeds_run_in_processes(tmp_path):
    report = compare(tmp_path / "e", jobs=2)
    processes = {json.loads((run / "metrics.jsonl").read_text())["metrics"]["process"] for run in _runs(report.folder)}
    assert os.getpid() not in processes
    alone = compare(tmp_path / "f")
    assert [row.metrics["loss"] for row in alone.results.rows] == [row.metrics["loss"] for row in report.results.rows]


def _runs(folder: Path) -> list[Path]:
    return sorted((folder / "runs").iterdir())


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_where_to_put_the_call(tmp_path):
    (tmp_path / "script.py").write_text(
        "import smdl\nfrom tests.judging.own_training import dataset, train\n"
        "smdl.compare(train, dataset, ('uniform', 'balanced'), steps=5, seeds=2, batch_size=20, jobs=2)\n"
    )
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, str(Path(smdl.__file__).parents[1])])
    ran = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert 'below `if __name__ == "__main__":`' in ran.stderr


@pytest.mark.usefixtures("quick")
def test_a_refit_happens_after_the_last_step_and_before_the_evaluation(tmp_path):
    heads = {}

    def watched(make_loader, seed):
        torch.manual_seed(seed)
        model: Any = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        loader, before = make_loader(model), None
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for inputs, targets in loader:
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            before = model[2].weight.detach().clone()
        heads[seed] = before, model[2].weight.detach().clone()
        return {"accuracy": float(model(torch.ones(1, 4))[0, 0].detach())}

    compare(tmp_path / "e", watched, methods=("uniform", "recommended+refit"))
    assert not any(torch.equal(*pair) for pair in heads.values()), "the second method came last"
    report = compare(tmp_path / "time", watched, methods=("uniform", "recommended+refit"), minutes=0.05)
    (row,) = (row for row in report.results.rows if row.arm == "recommended+refit")
    assert row.refit_seconds > 0


def _by_next(loader):
    batches = iter(loader)
    for _ in range(loader.total_steps):
        yield next(batches)


def _by_zip(loader):
    return (batch for _, batch in zip(range(loader.total_steps), loader, strict=False))


@pytest.mark.parametrize("batches_of", [_by_next, _by_zip, iter])
def test_a_function_that_measures_before_the_refit_is_refused(tmp_path, batches_of):
    def early(make_loader, _):
        model, found = nn.Linear(4, 2), 0.0
        loader = make_loader(model)
        for inputs, _ in batches_of(loader):
            if loader.step % loader.total_steps == 0:
                found = float(model(inputs).detach().mean())
        return {"accuracy": found}

    message = r"method uniform\+refit fits the last layer again after .*, and no module was called after that"
    with pytest.raises(ValueError, match=message):
        compare(tmp_path / "e", early, methods=("uniform", "uniform+refit"))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("end", "outputs", "message"),
    [
        (nn.Tanh(), 2, "no linear layer that makes its outputs"),
        (nn.Identity(), 5, "of the head's 5 classes, 3 have no"),
    ],
)
def test_a_refit_that_cannot_work_is_refused_before_the_training(tmp_path, end, outputs, message):
    used = []

    def wrong(make_loader, _):
        used.append(0)
        for _ in make_loader(nn.Sequential(nn.Linear(4, outputs), end)):
            used[-1] += 1
        return {"accuracy": 0.5}

    methods = ("uniform", "uniform+refit")
    with pytest.raises(ValueError, match=message) as caught:
        compare(tmp_path / "e", wrong, methods=methods)
    assert used == [6, 0]
    assert caught.value.__notes__ == ["method uniform+refit, seed 0. Finished runs are kept"]
    with pytest.raises(ValueError, match=message) as caught:
        compare(tmp_path / "time", wrong, methods=methods, minutes=0.05)
    assert caught.value.__notes__ == ["while method uniform+refit was timed, before any run"]


def test_groups_may_have_any_numbers(tmp_path):
    groups = torch.where(torch.arange(80) < 8, 10**13, 0)
    report = compare(tmp_path / "e", groups=groups)
    assert "oracle" in report.results.arms


def test_with_groups_the_report_says_how_much_there_is_to_gain(tmp_path):
    def graded(make_loader, seed):
        loader = make_loader(nn.Linear(4, 2))
        gain = {"uniform": 0.0, "balanced": 0.2, "oracle": 0.4}[loader.method.name]
        gain += 0.01 * (seed == 1) if gain else 0.0
        return {"accuracy": 0.01 * sum(1 for _ in loader) + gain, "rare_accuracy": 0.3 + gain}

    report = compare(tmp_path / "e", graded, groups=torch.arange(80) // 60)
    assert [gain.measure for gain in report.results.gains] == ["accuracy", "rare_accuracy"]
    text = "Perfect knowledge gains +0.403 ± 0.014 in accuracy, of which balanced 50 % ("
    page = render(report.folder).read_text()
    assert all(text in shown for shown in (str(report), page, markdown(report.results)))
    assert "drawn by what is hidden" in page


def test_groups_add_an_oracle_that_draws_them_equally_often(tmp_path):
    groups, drawn = (torch.arange(80) < 8).long(), {}

    def counted(make_loader, seed):
        model = nn.Linear(4, 2)
        loader = make_loader(model)
        found = [row for _ in loader for row in loader.selection.indices]
        drawn[loader.method.name, seed] = float(groups[found].float().mean())
        correct = torch.arange(20) != seed
        return {"accuracy": 0.5 + seed, **smdl.group_accuracies(correct, torch.arange(20) // 10, groups)}

    report = compare(tmp_path / "e", counted, groups=groups, steps=8)
    assert {name for name, _ in drawn} == {"uniform", "balanced", "oracle"}
    assert drawn["oracle", 0] == pytest.approx(0.5, abs=0.02)
    assert drawn["uniform", 0] == pytest.approx(0.1, abs=0.02)
    assert "oracle" not in report.answer + report.verdict
    (row,) = (row for row in report.results.rows if row.arm == "oracle")
    assert row.metrics["worst_accuracy"].mean == pytest.approx(0.9)
    assert row.metrics["rare_accuracy"].mean == 1
    with pytest.raises(ValueError, match="one number per sample of the dataset, 80, got 7"):
        compare(tmp_path / "f", counted, groups=groups[:7])
    with pytest.raises(ValueError, match="whole number"):
        compare(tmp_path / "f", counted, groups=groups.float())
    with pytest.raises(ValueError, match="one per test sample"):
        smdl.group_accuracies([True], [0, 1], [0, 1])
