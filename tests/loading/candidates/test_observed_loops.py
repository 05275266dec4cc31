"""Observed in generated models and training loops. What is kept for a sample is what a fresh forward of that sample
gives at that time, or the sample is not seen."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

import smdl
from smdl.scoring import row_matching
from smdl.scoring.feature_cache import FeatureCache
from tests.conftest import examples

SAMPLES, BATCH, WIDTH, CLASSES, HIDDEN = 24, 8, 4, 3, 6
EXAMPLES = 150
#: A story is short, and shrinking one would take minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

DATA = ("normal", "near", "coarse", "timestamp", "copies", "scalar")
ORDERS = ("kept", "permuted", "sorted", "routed")
HEADS = ("linear", "lora", "temperature", "prior", "weight_norm", "cosine", "deep")
OUTPUTS = ("logits", "tuple", "dict", "log_softmax")
VIEWS = ("once", "body twice", "head twice")
WRAPPERS = ("none", "parallel", "checkpoint")

#: What a loop does before, in, between and after its forwards. The first of each changes nothing.
BEFORE = ("nothing", "add_", "data.add_", "numpy", "roll inputs", "roll last input", "roll targets", "ignore targets")
FORWARDS = ("whole", "parts", "permuted", "dropped", "copied", "cast", "augmented", "mixed", "reused buffer")
BETWEEN = ("nothing", "evaluate others", "evaluate these", "second view", "copy of the model")
AFTER = ("nothing", "features in place", "logits in place", "inputs in place", "targets in place")


@dataclass(frozen=True)
class Step:
    before: str = "nothing"
    forward: str = "whole"
    between: str = "nothing"
    after: str = "nothing"


@dataclass(frozen=True)
class Story:
    """A model, its data and a training loop."""

    data: str = "normal"
    inputs: int = 1
    order: str = "kept"
    head: str = "linear"
    output: str = "logits"
    view: str = "once"
    wrapper: str = "none"
    named: bool = False  # features="body"
    half: bool = False  # bfloat16
    compiled: bool = False
    steps: tuple[Step, ...] = (Step(),) * 3

    @property
    def is_plain(self) -> bool:
        """Whether every sample that is forwarded as it was yielded must be observed."""
        added_to = self.head in (
            "lora",
            "temperature",
            "prior",
        )  # then the head does not tell which call made the logits
        return self.order == "kept" and (self.view == "once" or not (self.named or added_to))


def rarely(usual: Any, *others: Any) -> st.SearchStrategy:
    """Mostly the usual value, so that a failure has few causes."""
    return st.one_of(st.just(usual), st.just(usual), st.sampled_from((usual, *others)))


STEPS = st.builds(Step, rarely(*BEFORE), rarely(*FORWARDS), rarely(*BETWEEN), rarely(*AFTER))
# torch cannot copy a model with weight_norm after a forward.
STORIES = st.builds(
    Story,
    data=st.sampled_from(DATA),
    inputs=st.integers(1, 2),
    order=rarely(*ORDERS),
    head=rarely(*HEADS),
    output=st.sampled_from(OUTPUTS),
    view=rarely(*VIEWS),
    wrapper=rarely(*WRAPPERS),
    named=st.booleans(),
    half=rarely(False, True),
    compiled=st.sampled_from([False] * 19 + [True]),
    steps=st.lists(STEPS, min_size=3, max_size=5).map(tuple),
).filter(lambda story: story.head != "weight_norm" or not any(step.between == BETWEEN[-1] for step in story.steps))


class Cosine(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return 5 * F.linear(F.normalize(input), F.normalize(self.weight))


class Model(nn.Module):
    """Every row by itself: `rows` is what a forward means, `forward` is how the model computes it."""

    def __init__(self, story: Story) -> None:
        super().__init__()
        self.story = story
        self.body = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh())
        self.head: nn.Module = nn.Linear(HIDDEN, CLASSES)
        if story.head == "cosine":
            self.head = Cosine(HIDDEN, CLASSES)
        elif story.head == "weight_norm":
            self.head = nn.utils.weight_norm(self.head)
        elif story.head == "deep":
            self.head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
        self.down, self.up = nn.Linear(HIDDEN, 2, bias=False), nn.Linear(2, CLASSES, bias=False)
        nn.init.zeros_(self.up.weight)
        self.temperature, self.prior = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(CLASSES))
        scale = torch.ones(WIDTH)
        if story.data == "timestamp":
            scale[0] = 1e-10
        self.scale = nn.Buffer(scale)

    def joined(self, *columns: Tensor) -> Tensor:
        first, *rest = (column.reshape(len(column), -1).expand(-1, WIDTH) for column in columns)
        return (first + sum((2 * column for column in rest), torch.zeros_like(first))) * self.scale

    def logits(self, features: Tensor) -> Tensor:
        made = self.head(features)
        if self.story.head == "lora":
            made = made + 10 * self.up(self.down(features))
        elif self.story.head == "temperature":
            made = made / self.temperature
        elif self.story.head == "prior":
            made = made + self.prior
        return made

    def rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of each row."""
        features = self.body(x)
        return features, self.logits(features)

    def compute(self, x: Tensor) -> tuple[Tensor, Tensor]:
        order = self.story.order
        if order == "routed" and self.training:
            there = x[:, 0] > x[:, 1]
            features, logits = x.new_empty(len(x), HIDDEN), x.new_empty(len(x), CLASSES)
            for group in (there, ~there):
                features[group], logits[group] = self.rows(x[group])
            return features, logits
        if order == "sorted" or (order == "permuted" and self.training):
            rows = x[:, 0].argsort() if order == "sorted" else torch.randperm(len(x))
            return tuple(part[rows.argsort()] for part in self.rows(x[rows]))  # type: ignore[return-value]
        return self.rows(x)

    def run(self, *columns: Tensor) -> Any:
        x = self.joined(*columns)
        if self.story.wrapper == "checkpoint":
            features, logits = checkpoint(self.compute, x, use_reentrant=False)  # type: ignore[misc]
        else:
            features, logits = self.compute(x)
        if self.story.view != "once" and self.training:  # a second view, for an auxiliary loss
            other = self.body(-x.flip(0))
            if self.story.view == "head twice":
                self.head(other)
        if self.story.output == "log_softmax":
            logits = logits.log_softmax(1)
        outputs = {"tuple": (logits, features), "dict": {"logits": logits, "hidden": features}}
        return outputs.get(self.story.output, logits)


