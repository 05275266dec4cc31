"""Costs per step, measured in turns, where the clock does not always move."""

from types import SimpleNamespace

import pytest

from smdl.common.progress import Display
from smdl.experiments.calibration import ROUNDS, take_turns
from smdl.experiments.timed_side import TimedSide


class Turns(TimedSide):
    """A side whose turns take the given seconds per step, one after the other and then again from the first."""

    def __init__(self, *seconds: float) -> None:
        self.loader, self.steps, self._seconds, self._turns = SimpleNamespace(candidates=None), 10, seconds, 0  # type: ignore[assignment]

    def turn(self) -> dict[str, float]:
        self._turns += 1
        seconds = self._seconds[(self._turns - 1) % len(self._seconds)]
        return {"selection": 0.0, "training": seconds, "forwards": 1.0}

    def epoch_seconds(self) -> float:
        return 0.0


def test_rounds_in_which_the_clock_stood_still_are_left_out():
    found = take_turns({"uniform": Turns(0.01), "loss": Turns(0.02, 0.02, 0.0)}, Display())
    assert found["loss"]["ratios"] == [2.0] * 10
    assert found["loss"]["seconds_per_step"] == pytest.approx(0.02)
    assert found["uniform"]["ratios"] == [1.0] * 10, "a round counts for all sides or for none"


@pytest.mark.parametrize("still", ["uniform", "loss"])
def test_without_a_round_that_can_be_timed_there_is_an_error(still):
    sides = {"uniform": Turns(0.01), "loss": Turns(0.02), still: Turns(0.0)}
    with pytest.raises(ValueError, match="too short to be timed on this busy machine: give more seconds, or a larger"):
        take_turns(sides, Display())
    assert sides[still]._turns == ROUNDS + 1, "every round was tried"
