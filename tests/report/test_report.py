"""The report holds what results.json holds, needs nothing but itself, and survives whatever lies in the folder."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from PIL import Image

from smdl.experiments.comparison_plan import FolderError
from smdl.report import panels, rendering
from smdl.report.rendering import render, render_all
from tests.report import made
from tests.report.made import read_lines, write_json, write_lines

#: All that a report may load.
DATA = re.compile(r"data:(image/(png|svg\+xml);base64,[A-Za-z0-9+/]+=*|,)$")


@pytest.fixture
def quick(monkeypatch):
    """Without the pictures in plots/."""
    monkeypatch.setattr(rendering, "png", lambda *_: b"png")


@pytest.fixture
def bare(quick, monkeypatch):  # noqa: ARG001
    """Without drawing anything: for tests of words."""
    monkeypatch.setattr(panels, "svg", lambda *_: b"<svg/>")
    monkeypatch.setattr(panels, "png", lambda *_: b"png")


@pytest.fixture
def experiment(tmp_path):
    """Two arms, two seeds, one protocol."""
    arms = {name: made.ARMS[name] for name in ("uniform", "recommended")}
    return made.experiment(tmp_path / "experiment", arms=arms, seeds=2, protocols=["time"])


def page_of(folder):
    return made.Page((folder / "report.html").read_text())


def problems_of(folder):
    """The lines of the problems section."""
    _, _, found = (folder / "report.html").read_text().partition('<section id="problems">')
    return re.findall(r"<li>(.*?)</li>", found)


def test_the_tables_numbers_are_those_of_results_json(rendered):
    page, results = page_of(rendered), made.results_of(rendered)
    assert made.same_numbers(page, results) > 6 * 20
    shown = {key for key in page.numbers if key[1] == "recommended"}
    for protocol in ("steps", "time"):
        for name in (
            "final_accuracy",
            "mean_accuracy",
            "final_loss",
            "mean_loss",
            "final_train_accuracy",
            "difference",
        ):
            assert {(protocol, "recommended", f"{name}.{part}") for part in ("mean", "half")} <= shown
        for name in ("steps", "seconds", "steps_to_baseline", "seconds_to_baseline", "reached_baseline", "p_holm"):
            assert (protocol, "recommended", name) in shown
        assert (protocol, "recommended", "overhead.scoring") in shown
        assert (protocol, "recommended", "forwards_per_step") in shown


def test_the_verdict_stands_on_top_with_what_it_rests_on(rendered):
    text, results = page_of(rendered).text, made.results_of(rendered)
    assert results["verdict"] in text
    assert text.index(results["answer"]) < text.index(results["verdict"]) < text.index("Numbers")
    for word in ("3 seeds", "equal time", "Primary endpoint, fixed before any run", "paired test", "Welch", "Holm"):
        assert word in text
    lines = [each["class"] for each in page_of(rendered).all("li") if each.get("class", "").startswith("is-")]
    assert lines == [f"is-{test['verdict']}" for test in results["tests"] if test["protocol"] == "time"]


def test_the_page_says_what_the_accuracies_are_measured_on(rendered):
    text = page_of(rendered).text
    assert "60 training samples and 900 test samples. One test sample is worth 0.11 points." in text
    assert "Intervals cover the seeds, not the choice of the test samples" in text
    assert "the runs logged 0.50 × the baseline’s time" in text


def test_contents_lead_to_sections_and_secondary_tables_are_folded(rendered):
    page, text = page_of(rendered), (rendered / "report.html").read_text()
    links = [link["href"][1:] for link in page.all("a")]
    sections = {section["id"] for section in page.all("section")}
    assert sections == set(links), "every section is in the contents, and every link leads somewhere"
    for title in ("Tests", "Training", "Cost"):
        assert text.count(f"<details><summary>{title}</summary>") == 2, "one per protocol"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
def test_a_hundred_arms_are_drawn_in_half_a_gigabyte(tmp_path):
    """Measured in a process of its own."""
    arms = {"uniform": {"method": "uniform"}}
    arms |= {f"arm {place}": {"method": "recommended" if place % 2 else "loss"} for place in range(99)}
    made.experiment(tmp_path, arms=arms, seeds=2)
    code = r"""
