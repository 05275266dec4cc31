"""smdl.compare and smdl.preview: methods compared with the user's own training function, and their costs before."""

import hashlib
import pickle
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from smdl import __version__
from smdl.common.messages import check_packages, choice, names_checked, number, positive, true_or_false, whole_number
from smdl.common.names import MethodName
from smdl.loading.loader import DataLoader

if TYPE_CHECKING:
    from smdl.common.progress import Display
    from smdl.experiments.preview import Preview


@dataclass(frozen=True)
class ComparisonReport:
    """What `smdl.compare` found. `str(report)` is the table and the answer; `results` has every number."""

    folder: Path
    page: Path  # report.html
    results: Any  # smdl.experiments.records.Results

    @property
    def answer(self) -> str:
        """Should I use it here?"""
        return self.results.answer

    @property
    def verdict(self) -> str:
        """What each test found."""
        return self.results.verdict

    def __str__(self) -> str:
        from smdl.experiments.oracle_gains import sentences
        from smdl.report.text_tables import as_text, summary_table

        problems = [f"! {problem}" for problem in (*self.results.problems, *self.results.warnings)]
        table = as_text(summary_table(self.results))
        return "\n".join(
            [table, *sentences(self.results.gains), self.answer, self.verdict, *problems, f"report: {self.page}"]
        )