class OneInput(Model):
    def forward(self, x: Tensor) -> Any:
        return self.run(x)


class TwoInputs(Model):
    def forward(self, a: Tensor, b: Tensor) -> Any:
        return self.run(a, b)


def data_of(story: Story) -> tuple[Tensor, ...]:
    """The columns of a dataset."""
    generator = torch.Generator().manual_seed(0)
    shape = (SAMPLES,) if story.data == "scalar" else (SAMPLES, WIDTH)
    y = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    columns = []
    for _ in range(story.inputs):
        x = torch.randn(*shape, generator=generator)
        if story.data == "near":  # in one direction: projections differ as little as the rows
            x = torch.ones(shape) + 3e-4 * x[:, :1]
        elif story.data == "coarse":
            x = 1 + 0.03 * x
        elif story.data == "timestamp":
            x[:, 0] = 1.6e9 + 1e6 * x[:, 0]
        elif story.data == "copies":
            x[1::2] = x[::2].clone()
        elif story.data == "scalar":
            x = y.float()
        columns.append(x)
    return (*columns, y)


def prepared(batch: list[Tensor], before: str) -> None:
    """Change a batch in place, as some loops do."""
    inputs, targets = batch[:-1], batch[-1]
    if before == "add_":
        inputs[0].add_(0.5)
    elif before == "data.add_":
        inputs[0].data.add_(0.5)
    elif before == "numpy":
        inputs[0].numpy()[:] = inputs[0].numpy()[::-1].copy()
    elif before == "roll inputs":
        for column in inputs:
            column.copy_(column.roll(1, 0))
    elif before == "roll last input":
        inputs[-1].copy_(inputs[-1].roll(1, 0))
    elif before == "roll targets":
        targets.copy_(targets.roll(1))
    elif before == "ignore targets":
        targets[::3] = -100


def forwards(model: Callable[..., Any], inputs: list[Tensor], how: str) -> tuple[list[Any], list[int]]:
    """Run the forwards of a step; return their outputs, and the places of the batch that were forwarded as they are."""
    everywhere = list(range(BATCH))
    if how == "parts":
        return [model(*(x[part] for x in inputs)) for part in (slice(0, 3), slice(3, 6), slice(6, 8))], everywhere
    if how == "permuted":
        order = torch.randperm(BATCH)
        return [model(*(x[order] for x in inputs))], everywhere
    if how == "dropped":
        return [model(*(x[2:7] for x in inputs))], everywhere[2:7]
    if how == "copied":
        return [model(*(x.clone() for x in inputs))], everywhere
    if how == "cast":
        return [model(*(x.double().to(x.dtype) for x in inputs))], everywhere
    if how == "augmented":
        return [model(*(x + 0.1 * torch.randn_like(x) for x in inputs))], []
    if how == "mixed":
        return [model(*(0.7 * x + 0.3 * x.flip(0) for x in inputs))], []
    if how == "reused buffer":
        buffers = [x[:4].clone() for x in inputs]
        outputs = [model(*buffers)]
        for buffer, x in zip(buffers, inputs, strict=True):
            buffer.copy_(x[4:])
        return outputs, []
    return [model(*inputs)], everywhere


