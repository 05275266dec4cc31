"""What the tests of an experiment mean, in words. Chance level comes first: without learning there is no verdict."""

import math
from collections.abc import Sequence

from smdl.experiments.records import Comparison, DataFacts
from smdl.experiments.statistics import FEWEST_SEEDS, LEVEL, MARGIN, MOST_SEEDS_ASKED, Difference

#: Standard errors of a test set of this size between chance level and what counts as learned.
ERRORS = 3.0


def data_facts(train: int | None, test: int | None, classes: int | None, largest: float | None) -> DataFacts:
    """Return what the accuracies are measured on. `largest` is the share of the largest class of the test set."""
    chance = max(1 / classes, largest or 0.0) if classes else None
    limit = None
    if chance is not None:
        limit = chance + (ERRORS * math.sqrt(chance * (1 - chance) / test) if test else chance / 10)
    percent = (None if value is None else 100 * value for value in (chance, limit))
    return DataFacts(train, test, classes, 100 / test if test else None, *percent)


def at_chance(accuracy: float | None, data: DataFacts) -> bool:
    """Whether an accuracy (%) cannot be told from chance on a test set of this size."""
    return accuracy is not None and data.chance_limit is not None and accuracy <= data.chance_limit


def judge(
    gap: Difference, pairs: int, p_holm: float | None, margin: float = MARGIN, higher_is_better: bool = True
) -> str:
    """Return better, worse, equivalent or unclear; missing where there is no pair."""
    if gap.mean is None:
        return "missing"
    if pairs < FEWEST_SEEDS:
        return "unclear"
    if p_holm is not None and p_holm < LEVEL:
        return "better" if (gap.mean > 0) == higher_is_better else "worse"
    if gap.half_90 is None:  # no spread: equal in every seed, or a difference that cannot be tested
        return "unclear" if gap.mean else "equivalent"
    return "equivalent" if abs(gap.mean) + gap.half_90 <= margin else "unclear"


def finding(test: Comparison, named: bool = False) -> str:
    """Say what a test found. `named`: with the name of the arm's own baseline."""
    arm = f"{test.arm} (against {test.against})" if named else test.arm
    failed = [f"{count} of {name}’s runs" for name, count in test.failed.items() if count]
    left_out = f", {' and '.join(failed)} left out: not finished, diverged or damaged" if failed else ""
    if test.verdict == "missing" or test.difference is None:
        missing = f"{' and '.join(test.empty)} has no finished run"
        return missing if test.empty else f"{arm} and {test.against} share no finished seed"
    if test.verdict == "chance":
        return f"{arm} and {test.against} are both at chance level, so there is nothing to compare{left_out}"
    gap = amount(test)
    if test.verdict in ("better", "worse"):
        small = ", too little to matter" if _negligible(test) else ""
        return f"{arm} is {test.verdict} by {gap[1:]}{small}{left_out}"
    if test.verdict == "equivalent":
        return f"{arm} is equivalent ({gap}, surely within ±{test.margin:.2g}){left_out}"
    return f"too few seeds to tell for {arm} ({gap}{_needed(test)}){left_out}"


def amount(test: Comparison) -> str:
    """Return '+0.42 ± 0.10 points', or '+0.0042 ± 0.001 in accuracy' for a metric of the user."""
    form = ".3g" if test.metric else ".2f"
    half = "" if test.half is None else f" ± {test.half:{'.2g' if test.metric else form}}"
    return f"{test.difference:+{form}}{half}{_unit(test.metric)}"


def _unit(metric: str) -> str:
    return f" in {metric}" if metric else " points"


def excludes_zero(test: Comparison) -> bool:
    """Whether the interval of a difference excludes zero, before any correction."""
    return test.half is not None and abs(test.difference or 0.0) > test.half


def _negligible(test: Comparison) -> bool:
    return abs(test.difference or 0.0) + (test.half_90 or 0.0) <= test.margin


def _needed(test: Comparison) -> str:
    why = ", not significant after the correction" if excludes_zero(test) else ""
    if test.half is None and test.pairs >= FEWEST_SEEDS:
        why = " in every seed, and without spread there is no test"
    return f"{why}; {seeds_text([test])} needed"


def seeds_text(tests: Sequence[Comparison]) -> str:
    """Return 'about 12 seeds are': the largest number that one of the tests asks for. Where seeds say little about the
    spread, it is 'at least'."""
    number = max(test.seeds_needed or FEWEST_SEEDS for test in tests)
    if number > MOST_SEEDS_ASKED:
        return f"more than {MOST_SEEDS_ASKED} seeds are"
    vague = any(test.half is None for test in tests)
    return f"{'at least' if vague else 'about'} {number} seeds are"


def answer(tests: Sequence[Comparison], equal: str, rival: str) -> str:
    """Answer "should I use it here?" in one sentence, from the tests at the primary endpoint."""
    kinds = {test.verdict for test in tests}
    rated = [test for test in tests if test.verdict == "better" and not _negligible(test)]
    if rated:
        best = max(rated, key=lambda test: abs(test.difference or 0.0))
        return f"Yes, use {best.arm} here: {amount(best)} at equal {equal} against {best.against}."
    if kinds & {"chance", "missing"} and not kinds & {"unclear", "equivalent", "worse"}:
        why = "nothing was learned" if "chance" in kinds else "there are no finished runs to compare"
        return f"This cannot be answered yet: {why}."
    if "unclear" in kinds:
        open_tests = [test for test in tests if test.verdict == "unclear"]
        names = ", ".join(test.arm for test in open_tests) if len(open_tests) <= 3 else f"{len(open_tests)} arms"
        return f"Not known yet for {names}: too few seeds to tell at equal {equal}; {seeds_text(open_tests)} needed."
    if kinds == {"worse"}:
        return f"No: at equal {equal}, {rival} is better."
    margin, metric = max((test.margin for test in tests), default=MARGIN), next((test.metric for test in tests), "")
    return f"No need to: at equal {equal}, nothing is better than {rival} by {margin:.2g}{_unit(metric)}."
