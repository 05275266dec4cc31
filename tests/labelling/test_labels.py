# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false
"""Labels: which rows are next, and what the answers say."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import smdl
from smdl.engine.geometry import Geometry

PIXELS, CLASSES = load_digits(return_X_y=True)


def clusters(per_cluster=20, seed=0):
    """Three clusters of points in three dimensions, and the number of each point's cluster."""
    noise = np.random.default_rng(seed).normal(0, 0.1, (3 * per_cluster, 3))
    return np.repeat(np.eye(3), per_cluster, axis=0) + noise, np.repeat(np.arange(3), per_cluster)


def answered(labels, rows, classes):
    labels.add(rows, [f"class {classes[row]}" for row in rows])


def right(labels, classes):
    """Return the share of all rows that the probe predicts rightly."""
    names = np.array([int(str(name).split()[-1]) for name in labels.classes])
    return (names[labels.probabilities().argmax(axis=1)] == classes).mean()


def test_the_first_rows_come_from_all_clusters():
    features, classes = clusters()
    assert sorted(classes[smdl.Labels(features).next(3)]) == [0, 1, 2]


def test_chosen_labels_are_worth_more_than_random_ones_on_the_digits():
    chosen, by_chance = smdl.Labels(PIXELS), smdl.Labels(PIXELS)
    answered(chosen, chosen.next(20), CLASSES)
    answered(by_chance, np.random.default_rng(0).permutation(len(PIXELS))[:20], CLASSES)
    assert right(chosen, CLASSES) > right(by_chance, CLASSES) + 0.1


def test_the_same_answers_give_the_same_rows_and_new_answers_give_others():
    labels = smdl.Labels(PIXELS)
    rows = labels.next(10)
    assert labels.next(10).tolist() == rows.tolist()
    answered(labels, rows, CLASSES)
    assert not set(labels.next(10)) & set(rows)


def test_answers_change_which_rows_are_next():
    """A probe that is unsure of other rows asks for other rows."""
    one, other = smdl.Labels(PIXELS), smdl.Labels(PIXELS)
    rows = one.next(20)
    answered(one, rows, CLASSES)
    answered(other, rows, (CLASSES > 4).astype(int))
    assert one.next(20).tolist() != other.next(20).tolist()


def test_given_probabilities_take_the_place_of_the_probe():
    features, classes = clusters()
    labels = smdl.Labels(features)
    answered(labels, [0, 20], classes)
    sure = np.tile([0.98, 0.02], (60, 1))
    sure[45] = 0.5
    assert labels.next(1, probabilities=sure)[0] == 45


@pytest.mark.parametrize(
    "wrong",
    [np.ones((60, 2)), np.full((59, 2), 0.5), np.full((60, 2), np.nan), np.tile([1.5, -0.5], (60, 1)), np.ones(60)],
)
def test_probabilities_of_another_form_are_refused(wrong):
    labels = smdl.Labels(clusters()[0])
    with pytest.raises((ValueError, TypeError), match="probabilities"):
        labels.next(3, probabilities=wrong)


def test_an_estimator_of_the_user_is_the_probe():
    features, classes = clusters()
    labels = smdl.Labels(features, KNeighborsClassifier(1))
    answered(labels, labels.next(6), classes)
    assert set(np.unique(labels.probabilities())) == {0.0, 1.0}
    assert right(labels, classes) == 1.0
    with pytest.raises(TypeError, match="fit and predict_proba"):
        smdl.Labels(features, model=3)


def test_a_tensor_of_features_gives_the_same_rows_as_an_array():
    found = smdl.Labels(torch.from_numpy(PIXELS)).next(10)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == smdl.Labels(PIXELS).next(10).tolist()


def test_pending_rows_are_not_asked_for_again():
    labels = smdl.Labels(PIXELS)
    rows = labels.next(10)
    more = labels.next(10, pending=rows)
    assert more.tolist() == labels.next(20)[10:].tolist()


def test_a_row_that_nobody_can_tell_is_not_asked_again_and_is_not_labelled():
    features, classes = clusters()
    labels = smdl.Labels(features)
    row = labels.next(1)[0]
    labels.add([row], [None])
    assert len(labels) == 0
    assert row not in labels.next(59)
    # Its cluster is not represented by it, so the next three rows come from three clusters again.
    assert sorted(classes[labels.next(3)]) == [0, 1, 2]


def test_a_later_answer_of_the_same_person_replaces_the_earlier():
    labels = smdl.Labels(clusters()[0])
    labels.add([4], ["a"])
    labels.add([4], ["b"])
    assert labels.answers == {4: "b"}
    assert labels.classes == ["b"]
    assert labels.disputed() == []