def logits_in(output: Any) -> Tensor:
    return output["logits"] if isinstance(output, dict) else output[0] if isinstance(output, tuple) else output


def changed_after(outputs: list[Any], batch: list[Tensor], after: str) -> None:
    with torch.no_grad():
        for output in outputs:
            if after == "features in place" and not isinstance(output, Tensor):
                features = output["hidden"] if isinstance(output, dict) else output[1]
                features.div_(features.norm() + 3)
            elif after == "logits in place":
                logits_in(output).mul_(7.0)
        if after == "inputs in place":
            for column in batch[:-1]:
                column.zero_()
        elif after == "targets in place":
            batch[-1].zero_()


def between(model: nn.Module, inputs: list[Tensor], what: str) -> None:
    others = [x + 1 for x in inputs]
    if what == "copy of the model":
        copy.deepcopy(model)(*others)
    elif what == "second view":
        model(*others)
    elif what.startswith("evaluate"):
        model.eval()
        with torch.no_grad():
            model(*(inputs if what == "evaluate these" else others))
        model.train()


class Run:
    """One story, told step by step: what may be kept for every sample, and what is."""

    def __init__(self, story: Story) -> None:
        self.story, self.columns = story, data_of(story)
        self.model = (OneInput if story.inputs == 1 else TwoInputs)(story)
        self.dtype = torch.bfloat16 if story.half else torch.float32
        self.model.to(self.dtype)
        self.called: Any = nn.DataParallel(self.model) if story.wrapper == "parallel" else self.model
        if story.compiled:
            torch.compiler.reset()
            self.called = torch.compile(self.called, backend="eager")
        self.loader = smdl.DataLoader(
            TensorDataset(*self.columns),
            self.called,
            BATCH,
            candidates=smdl.Observed(lag=0, dtype="float32", start=99),
            scoring=smdl.Scoring(features="body" if story.named else None),
        )
        self.features, self.seen = torch.zeros(SAMPLES, HIDDEN), torch.zeros(SAMPLES, dtype=torch.bool)
        self.logits = torch.zeros(SAMPLES, CLASSES)  # at the time of the kept features
        self.compared, self.refused = 0, False  # kept rows that were compared; whether the model was refused
        self.tolerance = 1e-2 if story.half else 2e-6
        if story.order != "kept":  # rows whose logits are equal up to rounding may be moved
            self.tolerance = 5e-2 if story.half else 2e-4

    def tell(self) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3)
        batches = iter(self.loader)
        for told, step in enumerate(self.story.steps):
            try:
                batch = next(batches, None)
                batch = next(batches := iter(self.loader)) if batch is None else batch
            except ValueError as error:
                if told or self.story.is_plain:
                    raise AssertionError(f"refused {self.story}") from error
                self.refused = True
                return  # before anything was trained on
            self.step(list(batch), step, optimizer)

    def step(self, batch: list[Tensor], step: Step, optimizer: torch.optim.Optimizer) -> None:
        rows = torch.from_numpy(self.loader.selection.indices.copy())  # type: ignore[union-attr]
        prepared(batch, step.before)
        inputs = [x.to(self.dtype) for x in batch[:-1]]
        outputs, places = forwards(self.called, inputs, step.forward)
        between(self.model, inputs, step.between)
        loss = sum((logits_in(output).square().mean() for output in outputs), torch.zeros(()))
        fresh = self.fresh(rows)
        optimizer.zero_grad()
        loss.backward()
        changed_after(outputs, batch, step.after)
        inputs_changed = "input" in step.before or step.before in ("add_", "data.add_", "numpy")
        recognised = [] if inputs_changed or step.after == "inputs in place" else places
        if step.after == "features in place" and self.story.wrapper == "checkpoint":
            recognised = []
        self.check(rows, *fresh, rows[recognised] if self.story.is_plain else rows[:0])
        optimizer.step()

    @torch.no_grad()
    def fresh(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        clean = self.model.joined(*(column[rows].to(self.dtype) for column in self.columns[:-1]))
        features, logits = self.model.rows(clean)
        if self.story.head == "deep" and not self.story.named:  # the input of its last layer
            features = self.model.head[:2](features)  # type: ignore[index]
        return features.float(), logits.float()

    @torch.no_grad()
    def check(self, rows: Tensor, features: Tensor, logits: Tensor, recognised: Tensor) -> None:
        scoring, state = self.loader.scorer, self.loader.state_dict()["candidates"]["cache"]
        seen = state["seen"]
        assert bool(seen[recognised].all()), "a plain forward was not observed"
        if state["features"] is None:
            return
        kept = state["features"]
        renewed = seen & ((kept != self.features).any(1) | ~self.seen)
        inside = torch.zeros(SAMPLES, dtype=torch.bool)
        inside[rows] = True
        assert not bool((renewed & ~inside).any()), "a sample outside the batch got other features"
        wanted, wanted_logits = kept.clone(), self.logits.clone()
        wanted[rows], wanted_logits[rows] = features, logits
        far = (kept - wanted).abs().amax(1) > self.tolerance
        assert not bool((renewed & far).any()), "a sample has the features of another"
        self.compared += int(renewed.sum())
        self.logits = torch.where(renewed[:, None], wanted_logits, self.logits)
        self.features, self.seen = kept, seen
        assert torch.equal(state["targets"][seen], self.columns[-1][seen]), "a sample has the label of another"
        known = seen.nonzero()[:, 0]
        if len(known) == 0:
            return
        cache = self.loader.candidates._cache  # type: ignore[attr-defined]
        assert isinstance(cache, FeatureCache)
        found = cache.scores(scoring, known.numpy())
        assert found is not None
        assert found[0].probabilities is not None
        outputs = self.logits[known]
        if state["outputs"] is None:  # the head of this moment is applied
            last = self.model.head[2] if self.story.head == "deep" else self.model.logits  # type: ignore[index]
            outputs = last(kept[known].to(self.dtype)).float()
        difference = (found[0].probabilities - outputs.softmax(1)).abs()
        assert not bool((difference > (0.05 if self.story.half else 1e-3)).any()), "the head is another one"


def every(step: Step, **model: Any) -> Story:
    return Story(steps=(step,) * 4, **model)


#: One cause each. All of these gave samples the features, the label or the head of others.
HAZARDS = {
    "rows permuted inside the model": every(Step(), order="permuted"),
    "rows permuted inside the model, named features": every(Step(), order="permuted", named=True),
    "rows sorted inside the model": every(Step(), order="sorted", named=True),
    "LoRA": every(Step(), head="lora"),
    "a learned temperature": every(Step(), head="temperature"),
    "a learned prior": every(Step(), head="prior"),
    "LoRA and permuted rows": every(Step(), head="lora", order="permuted"),
    "targets changed before": every(Step(before="roll targets")),
    "targets ignored": every(Step(before="ignore targets")),
    "targets changed after": every(Step(after="targets in place")),
    "one of two inputs changed": every(Step(before="roll last input"), inputs=2),
    "one of two inputs changed, in parts": every(Step("roll last input", "parts"), inputs=2),
    "near rows in parts": every(Step(forward="parts"), data="near"),
    "near rows permuted": every(Step(forward="permuted"), data="near"),
    "a timestamp in parts": every(Step(forward="parts"), data="timestamp"),
    "a timestamp in halves": every(Step(forward="parts"), data="timestamp", half=True),
    "near rows mixed": every(Step(forward="mixed"), data="near"),
    "features changed in place": every(Step(after="features in place"), output="tuple"),
    "outputs changed in place": every(Step(after="logits in place"), output="dict", head="deep", named=True),
    "changes that torch does not count": every(Step(before="data.add_")),
    "changes by numpy": every(Step(before="numpy")),
    "changes by numpy, in parts": every(Step("numpy", "parts")),
    "a module called twice": every(Step(), view="body twice", named=True),
    "inputs that equal the targets": every(Step(), data="scalar"),
    "a buffer that is used again": every(Step(forward="reused buffer")),
}


@pytest.mark.parametrize("story", HAZARDS.values(), ids=HAZARDS)
@pytest.mark.parametrize("device", ["cpu", "another"])
@pytest.mark.filterwarnings("ignore")
def test_no_sample_gets_what_belongs_to_another(monkeypatch: pytest.MonkeyPatch, story: Story, device: str):
    if device == "another":  # do as if it were one that must be waited for
        monkeypatch.setattr(row_matching, "AT_ONCE", ())
    Run(story).tell()


@settings(examples(EXAMPLES), phases=PHASES)
@given(STORIES, st.integers(0, 1000))
def test_what_is_kept_for_a_sample_is_a_fresh_forward_of_it_or_nothing(story: Story, seed: int):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Run(story).tell()
