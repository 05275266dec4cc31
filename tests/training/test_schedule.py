"""The learning rate follows its schedule."""

import pytest

from smdl.training.config import ScheduleConfig
from smdl.training.schedule import rate


@pytest.mark.parametrize(("name", "middle", "end"), [("constant", 1, 1), ("cosine", 0.5, 0), ("linear", 0.5, 0)])
def test_the_rate_in_the_middle_and_at_the_end(name, middle, end):
    config = ScheduleConfig(name)
    assert rate(config, 0.0) == 1
    assert rate(config, 0.5) == pytest.approx(middle)
    assert rate(config, 1.0) == pytest.approx(end)


def test_steps_multiply_by_gamma():
    config = ScheduleConfig("step", milestones=[0.5, 0.75], gamma=0.1)
    assert [rate(config, done) for done in (0.49, 0.5, 0.74, 0.75)] == pytest.approx([1, 0.1, 0.1, 0.01])


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "step"])
def test_warm_up_rises_from_zero_and_then_the_schedule_begins(name):
    config = ScheduleConfig(name, warmup=0.2)
    assert rate(config, 0.0) == 0
    assert rate(config, 0.1) == pytest.approx(0.5)
    assert rate(config, 0.2) == pytest.approx(1)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "cosin", "cosine"),
        ("warmup", 1.0, r"\[0, 1\)"),
        ("milestones", [30, 60], "fractions"),
        ("gamma", 0, "positive"),
    ],
)
def test_bad_values_are_named(field, value, said):
    with pytest.raises(ValueError, match=said):
        ScheduleConfig(**{field: value})
