"""The demo shows what the README says it shows."""

import runpy
import sys
from pathlib import Path

from matplotlib.image import imread

DEMO = Path(__file__).parent.parent / "examples" / "digits.py"


def test_the_demo_prints_both_tables_and_writes_the_picture(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "new folder" / "selection.png"
    monkeypatch.setattr(sys, "argv", [str(DEMO), "--out", str(picture)])
    runpy.run_path(str(DEMO), run_name="__main__")
    printed = capsys.readouterr().out
    for word in ("uncertainty", "redundancy", "mean_closeness", "feature_match", "facility_location", "F(S)"):
        assert word in printed
    assert imread(picture).std() > 0.05, "something is drawn"
    assert [path.name for path in picture.parent.iterdir()] == ["selection.png"], "nothing half written is left"
