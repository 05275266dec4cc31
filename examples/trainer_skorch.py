"""Let scikit-learn search for a method of selection, with a net of skorch.

    python examples/trainer_skorch.py

Needs pip install "submodular-data-loader[skorch,train]".
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import nn

from smdl.integrations.skorch import SelectiveNet


class Net(SelectiveNet, NeuralNetClassifier):  # instead of NeuralNetClassifier
    """A classifier that trains on selected batches."""


class Layers(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def main() -> None:
    torch.manual_seed(0)
    data, target = load_digits(return_X_y=True)
    pixels, labels = np.asarray(data, np.float32) / 16, np.asarray(target, np.int64)
    net = Net(Layers, criterion=nn.CrossEntropyLoss, lr=0.1, batch_size=50, max_epochs=4, train_split=None, verbose=0)
    search = GridSearchCV(net, {"iterator_train__method": ["uniform", "recommended"]}, cv=2).fit(pixels, labels)
    for settings, accuracy in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        print(f"{settings['iterator_train__method']:<12} accuracy {accuracy:.3f}")
    print(search.best_estimator_.loader_)


if __name__ == "__main__":
    main()
