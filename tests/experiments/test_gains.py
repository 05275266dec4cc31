"""What perfect knowledge gains, the share of each method, and what is said where there is nothing to gain."""

from typing import Any

import numpy as np
import pytest

from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.experiments.experiment import run_plan
from smdl.experiments.oracle_gains import gain, gains_nothing, sentences
from smdl.experiments.regimes import comparison
from smdl.experiments.results import collect
from smdl.report.summaries import matrix
from smdl.report.text_tables import markdown
from smdl.training.config import to_dict
from tests.experiments.base import BASE


def by_seed(values) -> dict[int, float]:
    return dict(enumerate(values))


def found(baseline, oracle, **methods):
    values = {name: by_seed(one) for name, one in methods.items()}
    return gain("noisy", "steps", "final_accuracy", by_seed(baseline), by_seed(oracle), values, 1)


def test_a_share_is_the_ratio_of_the_gains():
    one = found([50, 51, 52, 53], [60, 61.5, 62, 63], balanced=[55, 56, 57.5, 58], recommended=[50, 51, 52, 53])
    assert one.excludes_zero
    shares = {share.method: share for share in one.shares}
    assert shares["balanced"].share == pytest.approx(5.125 / 10.125)
    assert 0.4 < shares["balanced"].low < 0.5 < shares["balanced"].high < 0.6
    assert shares["recommended"].share == 0
    (text,) = sentences([one])
    assert text.startswith("Noisy: perfect knowledge gains +10.1 ± 0.4 points in accuracy, of which balanced 51 % (")


def test_fiellers_interval_covers_the_ratio():
    """19 of 20 intervals hold the true ratio, 0.5."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        base = rng.normal(50, 1, 5)
        one = found(base, base + 4 + rng.normal(0, 0.7, 5), mine=base + 2 + rng.normal(0, 0.7, 5))
        held += not one.shares or one.shares[0].low <= 0.5 <= one.shares[0].high
    assert 0.92 < held / 400 < 0.98


def test_a_gain_that_may_be_zero_has_no_shares():
    one = found([50, 51, 52], [51, 50, 53], balanced=[52, 53, 54])
    assert not one.shares
    assert "not known: too few seeds" in sentences([one])[0]


def test_a_loss_that_falls_has_shares_and_no_points():
    values = {"mine": by_seed([0.45, 0.455, 0.465])}
    more = {"looks": 1, "margin": 0.001, "own": True, "higher_is_better": False}
    one = gain("", "steps", "loss", by_seed([0.5, 0.51, 0.52]), by_seed([0.4, 0.405, 0.42]), values, **more)
    (text,) = sentences([one])
    assert text.startswith("Perfect knowledge gains −0.102 ± 0.0072 in loss, of which mine 52 % (")


def test_equivalent_means_that_there_is_nothing_to_gain():
    nothing, rare = found([50, 51, 52], [50.05, 51, 52.05]), found([50, 51, 52], [57, 58, 59.5])
    assert gains_nothing([nothing])
    assert not gains_nothing([nothing, rare])
    assert not gains_nothing([])
    assert "knowing what is hidden gains nothing" in sentences([nothing])[0]


def plan(**more) -> ComparisonPlan:
    regimes = ["clean", "long-tail", "noisy"]
    return comparison("digits", to_dict(BASE), ["uniform", "balanced"], regimes, oracle=True, timed=False,
                      protocols=["steps"], **{"seeds": 3, **more})  # fmt: skip


def test_the_oracle_has_an_arm_where_something_is_hidden():
    made = plan()
    assert [arm for arm in made.arms if made.is_oracle(arm)] == ["oracle, long-tail", "oracle, noisy"]
    assert made.endpoint_of("balanced, long-tail") == "balanced_accuracy"
    assert made.endpoint_of("balanced, noisy") == "final_accuracy"


def test_a_comparison_shows_the_oracle_and_never_advises_it(tmp_path):
    folder = run_plan(plan(), tmp_path / "e").folder
    results = collect(folder)
    headings, rows = matrix(results, "steps")
    assert headings == ["equal epochs", "clean", "long-tail", "noisy"]
    assert [row[0] for row in rows] == ["uniform", "balanced", "oracle"]
    assert rows[2][1] == "–"
    assert all(cell != "–" for cell in rows[2][2:])
    assert {(one.regime, one.measure) for one in results.gains} == {
        ("long-tail", "balanced_accuracy"),
        ("long-tail", "rare_accuracy"),
        ("noisy", "final_accuracy"),
    }
    assert "oracle" not in results.answer + results.verdict
    (tail,) = (test for test in results.tests if test.arm == "balanced, long-tail")
    values: dict[str, Any] = {row.arm: row.metrics["balanced_accuracy"].mean for row in results.rows}
    assert tail.difference == pytest.approx(values["balanced, long-tail"] - values["uniform, long-tail"])
    assert "is no upper bound" in markdown(results)
