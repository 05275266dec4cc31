"""The numbers that the paper printed, and what it says where it printed only curves."""

from typing import Any

#: Table 1: (loss-based, SGD, SMDL) on each data set.
TABLE_1 = {
    "svhn": {"mean accuracy": (90.87, 93.60, 95.46), "final accuracy": (92.44, 94.34, 95.49),
             "mean loss": (0.363, 0.230, 0.175), "final loss": (0.318, 0.215, 0.182)},
    "cifar10": {"mean accuracy": (81.06, 82.54, 84.58), "final accuracy": (84.32, 85.63, 87.76),
                "mean loss": (0.590, 0.535, 0.487), "final loss": (0.497, 0.445, 0.384)},
    "cifar100": {"mean accuracy": (53.77, 53.57, 57.23), "final accuracy": (57.22, 58.27, 62.95),
                 "mean loss": (1.755, 1.764, 1.717), "final loss": (1.639, 1.586, 1.504)},
}  # fmt: skip
#: Table 2: (mean, final) accuracy on a subset of SVHN, for each of these values.
WEIGHTS = (0, 0.2, 0.5, 0.8, 1.0)
TABLE_2 = {
    "λ1": ((64.41, 87.19), (58.60, 91.13), (66.99, 92.39), (65.68, 92.27), (65.80, 92.12)),
    "λ2": ((46.17, 83.62), (64.55, 91.34), (68.28, 92.33), (67.70, 90.77), (61.34, 85.06)),
    "λ3": ((64.41, 87.19), (62.90, 91.01), (60.91, 89.50), (63.58, 91.02), (59.06, 89.77)),
    "λ4": ((64.41, 87.19), (62.25, 92.14), (63.03, 86.90), (65.50, 91.03), (60.30, 86.61)),
}
#: Supplement: seconds per epoch (SMDL, loss-based, SGD).
TABLE_TIME = {"svhn": (937.2, 7007.7, 373.2), "cifar10": (948.7, 5196.4, 142.5), "cifar100": (764.6, 8221.3, 160.0)}
#: What the paper says about its figures, which have no numbers.
WORDS = {
    "distance": "The paper, figure 2a: Euclidean distance is the best of four.",
    "learning-rate": "The paper, figure 2b: SMDL beats SGD at each of 0.1, 0.01 and 0.001, and 0.1 is best.",
    "batch-size": "The paper, figure 2c: SMDL beats SGD at each of 50, 100 and 200, and 50 is best.",
    "refresh": "The paper, figure 2d: a refresh rate of 5 is best, larger ones are worse. The others are not named.",
    "terms": "The paper, supplement: each term alone is competent, and all four together are best.",
}

Printed = dict[str, Any]


def main(key: str) -> Printed:
    """Return table 1 and the supplement's table of times for a data set: {columns, rows of cells, note}. A cell names
    our arm and measure that it is compared with."""
    smdl, loss, sgd = TABLE_TIME[key]
    table = {**TABLE_1[key], "seconds per epoch": (loss, sgd, smdl)}
    measures = {name: "seconds_per_epoch" if name.startswith("seconds") else name.replace(" ", "_") for name in table}
    arms = ("loss", "uniform", "paper")
    return {
        "columns": ["loss-based", "SGD", "SMDL"],
        "rows": [
            {"name": name, "cells": [_cell(*pair, measures[name]) for pair in zip(values, arms, strict=True)]}
            for name, values in table.items()
        ],
        "note": f"The paper on {key}: its table 1 and its supplement's table of times, 100 epochs. Ours: equal epochs.",
    }


def ablation(sweep: str) -> Printed:
    """Return what the paper has on a sweep: table 2 for the weights, else words."""
    if sweep != "weights":
        return {"columns": [], "rows": [], "note": WORDS[sweep]}
    return {
        "columns": [f"{value:g}" for value in WEIGHTS],
        "rows": [
            {
                "name": f"{name}, {measure.partition('_')[0]}",
                "cells": [
                    _cell(pair[place], f"{name} = {value}", measure) for value, pair in zip(WEIGHTS, pairs, strict=True)
                ],
            }
            for name, pairs in TABLE_2.items()
            for place, measure in enumerate(("mean_accuracy", "final_accuracy"))
        ],
        "note": "The paper's table 2, on a subset of SVHN: accuracy, %, mean over epochs and final. One λ varied, λ2 ="
        " 0.5 and the others 0; then λ2, the others at their best.",
    }


def _cell(paper: float, arm: str, measure: str) -> dict[str, Any]:
    return {"paper": paper, "arm": arm, "measure": measure}
