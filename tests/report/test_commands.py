"""`smdl report --markdown` prints the tables of an experiment."""

from pathlib import Path

from smdl.cli.commands import main

FROZEN = Path(__file__).parent / "frozen"


def test_smdl_report_prints_the_tables_as_markdown(capsys):
    assert main(["report", "--markdown", str(FROZEN)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("**At equal time, against uniform over 2 seeds: too few seeds to tell")
    assert "| recommended | 31.67 | −10.83 |" in printed
