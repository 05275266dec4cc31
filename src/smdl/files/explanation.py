"""What a plan costs, before it starts: memory, passes over the input, time."""

import torch

from smdl.common.units import duration, size_text
from smdl.engine.objective import Objective
from smdl.engine.plan import SelectionPlan, Shape, Ways, make_plan
from smdl.files.file_plan import FilePlan
from smdl.files.job import merge_objective
from smdl.files.rows import Rows


def explain_files(source: Rows, plan: FilePlan, objective: Objective, limited: bool) -> list[str]:
    """Describe the input, the plan and its costs. `limited`: with quotas or a budget."""
    files = str(source.shards[0].path) if len(source.shards) == 1 else f"{len(source.shards)} files"
    row = source.width * source.dtype.itemsize
    levels = [selection for _, selection in _selections(source, plan, objective, limited)]
    rows, memory = max(each.samples for each in levels), max(each.memory for each in levels)
    methods = dict.fromkeys(f"{each.engine}, which {each.how}" for each in levels)
    predicted = duration(seconds(source, plan, objective, limited))
    held = f"{size_text((plan.candidates + plan.represented or rows) * row)} for the rows of a selection at most"
    if plan.partitions == 1 and source.is_mapped and not plan.candidates:
        held = "a memory map of the rows"
    return [
        f"input: {files}, {len(source):,} rows of {source.width} × {source.dtype.name}, {size_text(len(source) * row)}",
        *(f"plan: {line}" for line in plan.lines()),
        *(f"engine: {method}" for method in methods),
        "reads: two passes over the input: one checks it, one chooses",
        f"memory: {held}, and about {size_text(memory)} to choose",
        f"time: about {predicted} on one machine with {torch.get_num_threads()} threads",
    ]


def seconds(source: Rows, plan: FilePlan, objective: Objective, limited: bool) -> float:
    """Predict how long all selections take, one after the other."""
    return sum(count * selection.seconds for count, selection in _selections(source, plan, objective, limited))


def _selections(source: Rows, plan: FilePlan, objective: Objective, limited: bool) -> list[tuple[int, SelectionPlan]]:
    """Return how many selections each level has, and the plan of one of them."""
    found = []
    for level, count in enumerate(plan.levels):
        shape = Shape(plan.pool_rows(level), source.width, half=source.dtype.itemsize == 2)
        used = objective if level == 0 else merge_objective(objective, plan.reference(level), plan.rows)
        optimizer = "lazy" if limited and used.diminishing else "auto"
        found.append((count, make_plan(used, shape, min(plan.size, shape.samples), Ways(optimizer))))
    return found
