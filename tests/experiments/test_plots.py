"""Figures show what the results say, in one style, with no global state."""

import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import smdl.experiments.plots as plots_module
from smdl.experiments import figures, panels, pictures, plots
from smdl.experiments.results import collect
from smdl.experiments.statistics import estimate
from smdl.experiments.usage import Chosen, read_chosen
from tests.experiments import made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots") / "experiment"
    made.experiment(folder)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return collect(folder)


@pytest.fixture(scope="module")
def chosen(folder, results):
    found, problems = read_chosen(folder, results, "time")
    assert not problems
    return found


def there(value: Any) -> Any:
    """What must not be None."""
    assert value is not None
    return value


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))


def changed(results, **quantities):
    """Every record with other quantities: name -> function of the epoch."""

    def other(record):
        return {**record, **{name: of(record["epoch"]) for name, of in quantities.items()}}

    runs = [{**run, "epochs": [other(record) for record in run["epochs"]]} for run in results["runs"]]
    return {**results, "runs": runs}


def with_seeds(results, count):
    return {**results, "runs": [run for run in results["runs"] if run["seed"] < count]}


def test_curve_is_the_mean_of_the_seeds_and_the_interval_of_it(results):
    found = there(plots.curve(results, "uniform", "time", "steps", "test_error", 100.0))
    runs = plots.finished_runs(results, "uniform", "time")
    values = [[100 * record["test_error"] for record in run["epochs"]] for run in runs]
    expected = [estimate(column) for column in zip(*values, strict=True)]
    assert found.mean.tolist() == pytest.approx([each.mean for each in expected])
    assert (found.high - found.mean).tolist() == pytest.approx([each.half for each in expected])
    assert found.x.tolist() == [10, 20, 30, 40]


def test_band_of_two_seeds_is_lowest_to_highest_and_said_to_be(results):
    two = with_seeds(results, 2)
    found = there(plots.curve(two, "uniform", "time", "steps", "test_loss"))
    assert found.low.tolist() == found.values.min(axis=0).tolist()
    assert found.high.tolist() == found.values.max(axis=0).tolist()
    assert "lowest to highest" in plots.band_note(two, "time")
    assert "95 % interval" in plots.band_note(results, "time")
    assert "No band" in plots.band_note(with_seeds(results, 1), "time")


def test_axes_count_epochs_steps_and_calibrated_seconds(results):
    for axis, factor in (("epochs", 1 / made.PER_EPOCH), ("steps", 1), ("seconds", 0.020)):
        found = there(plots.curve(results, "recommended", "time", axis, "test_error"))
        assert found.x.tolist() == pytest.approx([10 * factor, 20 * factor])  # 40 steps of 10 ms buy 20 of 20 ms


def test_long_curves_are_thinned_out_and_keep_their_ends(results):
    epochs = [{"steps": 10 * (place + 1), "test_loss": float(place)} for place in range(5000)]
    (run, *_) = plots.finished_runs(results, "uniform", "time")
    found = there(
        plots.curve({**results, "runs": [{**run, "epochs": epochs}]}, "uniform", "time", "steps", "test_loss")
    )
    assert len(found.x) == plots.POINTS
    assert (found.mean[0], found.mean[-1]) == (0, 4999)


