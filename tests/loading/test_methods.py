"""One table of methods: Python and the command line build the same thing from it."""

import copy
from typing import Any

import numpy as np
import pytest

import smdl
from smdl.loading.methods import CANDIDATES, METHODS, as_method, make_candidates
from smdl.loading.strategies.submodular import Submodular
from smdl.loading.strategies.uniform import Uniform
from smdl.training.build import make_method
from smdl.training.config import TrainConfig
from tests.toys import Net, Tuples, epoch_of


def described(method: smdl.Method) -> tuple[Any, ...]:
    strategy, source = method.make()
    strategy.prepare(30, 10)
    return type(strategy), strategy.describe(), source


@pytest.mark.parametrize("name", METHODS)
def test_python_and_the_command_line_build_the_same_method(name):
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method=name, epochs=10)
    strategy, description, source = described(make_method(TrainConfig(method=name)))
    source.set_workers(0)  # as the loader does
    assert (type(loader.strategy), loader.strategy.describe(), loader.candidates) == (strategy, description, source)


@pytest.mark.parametrize(
    ("name", "python", "command_line"),
    [
        (
            "paper",
            {"objective": smdl.Objective.paper(distance="cosine"), "candidates": smdl.Full(10)},
            {"objective": {"distance": "cosine"}, "candidates": {"every": 10}},
        ),
        (
            "observed",
            {"objective": smdl.Objective(uncertainty=0.5, redundancy=0.5)},
            {"objective": {"uncertainty": 0.5, "redundancy": 0.5}},
        ),
        (
            "observed",
            {"candidates": smdl.Full(3, replacement=True), "options": {"optimizer": "stochastic"}},
            {
                "candidates": {"kind": "full", "every": 3, "replacement": True},
                "options": {"optimizer": "stochastic"},
            },
        ),
        ("fresh", {"candidates": smdl.RandomPool(5)}, {"candidates": {"factor": 5}}),
        ("observed", {"candidates": smdl.Observed(5)}, {"candidates": {"factor": 5}}),
        ("loss", {"options": {"pressure": 7.0}}, {"options": {"pressure": 7.0}}),
    ],
)
def test_changes_mean_the_same_in_python_and_on_the_command_line(name, python, command_line):
    made = make_method(TrainConfig(method=name, **command_line))
    assert described(made) == described(as_method(name).changed(**python))


def test_the_paper_is_algorithm_1_over_the_whole_dataset():
    for name, objective in (("paper", smdl.Objective.paper()), ("paper_subset", smdl.Objective.paper_subset())):
        strategy, source = METHODS[name].make()
        assert isinstance(strategy, Submodular)
        assert strategy.objective == objective
        assert (strategy.optimizer, strategy.partitions, strategy.epsilon) == ("stochastic", 10, 0.01)
        assert source == smdl.Full(5)


def test_an_objective_is_maximised_in_the_default_candidates():
    objective = smdl.Objective(redundancy=1.0)
    loader = smdl.DataLoader(Tuples(30), Net(), 4, objective=objective)
    assert isinstance(loader.strategy, Submodular)
    assert loader.strategy.objective == objective
    assert loader.candidates == smdl.Observed(lag=0)


def test_every_method_is_described_and_usable_as_it_stands():
    for name, method in METHODS.items():
        assert method.name == name
        assert method.about
        before = copy.deepcopy(method)
        loader = smdl.DataLoader(Tuples(30), Net(), 4, method=name, epochs=2)
        assert len(epoch_of(loader)) == 8
        assert method.candidates == before.candidates, "loaders work on copies"


def test_a_strategy_without_a_source_gets_the_one_it_needs():
    assert as_method(Uniform()).make()[1] == smdl.RandomPool(1)
    assert as_method(Submodular()).make()[1] == smdl.RandomPool(3)
    strategy = Uniform()
    strategy.needs_all = True
    assert as_method(strategy).make()[1] == smdl.Full(every=None, replacement=True)


