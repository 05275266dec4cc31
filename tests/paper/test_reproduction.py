"""The paper's items are planned as at their start; nothing is trained."""

from types import SimpleNamespace

import pytest

from smdl.experiments.arms import with_overrides
from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.paper import ablation, reproduction
from smdl.paper.sweeps import SCALES
from smdl.training.config import TrainConfig


@pytest.fixture
def plans(monkeypatch) -> list[ComparisonPlan]:
    """The plans that an item would train, on a machine that has all data."""
    found = []

    def note(plan, out, **_):
        found.append(plan)
        return SimpleNamespace(folder=out, store=out)

    for module in (reproduction, ablation):
        monkeypatch.setattr(module, "run_plan", note)
    best = {"uncertainty": 0.2, "mean_closeness": 0.5, "feature_match": 0.2}
    monkeypatch.setattr(ablation, "collect", lambda _: None)
    monkeypatch.setattr(ablation, "best_weights", lambda _: best)
    monkeypatch.setattr(reproduction, "find", lambda *_: None)
    monkeypatch.setattr(reproduction, "search", lambda *_: None)
    return found


@pytest.mark.parametrize("item", reproduction.ITEMS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_arm_of_an_item_is_a_config_at_every_scale(tmp_path, plans, scale, item):
    folders = reproduction.reproduce(item, scale, tmp_path, root="elsewhere")
    assert plans
    assert len({folder.name for folder in folders}) == len(folders)
    for plan in plans:
        base = with_overrides(TrainConfig(), plan.base)
        assert base.data.root == "elsewhere"
        for overrides in plan.arms.values():
            with_overrides(base, overrides)
        assert plan.caption
        assert plan.paper


def test_the_paper_scale_is_the_papers_data_and_networks(tmp_path, plans):
    reproduction.reproduce("table-1", "paper", tmp_path)
    trained = [(plan.base["data"]["name"], plan.base["model"]["name"], plan.base["epochs"]) for plan in plans]
    assert trained == [("svhn", "resnet20", 100), ("cifar10", "resnet20", 100), ("cifar100", "resnet32", 100)]
