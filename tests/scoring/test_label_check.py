"""The check of labels, against plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smdl.scoring import label_check
from smdl.scoring.label_check import LabelRecord, label_evidence, tells


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    classes, rows = draw(st.integers(4, 9)), draw(st.integers(1, 6))
    logit = st.integers(-6, 6).map(float)
    logits = draw(st.lists(st.lists(logit, min_size=classes, max_size=classes), min_size=rows, max_size=rows))
    return logits, draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))


@given(batches())
def test_the_evidence_is_that_of_the_plain_loops(batch):
    logits, labels = batch
    found = label_evidence(torch.tensor(logits), torch.tensor(labels))
    assert found is not None
    for row, label, (own, most, first, low, of, classes) in zip(logits, labels, found.tolist(), strict=True):
        total = sum(math.exp(value) for value in row)
        better = sum(value > row[label] for value in row)
        assert own == pytest.approx(max(math.log(math.exp(row[label]) / total), -14), abs=1e-5)
        assert most == pytest.approx(math.log(math.exp(max(row)) / total), abs=1e-5)
        assert (first, low) == (better == 0, better >= len(row) - len(row) // 2)
        assert (of, classes) == (label, len(row))


def test_labels_that_are_no_class_of_the_outputs_give_no_evidence():
    found = label_evidence(torch.randn(4, 5), torch.tensor([0, -100, 5, 4]))
    assert found.isfinite().tolist() == [[True] * 6, [False] * 6, [False] * 6, [True] * 6]


def test_only_logits_of_four_classes_and_class_numbers_tell_about_labels():
    labels = torch.zeros(5, dtype=torch.int64)
    assert tells(torch.zeros(5, 4), labels)
    assert not tells(torch.zeros(5, 3), labels)
    assert not tells(torch.zeros(5, 7, 4), labels)
    assert not tells(torch.zeros(5, 4), torch.zeros(5, 4))


def filled(
    own: list[float],
    labels: list[int],
    low: list[bool] | None = None,
    first: list[bool] | None = None,
    most: list[float] | None = None,
) -> LabelRecord:
    """A record in which sample i was forwarded twice, with a label of log-probability own[i], one of ten."""
    n = len(own)
    record = LabelRecord(n)
    low, first, most = low or [False] * n, first or [True] * n, most or [-0.1] * n
    columns = [own, most, first, low, labels, np.full(n, 10)]
    for _ in range(2):
        record.add(np.arange(n), np.stack([np.asarray(column, float) for column in columns], axis=1))
    return record


def test_the_first_forward_of_a_sample_does_not_count():
    record = LabelRecord(3)
    for own in (-9.0, -1.0, -3.0):
        record.add(np.array([1]), np.array([[own, -0.1, 1, 0, 2, 10]]))
    assert record.suspects(3).indices.tolist() == [1]
    assert record.suspects(3).probabilities.tolist() == pytest.approx([math.exp(-2)])


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_the_noise_is_that_of_labels_drawn_at_random(share):
    rng = np.random.default_rng(0)
    wrong = rng.random(4000) < share
    rank = np.where(wrong, rng.integers(1, 10, 4000), 0)  # of the label in the ranking of ten classes
    record = judged(rng.integers(10, size=4000), rank)
    assert record.noise() == pytest.approx(share, abs=0.05)


def judged(labels: np.ndarray, rank: np.ndarray) -> LabelRecord:
    """A record of these labels, which have these ranks among the classes: the model is as confident about all."""
    return filled([-1.0] * len(rank), labels.tolist(), (rank >= 5).tolist(), (rank == 0).tolist())


def test_a_model_at_chance_judges_nothing():
    rng = np.random.default_rng(0)
    assert judged(rng.integers(10, size=4000), rng.integers(10, size=4000)).noise() is None


def test_where_most_labels_seem_to_be_wrong_none_is_judged():
    rng = np.random.default_rng(0)
    rank = np.where(rng.random(4000) < 0.6, rng.integers(1, 10, 4000), 0)
    assert judged(rng.integers(10, size=4000), rank).noise() is None


def test_a_model_that_always_says_the_most_common_class_judges_nothing():
    """A constant ranking of the classes, 70 % of class 0. Of the others, half are in the lower half of the ranking."""
    labels = np.where(np.random.default_rng(0).random(4000) < 0.7, 0, np.arange(4000) % 10)
    assert judged(labels, labels).noise() is None


def test_a_common_class_hides_no_noise():
    """Half of the samples are of class 0, and 30 % of all labels are wrong. The model is most confident about 0."""
    rng = np.random.default_rng(0)
    true, wrong = np.where(rng.random(4000) < 0.5, 0, rng.integers(1, 10, 4000)), rng.random(4000) < 0.3
    rank = np.where(wrong, rng.integers(1, 10, 4000), 0)
    labels = (true + rank) % 10
    most = np.where(true == 0, -0.1, -0.5).tolist()
    record = filled([-1.0] * 4000, labels.tolist(), (rank >= 5).tolist(), (rank == 0).tolist(), most)
    assert record.noise() == pytest.approx(0.3, abs=0.05)


def test_nothing_is_known_before_most_samples_were_forwarded_twice():
    record = LabelRecord(10)
    for number in range(5):
        assert record.noise() is None
        for _ in range(2):
            record.add(np.array([number]), np.array([[-5.0, -0.1, 1, 0, number, 10]]))
    assert record.noise() == 0


def test_bayes_rule_draws_the_line(monkeypatch):
    monkeypatch.setattr(label_check, "PART", 1.0)
    line = math.log(2 * 0.2 / 9)
    record, left_out = filled([line - 0.01, line + 0.01, -1.0], [0, 1, 2]), np.zeros(3, bool)
    record.add_wrong(0.2, left_out)
    assert left_out.tolist() == [True, False, False]
    record.add_wrong(0.0, left_out)
    assert left_out.tolist() == [True, False, False]


def test_the_least_probable_half_of_a_class_may_go_and_no_more():
    own, left_out = [-9.0, -8.0, -7.0, -6.0, -9.0], np.zeros(5, bool)
    record = filled(own, [3, 3, 3, 3, 5])
    for _ in range(2):
        record.add_wrong(0.2, left_out)
        assert left_out.tolist() == [True, True, False, False, False]


def test_rows_that_are_not_finite_do_not_count():
    record = LabelRecord(2)
    for own in (-1.0, float("nan"), -2.0):
        record.add(np.array([0, 1]), np.array([[own, -0.1, 1, 0, 2, 10], [-3.0, -0.1, 1, 0, 2, 10]]))
    assert record.suspects(2).probabilities.tolist() == pytest.approx([math.exp(-3), math.exp(-2)])
