"""The tests of an experiment: each arm against its baseline, over the seeds that both have finished."""

from statistics import fmean

from smdl.experiments.comparison_plan import ORACLE, ComparisonPlan
from smdl.experiments.oracle_gains import Gain, gain
from smdl.experiments.records import Comparison, DataFacts, Row, RunRecord, SecondaryTest, Welch, runs_of
from smdl.experiments.regimes import arm_name, baseline_of
from smdl.experiments.runs import measured
from smdl.experiments.statistics import (
    MARGIN,
    RELATIVE_MARGIN,
    difference,
    holm,
    paired_difference,
    pairs_of,
    seeds_needed,
)
from smdl.experiments.verdicts import at_chance, judge


def primary_tests(
    plan: ComparisonPlan, protocol: str, runs: list[RunRecord], data: dict[str, DataFacts]
) -> list[Comparison]:
    """Test the primary endpoint of every arm."""
    finals = {arm: values_of(runs, arm, protocol, plan.endpoint_of(arm)) for arm in plan.arms}
    rivals = plan.rivals
    pairs = {arm: pairs_of(finals[arm], finals[rival]) for arm, rival in rivals.items()}
    gaps = {arm: paired_difference(*pairs[arm], looks=plan.looks_allowed) for arm in rivals}
    candidates = [arm for arm in rivals if not plan.is_oracle(arm)]  # the oracle is no method to choose
    adjusted = {arm: gap.p for arm, gap in gaps.items()}
    adjusted |= dict(zip(candidates, holm([gaps[arm].p for arm in candidates]), strict=True))
    plain = {} if plan.metric else {arm: values_of(runs, arm, protocol, "final_accuracy") for arm in plan.arms}
    chance = {arm for arm, values in plain.items() if values and at_chance(fmean(values.values()), data[arm])}
    found = []
    for arm, rival in rivals.items():
        gap, count, p, margin = gaps[arm], len(pairs[arm][0]), adjusted[arm], _margin(plan, finals[rival])
        kind = "chance" if {arm, rival} <= chance else judge(gap, count, p, margin, plan.higher_is_better)
        welch = difference(list(finals[arm].values()), list(finals[rival].values()))
        found.append(
            Comparison(
                arm=arm,
                against=rival,
                protocol=protocol,
                failed={name: plan.seeds - len(finals[name]) for name in (arm, rival)},
                empty=[name for name in (arm, rival) if not finals[name]],
                difference=gap.mean,
                half=gap.half,
                p=gap.p,
                p_holm=p,
                half_90=gap.half_90,
                pairs=count,
                verdict=kind,
                seeds_needed=seeds_needed(*pairs[arm], len(candidates), margin) if kind == "unclear" else None,
                welch=Welch(welch.mean, welch.half, welch.p),
                metric=plan.metric,
                margin=margin,
            )
        )
    return found


def secondary_tests(plan: ComparisonPlan, protocol: str, rows: list[Row], runs: list[RunRecord]) -> list[SecondaryTest]:
    """Test what is measured besides the primary endpoint."""
    known = {row.arm: row.metrics for row in rows if row.protocol == protocol}
    asked = [
        (arm, rival, name)
        for arm, rival in plan.rivals.items()
        for name in known[arm]
        if name != plan.endpoint_of(arm) and not plan.is_oracle(arm)
    ]
    gaps = []
    for arm, rival, name in asked:
        pairs = pairs_of(*(values_of(runs, each, protocol, name) for each in (arm, rival)))
        gaps.append(paired_difference(*pairs, looks=plan.looks_allowed))
    adjusted = holm([gap.p for gap in gaps])
    return [
        SecondaryTest(arm, rival, protocol, name, gap.mean, gap.half, gap.p, p)
        for (arm, rival, name), gap, p in zip(asked, gaps, adjusted, strict=True)
    ]


def gains_of(plan: ComparisonPlan, runs: list[RunRecord]) -> list[Gain]:
    """Return what perfect knowledge gains, in each regime if there are several, by the primary endpoint and by the rare
    groups."""
    if ORACLE not in plan.methods:
        return []
    found, baseline = [], baseline_of(plan.methods)
    methods = [name for name in plan.methods if name not in (ORACLE, baseline)]
    for protocol in plan.protocols:
        for regime in plan.regimes or [""]:
            arm, rival = arm_name(ORACLE, regime), arm_name(baseline, regime)
            for measure in dict.fromkeys((plan.endpoint_of(rival), "rare_accuracy")) if arm in plan.arms else ():
                before, known = (values_of(runs, one, protocol, measure) for one in (rival, arm))
                others = {name: values_of(runs, arm_name(name, regime), protocol, measure) for name in methods}
                if before and known:
                    more = (plan.looks_allowed, _margin(plan, before), bool(plan.metric))
                    lower = measure == plan.metric and not plan.higher_is_better
                    found.append(gain(regime, protocol, measure, before, known, others, *more, not lower))
    return found


def values_of(runs: list[RunRecord], arm: str, protocol: str, measure: str) -> dict[int, float]:
    """Return a quantity of each seed that has it."""
    found = {run.seed: measured(run.epochs) for run in runs_of(runs, arm, protocol)}
    return {seed: values[measure] for seed, values in found.items() if measure in values}


def _margin(plan: ComparisonPlan, baseline: dict[int, float]) -> float:
    """Return the margin of equivalence: what the plan says, or 0.5 points of accuracy, or 0.5 % of the mean of the
    baseline by a metric of the user."""
    if plan.margin is not None:
        return plan.margin
    if not plan.metric:
        return MARGIN
    return RELATIVE_MARGIN * abs(fmean(baseline.values())) if baseline else 0.0
