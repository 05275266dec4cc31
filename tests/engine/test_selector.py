"""Selector: the picks of `select` behind fit and transform, also inside scikit-learn."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import base
from sklearn.cluster import KMeans
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import smdl

clone: Any = base.clone
X = np.random.default_rng(0).random((40, 3))


class Frame:
    """What a data frame has: rows by iloc, columns by [], and an array of its values."""

    def __init__(self, values):
        self.iloc, self._values = values, values

    def __len__(self):
        return len(self._values)

    def __getitem__(self, column):
        raise KeyError(column)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype, copy=copy)


def test_fit_picks_what_select_picks():
    chosen = smdl.select(X, "redundancy", 6, optimizer="stochastic", seed=3, partitions=2, epsilon=0.2)
    selector = smdl.Selector("redundancy", 6, optimizer="stochastic", seed=3, partitions=2, epsilon=0.2).fit(X)
    assert selector.indices_.tolist() == chosen.indices.tolist()
    assert selector.gains_.tolist() == chosen.gains.tolist()
    assert selector.n_features_in_ == 3
    shares = smdl.Selector("facility_location", 6).fit(X).selection_.shares
    assert shares is not None
    assert shares.sum() == 40


def test_transform_returns_the_picked_rows_in_the_type_they_came_in():
    selector = smdl.Selector("facility_location", 5).fit(X)
    rows = selector.indices_
    assert (selector.transform(X) == X[rows]).all()
    assert torch.equal(selector.transform(torch.from_numpy(X)), torch.from_numpy(X[rows]))
    assert selector.transform([f"text {row}" for row in range(40)]) == [f"text {row}" for row in rows]
    assert (smdl.Selector("facility_location", 5).fit_transform(Frame(X)) == X[rows]).all()


def test_rows_that_were_not_fitted_are_refused():
    with pytest.raises(ValueError, match="the 40 rows of fit, got 39"):
        smdl.Selector("facility_location", 5).fit(X).transform(X[1:])
    with pytest.raises(ValueError, match="call fit first"):
        smdl.Selector("facility_location", 5).transform(X)


def test_objectives_that_need_labels_read_y_whatever_its_classes_are_called():
    names = np.array(["rare"] * 4 + ["common"] * 36)
    selector = smdl.Selector(smdl.Objective(class_balance=1.0), 8).fit(X, names)
    assert (selector.transform(names) == "rare").sum() == 4
    prices = np.linspace(0.0, 1.0, 40)  # no labels: an objective without labels does not look at them
    assert len(smdl.Selector("facility_location", 5).fit(X, prices).indices_) == 5


def test_a_pool_brings_everything_that_the_objective_needs():
    pool = smdl.Pool(X, np.full((40, 2), 0.5), np.arange(40) % 2)
    selector = smdl.Selector("gradients", 4).fit(pool)
    assert selector.indices_.tolist() == smdl.select(pool, "gradients", 4).indices.tolist()


def test_scikit_learn_clones_and_changes_it():
    selector = smdl.Selector("redundancy", 5, seed=7).fit(X)
    twin = clone(selector)
    assert twin.get_params() == selector.get_params()
    assert not hasattr(twin, "indices_")
    sizes = [len(twin.set_params(**grid).fit(X).indices_) for grid in ParameterGrid({"size": [3, 4]})]
    assert sizes == [3, 4]
    with pytest.raises(ValueError, match="unknown argument of Selector 'sizes'; did you mean 'size'"):
        twin.set_params(sizes=3)


def test_it_is_a_step_of_a_pipeline():
    last = make_pipeline(StandardScaler(), smdl.Selector("redundancy", 5))
    scaled = StandardScaler().fit_transform(X)
    assert (last.fit_transform(X) == scaled[smdl.select(scaled, "redundancy", 5).indices]).all()
    assert last.transform(X).shape == (5, 3)
    middle = make_pipeline(smdl.Selector("redundancy", 9), KMeans(3, n_init=1, random_state=0))
    assert len(clone(middle).set_params(selector__size=7).fit(X)[-1].labels_) == 7


def test_a_bad_argument_is_named_in_fit():
    for selector in (smdl.Selector("no such name", 5), smdl.Selector("redundancy", 41), smdl.Selector("redundancy", 0)):
        with pytest.raises(ValueError, match=r"objective|size"):
            selector.fit(X)


def test_it_does_not_import_scikit_learn():
    code = "import sys, numpy, smdl; smdl.Selector('redundancy', 2).fit(numpy.eye(4)); print('sklearn' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
