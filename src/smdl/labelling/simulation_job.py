"""`smdl label simulate`: methods × seeds × rounds on data whose labels are known, resumable, and what they saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.messages import one_of, whole_number
from smdl.common.progress import Display
from smdl.common.storage import append_line, write_json
from smdl.experiments.statistics import estimate, paired_difference
from smdl.files.kept_parts import records_of, work_folder
from smdl.labelling.input_rows import InputRows, LabelSettings
from smdl.labelling.simulation import METHODS, SimulatedCurve, draw, run_rounds, savings

#: What every method is compared with, and the methods that are run by default.
BASELINE, USUAL = "random", ("random", "labels", "facility_location", "margin")
#: Fewest rows per class that a simulation needs on average.
PER_CLASS = 4


class SimulationJob:
    """A simulation in a folder. Every finished run is a line of runs.jsonl, so that the same command resumes."""

    def __init__(
        self, path: Path, settings: LabelSettings, methods: Sequence[str] = USUAL, seeds: int = 5, rounds: int = 6
    ) -> None:
        if settings.labels is None:
            raise ValueError("smdl label simulate needs --labels: the column that holds the true classes")
        for name in methods:
            one_of("method", name, METHODS)
        self.methods = list(dict.fromkeys([BASELINE, *methods]))
        self.seeds, self.rounds = whole_number("seeds", seeds, least=2), whole_number("rounds", rounds, least=2)
        whole_number("size", settings.size)
        self.path, self.settings = path, settings
        self.input = InputRows(path, settings)

    def run(self, display: Display) -> dict[str, Any]:
        """Run what is missing. Return what simulation.json holds."""
        with work_folder(self.path):
            self.input.load(display)
            features, (names, targets) = self.input.features, self._targets()
            if len(features) < PER_CLASS * len(names):
                raise ValueError(f"{len(features)} rows of {len(names)} classes are too few for a simulation")
            key = [self.settings.size, self.settings.seed, len(features), len(names)]
            log = self.path / "runs.jsonl"
            known = [SimulatedCurve(**record) for record in records_of(log) if record.pop("key") == key]
            curves = {(each.method, each.seed): each for each in known}
            for number in range(self.seeds):
                seed = self.settings.seed + number
                data = draw(features, targets, seed)
                for place, method in enumerate(self.methods):
                    done = curves.get((method, seed))
                    if done is None or len(done.labels) < self.rounds:
                        curves[method, seed] = run_rounds(data, method, seed, self.settings.size, self.rounds)
                        append_line(log, {"key": key, **curves[method, seed]._asdict()})
                    done_now = number * len(self.methods) + place + 1
                    display.step("simulating, run", done_now, self.seeds * len(self.methods))
            wanted = [self.settings.seed + number for number in range(self.seeds)]
            found = summarise(
                {name: [_cut(curves[name, seed], self.rounds) for seed in wanted] for name in self.methods}
            )
            found |= {"title": f"{self.path.name}: what would chosen labels have saved?", "rows": len(features)}
            found |= {"classes": len(names), "size": self.settings.size, "seeds": self.seeds}
            write_json(self.path / "simulation.json", found, checksum=True)
            return found

    def _targets(self) -> tuple[np.ndarray, np.ndarray]:
        values = self.input.source.column("labels")[self.input.kept]
        missing = [row for row, value in enumerate(values.tolist()) if str(value).strip() in ("", "nan")]
        if missing:
            raise ValueError(
                f"--labels must be there for every row: {len(missing)} have none, the first is {missing[0]}"
            )
        names, numbers = np.unique(values, return_inverse=True)
        if len(names) < 2:
            raise ValueError("--labels must have at least two classes")
        return names, numbers


def summarise(curves: dict[str, list[SimulatedCurve]]) -> dict[str, Any]:
    """Return per method the mean curve, the area, the paired difference to the baseline, and the labels saved."""
    base = curves[BASELINE]
    labels = base[0].labels
    target = float(np.mean([each.accuracy[-1] for each in base]))
    rises = paired_difference([each.accuracy[-1] for each in base], [each.accuracy[0] for each in base])
    is_learnt = (rises.mean or 0.0) > (rises.half or 0.0)  # else any number of labels "reaches" the target
    rows = []
    for name, runs in curves.items():
        accuracy = np.array([each.accuracy for each in runs])  # (S, R)
        areas = {each: [float(np.mean(run.accuracy[1:])) for run in curves[each]] for each in (name, BASELINE)}
        gap = paired_difference(areas[name], areas[BASELINE])
        needed = savings(accuracy.mean(axis=0).tolist(), labels, target) if is_learnt else None
        rows.append(
            {
                "method": name,
                "accuracy": accuracy.mean(axis=0).tolist(),
                "half": [estimate(list(column)).half for column in accuracy.T],
                "area": float(np.mean(areas[name])),
                "difference": None if name == BASELINE else gap.mean,
                "difference_half": None if name == BASELINE else gap.half,
                "p": None if name == BASELINE else gap.p,
                "labels_needed": needed,
                "ratio": None if needed is None else labels[-1] / needed,
                "seconds": float(np.mean([each.seconds for each in runs])),
            }
        )
    return {"labels": labels, "target": target, "methods": rows, "answer": _answer(rows, labels[-1], target, is_learnt)}


def _answer(rows: list[dict[str, Any]], last: int, target: float, is_learnt: bool) -> str:
    ours = next((row for row in rows if row["method"] == "labels"), None)
    if ours is None or ours["difference_half"] is None:
        return ""
    gap, half = ours["difference"], ours["difference_half"]
    text = f"Chosen labels: {gap:+.1f} ± {half:.1f} points against as many random ones, mean of rounds 2 to the last."
    if ours["ratio"] is not None and gap - half > 0:
        needed = round(ours["labels_needed"])
        saved = f"{needed} of them reach the {target:.1f} % of {last} random ones"
        return f"It pays. {text} {saved}: random needs {ours['ratio']:.1f} × as many."
    if not is_learnt:
        start = f"More random labels did not raise the accuracy of {target:.1f} %"
        return f"{start}: the first ones are enough, or these features do not show the classes. {text}"
    verdict = "It does not pay." if gap + half < 0 else "Not decided by these seeds."
    return f"{verdict} {text}"


def _cut(curve: SimulatedCurve, rounds: int) -> SimulatedCurve:
    return curve._replace(**{name: getattr(curve, name)[:rounds] for name in ("labels", "accuracy", "seconds")})
