"""skorch: the loader scores the module that the net trains, also if scikit-learn has cloned the net."""

from typing import Any

import numpy as np
import pytest
from sklearn import base
from sklearn.model_selection import GridSearchCV
from torch import nn

from tests.integrations.runs import OURS_ARE_ERRORS, WAYS, check_staleness, step_of
from tests.toys import Net, Tuples

pytestmark = [pytest.mark.integrations, OURS_ARE_ERRORS]
skorch = pytest.importorskip("skorch")
clone: Any = base.clone
DATA = Tuples(27)
X, Y = DATA.x.numpy(), DATA.y.numpy().astype(np.int64)


def net(options, module=Net, accumulation=1):
    from smdl.integrations.skorch import SelectiveNet

    class Watched(SelectiveNet, skorch.NeuralNetClassifier):
        def __init__(self, *arguments, accumulation=1, **named):
            super().__init__(*arguments, **named)
            self.accumulation = accumulation

        def train_step(self, batch, **parameters):
            """Accumulate gradients as skorch's documentation does it."""
            self.steps = [*getattr(self, "steps", []), step_of(self.loader_)]
            step = self.train_step_single(batch, **parameters)
            if len(self.steps) % self.accumulation == 0:
                self.optimizer_.step()
                self.optimizer_.zero_grad()
            return step

    named = {f"iterator_train__{name}": value for name, value in options.items()}
    settings = {"criterion": nn.CrossEntropyLoss, "max_epochs": 3, "batch_size": 4, "lr": 0.3, "verbose": 0}
    return Watched(module, train_split=None, accumulation=accumulation, **settings, **named)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("way", ["fresh", "fresh with workers", "observed", "observed with workers"])
def test_batches_are_chosen_with_the_weights_that_train_on_them(way, accumulation):
    options, lag = WAYS[way]
    fitted = net(options, accumulation=accumulation).fit(X, Y)
    check_staleness(fitted.steps, 7, lag)
    assert fitted.loader_.epoch == 3


def test_a_clone_scores_its_own_module():
    module = Net()
    twin = clone(net({"method": "observed"}, module)).fit(X, Y)
    assert twin.module_ is not module
    assert twin.loader_.model is twin.module_
    assert twin.loader_.state_dict()["candidates"]["observations"] == 21


def test_a_grid_search_tries_methods():
    search = GridSearchCV(net({"drop_last": True}), {"iterator_train__method": ["uniform", "recommended"]}, cv=2).fit(
        X, Y
    )
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.loader_.method.name == search.best_params_["iterator_train__method"]


def test_partial_fit_continues_with_the_next_epoch():
    fitted = net({"method": "uniform"}).fit(X, Y)
    first, fitted.steps = fitted.steps, []
    fitted.partial_fit(X, Y)
    assert fitted.loader_.epoch == 6
    assert fitted.steps[:7] != first[:7]


def test_prediction_uses_the_plain_iterator():
    assert net({"method": "uniform"}).fit(X, Y).predict(X).shape == (27,)
