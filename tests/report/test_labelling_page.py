"""The report of smdl label: what labelling.json holds, in one file that needs nothing but itself."""

import html
import json
import re

import numpy as np
import pytest

from smdl.common.progress import Display
from smdl.experiments.comparison_plan import FolderError
from smdl.labelling.input_rows import LabelSettings
from smdl.labelling.project import Project
from smdl.labelling.summary import write_summary
from smdl.report.labelling_page import needed_text, render_labelling

SCRIPT = "<script>alert(1)</script>"


def visible(page):
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with 40 labels, 30 check rows, hostile ids and class names, one disputed and one wrong answer."""
    folder = tmp_path_factory.mktemp("labelling")
    rng = np.random.default_rng(0)
    classes = np.arange(300) % 3
    features = 3 * np.eye(3, 6)[classes] + rng.normal(size=(300, 6))
    np.savez(folder / "rows.npz", features=features, id=np.array([f"{SCRIPT}{row}" for row in range(300)]))
    settings = LabelSettings((str(folder / "rows.npz"),), features=("features",), ids="id", size=20)
    found = Project(folder / "rows.labels", settings)
    names = np.array([SCRIPT, "dog", "Dog "])[classes]
    for _ in range(2):
        found = Project(folder / "rows.labels") if (folder / "rows.labels").exists() else found
        progress = found.run(Display(), check=30)
        for path in progress.written:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            head, rows = lines[0], [line.split(",")[0] for line in lines[1:]]
            content = "\n".join([head, *(f'{row},{SCRIPT}{row},"{names[int(row)]}"' for row in rows)])
            path.write_text(content)
    last = Project(folder / "rows.labels")
    progress = last.run(Display())
    row = last.folder.rounds[0].rows[0]
    last.labels.add([row], ["dog"], "ben")
    last.labels.add([row], [SCRIPT], "cem")
    write_summary(last, progress)
    render_labelling(last.path)
    return last.path


def test_the_page_shows_the_numbers_of_the_project(project):
    page = visible((project / "report.html").read_text())
    found = json.loads((project / "labelling.json").read_text())
    assert found["checks"] == 30
    assert f"{100 * found['accuracy']['value']:.1f} %" in page
    assert found["advice"] in page
    assert found["advice"].startswith(("Another round pays", "You may stop"))
    for each in found["asked"]:
        assert str(each["row"]) in page
    for name, count in found["classes"]:
        assert name in page
        assert str(count) in page
    assert f"{100 * found['forecast']['ahead'][0]['value']:.1f} %" in page
    assert len(found["disputed"]) == 1
    assert "ben" in page


def test_nothing_on_the_page_is_code(project):
    page = (project / "report.html").read_text()
    assert SCRIPT not in page
    assert html.escape(SCRIPT, quote=False) in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_names_that_differ_in_case_alone_are_told(project):
    assert json.loads((project / "labelling.json").read_text())["alike"] == [["Dog", "dog"]]


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "labelling.json").write_text("{")
    with pytest.raises(FolderError, match=r"labelling\.json is damaged"):
        render_labelling(tmp_path)


def test_the_labels_that_are_needed_are_told_in_one_sentence():
    assert needed_text({"0.9": 420, "0.95": None}) == "By the same curve, 90 % is near 420 labels."
    assert needed_text({"0.99": None}) == ""
