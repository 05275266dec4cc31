"""Rows for the tests of smdl select."""

import numpy as np
import pytest


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """The features of three shards in the folder `shards` of the current folder, (300, 4) on a dyadic grid."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).integers(-64, 64, size=(300, 4)).astype(np.float32) / 16
    (tmp_path / "shards").mkdir()
    for number, part in enumerate(np.split(values, [100, 180])):
        np.save(tmp_path / "shards" / f"{number}.npy", part)
    return values