import re, sys, time
from pathlib import Path
from smdl.report.rendering import render
render(Path(sys.argv[1]))
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss knows the parent's
print(time.process_time(), int(peak[1]) / 1024)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    seconds, megabytes = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    print(f"{seconds:.1f} s of CPU time")  # no bound: machines differ
    assert megabytes < 500
    page = page_of(tmp_path)
    assert "Figures show the baseline and the 11 best arms." in page.text
    assert len([row for row in page.all("tr") if row.get("data-arm") == "arm 98"]) == 8, "tables have every arm"
    assert len(list((tmp_path / "plots").iterdir())) < 30


def test_nothing_is_loaded_from_elsewhere(rendered):
    text = (rendered / "report.html").read_text()
    page = made.Page(text)
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            if name in attributes:
                assert DATA.match(attributes[name]) or re.match(r"#\w+$", attributes[name]), (tag, name)
    assert "@import" not in text
    assert not re.search(r"url\((?!data:)", text)
    assert not {"script", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    assert "default-src 'none'" in next(tag["content"] for tag in page.all("meta") if "http-equiv" in tag)
    assert len(text) < 3_000_000


def test_every_picture_has_data_and_says_what_it_shows(rendered):
    pictures = page_of(rendered).all("img")
    assert 24 + 2 * 48 < len(pictures) < 24 + 3 * 48, "the baseline uses samples evenly and has no gallery"
    assert all(DATA.match(picture["src"]) and picture["alt"] for picture in pictures)
    assert max(len(picture["src"]) for picture in pictures) < 140_000


def test_hostile_names_stay_names(rendered):
    text = (rendered / "report.html").read_text()
    page = made.Page(text)
    assert "<script" not in text
    assert "<b>title" not in text
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert made.SCRIPT in page.text
    assert any(made.CLASSES[0][:20] in picture["alt"] for picture in page.all("img"))
    assert any(row.get("data-arm") == made.SCRIPT for row in page.all("tr"))


def test_the_pictures_are_files_too_and_not_blank(rendered):
    files = sorted(path.name for path in (rendered / "plots").iterdir())
    wanted = {
        f"curves-{protocol}-{axis}.png" for protocol in ("steps", "time") for axis in ("epochs", "steps", "seconds")
    }
    wanted |= {"accuracy-steps.png", "accuracy-time.png", "balance.png", "costs.png", "terms.png", "usage.png"}
    wanted |= {"map-0-uniform.png", "gallery-2-recommended.png", "map-1--script-alert-1-script-.png"}
    assert wanted <= set(files)
    assert "gallery-0-uniform.png" not in files
    for name in files:
        image = Image.open(rendered / "plots" / name).convert("RGBA")
        assert len(image.getcolors(1 << 20)) > 10, name
        assert (np.asarray(image)[..., 3] > 0).mean() > 0.005, name


def test_caption_paper_environment_and_configs_are_shown(rendered):
    text = page_of(rendered).text
    assert f"stand-in {made.SCRIPT}" in text
    assert "The paper’s numbers next to ours" in text
    for word in ("error <%>", "8.10", "table 3 & others", "abc123-dirty", "smdl compare <x>", "torch 2.0"):
        assert word in text
    assert "batch_size: 6" in text
    assert "method: recommended" in text
    assert "None: every run is finished and undamaged." in text


@pytest.mark.usefixtures("bare")
def test_rendering_again_gives_the_same_page(experiment):
    render(experiment.folder)
    first = (experiment.folder / "report.html").read_bytes()
    render(experiment.folder)
    assert (experiment.folder / "report.html").read_bytes() == first
    assert not list(experiment.folder.glob(".*part"))


@pytest.mark.usefixtures("bare")
def test_what_is_missing_or_damaged_is_named_and_the_rest_is_shown(experiment):
    diverged, missing = experiment.run("uniform", "time", 1), experiment.run("recommended", "time", 1)
    write_json(diverged / "failed.json", {"error": "the loss is <nan>"})
    shutil.rmtree(missing)
    whole = experiment.run("uniform", "time", 0)
    (whole / "counts.npy").write_bytes(b"no array")
    (whole / "usage_snapshot.npz").write_bytes((whole / "usage_snapshot.npz").read_bytes()[:100])
    (experiment.run("recommended", "time", 0) / "counts.npy").unlink()
    page = page_of(render(experiment.folder).parent)
    problems = "\n".join(problems_of(experiment.folder))
    assert "uniform, seed 1, equal time: diverged: the loss is &lt;nan&gt;" in problems
    assert "recommended, seed 1, equal time: not begun" in problems
    assert "counts.npy is damaged" in problems
    assert "usage_snapshot.npz is damaged" in problems
    assert "counts.npy is missing" in problems
    assert "5 problems, listed below" in page.text
    assert "2 of 4 runs are finished and undamaged" in page.text
    assert made.same_numbers(page, made.results_of(experiment.folder)) > 20
    assert "n = 1" in page.text


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b'{"epoch": 0}\n', "damaged"), (b"\xff\xfe", "damaged"), (b'{"epoch": 0, "st', "damaged")],
)
@pytest.mark.usefixtures("bare")
def test_damaged_metrics_are_a_problem_of_one_run(experiment, content, said):
    (experiment.run("uniform", "time", 0) / "metrics.jsonl").write_bytes(content)
    render(experiment.folder)
    (line,) = problems_of(experiment.folder)
    assert line.startswith("uniform, seed 0, equal time: metrics.jsonl is ")
    assert said in line


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_experiment_without_a_finished_run_renders(experiment):
    shutil.rmtree(experiment.folder / "trained")
    page = page_of(render(experiment.folder).parent)
    assert len(problems_of(experiment.folder)) == 4
    assert "No finished run recorded its environment." in page.text
    assert not re.search(r"\bnan\b", page.text)
    assert "nan" not in page.numbers.values()


