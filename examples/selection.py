"""Pick 50 digits by the objective of the paper, 50 by facility location and 50 at random, and plot them.

    python examples/selection.py [--out runs/selection.png]

A logistic regression is fitted on half of the 1 797 digits. The other half is the pool, and the regression predicts its
probabilities. The features are the input of its only layer: the pixels. A reference model would have the same features.
"""

import argparse
import os
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import smdl

SIZE, SEED = 50, 0


def digits_pool() -> tuple[smdl.Pool, np.ndarray, np.ndarray]:
    """Return the pool, its images (N, 8, 8) and its labels (N,)."""
    data, target = load_digits(return_X_y=True)
    pixels, labels = np.asarray(data, np.float32) / 16, np.asarray(target)
    order = np.random.default_rng(SEED).permutation(len(pixels))
    fitted, pool = order[: len(order) // 2], order[len(order) // 2 :]
    model = LogisticRegression(max_iter=1000).fit(pixels[fitted], labels[fitted])
    probabilities = model.predict_proba(pixels[pool])
    features = pixels[pool]
    return (
        smdl.Pool(features, probabilities, labels[pool], reference=features),
        features.reshape(-1, 8, 8),
        labels[pool],
    )


def describe(console: Console, title: str, objective: smdl.Objective, pool: smdl.Pool, batch: smdl.Selection) -> None:
    """Print a table: term, weight, contribution of the batch, contribution of 50 random digits."""
    value = smdl.evaluate(pool, objective, batch.indices)
    console.print(title, style="bold")
    table = Table(show_edge=False)
    for column in ("term", "weight", "contribution", "of a random batch"):
        table.add_column(column, justify="left" if column == "term" else "right")
    random = smdl.evaluate(pool, objective, random_batch(len(pool)))
    for name, weight in objective.weights.items():
        table.add_row(name, f"{weight:g}", f"{value.terms[name]:.3f}", f"{random.terms[name]:.3f}")
    table.add_row("F(S)", "", f"{value.value:.3f}", f"{random.value:.3f}", style="bold")
    console.print(table)
    console.print()


def random_batch(n: int) -> np.ndarray:
    return np.random.default_rng(SEED + 1).choice(n, SIZE, replace=False)


def project(features: np.ndarray) -> np.ndarray:
    """Return the first two principal components, (N, D) -> (N, 2)."""
    centred = features - features.mean(0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


def draw(batches: dict[str, np.ndarray], pool: smdl.Pool, images: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Draw one row per batch: its digits on the left, their position among all digits on the right."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    flat = project(pool.features.numpy())
    figure, axes = plt.subplots(
        len(batches), 2, figsize=(11, 3.4 * len(batches)), width_ratios=[1.5, 1], layout="constrained"
    )
    for (left, right), (title, batch) in zip(axes, batches.items(), strict=True):
        framed = np.pad(images[batch], ((0, 0), (1, 1), (1, 1)))  # a white frame around every digit
        left.imshow(framed.reshape(5, 10, 10, 10).transpose(0, 2, 1, 3).reshape(50, 100), cmap="gray_r")
        left.set_xticks([])
        left.set_yticks([])
        counts = np.bincount(labels[batch], minlength=10)
        spread = ", ".join(f"{digit}: {count}" for digit, count in enumerate(counts))
        left.set_title(f"{SIZE} of {len(pool)} {title}", loc="left", fontweight="bold")
        left.set_xlabel(f"digits of each class: {spread}", fontsize=8)
        right.scatter(*flat.T, c=labels, cmap="tab10", s=7, alpha=0.3, linewidths=0)
        right.scatter(*flat[batch].T, c=labels[batch], cmap="tab10", s=34, edgecolors="black", linewidths=0.8)
        right.set_xticks([])
        right.set_yticks([])
        right.set_xlabel("first two principal components; colour is the class", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part.png")
    figure.savefig(temporary, dpi=110)
    os.replace(temporary, path)  # the file is complete or absent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/selection.png"), help="file of the plot")
    path = parser.parse_args().out
    console = Console()
    pool, images, labels = digits_pool()
    console.print(f"{pool}\n")
    objectives = {
        "the paper's objective": smdl.Objective.paper(),
        "facility location over last-layer gradients": smdl.Objective.gradients(),
    }
    batches = {}
    with console.status("compiling the loops (only the first time)"):
        for objective in objectives.values():
            smdl.select(pool, objective, SIZE, seed=SEED)
    for title, objective in objectives.items():
        start = time.perf_counter()
        batch = smdl.select(pool, objective, SIZE, seed=SEED)
        took = time.perf_counter() - start
        describe(console, f"{SIZE} of {len(pool)} by {title} ({1000 * took:.2f} ms)", objective, pool, batch)
        batches[f"by {title}"] = batch.indices
    batches["at random"] = random_batch(len(pool))
    draw(batches, pool, images, labels, path)
    console.print(f"plot of the selected digits: {path}")


if __name__ == "__main__":
    main()