MODULE = """
import numpy as np
import smdl

class Highest(smdl.Strategy):
    needs_scores = True
    def __init__(self, sign=1.0): self.sign = sign
    def select(self, pool, remaining, batch_size, rng):
        order = np.argsort(-self.sign * pool.losses.numpy()[remaining])[:batch_size]
        return smdl.Selection(remaining[order], np.zeros(batch_size), 0.0)

method = smdl.Method("lowest losses", Highest, smdl.RandomPool(2), {"sign": -1.0})
number = 3
"""


@pytest.fixture
def own_methods(tmp_path, monkeypatch):
    (tmp_path / "own_methods.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own_methods")
def test_a_method_of_ones_own_comes_by_its_path():
    for path, options, source in (
        ("own_methods:Highest", {}, smdl.RandomPool(3)),
        ("own_methods:Highest", {"sign": -1.0}, smdl.RandomPool(3)),
        ("own_methods:method", {}, smdl.RandomPool(2)),
    ):
        config = TrainConfig(method=path, options=options)
        strategy, made = make_method(config).make()
        assert made == source
        assert strategy.sign == (1.0 if path.endswith("Highest") and not options else -1.0)  # type: ignore[attr-defined]
        loader = smdl.DataLoader(Tuples(30), Net(), 4, method=path, options=options)
        assert len(epoch_of(loader)) == 8


@pytest.mark.usefixtures("own_methods")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "own_methods:number"}, TypeError, "method own_methods:number must be a smdl.Method or a Strategy"),
        ({"method": "own_methods:nothing"}, ValueError, "unknown method in own_methods 'nothing'"),
        ({"method": "papper"}, ValueError, "unknown method 'papper'; did you mean 'paper'.*, or package.module:name"),
        ({"method": "uniform", "options": {"pressure": 1}}, ValueError, "method uniform takes no options, got 'pressu"),
        (
            {"method": "paper", "options": {"partitons": 1}},
            ValueError,
            "unknown option of method paper 'partitons'; did you mean",
        ),
        (
            {"method": "observed", "candidates": {"evry": 1}},
            ValueError,
            "unknown option of candidates Observed 'evry'. Choose one of dev",
        ),
        ({"candidates": {"kind": "ful"}}, ValueError, "unknown candidates.kind 'ful'; did you mean 'full'"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(change, error, message):
    with pytest.raises(error, match=message):
        make_method(TrainConfig(**change)).make()


def test_a_source_is_changed_or_replaced_by_name():
    method = METHODS["paper"]
    assert make_candidates({}, method) is None
    assert make_candidates({"replacement": True}, method) == smdl.Full(5, replacement=True)
    assert make_candidates({"kind": "random_pool"}, method) == smdl.RandomPool(3)
    assert make_candidates({"kind": "smdl.loading.candidates.full:Full", "every": 2}, method) == smdl.Full(2)


def test_every_term_and_option_of_an_objective_is_taken_by_the_config():
    for name in smdl.Objective.terms():
        objective = make_method(TrainConfig(method="observed", objective={name: 0.5})).objective
        assert objective == smdl.Objective(**{name: 0.5})
    for name, value in (("distance", "cosine"), ("sigma", 2.0), ("space", "gradients"), ("normalize", "candidates"),
                        ("concave", "log"), ("kernel", "cosine"), ("noise", 2.0), ("neighbours", 3)):  # fmt: skip
        objective = make_method(TrainConfig(method="observed", objective={name: value})).objective
        assert objective == smdl.Objective.gradients(**{name: value})


def test_an_unknown_term_is_refused_and_a_missing_value_is_no_change():
    with pytest.raises(ValueError, match="did you mean 'redundancy'"):
        make_method(TrainConfig(method="observed", objective={"redundency": 1.0}))
    assert (
        make_method(TrainConfig(method="observed", objective={"redundancy": None})).objective
        == smdl.Objective.gradients()
    )


def test_candidates_of_the_config_are_the_public_ones():
    assert set(CANDIDATES.values()) == {smdl.Full, smdl.Observed, smdl.RandomPool}
    assert np.all([issubclass(kind, smdl.Candidates) for kind in CANDIDATES.values()])
