"""The figure of docs/dedup.md: near-copies among traffic signs that were filmed in tracks of 30 frames.

    python benchmarks/labelling_data.py gtsrb --data DIR --out FEATURES
    python benchmarks/dedup_figure.py --features FEATURES --data DIR --out docs/images/near-copies-signs.png

Groups: those whose numbers of rows are at fixed places among all groups, the largest first, and the first of the groups
of two tracks. Copies of a group: evenly spaced from the most to the least similar one. Pairs: those nearest to the
threshold, each frame and each track once. Nothing is picked by hand.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

import smdl
from curation import drawn, load
from smdl.report.figures import INKED, LIGHT, STYLE, tidy

SIMILARITY, LOWEST, POINTS = 0.9, 0.8, 41
#: Places of the groups that are shown, from the largest (0) to the smallest (1) of those with copies.
PLACES = (0.0, 0.02, 0.2, 0.5)
COPIES, PAIRS = 9, 6
OWN, OTHER = LIGHT.palette[0], LIGHT.palette[1]


class Signs:
    """Frames, the track of each, and what smdl.deduplicate finds among their features."""

    def __init__(self, features: Path, data: Path) -> None:
        with np.load(data / "gtsrb/gtsrb.npz") as found:
            rows = drawn(len(found["train_tracks"]))
            self.images, self.tracks = found["train_images"][rows], found["train_tracks"][rows]
        self.values = load(features, "gtsrb")["train"]
        self.search = smdl.deduplicate(self.values, LOWEST)
        self.found = self.search.at(SIMILARITY)

    def groups(self) -> list[np.ndarray]:
        """Return the rows of some groups: the kept row, then some of its copies, the most similar first."""
        copies = np.setdiff1d(np.arange(len(self.values)), self.found.kept)
        sizes = np.bincount(self.found.copy_of[copies], minlength=len(self.values))
        mixed = np.bincount(self.found.copy_of[copies], self.is_foreign(self.found)[copies], len(self.values))
        ordered = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        shown = [ordered[int(place * (len(ordered) - 1))] for place in PLACES]
        shown.append(next(row for row in ordered if mixed[row] and row not in shown))
        return [np.array([row, *self._some(copies[self.found.copy_of[copies] == row])]) for row in shown]

    def _some(self, copies: np.ndarray) -> np.ndarray:
        ordered = copies[np.argsort(-self.found.similarity[copies], kind="stable")]
        return ordered[np.unique(np.linspace(0, len(ordered) - 1, min(COPIES, len(ordered))).round().astype(int))]

    def is_foreign(self, found: smdl.Deduplication) -> np.ndarray:
        """Return which rows are copies of a row of another track."""
        return self.tracks[found.copy_of] != self.tracks

    def pairs(self) -> list[list[tuple[int, int]]]:
        """Return pairs just above the threshold and just below it."""
        return [self._different(pairs.tolist()) for pairs in self.found.pairs(200)]

    def _different(self, pairs: list[list[int]]) -> list[tuple[int, int]]:
        shown, seen = list[tuple[int, int]](), set[int]()
        for one, two in pairs:
            if not seen & {self.tracks[one], self.tracks[two]} and len(shown) < PAIRS:
                shown.append((one, two))
                seen |= {self.tracks[one], self.tracks[two]}
        return shown

    def similarity(self, one: int, two: int) -> float:
        unit = torch.nn.functional.normalize(torch.from_numpy(self.values[[one, two]]), dim=1)
        return float(unit[0] @ unit[1])

    def curves(self) -> Iterator[tuple[float, float, float]]:
        """Yield thresholds, the share of frames kept, and the share of tracks that lose no frame to another track."""
        count = len(np.unique(self.tracks))
        for threshold in np.linspace(LOWEST, 1.0, POINTS):
            found = self.search.at(float(threshold))
            lost = len(np.unique(self.tracks[self.is_foreign(found)]))
            yield float(threshold), len(found.kept) / len(found), 1 - lost / count


def draw(signs: Signs) -> Figure:
    figure = Figure(figsize=(9.6, 9.6))
    parts: Any = figure.subfigures(3, 1, height_ratios=(5.7, 2.4, 3.0))
    top, middle, bottom = parts
    draw_groups(top, signs)
    draw_pairs(middle, signs)
    draw_curves(bottom, signs)
    return figure


def draw_groups(figure: SubFigure, signs: Signs) -> None:
    groups = signs.groups()
    heading(figure, f"Groups at {SIMILARITY}: the frame that is kept, and copies of it")
    grid = figure.add_gridspec(len(groups), COPIES + 1, left=0.13, right=0.99, top=0.93, bottom=0.07, hspace=0.42)
    copies = np.bincount(signs.found.copy_of) - 1
    for line, rows in enumerate(groups):
        for place, row in enumerate(rows):
            is_foreign = signs.tracks[row] != signs.tracks[rows[0]]
            text = f"{signs.found.similarity[row]:.3f}" if place else "kept"
            thumbnail(figure.add_subplot(grid[line, place]), signs.images[row], text, OTHER if is_foreign else None)
        label = figure.add_subplot(grid[line, 0])
        label.axis("off")
        number = copies[rows[0]]
        text = f"{number} cop{'y' if number == 1 else 'ies'}"
        label.text(-0.25, 0.5, text, transform=label.transAxes, ha="right", va="center", color=LIGHT.ink, fontsize=9.5)
    figure.text(0.99, 0.962, "a frame of another track", color=OTHER, fontsize=9.5, ha="right", va="center")


def draw_pairs(figure: SubFigure, signs: Signs) -> None:
    for side, (name, pairs) in enumerate(zip(("above", "below"), signs.pairs(), strict=True)):
        left, right = 0.01 + 0.51 * side, 0.48 + 0.51 * side
        heading(figure, f"Pairs just {name} {SIMILARITY}", left)
        grid = figure.add_gridspec(2, len(pairs), left=left, right=right, top=0.86, bottom=0.12, hspace=0.06)
        for place, (one, two) in enumerate(pairs):
            colour = OTHER if signs.tracks[one] != signs.tracks[two] else None
            thumbnail(figure.add_subplot(grid[0, place]), signs.images[one], "", colour)
            text = f"{signs.similarity(one, two):.5f}"
            thumbnail(figure.add_subplot(grid[1, place]), signs.images[two], text, colour)


def draw_curves(figure: SubFigure, signs: Signs) -> None:
    thresholds, kept, apart = np.array(list(signs.curves())).T
    axes = figure.subplots()
    figure.subplots_adjust(left=0.06, right=0.985, top=0.86, bottom=0.17)
    axes.plot(thresholds, 100 * kept, color=OWN)
    axes.plot(thresholds, 100 * apart, color=OTHER, linestyle="--")
    axes.text(0.935, 70, "frames kept", color=OWN, fontsize=10, va="top")
    axes.text(0.802, 90, "tracks without a copy of another track", color=OTHER, fontsize=10)
    axes.axvline(SIMILARITY, color=LIGHT.baseline, linewidth=1)
    axes.set_ylim(0, 103)
    axes.set_xlim(LOWEST - 0.003, 1.0)
    tidy(axes, "Share, %", "similarity of a near-copy")


def heading(figure: SubFigure, text: str, left: float = 0.01) -> None:
    figure.text(left, 0.985, text, color=LIGHT.ink, fontsize=10.5, fontweight="bold", va="top")


def thumbnail(axes: Axes, image: np.ndarray, text: str, colour: str | None) -> None:
    axes.imshow(image, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(text, fontsize=8.5, labelpad=3, color=colour or LIGHT.ink)
    for spine in axes.spines.values():
        spine.set(color=colour or LIGHT.baseline, linewidth=2 if colour else 0.4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    style: Any = STYLE | dict.fromkeys(INKED, LIGHT.ink)
    signs = Signs(options.features, options.data)
    with matplotlib.rc_context(style):
        draw(signs).savefig(options.out, transparent=True, dpi=112)
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} KB")
    for threshold, kept, apart in signs.curves():
        print(f"| {threshold:.3f} | {kept:.3f} | {apart:.3f} |")


if __name__ == "__main__":
    main()
