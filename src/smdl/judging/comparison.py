"""smdl.compare and smdl.preview: methods compared with the user's own training function, and their costs before."""

import ast
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from smdl.common.messages import check_packages, choice, number, positive, true_or_false, whole_number
from smdl.loading.loader import DataLoader

if TYPE_CHECKING:
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
        from smdl.report.summaries import as_text, summary_table

        problems = [f"! {problem}" for problem in (*self.results.problems, *self.results.warnings)]
        table = as_text(summary_table(self.results))
        return "\n".join([table, self.answer, self.verdict, *problems, f"report: {self.page}"])


def compare(
    train: Callable[[Any, int], Any],
    dataset: Dataset | Callable[[], Dataset],
    methods: Sequence[str] = ("uniform", "balanced", "recommended"),
    *,
    seeds: int = 5,
    minutes: float | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 50,
    metric: str = "accuracy",
    higher_is_better: bool = True,
    margin: float | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> ComparisonReport:
    """Compare methods with your own training function, at equal time or at equal steps, and write a report.

    train             `train(make_loader, seed)` makes a model, trains it on the batches of `make_loader(model)` until
                      they end, and returns a dict of metrics. `make_loader(model).total_steps` is the length of the
                      run, for schedules. `make_loader(model, **options)` takes options of `smdl.DataLoader`
    dataset           the training set: map-style, or a function that returns it in each process
    methods           names from the table of methods, or package.module:name; NAME@0.7 has 0.7 of the time. The
                      baseline is uniform, or the first method
    seeds             runs per method
    minutes           time for everything; the runs are as long as it allows, and every method gets equal time
    epochs, steps     length of a run, if there are no minutes: every method gets equal steps
    metric            the one that is tested, and `higher_is_better`: False for a loss
    margin            a difference that is surely smaller is called equivalent; by default 0.5 % of the baseline's mean
    out               folder (default: runs/compare-NAME). The same call resumes it
    jobs              number of runs at a time, each in a process; by default one per core, or one with a GPU
    """
    check_packages("train")
    from smdl.common import progress
    from smdl.common.interrupts import Interrupted
    from smdl.experiments.experiment import run_plan
    from smdl.experiments.regimes import comparison
    from smdl.experiments.results import collect
    from smdl.judging.own_loop import OwnExperiment, OwnTraining, source_of
    from smdl.report.report import render

    work = OwnTraining(train, dataset, str(metric), whole_number("batch_size", batch_size))
    name = getattr(train, "__name__", type(train).__name__).strip("<>")
    plan = comparison(
        f"{name}: {', '.join(methods)}",
        {
            "train": source_of(_checked(train)),
            "samples": len(dataset) if hasattr(dataset, "__len__") else None,  # type: ignore[arg-type]
            "batch_size": work.batch_size,
            "epochs": epochs if epochs is None else whole_number("epochs", epochs),
            "steps": steps if steps is None else whole_number("steps", steps),
            "threads": None,
        },
        _names(methods),
        [],
        seeds=whole_number("seeds", seeds),
        protocols=["steps" if minutes is None else "time"],
        timed=minutes is not None,
        minutes=minutes if minutes is None else positive("minutes", minutes),
        metric=work.metric,
        higher_is_better=true_or_false("higher_is_better", higher_is_better),
        margin=margin if margin is None else number("margin", margin, "a number ≥ 0", low=0.0),
    )
    if sum(length is not None for length in (minutes, epochs, steps)) != 1:
        raise ValueError("give one of minutes= (equal time), epochs= or steps= (equal steps)")
    with closing(progress.display(quiet)) as display:
        alone = why_one_process(train, dataset)
        jobs = _cores() if jobs is None else whole_number("jobs", jobs)
        if alone and jobs > 1:
            display.note(f"the runs are trained one after the other, in this process: {alone}")
            jobs = 1
        kind = partial(OwnExperiment, work=work, in_processes=jobs > 1)
        target = Path("runs") / f"compare-{name}" if out is None else Path(out)
        try:
            folder = run_plan(plan, target, jobs=jobs, display=display, kind=kind).folder
        except Interrupted as stop:
            advice = "the same call again: finished runs are kept, the others start again"
            raise Interrupted(stop.number, advice) from None
        display.phase("drawing the report")
        return ComparisonReport(folder, render(folder), collect(folder))


def preview(
    loader: DataLoader, methods: Sequence[str] | None = None, *, seconds: float = 20.0, quiet: bool = False
) -> "Preview":
    """Measure what each method would cost on the data and the model of a loader, in about half a minute.

    A step is forward, the loss of the loader, backward and SGD, on a copy of the model. If your own step does more, the
    ratios are nearer to 1.

    methods   by default all that train no second model and do not score the whole dataset at a time
    seconds   time for loading and for the steps; a first round, in which kernels compile, is not counted. The steps get
              at least a quarter of it
    """
    check_packages("train")
    from smdl.common import progress
    from smdl.experiments.preview import preview_loader

    with closing(progress.display(quiet)) as display:
        return preview_loader(loader, methods, seconds, display)


def _checked(train: Any) -> Any:
    if not callable(train):
        raise TypeError(choice("train", train, "a function train(make_loader, seed) -> dict of metrics"))
    return train


def _names(methods: Any) -> list[str]:
    from smdl.experiments.regimes import method_and_share
    from smdl.loading.methods import as_method

    if isinstance(methods, str) or not all(isinstance(name, str) for name in methods):
        raise TypeError(choice("methods", methods, "a sequence of names"))
    for method in methods:
        as_method(method_and_share(method)[0])  # unknown names are errors
    return list(methods)


def _cores() -> int:
    import torch

    from smdl.common.environment import cores

    return 1 if torch.cuda.is_available() or torch.backends.mps.is_available() else cores()


class _Nowhere(io.RawIOBase):
    """A file that forgets what is written."""

    def write(self, data: Any, /) -> int:
        return len(data)


def why_one_process(train: Any, dataset: Any) -> str | None:
    """Say why the runs cannot be trained in other processes, which import the function; None if they can."""
    home, path = getattr(train, "__module__", None), getattr(train, "__qualname__", "")
    main, found = sys.modules["__main__"], sys.modules.get(home or "")
    for part in path.split("."):
        found = getattr(found, part, None)
    file = getattr(main, "__file__", None)
    if found is not train or (home == "__main__" and (file is None or not Path(file).exists())):
        return "another process cannot import the training function. Define it at the top level of a module"
    line = _line_of_call(main)
    if line is not None and file is not None and not _guarded(Path(file), line):
        return f'the call in {Path(file).name} is not below `if __name__ == "__main__":`'
    try:
        pickle.Pickler(_Nowhere()).dump(dataset)  # type: ignore[arg-type]
    except Exception as error:
        return f"the dataset cannot be sent to another process ({error}). Pass a function that returns it"
    return None


def _line_of_call(main: Any) -> int | None:
    """Return the line of the main program that is being executed; None in a notebook or at a prompt."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is vars(main):
            return frame.f_lineno
        frame = frame.f_back
    return None


def _guarded(file: Path, line: int) -> bool:
    """Whether the statement at this line is below `if __name__ == ...`. Otherwise each process would start again."""
    try:
        body = ast.parse(file.read_text()).body
    except (OSError, SyntaxError, UnicodeDecodeError):  # not a Python file: a console script of Windows, say
        return True
    return any(
        isinstance(node, ast.If)
        and "__name__" in ast.unparse(node.test)
        and node.lineno <= line <= (node.end_lineno or 0)
        for node in body
    )