def test_curves_have_a_panel_a_measure_and_a_line_an_arm(results):
    figure = plots.curves(results, "time", "seconds")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [name for name, _ in plots.MEASURES.values()]
    assert all(len(axes.lines) == 3 and len(axes.collections) == 3 for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == results["arms"]


def test_values_over_an_order_of_magnitude_get_a_log_scale(results):
    for scale, loss in (("log", lambda epoch: 10.0**-epoch), ("linear", lambda epoch: 0.0 if epoch else 9.0)):
        figure = plots.curves(changed(results, test_loss=loss), "steps", "steps", ["test_loss"])
        assert figure.axes[0].get_yscale() == scale
        assert figures.png(figure)


def test_records_without_a_quantity_leave_it_out(results):
    broken = changed(results, train_loss=lambda _: None)
    assert plots.curve(broken, "uniform", "time", "steps", "train_loss") is None
    assert "no finished run" in texts(plots.curves(broken, "time", "steps", ["train_loss"]))


def test_costs_stack_the_parts_and_state_the_ratio(results):
    figure = there(plots.costs(results))
    assert [text for text in texts(figure) if "×" in text] == ["1.00 ×", "1.10 ×", "2.00 ×"]
    bars = np.array([[bar.get_width() for bar in part] for part in figure.axes[0].containers])  # (parts, arms)
    assert bars.sum(axis=0).tolist() == pytest.approx([10, 11, 20])  # milliseconds
    ranges = [line.get_xdata() for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert np.array(ranges) == pytest.approx(np.array([[9, 12], [9.9, 13.2], [18, 24]])), "of the calibration's rounds"


def test_nothing_is_drawn_over_seconds_that_were_not_measured(tmp_path):
    made.experiment(tmp_path, timed=False, seeds=1)
    results = collect(tmp_path)
    assert plots.costs(results) is None
    assert list(plots.axes_of(results)) == ["epochs", "steps"]


def test_finals_show_every_seed_and_a_line_at_the_baseline(results):
    axes = plots.finals(results, "time").axes[0]
    dots = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    assert [len(seeds) for seeds in dots] == [3, 3, 3]
    mean = next(row for row in results["rows"] if row["arm"] == "uniform")["final_accuracy"]["mean"]
    spans = [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert any(span == pytest.approx([mean, mean]) for span in spans)


def test_no_interval_stretches_the_axis_beyond_what_an_accuracy_can_be(results):
    apart = [{**run, "epochs": [{**run["epochs"][-1], "test_error": run["seed"] / 2}]} for run in results["runs"]]
    axes = plots.finals({**results, "runs": apart}, "time").axes[0]
    assert axes.get_xlim() == (0, 100)


def test_terms_are_drawn_for_the_arms_that_have_them(results):
    figure = there(plots.terms(results, "time"))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["recommended: contributions to F(S)"]
    assert plots.terms(results, "time", ["uniform"]) is None


def test_usage_counts_every_sample_of_every_seed(chosen, results):
    figure = there(pictures.usage(chosen, figures.look(results)))
    for axes in figure.axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)
    said = pictures.used(np.array([0] * 5 + [1] * 4 + [6]))
    assert said == "50 % never used; the most used tenth fills 60 % of the batches"
    assert pictures.usage({"uniform": Chosen()}, figures.look(results)) is None


def test_map_shows_skipped_points_as_rings_and_used_ones_by_size(chosen):
    counts = chosen["uniform"].portrait["map_counts"]
    rings, dots = there(pictures.feature_map(chosen["uniform"], "#0077bb").axes[0].collections)
    assert len(rings.get_offsets()) == (counts == 0).sum()
    assert len(rings.get_facecolors()) == 0
    sizes = dots.get_sizes()
    assert sizes[counts[counts > 0].argmax()] == sizes.max() > sizes.min()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_gallery_shows_images_of_any_number_of_channels(chosen, channels):
    found = Chosen(chosen["uniform"].counts, {}, 0, made.CLASSES)
    found.portrait = made.portrait(found.counts[0], np.random.default_rng(0), channels)
    assert len(pictures.gallery(found, "an arm").axes[0].images) == 48
    shape, name, count = pictures.captioned(found, "most")[0]
    assert shape.shape == ((8, 8) if channels < 3 else (8, 8, 3))
    assert name in [figures.label(known) for known in made.CLASSES]
    assert count == found.portrait["most_counts"][0]


def test_arms_keep_their_colours_and_the_baseline_is_grey():
    first = figures.Look(["uniform", "paper", "recommended"], "uniform")
    second = figures.Look(["uniform", "mine", "recommended", "other", "paper"], "uniform")
    assert first.colours["recommended"] == second.colours["recommended"]
    assert first.colours["uniform"] == second.colours["uniform"] == figures.BASELINE
    assert len(set(second.colours.values())) == 5


def test_an_arm_and_its_own_baseline_are_a_pair():
    arms = ["uniform, 1", "mine, 1", "uniform, 2", "mine, 2"]
    look = figures.Look(arms, arms[0], {"mine, 1": "uniform, 1", "mine, 2": "uniform, 2"})
    assert [look.dashes[arm] for arm in arms] == ["--", "-", "--", "-"]
    assert look.colours["uniform, 1"] == look.colours["mine, 1"] != look.colours["mine, 2"]
    assert look.colours["uniform, 2"] == look.colours["mine, 2"]


def test_the_papers_figures_are_drawn_in_its_layout(tmp_path):
    folders = []
    for number in range(2):
        folders.append(tmp_path / str(number))
        made.experiment(folders[-1], title=f"data {number}, as in the paper", caption=f"stand-in {number}")
    for item, names in {"table-1": folders, "figure-accuracy": folders, "figure-terms": folders[:1]}.items():
        panels.add_item(tmp_path, item, names)
    assert panels.items_of(tmp_path) == {"table-1": ["0", "1"], "figure-accuracy": ["0", "1"], "figure-terms": ["0"]}
    assert panels.write(tmp_path, "table-1") is None
    for item in ("figure-accuracy", "figure-terms"):
        assert (pixels(there(panels.write(tmp_path, item)).read_bytes())[..., 3] > 0).mean() > 0.005
    (tmp_path / "items.json").write_text("[")
    assert panels.items_of(tmp_path) is None
    drawing = panels.figure([collect(folder) for folder in folders], ("test_error", "test_loss"))
    titles = [axes.get_title(loc="left") for axes in drawing.axes]
    assert titles == [f"data {k}: {what}" for what in ("test error, %", "test loss") for k in range(2)]
    assert "stand-in 0\nstand-in 1" in texts(drawing)
    error = drawing.axes[0].lines[0].get_ydata()
    assert error == pytest.approx(
        there(plots.curve(collect(folders[0]), "uniform", "steps", "epochs", "test_error", 100)).mean
    )


def test_many_arms_differ_by_colour_or_dash_and_have_no_bands(tmp_path):
    arms = {"uniform": {"strategy": "uniform"}} | {f"λ{i} = 0.5": {"strategy": "loss", "seed": i} for i in range(12)}
    made.experiment(tmp_path, arms=arms, timed=False, seeds=2)
    results = collect(tmp_path)
    look = figures.look(results)
    assert len({(look.colours[arm], look.dashes[arm]) for arm in arms}) == 13
    assert not plots.curves(results, "steps", "steps", ["test_loss"]).axes[0].collections
    assert "No band" in plots.band_note(results, "steps")


def test_a_name_that_reads_like_a_style_stays_a_name(results):
    name = 'font-family: "x"; fill: #000000'
    renamed = {**results, "arms": [name], "baseline": name, "calibration": {name: results["calibration"]["uniform"]}}
    drawing = figures.svg(there(plots.costs(renamed)))
    assert name[:20] in "".join(ElementTree.fromstring(drawing).itertext())


def test_svg_follows_the_theme_and_refers_to_nothing_outside(results):
    text = figures.svg(plots.curves(results, "time", "seconds"))
    assert text == figures.svg(plots.curves(results, "time", "seconds"))
    assert "prefers-color-scheme:dark" in text
    assert f"var(--c{figures.INK[1:]})" in text
    assert made.SCRIPT not in text
    assert "&lt;script&gt;" in text
    assert set(re.findall(r"https?://[^\"' ]*", text)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert all(link.startswith("#") for link in re.findall(r"(?:href=\"|url\()([^\")]*)", text))


def test_png_has_no_background_and_is_not_blank(results):
    image = pixels(figures.png(plots.finals(results, "time")))
    assert image[0, 0, 3] == 0
    assert 0.01 < (image[..., 3] > 0).mean() < 0.5
    assert np.ptp(image[image[..., 3] > 0], axis=0).max() > 100  # of more than one colour


@pytest.mark.parametrize("name", ["$\\frac{1}{0}$", "图像 🙂", "_hidden", "a\x00b\nc", "x" * 300, ""])
def test_any_name_can_be_drawn(results, name):
    renamed = {
        **results,
        "arms": [name, "recommended"],
        "baseline": name,
        "calibration": {name: results["calibration"]["uniform"], "recommended": results["calibration"]["recommended"]},
        "runs": [{**run, "arm": name} for run in results["runs"] if run["arm"] == "uniform"],
    }
    for figure in (plots.curves(renamed, "time", "epochs", ["test_loss"]), plots.costs(renamed)):
        assert isinstance(figure, Figure)
        assert len(figures.png(figure)) > 1000
        assert figures.svg(figure).startswith("<svg")


def test_no_module_uses_pyplot():
    for path in Path(plots_module.__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(import|from) .*pyplot", path.read_text(), re.MULTILINE), path
