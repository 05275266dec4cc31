"""What the report of a project shows, as files: labelling.json and map.npz."""

from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.storage import write_json
from smdl.files.images import ImageRows, thumbnail
from smdl.files.snapshot import floats_of, write_map
from smdl.labelling.annotation_formats import shown
from smdl.labelling.answers import alike
from smdl.labelling.forecast import CHECKS, wilson
from smdl.labelling.project import Progress, Project
from smdl.labelling.project_folder import CHOSEN

#: Random rows on the map; rows, disputed and suspicious answers that are listed; letters of a text.
SAMPLE, LISTED, EXCERPT = 2000, 100, 200
#: Accuracies that the page names the labels for, if they are above the present one.
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)
#: One more round is not worth it if it brings less than this much accuracy, by the forecast.
WORTH = 0.01


def write_summary(project: Project, progress: Progress) -> dict[str, Any]:
    """Write the files of the report. Return what labelling.json holds."""
    labels, settings, path = project.labels, project.settings, project.path
    accuracy, size = labels.accuracy, settings.size
    settled, answered = labels.answers, [each.row for each in project.folder.answers]
    last = next((each.rows for each in reversed(project.folder.rounds) if each.kind == CHOSEN), [])
    found = {
        "title": f"{path.name}: {len(settled):,} labels of {len(project.input.kept):,} rows",
        "rows": len(project.input.kept),
        "labelled": len(settled),
        "checks": sum(row in settled for row in labels.checks.tolist()),
        "cannot_say": sum(set(labels.said(row).values()) == {None} for row in set(project.inner(answered))),
        "accuracy": None if accuracy is None else accuracy._asdict(),
        "curve": _curve(project),
        "forecast": _forecast(project),
        "advice": advice(project),
        "classes": [[str(name), sum(value == name for value in settled.values())] for name in labels.classes],
        "alike": [list(names) for names in alike(labels.classes)],
        "disputed": [{**_row(project, row), "said": _said(project, row)} for row in labels.disputed()[:LISTED]],
        "suspects": [{**each._asdict(), **_row(project, each.row)} for each in labels.suspects()[:LISTED]],
        "rounds": [[name, total - left, total] for name, (left, total) in progress.open.items()],
        "asked": [_row(project, row) for row in project.inner(last[:LISTED])],
        "size": size,
        "settings": {name: _plain(value) for name, value in vars(settings).items() if value not in (None, (), False)},
        "notes": [*progress.notes, *progress.problems],
    }
    found["variance_on_map"] = _write_map(project, path / "map.npz")
    write_json(path / "labelling.json", found, checksum=True)
    return found


def advice(project: Project) -> str:
    """Say whether another round is worth it, from the check rows alone."""
    labels, size = project.labels, project.settings.size
    forecast = labels.forecast(size)
    if forecast is None and len(labels.checks) < CHECKS:
        return f"Without {CHECKS} check rows there is no forecast: run smdl label {project.path} --check 50."
    answered = sum(row in labels.answers for row in labels.checks.tolist())
    if forecast is None and answered < CHECKS:
        return f"A forecast needs {CHECKS} answered check rows: {answered} of {len(labels.checks)} have an answer."
    if forecast is None:
        trained = len(labels.answers) - answered
        return f"A forecast needs more labels of chosen rows than the present {trained}: fill in a round."
    gain = f"{size} more labels bring about {100 * forecast.gain:+.1f} points"
    interval = f"({100 * forecast.gain_low:+.1f} to {100 * forecast.gain_high:+.1f})"
    if forecast.gain < WORTH:
        return f"You may stop: {gain} {interval}, less than one point."
    return f"Another round pays: {gain} {interval}."


def _curve(project: Project) -> list[list[float]]:
    """Return labels, accuracy and its interval at each point of the learning curve."""
    curve = project.labels.curve()
    if curve is None:
        return []
    points = [wilson(int(right.sum()), len(right)) for right in curve.right]
    return [[int(size), each.value, each.low, each.high] for size, each in zip(curve.sizes, points, strict=True)]


def _forecast(project: Project) -> dict[str, Any] | None:
    curve = project.labels.curve()
    if curve is None:
        return None
    now, last = float(curve.right[-1].mean()), int(curve.sizes[-1])
    ahead = [curve.forecast(last + steps * project.settings.size) for steps in (1, 2, 4)]
    needed = {str(target): curve.needed(target) for target in TARGETS if target > now}
    return {"ahead": [each._asdict() for each in ahead], "needed": needed}


def _row(project: Project, row: int) -> dict[str, Any]:
    """Describe a row of the labels by its row in the input and the beginning of its text."""
    outer = int(project.input.kept[row])
    (line,) = project.input.lines([outer])
    found: dict[str, Any] = {"row": outer, "text": " ".join(shown(line).split())[:EXCERPT]}
    source = project.input.source
    if isinstance(source, ImageRows):
        (path,) = source.paths_at(np.array([outer]))
        found["thumbnail"] = thumbnail(path)
    return found


def _said(project: Project, row: int) -> dict[str, str]:
    said = project.labels.said(row)
    return {name or "(no name)": "cannot say" if value is None else str(value) for name, value in said.items()}


def _write_map(project: Project, path: Path) -> float:
    """Write the first two principal components of random, labelled and asked rows. Return their share of variance."""
    features, labels, rounds = project.input.features, project.labels, project.folder.rounds
    sample = np.random.default_rng(project.settings.seed).choice(len(features), min(len(features), SAMPLE), False)
    done = labels.answers
    asked = [row for each in rounds for row in project.inner(each.rows) if row not in done]
    groups, numbers = {"labelled": list(done), "asked": asked}, {name: i for i, name in enumerate(labels.classes)}
    return write_map(
        path,
        floats_of(features[np.sort(sample)]),
        {name: floats_of(features[np.array(rows, np.int64)]) for name, rows in groups.items()},
        classes=np.array([numbers[value] for value in done.values()], np.int64),
    )


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value
