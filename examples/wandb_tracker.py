"""Send the measurements of `smdl train` to Weights & Biases: put this file into the working folder, and run

    smdl train --tracker wandb_tracker:WeightsAndBiases

With mode="offline", wandb writes into the folder of the run, and `wandb sync` uploads it later.
"""

import wandb

from smdl.training.trackers import Tracker, scalars


class WeightsAndBiases(Tracker):
    def __init__(self, folder, config):
        self.run = wandb.init(project="smdl", dir=folder, config=config, mode="offline")

    def epoch(self, record):
        self.run.log(scalars(record), step=record["steps"])

    def close(self):
        self.run.finish()
