"""Choose rows of files: check everything, choose part by part, write the output and what the report shows."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from smdl import __version__
from smdl.common.local_engine import Engine
from smdl.common.messages import choice, one_of, whole_number
from smdl.common.progress import Display
from smdl.common.units import duration
from smdl.engine.geometry import EXACT
from smdl.engine.greedy.subset import candidates_for
from smdl.engine.limits import share_of
from smdl.engine.near_copies import threshold
from smdl.engine.objective import check_others
from smdl.engine.plan import LONG, picks_from_a_subset, with_sample
from smdl.engine.selection import idle_terms
from smdl.files.checks import check_finite, check_text_and_model, checked_output, guessed_features, read_rows
from smdl.files.dedup import search_copies
from smdl.files.earlier_outputs import input_record
from smdl.files.engines import ENGINES, running
from smdl.files.explanation import explain_files, seconds
from smdl.files.file_plan import FilePlan, make_plan
from smdl.files.job import NO_ROWS, ChosenPart, Job, class_numbers, objective_of
from smdl.files.kept_parts import KeptParts, key_of, work_folder
from smdl.files.output import Table, place_columns, shown_columns, write_output
from smdl.files.outside_rows import features_in
from smdl.files.quotas import quotas_of
from smdl.files.request import SelectRequest
from smdl.files.request_checks import check_columns_are_read, check_limits
from smdl.files.rows import ROLES, Rows, open_file, open_rows
from smdl.files.sampled_choice import choose_sampled
from smdl.files.snapshot import write_snapshot
from smdl.files.usable_rows import UsableRows, open_input

#: Raise it when the same request may give other rows, or parts are kept in another form, so that results of an older
#: version are not continued.
RULES = 5


class Chooser:
    """A request with its input opened and checked. Nothing long has happened yet, and nothing was written."""

    def __init__(self, request: SelectRequest) -> None:
        self.request = request
        whole_number("seed", request.seed, least=0)
        one_of("engine", request.engine, ENGINES)
        check_columns_are_read(request)
        if request.dedup is not None:
            threshold(request.dedup, "--dedup")
        check_text_and_model(request.text, request.model, request.features)
        rows = open_input(request, {role: getattr(request, role) for role in ROLES}, request.folder)
        self.input = UsableRows(rows, request, directions=request.dedup is not None)
        self.exclude, self.initial = self._rows("exclude"), self._rows("initial")
        check_limits(request, self.source)
        self.quotas: dict[str, int] | None = None
        self.quota_notes: list[str] = []
        self.plan = self._plan(NO_ROWS)
        paths = [request.out, *(request.out_of(size) for size in request.sizes[:-1])]
        self.outputs = [checked_output(request, self.source, path) for path in paths]
        self.classes = self._classes()
        self.input.use_model()
        self.query, self.away_from = self._others("query"), self._others("away_from")

    @property
    def source(self) -> Rows:
        return self.input.rows

    def notes(self) -> list[str]:
        """Say which columns of a table are the features, if no option names them."""
        return [] if self.request.text or self.request.features else guessed_features(self.source)

    def explain(self) -> list[str]:
        """Describe the input, the plan and its costs."""
        lines = explain_files(self._job(NO_ROWS))
        embedder = self.input.embedder
        if self.request.dedup is not None:
            lines.insert(1, f"near-copies: rows as similar as {self.request.dedup} are left out first")
        return [lines[0], *(embedder.explain() if embedder else ()), *self.notes(), *lines[1:]]

    def run(self, display: Display) -> int:
        """Choose, and write the output. The same request resumes after an interruption. Return how many were chosen."""
        request = self.request
        for line in self.notes():
            display.note(line)
        with running(request.threads, request.engine) as engine:
            self._embed(display)
            self.stamps = self.source.stamps()
            used = self.input.usable(display, engine)
            if request.dedup is not None:
                used = self._without_copies(used, engine, display)
            job = self._checked_job(np.setdiff1d(np.arange(len(self.source)), used, assume_unique=True))
            for line in self.quota_notes:
                display.note(line)
            with work_folder(request.folder):
                if (predicted := seconds(job)) > LONG:
                    display.note(f"this takes about {duration(predicted)} on one machine; --explain says why")
                work, started = KeptParts(request.folder, self._key(job)), time.perf_counter()
                if request.engine == "local":
                    job = replace(job, progress=display.step)
                part = self._choose(job, work, engine, display)
                weights = objective_of(request.objective).weights
                for line in idle_terms(weights, dict(zip(weights, part.shares.tolist(), strict=False)), len(part.rows)):
                    display.note(line)
                self.source.check_stamps(self.stamps)
                table = self._write(part, display)
                display.phase("measuring what was chosen")
                numbers = request.settings(), time.perf_counter() - started
                write_snapshot(request.folder, job, part, table, *numbers, request.sizes)
        return len(part.rows)

    def _write(self, part: ChosenPart, display: Display) -> Table:
        """Write the chosen rows, and the first of them for every smaller size. Return the columns."""
        table = {"rank": np.arange(1, len(part.rows) + 1), **place_columns(self.source, part.rows)}
        table |= {"gain": part.gains, **shown_columns(self.source, part.rows)}
        record = input_record(self.source, self.input.embedder)
        for output, size in zip(self.outputs, (None, *self.request.sizes[:-1]), strict=True):
            first = {name: values[:size] for name, values in table.items()}
            write_output(output, first, self.request, display, record)
        return table

    def _embed(self, display: Display) -> None:
        """Write the embeddings of all texts. What needs none of them is checked before."""
        if self.input.embedder is not None:
            self._checked_job(self.input.check_texts(display), self.input.embedder.features_at)
            with work_folder(self.request.folder):
                self.input.embed(display)

    def _without_copies(self, used: np.ndarray, engine: Engine, display: Display) -> np.ndarray:
        """Return the rows that are no near-copies of others. Rows of --initial and --exclude stay: the rest is compared
        with them first. Copies that an earlier smdl dedup left out stand for nothing."""
        display.phase("looking for near-copies")
        taken = np.intersect1d(used, np.union1d(self.exclude, self.initial))
        rest = np.setdiff1d(used, taken, assume_unique=True)
        if not len(rest):
            return used
        before = np.intersect1d(used, self.initial) if self._excludes_copies else taken
        against = self.source.features_at(before) if len(before) else None
        with work_folder(self.request.folder):
            limit, folder = float(self.request.dedup or 1), self.request.folder
            found = search_copies(self.source, rest, limit, folder, display, against=against, engine=engine)
        display.note(f"{len(rest) - len(found.kept):,} near-copies are left out")
        return np.union1d(taken, rest[found.kept])

    @property
    def _excludes_copies(self) -> bool:
        """Whether --exclude is an output of smdl dedup: the kept rows may be chosen."""
        return self.request.exclude is not None and "kept" in open_file(self.request.exclude).columns

    def _job(self, dropped: np.ndarray) -> Job:
        """Return the job without these rows."""
        self.initial = np.setdiff1d(self.initial, dropped)
        request, self.plan = self.request, self._plan(dropped)
        return Job(
            self.source, self.plan, request.objective, request.seed, dropped, self.exclude, self.initial,
            self.quotas, request.budget, self.query, self.away_from, self.classes, request.threads, request.shuffled,
        )  # fmt: skip

    def _checked_job(self, dropped: np.ndarray, features_at: Callable[[np.ndarray], np.ndarray] | None = None) -> Job:
        """Return the job, after a look at a few rows: what the objective cannot use is found now."""
        job = self._job(dropped)
        few = np.setdiff1d(np.arange(min(len(self.source), 32 + len(dropped))), dropped)[:32]
        objective_of(job.objective).on(job.pool(few, features_at(few) if features_at else None))
        return job

    def _choose(self, job: Job, work: KeptParts, engine: Engine, display: Display) -> ChosenPart:
        """Return the last merge, with the lowest recall of all selections."""
        if job.plan.candidates:
            part = work.read(0, 0) or choose_sampled(job, self.stamps, engine, display)
            work.write(0, 0, part)
            return part
        before: dict[int, ChosenPart] = {}
        recall = float("nan")
        for level, count in enumerate(job.plan.levels):
            found = {number: part for number in range(count) if (part := work.read(level, number))}
            what = "choosing, part" if level == 0 else f"merging, level {level}"
            display.phase(f"{what} 1 to {count}" if level == 0 else what)
            if found:
                display.note(f"{len(found)} of {count} results of level {level} are kept from an earlier start")
            tasks: dict[int, tuple] = {number: (level, number) for number in range(count) if number not in found}
            for number in tasks if level else ():
                merged = [before[n] for n in job.plan.sources(level, number)]
                best = int(np.argmax([part.gains.sum() for part in merged]))
                tasks[number] = (level, number, [part.rows for part in merged], best)
            for number, part in engine.run(Job.run, job, tasks):
                work.write(level, number, part)
                found[number] = part
                display.step(what, len(found), count)
            before = found
            recall = float(np.fmin.reduce([recall, *(part.recall for part in found.values())]))
        if not np.isnan(recall):
            display.note(f"recall of the graphs of neighbours, on random rows: at least {recall:.4f}")
        return before[0]._replace(recall=recall)

    def _others(self, name: str) -> np.ndarray | None:
        """Read rows outside of the input: those that the choice is to be about, or to keep away from."""
        path = getattr(self.request, name)
        if path is None:
            return None
        check_others(name, objective_of(self.request.objective))
        if self.input.embedder is not None:
            return self.input.embedder.query(path)
        found = open_rows([path], features_in(path, self.source, bool(self.request.features)))
        if found.width != self.source.width:
            raise ValueError(f"--{name} must have the width of the input, {self.source.width}, got {found.width}")
        check_finite(f"--{name}", found)
        return np.array(found.whole())

    def _rows(self, name: str) -> np.ndarray:
        path = getattr(self.request, name)
        return NO_ROWS if path is None else read_rows(f"--{name}", path, self.source)

    def _plan(self, dropped: np.ndarray) -> FilePlan:
        """Return the plan without these rows. With quotas or a budget, its size is the most that they allow."""
        request, mask = self.request, np.ones(len(self.source), bool)
        for gone in (dropped, self.exclude, self.initial):
            mask[gone] = False
        rows, size = int(mask.sum()), request.sizes[-1] if request.sizes else None
        if rows == 0:
            raise ValueError("no row may be chosen: see --exclude, --initial, --dedup, --skip_nan")
        if [size, request.fraction, request.per_group, request.budget].count(None) == 4:
            raise ValueError("give --size or --fraction: how many rows to choose")
        if size is not None and request.fraction is not None:
            raise ValueError("give --size or --fraction, not both")
        if request.fraction is not None:
            size = share_of(request.fraction, rows)
        if size is not None and size > rows:
            raise ValueError(choice("size", size, f"at most the {rows} rows that may be chosen"))
        most = rows
        self.quota_notes = []
        self.quotas = quotas_of(request, self.source, mask, size, self.quota_notes.append)
        if self.quotas is not None:
            most = sum(self.quotas.values())
            if len(request.sizes) > 1 and request.sizes[-1] > most:
                raise ValueError(choice("size", request.sizes[-1], f"at most the {most} rows that --per_group allows"))
        if request.budget is not None:
            total = np.cumsum(np.sort(self.source.column("costs")[mask].astype(np.float64)))
            most = min(most, int(np.searchsorted(total, request.budget * (1 + 1e-12), side="right")))
        if most == 0:
            raise ValueError("no row may be chosen: each costs more than --budget")
        if request.partitions is not None and request.partitions > rows:
            raise ValueError(choice("partitions", request.partitions, f"at most the {rows} rows that may be chosen"))
        size = most if size is None else min(size, most)
        objective, total = objective_of(request.objective), len(self.source)
        usable = total - len(dropped)
        if request.partitions is None and rows > EXACT and not self._is_limited and picks_from_a_subset(objective):
            represented = with_sample(objective, usable, size).sample or usable
            return FilePlan(total, size, (1,), candidates_for(size, rows), min(represented, usable))
        return make_plan(total, size, request.partitions)

    @property
    def _is_limited(self) -> bool:
        return self.quotas is not None or self.request.budget is not None

    def _classes(self) -> tuple[str, ...]:
        if "labels" not in self.source.columns:
            return ()
        labels = self.source.column("labels")
        classes = tuple(np.unique(labels).tolist()) if labels.dtype.kind == "U" else ()
        class_numbers(labels, classes)
        return classes

    def _key(self, job: Job) -> str:
        settings = [job.plan.levels, job.plan.size, job.objective, job.seed, job.dropped, job.exclude, job.initial]
        settings += [job.quotas, job.budget, job.query, job.away_from, job.shuffled]
        return key_of(__version__, RULES, self.source.fingerprint(), settings)
