"""Tests in this folder use neither data on this machine nor the network."""

import pytest

from smdl.training.datasets import catalogue, download
from tests.training.datasets.server import serving


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """An empty cache, and no data anywhere else."""
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SMDL_DATA", raising=False)
    monkeypatch.setattr(catalogue, "SYSTEM", tmp_path / "system")


@pytest.fixture
def server(monkeypatch):
    """A local web server. Downloads do not wait between attempts."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    with serving() as running:
        yield running