def test_the_majority_counts_and_a_tie_does_not():
    labels = smdl.Labels(clusters()[0])
    for name, (one, two) in {"ann": "aa", "ben": "bb", "cem": "ab"}.items():
        labels.add([1, 2], [one, two], annotator=name)
    labels.add([3], ["a"], annotator="ann")
    labels.add([3], ["b"], annotator="ben")
    labels.add([4], ["a"], annotator="ann")
    labels.add([4], [None], annotator="ben")
    assert labels.answers == {1: "a", 2: "b", 4: "a"}
    assert labels.disputed() == [1, 2, 3, 4]
    assert labels.said(3) == {"ann": "a", "ben": "b"}
    assert not {1, 2, 3, 4} & set(labels.next(56))


def test_a_new_class_in_a_later_round_is_learned():
    features, classes = clusters()
    labels = smdl.Labels(features)
    answered(labels, [0, 1, 20, 21], classes)
    assert labels.probabilities().shape == (60, 2)
    answered(labels, [40, 41], classes)
    assert labels.probabilities().shape == (60, 3)
    assert right(labels, classes) == 1.0


def test_accuracy_comes_from_the_check_rows_alone():
    features, classes = clusters()
    labels = smdl.Labels(features)
    checks = labels.check(10)
    answered(labels, labels.next(6), classes)
    assert labels.accuracy.biased
    labels.add(checks[:8], [f"class {classes[row]}" for row in checks[:8]])
    labels.add(checks[8:], ["another class"] * 2)
    assert labels.accuracy[0] == 0.8
    assert labels.accuracy.rows == 10
    assert not labels.accuracy.biased
    assert labels.accuracy.low < 0.8 < labels.accuracy.high


def test_check_rows_do_not_train_unless_asked_to():
    features, classes = clusters()
    for train_on_checks, count in ((False, 2), (True, 3)):
        labels = smdl.Labels(features, train_on_checks=train_on_checks)
        answered(labels, labels.check(30), classes)
        answered(labels, [row for row in (0, 1, 20, 21, 2, 3, 22, 23) if row not in labels.checks], classes)
        assert (labels.probabilities().max(axis=0) > 0).sum() == count


def test_a_check_row_that_trains_is_judged_by_probes_that_have_not_seen_it():
    labels = smdl.Labels(np.eye(60), train_on_checks=True)
    rows = labels.check(40)
    labels.add(rows, np.random.default_rng(0).permutation(["a", "b"] * 20).tolist())
    assert labels.accuracy[0] < 0.7, "there is nothing to learn"


def test_check_rows_are_drawn_at_random_and_never_chosen():
    labels = smdl.Labels(PIXELS)
    checks = labels.check(100)
    assert not set(checks) & set(labels.next(500))
    share = np.bincount(CLASSES[smdl.Labels(PIXELS, seed=1).check(1000)]) / 1000
    assert np.abs(share - np.bincount(CLASSES) / len(CLASSES)).max() < 0.03
    assert set(checks) < set(labels.check(150))


def test_answered_check_rows_are_not_returned_again():
    features, classes = clusters()
    labels = smdl.Labels(features)
    rows = labels.check(5)
    answered(labels, rows[:3], classes)
    assert labels.check(5).tolist() == rows[3:].tolist()
    assert len(labels.check(8)) == 5


def test_the_forecast_is_near_what_more_labels_bring():
    labels = smdl.Labels(PIXELS)
    checks = labels.check(200)
    answered(labels, labels.next(40), CLASSES)
    assert labels.forecast(40) is None  # no check row is answered
    answered(labels, checks, CLASSES)
    found = labels.forecast(40)
    answered(labels, labels.next(40), CLASSES)
    assert found.labels == 80
    assert found.gain > 0
    assert found.low <= labels.accuracy.value <= found.high


def test_more_labels_are_needed_for_more_accuracy():
    labels = smdl.Labels(PIXELS)
    answered(labels, labels.check(200), CLASSES)
    answered(labels, labels.next(60), CLASSES)
    now = labels.accuracy.value
    assert labels.needed(now - 0.1) == 60
    assert 60 < labels.needed(now + 0.02) < labels.needed(now + 0.04)


def test_the_accuracy_of_another_model_is_measured_on_the_check_rows():
    features, classes = clusters()
    labels = smdl.Labels(features)
    checks = labels.check(10)
    labels.add(checks, classes[checks])
    wrong = classes.copy()
    wrong[checks[:3]] += 1
    assert labels.accuracy_of(wrong).value == 0.7
    with pytest.raises(ValueError, match="one per row of the pile, 60, got 2"):
        labels.accuracy_of([0, 1])


def test_a_wrong_answer_is_suspect():
    labels = smdl.Labels(PIXELS)
    rows = labels.next(150)
    given = CLASSES[rows].copy()
    wrong = [3, 50, 90]
    given[wrong] = (given[wrong] + 5) % 10
    labels.add(rows, given)
    suspects = labels.suspects()
    assert {rows[place] for place in wrong} <= {each.row for each in suspects}
    assert len(suspects) < 15
    assert next(each.instead for each in suspects if each.row == rows[3]) == CLASSES[rows[3]]


