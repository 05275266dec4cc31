"""The matrix of methods and regimes: a picture, and a table that fits a terminal."""

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from smdl.experiments.regimes import REGIMES as ALL_REGIMES
from smdl.experiments.regimes import comparison
from smdl.experiments.results import collect
from smdl.report.figures import DARK, IN_THE_DARK, LIGHT, look_of, png, svg
from smdl.report.heat_map import LEVELS, cell_text, heat_map, shade
from smdl.report.summaries import mark, matrix
from smdl.report.text_tables import matrix_table
from tests.report import made

METHODS = ["uniform", "balanced", "recommended", "recommended@0.7"]
REGIMES = list(ALL_REGIMES)[:6]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix")
    plan = comparison("digits", {}, METHODS, REGIMES)
    settings = {"baseline": plan.baseline, "against": plan.against, "methods": METHODS, "regimes": REGIMES}
    made.experiment(folder, arms=plan.arms, protocols=["time"], **settings)
    return collect(folder)


def changed(results, place, **values):
    """The results with one test changed."""
    tests = list(results.tests)
    tests[place] = replace(tests[place], **values)
    return replace(results, tests=tests)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_terminal_matrix_of_six_regimes_fits_80_columns(results):
    wide = changed(results, 0, difference=-12.3, half=10.4, verdict="worse")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(matrix_table(changed(wide, 1, verdict="chance", difference=None, half=None)))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 2 + 2 * len(METHODS), "no cell and no heading is folded"
    for regime in REGIMES:
        assert regime in lines[0] + lines[1]
    assert "−12.3 ▼" in "\n".join(lines)
    assert "± 10.4" in "\n".join(lines)


def test_every_cell_has_difference_interval_and_verdict(results):
    figure = heat_map(look_of(results), results, "time")
    found = texts(figure)
    assert len(found) == len(METHODS) * len(REGIMES)
    for test in results.tests:
        assert cell_text(test, results, test.arm.rpartition(", ")[2]) in found
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == REGIMES
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == METHODS


@pytest.mark.parametrize(
    ("verdict", "strong"), [("better", True), ("worse", True), ("equivalent", False), ("unclear", False)]
)
def test_only_what_is_significant_is_framed_and_bold(results, verdict, strong):
    one = changed(results, 0, verdict=verdict, difference=7.77, half=0.5)
    axes: Any = heat_map(look_of(one), one, "time").axes[0]
    (text,) = [text for text in axes.texts if text.get_text().startswith("+7.8")]
    (cell,) = [cell for cell in axes.patches if cell.get_x() < text.xy[0] < cell.get_x() + 1
               and cell.get_y() < text.xy[1] < cell.get_y() + 1]  # fmt: skip
    assert (text.get_weight() == "bold") is strong
    assert (cell.get_linewidth() > 0) is strong


@pytest.mark.parametrize(
    ("verdict", "difference", "half", "expected"),
    [
        ("unclear", -1.7, 0.9, "▽"),
        ("unclear", 1.7, 0.9, "△"),
        ("unclear", -1.7, 1.8, "?"),
        ("unclear", -1.7, None, "?"),
        ("worse", -1.7, 0.9, "▼"),
        ("equivalent", 0.3, 0.1, "="),
    ],
)
def test_an_interval_without_zero_is_no_question_mark(results, verdict, difference, half, expected):
    one = changed(results, 0, verdict=verdict, difference=difference, half=half)
    assert mark(one.tests[0]) == expected
    assert matrix(one, "time")[1][1][1].endswith(f" {expected}")
    assert cell_text(one.tests[0], one, "clean").partition("\n")[0].endswith(f" {expected}")


def test_colours_are_centred_at_zero_and_grow_with_the_difference(results):
    gaps = [-9, -5, -3, -1.5, -0.7, -0.2, 0.0, 0.2, 0.7, 1.5, 3, 5, 9]
    places = [shade(replace(results.tests[0], difference=gap)) for gap in gaps]
    assert places == [0, 1, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9, 10]
    assert shade(replace(results.tests[0], difference=None)) == 5
    for theme in (LIGHT, DARK):
        assert len(theme.diverging) == 2 * len(LEVELS) + 1


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_is_legible_on_every_colour(theme):
    for colour in theme.diverging:
        low, high = sorted((luminance(colour), luminance(theme.box[1])))
        assert (high + 0.05) / (low + 0.05) > 4, colour


def test_every_colour_of_the_picture_has_one_in_the_dark(results):
    one = changed(results, 0, verdict="better", difference=9.0)
    drawing = svg(lambda look: heat_map(look, one, "time"), look_of(one)).decode()
    used = set(re.findall(r"(?:fill|stroke): var\(--c([0-9a-f]{6})\)", drawing))
    assert {colour[1:] for colour in (*LIGHT.diverging, LIGHT.box[1])} <= used
    for colour in used:
        assert f"--c{colour}:#{colour};" in drawing
        assert f"--c{colour}:{IN_THE_DARK[f'#{colour}']};" in drawing
    assert png(lambda look: heat_map(look, one, "time"), look_of(one)).startswith(b"\x89PNG")


def test_the_legend_of_a_narrow_matrix_is_whole(results):
    narrow = replace(results, regimes=REGIMES[:2])
    for axes in heat_map(look_of(narrow), narrow, "time").axes:
        assert axes.get_position().x1 <= 1
