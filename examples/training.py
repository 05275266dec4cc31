"""Train one network on the digits by SGD, by loss-based batches, and by submodular ones; a table and a plot.

    python examples/training.py [--seeds 5] [--out runs/demo]

Every strategy takes the same number of steps from the same initial weights. One of these runs is
`smdl train --config configs/digits.yaml`.
"""

import argparse
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib as mpl
import yaml
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from smdl.training.config import ObjectiveConfig, TrainConfig, from_dict
from smdl.training.files import new_folder, read_lines, replacing
from smdl.training.loop import train

CONFIG = Path(__file__).parent.parent / "configs" / "digits.yaml"
STRATEGIES = {
    "SGD": {"strategy": "uniform"},
    "loss-based": {"strategy": "loss"},
    "SMDL, paper": {"strategy": "smdl", "objective": ObjectiveConfig("paper")},
    "SMDL, recommended": {"strategy": "smdl", "objective": ObjectiveConfig("recommended")},
}


def runs_of(name: str, seeds: int, folder: Path, advance: Any) -> list[dict[str, Any]]:
    """The summaries of one strategy's runs, a seed each, with their metrics."""
    summaries = []
    for seed in range(seeds):
        config = from_dict(TrainConfig, yaml.safe_load(CONFIG.read_text()))
        for option, value in {**STRATEGIES[name], "seed": seed}.items():
            setattr(config, option, value)
        out = folder / f"{name.replace(' ', '-').replace(',', '')}-{seed}"
        summary = train(config, out)
        summaries.append({**summary, "epochs": read_lines(out / "metrics.jsonl")})
        advance()
    return summaries


def tell(console: Console, results: dict[str, list[dict[str, Any]]], seeds: int) -> None:
    """A row a strategy: what it reached and what it cost."""
    table = Table(
        title=f"digits, {results['SGD'][0]['steps']} steps, mean ± deviation of {seeds} seeds", show_edge=False
    )
    for column in ("batches by", "test error, %", "seconds", "scoring", "selecting", "forwards"):
        table.add_column(column, justify="left" if column == "batches by" else "right", no_wrap=True)
    for name, runs in results.items():
        errors = [100 * run["final"]["test_error"] for run in runs]
        spent = {part: mean(run["seconds"][part] for run in runs) for part in runs[0]["seconds"]}
        spread = f" ± {stdev(errors):.2f}" if seeds > 1 else ""
        table.add_row(
            name,
            f"{mean(errors):.2f}{spread}",
            f"{sum(spent.values()) - spent['evaluation']:.1f}",
            f"{spent['scoring']:.2f}",
            f"{spent['selection']:.2f}",
            f"{mean(run['forwards'] / run['samples'] for run in runs):.1f}x",
        )
    console.print(table)
    console.print("seconds a run, evaluation left out; forwards: extra ones, for each sample trained on")


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Test error over steps, a line a strategy and a thin one a seed; on the right, where the seconds went."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=[1.5, 1], layout="constrained")
    colours = dict(zip(results, ("#4c72b0", "#c44e52", "#8c8c8c", "#2a9d5c"), strict=True))
    for name, runs in results.items():
        steps = [record["steps"] for record in runs[0]["epochs"]]
        curves = [[100 * record["test_error"] for record in run["epochs"]] for run in runs]
        for curve in curves:
            left.plot(steps, curve, color=colours[name], alpha=0.25, linewidth=0.8)
        left.plot(
            steps, [mean(values) for values in zip(*curves, strict=True)], color=colours[name], label=name, marker="o"
        )
    left.set(xlabel="steps", ylabel="test error, %", yscale="log", title="digits")
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("{x:g}")
    left.legend(frameon=False)
    bottom = [0.0] * len(results)
    shades = {"training": "#4c72b0", "data": "#a6bddb", "scoring": "#f4a259", "selection": "#c44e52"}
    for part, shade in shades.items():
        spent = [mean(run["seconds"][part] for run in runs) for runs in results.values()]
        right.barh(list(results), spent, left=bottom, color=shade, label=part)
        bottom = [start + more for start, more in zip(bottom, spent, strict=True)]
    right.set(xlabel="seconds a run", title="where the time goes")
    right.invert_yaxis()
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as file:
        figure.savefig(file, dpi=110, format="png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()
    console = Console()
    folder = new_folder(options.out)
    results = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=len(STRATEGIES) * options.seeds)
        for name in STRATEGIES:
            progress.update(task, description=name)
            results[name] = runs_of(name, options.seeds, folder, lambda: progress.advance(task))
            if not console.is_terminal:
                console.print(f"{name}: {options.seeds} runs done")
    tell(console, results, options.seeds)
    draw(results, folder / "training.png")
    console.print(f"\nthe curves: {folder / 'training.png'}; each run's config, metrics and weights: {folder}")


if __name__ == "__main__":
    main()
