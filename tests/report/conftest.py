"""One rendered experiment for the tests that only look at it."""

import pytest

from smdl.report.rendering import render
from tests.report import made

PAPER = {
    "columns": ["SGD", "<SMDL>"],
    "rows": [
        {
            "name": "error <%>",
            "cells": [
                {"paper": 8.1, "arm": "uniform", "measure": "final_accuracy"},
                {"paper": 9.2, "arm": "of no such arm", "measure": "final_accuracy"},
            ],
        }
    ],
    "note": "table 3 & others",
}


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """The folder of an experiment with hostile names everywhere, rendered."""
    folder = tmp_path_factory.mktemp("experiments") / "rendered"
    made.experiment(folder, title="a <b>title</b> & more", caption=f"stand-in {made.SCRIPT}", paper=PAPER)
    assert render(folder) == folder / "report.html"
    return folder
