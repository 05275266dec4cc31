"""What a plan costs, before it starts: memory, passes over the input, time."""

import numpy as np
import torch

from smdl.common.units import duration, size_text
from smdl.engine.plan import SelectionPlan, Shape, Ways, make_plan
from smdl.files.job import Job, merge_objective, objective_of


def explain_files(job: Job) -> list[str]:
    """Describe the input, the plan and its costs."""
    source, plan = job.source, job.plan
    files = str(source.shards[0].path) if len(source.shards) == 1 else f"{len(source.shards)} files"
    row = source.width * source.dtype.itemsize
    levels = [selection for _, selection in selections(job)]
    rows, memory = max(each.samples for each in levels), max(each.memory for each in levels)
    methods = dict.fromkeys(f"{each.engine}, which {each.how}" for each in levels)
    held = f"{size_text((plan.candidates + plan.represented or rows) * row)} for the rows of a selection at most"
    if plan.partitions == 1 and source.is_mapped and not plan.candidates:
        held = "a memory map of the rows"
    return [
        f"input: {files}, {len(source):,} rows of {source.width} × {source.dtype.name}, {size_text(len(source) * row)}",
        *(f"plan: {line}" for line in plan.lines()),
        *(f"engine: {method}" for method in methods),
        "reads: two passes over the input: one checks it, one chooses",
        f"memory: {held}, and about {size_text(memory)} to choose",
        f"time: about {duration(seconds(job))} on one machine with {torch.get_num_threads()} threads",
    ]


def seconds(job: Job) -> float:
    """Predict how long all selections take, one after the other."""
    return sum(count * selection.seconds for count, selection in selections(job))


def selections(job: Job) -> list[tuple[int, SelectionPlan]]:
    """Return how many selections each level has, and the plan of one of them."""
    plan, objective, found = job.plan, objective_of(job.objective), []
    others = sum(len(rows) for rows in (job.query, job.away_from) if rows is not None)
    taken = len(np.union1d(job.exclude, job.initial))
    shape = Shape(0, job.source.width, half=job.source.dtype.itemsize == 2, others=others, asked=job.query is not None)
    for level, count in enumerate(plan.levels):
        shape = shape._replace(samples=plan.pool_rows(level))
        used = merge_objective(objective, plan.reference(level), plan.rows) if level else objective
        candidates = plan.merged(level) if level else shape.samples - taken // count
        ways = Ways("auto", candidates, given=len(job.initial), limited=job.is_limited)
        found.append((count, make_plan(used, shape, min(plan.size, candidates), ways)))
    return found