@names_checked
def compare(
    train: Callable[[Any, int], Any],
    dataset: Dataset | Callable[[], Dataset],
    methods: Sequence[MethodName | str] = ("uniform", "balanced", "recommended"),
    *,
    seeds: int = 5,
    minutes: float | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 50,
    metric: str = "accuracy",
    higher_is_better: bool = True,
    margin: float | None = None,
    groups: Any = None,
    out: str | Path | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> ComparisonReport:
    """Compare methods with your own training function, at equal time or at equal steps, and write a report.

    Args:
        train: `train(make_loader, seed)` makes a model, trains it on the batches of `make_loader(model)` until they
            end, and returns a dict of metrics. `make_loader(model).total_steps` is the length of the run, for
            schedules. `make_loader(model, **options)` takes options of `smdl.DataLoader`
        dataset: the training set: map-style, or a function that returns it in each process
        methods: names from the table of methods, or package.module:name; NAME[option=value] has another option, and
            NAME@0.7 has 0.7 of the time. The baseline is uniform, or the first method
        seeds: runs per method
        minutes: time for everything; the runs are as long as it allows, and every method gets equal time
        epochs: length of a run, if there are no minutes: every method gets equal steps.
        steps: the same in steps.
        metric: the metric that is tested.
        margin: a difference that is surely smaller is called equivalent; by default 0.5 % of the baseline's mean
        groups: the group of each training sample, (N,), which labels may not show: adds a row `oracle` that draws every
            group equally often and says what knowing the groups would gain. For the accuracy of groups of your test
            set, return `smdl.group_accuracies(…)` among the metrics
        out: folder (default: runs/compare-NAME). The same call resumes it: the same code and data, with the same
            closures, bound arguments and globals
        jobs: number of runs at a time. More than one: each in a process, which imports the function; call compare below
            `if __name__ == "__main__":`
        batch_size: samples per batch.
        higher_is_better: False for a loss.
        quiet: show no progress.

    Returns:
        A report: `str(report)` is the table and the answer, `report.page` the HTML page, `report.results` every number.

    Raises:
        ValueError: none or several of minutes, epochs and steps; an unknown method.
        TypeError: a function or dataset of the wrong kind.

    Examples:
        >>> import tempfile, smdl, torch
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 2)
        >>> def train(make_loader, seed):
        ...     torch.manual_seed(seed)
        ...     model = torch.nn.Linear(4, 2)
        ...     for inputs, targets in make_loader(model):
        ...         torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        ...     return {"accuracy": float((model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean())}
        >>> with tempfile.TemporaryDirectory() as out:
        ...     report = smdl.compare(
        ...         train, data, ("uniform", "balanced"), seeds=2, steps=2, batch_size=10, out=out, quiet=True
        ...     )
        ...     report.page.name
        'report.html'
    """
    check_packages("train")
    from smdl.common import progress
    from smdl.common.interrupts import Interrupted
    from smdl.experiments.experiment import run_plan
    from smdl.experiments.regimes import comparison
    from smdl.experiments.results import collect
    from smdl.judging.group_accuracies import check_groups
    from smdl.judging.own_loop import OwnExperiment, OwnTraining
    from smdl.report.rendering import render

    if not callable(train):
        raise TypeError(choice("train", train, "a function train(make_loader, seed) -> dict of metrics"))
    if sum(length is not None for length in (minutes, epochs, steps)) != 1:
        raise ValueError("give one of minutes= (equal time), epochs= or steps= (equal steps)")
    work = OwnTraining(train, dataset, str(metric), whole_number("batch_size", batch_size))
    if groups is not None:
        work = replace(work, groups=check_groups("groups", groups, len(work.load())))  # type: ignore[arg-type]
    name, names = getattr(train, "__name__", type(train).__name__).strip("<>"), _names(methods)
    if whole_number("jobs", jobs) > 1:
        _check_processes(train, dataset)
    target = (Path("runs") / f"compare-{name}" if out is None else Path(out)).absolute()  # the function may call chdir
    plan = comparison(
        f"{name}: {', '.join(names)}",
        {
            "batch_size": work.batch_size,
            "epochs": epochs if epochs is None else whole_number("epochs", epochs),
            "steps": steps if steps is None else whole_number("steps", steps),
            "threads": None,
        },
        names,
        [],
        oracle=work.groups is not None,
        seeds=whole_number("seeds", seeds),
        protocols=["steps" if minutes is None else "time"],
        timed=minutes is not None,
        minutes=minutes if minutes is None else positive("minutes", minutes),
        metric=work.metric,
        higher_is_better=true_or_false("higher_is_better", higher_is_better),
        margin=margin if margin is None else number("margin", margin, "a number ≥ 0", low=0.0),
    )
    with closing(progress.display(quiet)) as display:
        plan.base |= {
            "train": f"{name} {_identity('the training function', train, display)}",
            "dataset": _identity("the dataset", dataset, display),
        }
        for arm, changes in plan.arms.items():  # the same name may mean another method later
            made = work.method(changes["method"], changes.get("options")).make()
            changes["made"] = f"smdl {__version__}, {_identity(f'method {arm}', made, display)}"
        if work.groups is not None:
            plan.base["groups"] = hashlib.sha256(work.groups.tobytes()).hexdigest()[:16]
        kind = partial(OwnExperiment, work=work, in_processes=jobs > 1)
        try:
            folder = run_plan(plan, target, jobs=jobs, display=display, kind=kind).folder
        except Interrupted as stop:
            advice = "the same call again: finished runs are kept, the others start again"
            raise Interrupted(stop.number, advice) from None
        display.phase("drawing the report")
        return ComparisonReport(folder, render(folder), collect(folder))


@names_checked
def preview(
    loader: DataLoader, methods: Sequence[MethodName | str] | None = None, *, seconds: float = 20.0, quiet: bool = False
) -> "Preview":
    """Measure what each method would cost on the data and the model of a loader, in about half a minute.

    A step is forward, the loss of the loader, backward and SGD, on a copy of the model. If your own step does more, the
    ratios are nearer to 1.

    Args:
        methods: by default all that train no second model and do not score the whole dataset at a time
        seconds: time for loading and for the steps; a first round, in which kernels compile, is not counted. The steps
            get at least a quarter of it
        loader: a `smdl.DataLoader`, whose data and model are measured; it is not changed.
        quiet: show no progress.

    Returns:
        A preview: `str(preview)` is a table of seconds per step and their ratio to plain SGD.

    Raises:
        ValueError: an unknown method, or seconds that are not above 0.

    Examples:
        >>> import smdl, torch
        >>> from torch.utils.data import TensorDataset
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> loader = smdl.DataLoader(TensorDataset(torch.randn(60, 4), torch.arange(60) % 2), model, batch_size=10)
        >>> "balanced" in str(smdl.preview(loader, ["uniform", "balanced"], seconds=4, quiet=True))
        True
    """
    check_packages("train")
    from smdl.common import progress
    from smdl.experiments.preview import preview_loader

    with closing(progress.display(quiet)) as display:
        return preview_loader(loader, methods, seconds, display)


def _names(methods: Any) -> list[str]:
    from smdl.experiments.regimes import method_and_share, method_options
    from smdl.loading.methods import as_method

    if isinstance(methods, str) or not all(isinstance(name, str) for name in methods):
        allowed = 'a sequence of names, such as "loss[pressure=4]", or "package.module:name" of a smdl.Method'
        raise TypeError(choice("methods", methods, allowed))
    for method in methods:
        changes = method_options(method_and_share(method)[0])
        as_method(changes["method"]).changed(options=changes.get("options")).make()  # what cannot be made is an error
    return list(methods)


def _identity(name: str, thing: Any, display: "Display") -> str:
    """Return what tells a function or a dataset from others. Where nothing does, no later call has the same."""
    from smdl.judging.identity import UnknownIdentityError, identity

    try:
        return identity(thing)
    except UnknownIdentityError as error:
        display.note(f"the same call will not resume this comparison: in {name}, {error}")
        return uuid.uuid4().hex


def _check_processes(train: Any, dataset: Any) -> None:
    """Refuse a function or data that cannot be sent to other processes, which import the function."""
    main = sys.modules["__main__"]
    if sys.modules.get("__mp_main__", main) is not main:  # a process that is to train runs imports the script first
        raise RuntimeError('call smdl.compare(…, jobs=…) below `if __name__ == "__main__":`')
    found = sys.modules.get(getattr(train, "__module__", None) or "")
    for part in getattr(train, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    if found is not train or not getattr(sys.modules[train.__module__], "__file__", None):
        raise ValueError(
            "jobs= needs a training function that another process can import: define it at the top level of a module,"
            " or leave out jobs="
        )
    try:
        pickle.dumps(dataset)
    except Exception as error:
        raise ValueError(
            f"jobs= sends the dataset to other processes, and that fails: {error}. Pass a function that returns it, or"
            " leave out jobs="
        ) from error
