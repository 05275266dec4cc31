"""Names of what can be ablated and reproduced. Help texts need them quickly, so this imports nothing."""

ABOUT = {
    "weights": "λ by the paper's two-stage rule (its table 2)",
    "distance": "φ of redundancy",
    "learning-rate": "the learning rate, SGD next to SMDL",
    "batch-size": "the batch size, SGD next to SMDL",
    "refresh": "steps between refreshes; the paper names only 5",
    "terms": "one term alone: SMDL-1 to SMDL-4",
    "pool-factor": "size of the random pool; not in the paper",
    "normalisation": "scores scaled over the pool, or over a step's candidates",
    "replacement": "each sample once per epoch, or with replacement as in Algorithm 2",
    "batchnorm": "networks with and without BatchNorm",
}

PAPER_ITEMS = {
    "table-1": "accuracy and loss of loss-based, SGD and SMDL",
    "table-2": "λ varied, on a subset",
    "figure-accuracy": "test error and loss over epochs (the runs of table-1)",
    "figure-ablation": "test error for four distances, learning rates, batch sizes, refresh rates",
    "table-time": "seconds per epoch (the calibration of table-1)",
    "figure-terms": "one term alone, SMDL-1 to SMDL-4",
    "figure-train": "training error and loss over epochs (the runs of table-1)",
    "figure-test-loss": "test loss of the ablations (the runs of figure-ablation)",
}

SCALES = ("smoke", "small", "paper")
#: In a folder of `smdl reproduce`: which experiments belong to which item.
ITEMS_FILE = "items.json"