def test_a_state_gives_the_same_rows_in_another_object():
    labels = smdl.Labels(PIXELS, seed=3)
    checks = labels.check(20)
    answered(labels, checks[:15], CLASSES)
    answered(labels, labels.next(15), CLASSES)
    labels.add([7], [None], annotator="ben")
    state = json.loads(json.dumps(labels.state_dict()))
    twin = smdl.Labels(PIXELS)
    twin.load_state_dict(state)
    assert twin.next(10).tolist() == labels.next(10).tolist()
    assert twin.check(25).tolist() == labels.check(25).tolist()
    assert twin.accuracy == labels.accuracy


def test_a_state_of_other_features_is_refused():
    state = smdl.Labels(PIXELS).state_dict()
    for other in (PIXELS[:-1], PIXELS + 1):
        with pytest.raises(ValueError, match="other features"):
            smdl.Labels(other).load_state_dict(state)
    with pytest.raises(ValueError, match="checks missing"):
        smdl.Labels(PIXELS).load_state_dict({name: value for name, value in state.items() if name != "checks"})
    for changes, message in (
        ({"checks": [len(PIXELS)]}, "checks must be indices in 0.."),
        ({"answers": [[len(PIXELS), "a", ""]]}, "answers must be about rows in 0.."),
    ):
        with pytest.raises(ValueError, match=message):
            smdl.Labels(PIXELS).load_state_dict({**state, **changes})


def test_the_rows_do_not_depend_on_the_number_of_threads():
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            labels = smdl.Labels(PIXELS)
            answered(labels, labels.next(30), CLASSES)
            found.append(labels.next(30).tolist())
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def test_one_class_alone_is_no_error():
    labels = smdl.Labels(clusters()[0])
    labels.add(labels.next(5), ["only"] * 5)
    assert labels.accuracy is None
    assert labels.suspects() == []
    assert len(labels.next(5)) == 5
    labels.add(labels.check(20), ["only"] * 20)
    assert labels.accuracy.value == 1.0


def test_a_class_with_one_answer_is_no_error():
    features, classes = clusters()
    labels = smdl.Labels(features)
    answered(labels, [0, 1, 2, 3, 20], classes)
    assert labels.accuracy.biased
    assert labels.suspects() == []
    assert len(labels.next(4)) == 4


def test_fewer_rows_than_asked_for_are_returned_at_the_end():
    labels = smdl.Labels(clusters(2)[0])
    labels.add([0, 1, 2, 3], ["a", "b", "a", "b"])
    assert sorted(labels.next(10)) == [4, 5]
    labels.add([4, 5], ["a", None])
    with pytest.raises(ValueError, match="all 6 rows have an answer"):
        labels.next(1)


@pytest.mark.parametrize(
    ("rows", "answers", "message"),
    [
        ([60], ["a"], "a row must be a whole number from 0 to 59, got 60"),
        ([-1], ["a"], "from 0 to 59, got -1"),
        ([0.5], ["a"], "from 0 to 59, got 0.5"),
        ([True], ["a"], "got True"),
        ([0, 1], ["a"], "one per row, got 1 for 2 rows"),
        ([0, 0], ["a", "b"], "row 0 has two answers"),
        ([0], ["  "], "must not be empty"),
        ([0], [float("nan")], "a text, a whole number"),
        ([0, 1], ["a", 1], "of one type"),
        ([0], [["a"]], "a text, a whole number"),
    ],
)
def test_bad_answers_are_refused_and_none_of_them_is_kept(rows, answers, message):
    labels = smdl.Labels(clusters()[0])
    with pytest.raises((ValueError, TypeError), match=message):
        labels.add(rows, answers)
    assert len(labels) == 0


def test_features_that_are_not_finite_are_refused_by_their_rows():
    features = clusters()[0]
    features[[3, 8]] = np.nan
    with pytest.raises(ValueError, match=r"finite"):
        smdl.Labels(features)


def test_equal_names_in_two_forms_are_one_class():
    labels = smdl.Labels(clusters()[0])
    labels.add([0, 1], ["café ", "cafe\u0301"])
    assert labels.classes == ["café"]


def test_rounds_share_the_similarities_of_the_first(monkeypatch):
    computed = []
    matrix = Geometry._matrix
    monkeypatch.setattr(Geometry, "_matrix", lambda self: computed.append(1) or matrix(self))
    features = np.random.default_rng(0).normal(size=(60, 4))
    labels = smdl.Labels(features)
    for _ in range(3):
        rows = labels.next(5)
        labels.add(rows, (features[rows, 0] > 0).tolist())
    assert len(computed) == 1
