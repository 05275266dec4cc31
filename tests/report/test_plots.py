"""Figures show what the results say, in one style, with no global state."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image
from scipy import stats

from smdl.experiments.results import collect
from smdl.report import figures, paper_figures, plots, usage_plots
from smdl.report.contents import thinned
from smdl.report.figures import DARK, LIGHT, Look, look_of
from smdl.report.usage import Samples, Snapshot, Usage, aligned, read_usage, uneven
from tests.report import made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots") / "experiment"
    made.experiment(folder)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return collect(folder)


@pytest.fixture(scope="module")
def look(results):
    return look_of(results)


@pytest.fixture(scope="module")
def usage(folder, results):
    found, problems = read_usage(folder, results, "time")
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

    return replace(results, runs=[replace(run, epochs=[other(each) for each in run.epochs]) for run in results.runs])


def with_seeds(results, count):
    return replace(results, runs=[run for run in results.runs if run.seed < count])


def test_a_curve_is_the_mean_over_seeds_with_its_interval(results):
    found = there(plots.curve(results, "uniform", "time", "steps", "test_error"))
    runs = results.finished("uniform", "time")
    values = np.array([[100 * record["test_error"] for record in run.epochs] for run in runs])  # (seeds, epochs)
    low, high = stats.t.interval(0.95, 2, loc=values.mean(axis=0), scale=stats.sem(values))
    assert found.mean.tolist() == pytest.approx(values.mean(axis=0).tolist())
    assert found.low.tolist() == pytest.approx(low.tolist())
    assert found.high.tolist() == pytest.approx(high.tolist())
    assert found.x.tolist() == [10, 20, 30, 40]


def test_the_band_of_two_seeds_is_lowest_to_highest_and_the_note_says_so(results):
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
    (run, *_) = results.finished("uniform", "time")
    long = replace(results, runs=[replace(run, epochs=epochs)])
    found = there(plots.curve(long, "uniform", "time", "steps", "test_loss"))
    assert len(found.x) == plots.POINTS
    assert (found.mean[0], found.mean[-1]) == (0, 4999)


def all_curves(look, results, protocol="time", axis="seconds"):
    return plots.curves(look, results, protocol, axis, list(plots.QUANTITIES))


def test_curves_have_a_panel_per_quantity_and_a_line_per_arm(results, look):
    with matplotlib.rc_context({"axes.titlelocation": "left"}):
        figure = all_curves(look, results)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [name for name, _ in plots.QUANTITIES.values()]
    assert all(len(axes.lines) == 3 and len(axes.collections) == 3 for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == results.arms


def test_values_over_an_order_of_magnitude_get_a_log_scale(results, look):
    for scale, loss in (("log", lambda epoch: 10.0**-epoch), ("linear", lambda epoch: 0.0 if epoch else 9.0)):
        figure = plots.curves(look, changed(results, test_loss=loss), "steps", "steps", ["test_loss"])
        assert figure.axes[0].get_yscale() == scale
        assert figures.png(lambda _, figure=figure: figure, look)


def test_records_without_a_quantity_leave_it_out(results, look):
    broken = changed(results, train_loss=lambda _: None)
    assert plots.curve(broken, "uniform", "time", "steps", "train_loss") is None
    assert "no finished run" in texts(plots.curves(look, broken, "time", "steps", ["train_loss"]))


def test_costs_stack_the_parts_and_state_the_ratio(results, look):
    figure = plots.costs(look, results)
    assert [text for text in texts(figure) if "×" in text] == ["1.00 ×", "1.10 ×", "2.00 ×"]
    bars = np.array([[bar.get_width() for bar in part] for part in figure.axes[0].containers])  # (parts, arms)
    assert bars.sum(axis=0).tolist() == pytest.approx([10, 11, 20])  # milliseconds
    ranges = [line.get_xdata() for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert np.array(ranges) == pytest.approx(np.array([[9, 12], [9.9, 13.2], [18, 24]])), "of the calibration's rounds"


def test_nothing_is_drawn_over_seconds_that_were_not_measured(tmp_path):
    made.experiment(tmp_path, timed=False, seeds=1)
    results = collect(tmp_path)
    assert not results.timed
    assert list(plots.axes_of(results)) == ["epochs", "steps"]


def test_accuracy_shows_every_seed_and_a_line_at_the_baseline(results, look):
    axes = plots.accuracy(look, results, "time").axes[0]
    dots = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    assert [len(seeds) for seeds in dots] == [3, 3, 3]
    mean = next(row for row in results.rows if row.arm == "uniform").final_accuracy.mean
    spans = [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert any(span == pytest.approx([mean, mean]) for span in spans)


def test_no_interval_stretches_the_axis_beyond_what_an_accuracy_can_be(results, look):
    apart = [replace(run, epochs=[{**run.epochs[-1], "test_error": run.seed / 2}]) for run in results.runs]
    axes = plots.accuracy(look, replace(results, runs=apart), "time").axes[0]
    assert axes.get_xlim() == (0, 100)


def test_terms_are_drawn_for_the_arms_that_have_them(results, look):
    assert [arm for arm in results.arms if plots.terms_of(results, arm, "time")] == ["recommended"]
    (axes,) = plots.terms(look, results, "time", ["recommended"]).axes
    assert np.array([line.get_ydata() for line in axes.lines]) == pytest.approx(np.array([[0.9, 0.91], [0.2, 0.2]]))


def test_the_histogram_counts_every_sample_of_every_seed(usage, look):
    figure: Any = usage_plots.histogram(look, usage)
    for axes in figure.axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)
    text = usage_plots.evenness(np.array([0] * 5 + [1] * 4 + [6]))
    assert text == "50 % never used; the most used tenth makes up 60 % of the batches"


def test_map_shows_skipped_points_as_rings_and_used_ones_by_size(usage, look):
    found = usage["recommended"]
    counts = found.snapshot.counts
    figure: Any = usage_plots.feature_map(look, "recommended", found, found.snapshot)
    rings, dots = figure.axes[0].collections
    assert len(rings.get_offsets()) == (counts == 0).sum()
    assert len(rings.get_facecolors()) == 0
    sizes = dots.get_sizes()
    assert sizes[counts[counts > 0].argmax()] == sizes.max() > sizes.min()


def test_maps_are_turned_onto_the_baselines(usage):
    found = usage["uniform"].snapshot
    turned = np.array([[0.0, -1.0], [1.0, 0.0]]) @ np.diag([1.0, -1.0])
    other = replace(usage["uniform"], snapshot=replace(found, points=5 + 0.2 * found.points @ turned))
    made_up = {"uniform": usage["uniform"], "other": other}
    both = aligned(made_up, "uniform")
    assert there(both["other"].snapshot).points == pytest.approx(there(both["uniform"].snapshot).points, abs=1e-5)
    strange = replace(other, snapshot=replace(other.snapshot, labels=found.labels[::-1]))
    kept = aligned({**made_up, "other": strange}, "uniform")["other"].snapshot
    assert there(kept).points.tolist() == strange.snapshot.points.tolist(), "other samples cannot be aligned"


def test_usage_that_is_as_even_as_it_can_be_is_no_preference():
    even, skewed = np.array([3] * 40 + [4] * 60), np.array([0] * 40 + [6] * 60)
    usage = {name: Usage([counts]) for name, counts in (("uniform", even), ("same", even[::-1]), ("loss", skewed))}
    assert uneven(usage, "uniform") == ["loss"]
    assert uneven({"uniform": usage["uniform"], "same": usage["same"]}, "uniform") == []
    usage["fewer"] = Usage([even - 2])
    assert uneven(usage, "uniform") == ["loss"], "fewer epochs are no preference"
    usage["other"] = Usage([np.array([0] * 20 + [4] * 80)])
    assert uneven(usage, "loss") == ["loss", "other"], "a baseline that prefers samples shows which"


def test_the_balance_of_random_batches_is_dashed(results, look):
    axes = plots.balance(look, results).axes[0]
    (line,) = (line for line in axes.lines if list(line.get_ydata()) == [0.88, 0.88])
    assert line.get_linestyle() != "-"
    low, high = axes.get_ylim()
    assert low < 0.88 < high


def test_of_many_arms_the_baseline_and_the_best_are_drawn(tmp_path):
    arms = {f"arm {place}": {"method": "loss"} for place in range(20)} | {"uniform": {"method": "uniform"}}
    made.experiment(tmp_path, arms=arms, timed=False, seeds=1)
    results = collect(tmp_path)
    assert thinned(results).arms == [f"arm {place}" for place in range(9, 20)] + ["uniform"]
    assert thinned(replace(results, arms=results.arms[:12])).arms == results.arms[:12]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_gallery_shows_images_of_any_number_of_channels(usage, look, channels):
    counts = usage["uniform"].counts
    arrays = made.snapshot(counts[0], np.random.default_rng(0), channels)
    samples = {
        kind: Samples(*(arrays[f"{kind}_{what}"] for what in ("images", "labels", "counts")))
        for kind in ("most", "least")
    }
    snapshot = Snapshot(0, arrays["map"], arrays["map_labels"], arrays["map_counts"], samples)
    found = Usage(counts, snapshot, made.CLASSES)
    assert len(usage_plots.gallery(look, "an arm", found, snapshot).axes[0].images) == 48
    shape, name, count = usage_plots.captioned(found, snapshot, "most")[0]
    assert shape.shape == ((8, 8) if channels < 3 else (8, 8, 3))
    assert name in [figures.label(known) for known in made.CLASSES]
    assert count == arrays["most_counts"][0]


def test_arms_keep_their_colours_and_the_baseline_is_grey():
    first = Look(["uniform", "paper", "recommended"], "uniform")
    second = Look(["uniform", "mine", "recommended", "other", "paper"], "uniform")
    assert first.colours["recommended"] == second.colours["recommended"]
    assert first.colours["uniform"] == second.colours["uniform"] == LIGHT.baseline
    assert len(set(second.colours.values())) == 5


def test_an_arm_and_its_own_baseline_are_a_pair():
    arms = ["uniform, 1", "mine, 1", "uniform, 2", "mine, 2"]
    look = Look(arms, arms[0], {"mine, 1": "uniform, 1", "mine, 2": "uniform, 2"})
    assert [look.dashes[arm] for arm in arms] == ["--", "-", "--", "-"]
    assert look.colours["uniform, 1"] == look.colours["mine, 1"] != look.colours["mine, 2"]
    assert look.colours["uniform, 2"] == look.colours["mine, 2"]


def test_the_papers_figures_are_drawn_in_its_layout(tmp_path):
    folders = []
    for number in range(2):
        folders.append(tmp_path / str(number))
        made.experiment(folders[-1], title=f"data {number}, as in the paper", caption=f"stand-in {number}")
    items = {"table-1": ["0", "1"], "figure-accuracy": ["0", "1"], "figure-terms": ["0"]}
    made.write_json(tmp_path / "items.json", items)
    assert paper_figures.read_items(tmp_path) == items
    paths = paper_figures.render_items(tmp_path)
    assert [path.name for path in paths] == ["figure-accuracy.png", "figure-terms.png"], "a table is no figure"
    for path in paths:
        assert (pixels(path.read_bytes())[..., 3] > 0).mean() > 0.005
    (tmp_path / "items.json").write_text("[")
    assert paper_figures.read_items(tmp_path) is None
    with matplotlib.rc_context({"axes.titlelocation": "left"}):
        drawing = paper_figures.figure([collect(folder) for folder in folders], ("test_error", "test_loss"))
    titles = [axes.get_title(loc="left") for axes in drawing.axes]
    assert titles == [f"data {k}: {what}" for what in ("test error, %", "test loss") for k in range(2)]
    assert "stand-in 0\nstand-in 1" in texts(drawing)
    error = drawing.axes[0].lines[0].get_ydata()
    assert error == pytest.approx(
        there(plots.curve(collect(folders[0]), "uniform", "steps", "epochs", "test_error")).mean
    )


def test_many_arms_of_a_figure_of_the_paper_have_a_panel_each_beside_their_baseline(tmp_path):
    arms = {"uniform": {"method": "uniform"}} | {f"paper, {i}": {"method": "loss", "seed": i} for i in range(4)}
    made.experiment(tmp_path, arms=arms, timed=False, seeds=2, title="distance, as in the paper")
    with matplotlib.rc_context({"axes.titlelocation": "left"}):
        drawing = paper_figures.figure([collect(tmp_path)], ("test_error",))
    legends = [axes.get_legend() for axes in drawing.axes]
    names = [[text.get_text() for text in legend.get_texts()] for legend in legends if legend is not None]
    assert names == [["uniform", f"paper, {i}"] for i in range(4)]
    assert [axes.get_title(loc="left") for axes in drawing.axes] == ["distance: test error, %", "", "", ""]
    assert len({axes.get_ylim() for axes in drawing.axes}) == 1, "panels of a row are compared by eye"


def test_many_arms_differ_by_colour_or_dash_and_have_no_bands(tmp_path):
    arms = {"uniform": {"method": "uniform"}} | {f"λ{i} = 0.5": {"method": "loss", "seed": i} for i in range(12)}
    made.experiment(tmp_path, arms=arms, timed=False, seeds=2)
    results = collect(tmp_path)
    look = look_of(results)
    assert len({(look.colours[arm], look.dashes[arm]) for arm in arms}) == 13
    assert not plots.curves(look, results, "steps", "steps", ["test_loss"]).axes[0].collections
    assert "No band" in plots.band_note(results, "steps")


def renamed(results, name, old="uniform"):
    """The results with an arm of another name."""
    return replace(
        results,
        arms=[name, "recommended"],
        baseline=name,
        calibration={name: results.calibration[old], "recommended": results.calibration["recommended"]},
        runs=[replace(run, arm=name) for run in results.runs if run.arm == old],
    )


def test_a_name_that_reads_like_a_style_stays_a_name(results):
    name = 'font-family: "x"; fill: #000000'
    other = renamed(results, name)
    drawing = figures.svg(lambda look: plots.costs(look, other), look_of(other))
    assert name[:20] in "".join(ElementTree.fromstring(drawing).itertext())


def test_a_drawing_has_both_themes_and_refers_to_nothing_outside(results):
    drawing = figures.svg(lambda look: all_curves(look, results), look_of(results)).decode()
    assert drawing == figures.svg(lambda look: all_curves(look, results), look_of(results)).decode()
    ElementTree.fromstring(drawing)
    light, dark = re.findall(r":root\{([^}]*)\}", drawing)
    used = set(re.findall(r"var\((--c[0-9a-f]{6})\)", drawing))
    assert set(re.findall(r"--c[0-9a-f]{6}", light)) == set(re.findall(r"--c[0-9a-f]{6}", dark)) == used
    shown = [set(re.findall(r"#[0-9a-f]{6}", style)) for style in (light, dark)]
    for colours, theme in zip(shown, (LIGHT, DARK), strict=True):
        assert {theme.ink, theme.baseline} <= colours
        assert len(colours & set(theme.palette)) == len(results.arms) - 1
    assert not set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawing)) & set(figures.IN_THE_DARK)
    assert made.SCRIPT not in drawing
    assert "&lt;script&gt;" in drawing
    known = {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd",
    }
    assert set(re.findall(r"https?://[^\"' ]*", drawing)) <= known
    assert all(link.startswith("#") for link in re.findall(r"(?:href=\"|url\()([^\")]*)", drawing))


def test_the_files_in_plots_are_legible_on_white_and_on_black():
    """Contrast of at least 3 to 1, as WCAG asks of graphics."""

    def luminance(colour):
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert 1.05 / (luminance(LIGHT.ink) + 0.05) >= 3
    assert (luminance(LIGHT.ink) + 0.05) / 0.05 >= 3


def test_png_has_no_background_and_is_not_blank(results, look):
    image = pixels(figures.png(lambda look: plots.accuracy(look, results, "time"), look))
    assert image[0, 0, 3] == 0
    assert 0.01 < (image[..., 3] > 0).mean() < 0.5
    assert np.ptp(image[image[..., 3] > 0], axis=0).max() > 100  # of more than one colour


@pytest.mark.parametrize("name", ["$\\frac{1}{0}$", "图像 🙂", "_hidden", "a\x00b\nc", "x" * 300, ""])
def test_any_name_can_be_drawn(results, name):
    other = renamed(results, name)
    look = look_of(other)
    assert len(figures.png(lambda look: plots.curves(look, other, "time", "epochs", ["test_loss"]), look)) > 1000
    drawing = figures.svg(lambda look: plots.costs(look, other), look)
    assert ElementTree.fromstring(drawing).tag.endswith("svg")


def test_no_module_uses_pyplot():
    for path in Path(plots.__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(import|from) .*pyplot", path.read_text(), re.MULTILINE), path