@pytest.mark.parametrize("name", ["counts.npy", "usage_snapshot.npz"])
@pytest.mark.usefixtures("bare")
def test_whatever_is_wrong_with_an_array_it_is_a_problem_of_one_run(experiment, name):
    folder = experiment.run("uniform", "time", 0)
    whole = {path: (folder / path).read_bytes() for path in ("counts.npy", "usage_snapshot.npz")}
    other = whole["usage_snapshot.npz" if name == "counts.npy" else "counts.npy"]
    contents = [b"", b"no array", whole[name][:-20], other]
    if name == "counts.npy":
        contents.append(whole[name].replace(b"{'descr'", b"{(descr'", 1))  # numpy's own parser stumbles over that
    for content in contents:
        (folder / name).write_bytes(content)
        render(experiment.folder)
        assert any(f"{name} is damaged" in line for line in problems_of(experiment.folder)), content[:20]


@pytest.mark.usefixtures("bare")
def test_the_folder_of_a_reproduction_is_rendered_whole(experiment):
    out = experiment.folder.parent
    write_json(out / "items.json", {"table-1": ["experiment"], "figure-train": ["experiment"]})
    assert render_all(out) == [experiment.folder / "report.html", out / "figure-train.png"]
    assert render_all(experiment.folder) == [experiment.folder / "report.html"]


@pytest.mark.usefixtures("bare")
def test_bad_arrays_in_a_snapshot_are_named(experiment):
    at = experiment.run("uniform", "time", 0) / "usage_snapshot.npz"
    with np.load(at) as file:
        arrays = dict(file)
    bad = {"map": np.zeros((3, 5)), "most_images": np.zeros((24, 8, 8)), "map_counts": np.zeros(2, int)}
    for name, value in bad.items():
        np.savez(at, **{**arrays, name: value})
        render(experiment.folder)
        (line,) = problems_of(experiment.folder)
        assert f"usage_snapshot.npz is damaged: {name} must be" in line


