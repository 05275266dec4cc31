"""The report of smdl select: what selection.json holds, in one file that needs nothing but itself."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

import smdl
from smdl.common.progress import Display
from smdl.common.storage import read_json, write_json
from smdl.experiments.comparison_plan import FolderError
from smdl.files.choose import Chooser
from smdl.files.request import SelectRequest
from smdl.report.rendering import render
from smdl.report.selection_page import paying
from tests.report.test_browser import POLICY
from tests.report.test_report import DATA

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def selection(tmp_path_factory):
    """The folder of a selection of 12 of 200 rows in 3 groups. Row 199 is far from all others. Names are hostile."""
    folder = tmp_path_factory.mktemp("selection")
    rows = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    rows[199] = 40.0
    np.save(folder / "<b>x.npy", rows)
    np.save(folder / "groups.npy", np.array([SCRIPT, "b", "c"])[np.arange(200) % 3])
    request = SelectRequest(
        (str(folder / "<b>x.npy"),), folder / "chosen.csv", 12, objective="redundancy",
        groups=str(folder / "groups.npy"), partitions=2,
    )  # fmt: skip
    Chooser(request).run(Display())
    assert render(request.folder) == request.folder / "report.html"
    return request.folder


def test_the_page_shows_the_numbers_of_the_selection(selection):
    page = html.unescape(re.sub(r"<[^>]+>", " ", (selection / "report.html").read_text()))
    found = json.loads((selection / "selection.json").read_text())
    assert "12 of 200 rows" in page
    assert f"{sum(found['gains']):.4g}" in page
    assert paying(np.array(found["gains"])) in page
    for kind in ("chosen", "random"):
        assert f"{found['distance'][kind]['mean']:.4g}" in page
    for pair in found["pairs"]:
        assert f"row {pair['row']['row']:,}" in page
        assert f"{pair['distance']:.4g}" in page
    assert "2 random parts of about 100 rows" in page


def test_the_page_shows_the_share_of_each_term(tmp_path):
    rows = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    weights = {"facility_location": 1, "redundancy": 0.2}
    request = SelectRequest((str(tmp_path / "x.npy"),), tmp_path / "chosen.npy", 8, objective=weights)
    Chooser(request).run(Display())
    found = smdl.evaluate(rows, smdl.Objective(**weights), np.load(tmp_path / "chosen.npy"))
    page = re.sub(r"<[^>]+>", " ", Path(render(request.folder)).read_text())
    assert 0.01 < found.term_shares["redundancy"] < 0.99
    for name, share in found.term_shares.items():
        assert re.search(rf"{share:.1%}\s+of the value from {name}", page)
    record = request.folder / "selection.json"
    kept = read_json(record)
    write_json(record, {name: value for name, value in kept.items() if name != "shares"}, checksum=True)
    assert "of the value from" not in Path(render(request.folder)).read_text(), "a folder without shares has a page too"


def test_distances_are_those_to_the_nearest_chosen_row(selection):
    rows = np.load(selection.parent / "<b>x.npy").astype(np.float64)
    lines = (selection.parent / "chosen.csv").read_text().splitlines()[1:]
    chosen = [int(line.split(",")[1]) for line in lines]
    assert 199 in chosen, "redundancy chooses the outlier"
    for pair in json.loads((selection / "selection.json").read_text())["pairs"]:
        gaps = np.linalg.norm(rows[chosen] - rows[pair["row"]["row"]], axis=1)
        assert pair["row"]["row"] not in chosen
        assert pair["distance"] == pytest.approx(gaps.min(), rel=1e-4)
        assert chosen[pair["rank"] - 1] == pair["nearest"]["row"] == chosen[int(gaps.argmin())]


def test_groups_are_counted(selection):
    groups = {each["group"]: each for each in json.loads((selection / "selection.json").read_text())["groups"]}
    assert {name: each["rows"] for name, each in groups.items()} == {SCRIPT: 67, "b": 67, "c": 66}
    assert sum(each["chosen"] for each in groups.values()) == 12


def test_the_map_has_the_chosen_rows_on_the_axes_of_the_sample(selection):
    with np.load(selection / "map.npz") as arrays:
        sample, chosen = arrays["sample"], arrays["chosen"]
    assert (sample.shape, chosen.shape) == ((200, 2), (12, 2))
    nearest = np.abs(sample[:, None] - chosen[None]).sum(axis=2).min(axis=0)
    assert nearest.max() < 1e-4, "each chosen row lies where the same row of the sample lies"
    assert np.abs(chosen[:, 0]).max() == pytest.approx(np.abs(sample[:, 0]).max()), "the outlier is chosen"


def test_the_page_needs_nothing_but_itself(selection):
    page = (selection / "report.html").read_text()
    assert POLICY in page
    assert "<script" not in page
    assert "<b>x" not in page
    links = re.findall(r'(?:src|srcset|href)="([^"#][^"]*)"', page)
    assert len(links) == 4, "an icon and three pictures"
    assert all(DATA.fullmatch(link) for link in links)


def test_damaged_numbers_are_not_shown(selection, tmp_path):
    text = (selection / "selection.json").read_text()
    (tmp_path / "selection.json").write_text(text.replace('"rows": 200', '"rows": 201'))
    with pytest.raises(FolderError, match=r"selection.json is damaged"):
        render(tmp_path)


def test_the_rows_that_reach_a_share_of_the_value_are_counted():
    assert "50 % by 1, 90 % by 3, 95 % by 4, 99 % by 4" in paying(np.array([6.0, 2.0, 1.0, 1.0]))
    assert "The last row adds 40 % of what a row adds" in paying(np.array([6.0, 2.0, 1.0, 1.0]))
    assert "not positive" in paying(np.array([1.0, -1.0]))


@pytest.mark.parametrize(("rows", "size"), [(3, 3), (5, 1), (2, 1), (1, 1)])
def test_a_few_rows_have_a_report_too(rows, size, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(rows * 1.0)[:, None])
    request = SelectRequest((str(tmp_path / "x.npy"),), tmp_path / "chosen.csv", size)
    Chooser(request).run(Display())
    assert Path(render(request.folder)).exists()
