"""The commands that run experiments: they print the tables, and bad input gets one clear line."""

from pathlib import Path

import pytest

from smdl.cli import main


@pytest.mark.slow
def test_smdl_ablate_runs_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = "--data.train_size 80 --data.test_size 60 --model.name mlp --batch_size 20 --epochs 1 --jobs 1 --seeds 1"
    assert main(["ablate", "distance", "--values", "euclidean,cosine", *options.split()]) == 0
    assert "paper, cosine" in capsys.readouterr().out
    assert Path("runs/ablate-distance-digits/report.html").exists()
    assert main(["report", "--markdown", "runs/ablate-distance-digits"]) == 0
    assert "| paper, cosine |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "--methods", ""], "needs names"),
        (["compare", "--protocols", ""], "needs a protocol"),
        (["compare", "--seeds", "foo"], "seeds must be a whole number"),
        (["compare", "--seeds", "auto", "--minutes", "3"], "not both"),
        (["compare", "--methods", "uniform"], "two arms or more"),
        (["ablate", "distanc"], "did you mean 'distance'"),
        (["reproduce", "table1"], "did you mean 'table-1'"),
        (["reproduce", "table-1", "--scale", "tiny"], "unknown scale"),
        (["reproduce", "table-1", "--seeds", "0"], "seeds must be"),
        (["report", "--markdown"], "takes folders"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_bad_commands_get_one_clear_line(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