@pytest.mark.usefixtures("bare")
def test_an_experiment_that_was_not_timed_has_no_seconds(tmp_path):
    made.experiment(tmp_path, seeds=2, timed=False)
    page = page_of(render(tmp_path).parent)
    assert {key[2] for key in page.numbers if key[0] == "steps"}.isdisjoint({"seconds", "overhead.total"})
    assert "over seconds" not in page.text
    assert "Time per step" not in page.text
    assert made.same_numbers(page, made.results_of(tmp_path)) > 20


def test_a_folder_that_is_no_experiment_says_so(tmp_path):
    with pytest.raises(FolderError, match=r"neither an experiment \(plan.yaml\), nor a training run"):
        render(tmp_path)
    (tmp_path / "plan.yaml").write_text("title: x")
    with pytest.raises(FolderError, match="damaged"):
        render(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"uniform": 1, "recommended": 2}', b'{"uniform": {}, "recommended": {}}']
)
@pytest.mark.usefixtures("bare")
def test_a_damaged_calibration_says_so(experiment, content):
    (experiment.folder / "calibration.json").write_bytes(content)
    with pytest.raises(FolderError, match="calibration"):
        render(experiment.folder)


@pytest.mark.usefixtures("bare")
def test_a_plan_of_another_version_is_rendered_all_the_same(experiment):
    at = experiment.folder / "plan.yaml"
    render(experiment.folder)
    before = made.results_of(experiment.folder)
    values = yaml.safe_load(at.read_text())
    values["base"]["no_such_option"] = values["no_such_field"] = values["runs"][0]["no_such_field"] = 1
    at.write_text(yaml.safe_dump(values, sort_keys=False))
    render(experiment.folder)
    assert made.results_of(experiment.folder)["rows"] == before["rows"]
    assert made.results_of(experiment.folder)["problems"] == []


def test_the_report_imports_neither_torch_nor_numba():
    code = "import sys, smdl.report.rendering; print([m for m in ('torch', 'numba') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.fixture
def run(tmp_path):
    """The folder of a single run."""
    made.run(tmp_path / "run", seed=3)
    return tmp_path / "run"


@pytest.mark.slow
def test_a_single_run_renders(run):
    page = page_of(render(run).parent)
    last = read_lines(run / "metrics.jsonl")[-1]
    assert "digits, recommended, seed 3" in page.text
    assert json.loads(page.numbers["test loss",]) == last["test_loss"]
    assert json.loads(page.numbers["test accuracy",]) == 100 * (1 - last["test_error"])
    assert {"curves-run-seconds.png", "costs.png", "usage.png"} <= {path.name for path in (run / "plots").iterdir()}
    assert all(DATA.match(picture["src"]) and picture["alt"] for picture in page.all("img"))
    assert len(page.all("img")) == 12 + 5 + 48  # curves; cost, balance, use, terms and map; samples
    assert "batch_size: 6" in page.text
    assert not (run / "results.json").exists()


@pytest.mark.usefixtures("bare")
def test_a_single_run_that_was_cut_short_renders_what_is_there(run):
    records = read_lines(run / "metrics.jsonl")
    write_lines(run / "metrics.jsonl", [*records[:2], {"epoch": 2}])
    (run / "summary.json").unlink()
    (run / "config.yaml").write_text("{")
    page = page_of(render(run).parent)
    problems = "\n".join(problems_of(run))
    assert "metrics.jsonl is damaged from line 3 of 3 on" in problems
    assert "not finished" in problems
    assert "config.yaml is damaged" in problems
    assert json.loads(page.numbers["epochs",]) == 2


@pytest.mark.usefixtures("quick")
def test_a_single_run_without_an_epoch_renders(run):
    (run / "metrics.jsonl").write_text("")
    write_json(run / "failed.json", {"error": "the loss is nan"})
    render(run)
    assert problems_of(run) == ["diverged: the loss is nan", "metrics.jsonl is empty: no epoch was finished"]
