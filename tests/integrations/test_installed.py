"""The other tests here skip what is not installed. This one does not."""

from importlib import import_module

import pytest


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "library",
    ["accelerate", "lightning", "ray", "sentence_transformers", "skorch", "tensorboard", "torchdata", "transformers"],
)
def test_make_test_integrations_installs_every_library(library):
    import_module(library)
