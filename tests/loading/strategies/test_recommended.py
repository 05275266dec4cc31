"""The recommended method: what it draws, which labels it leaves out, and when."""

import copy
import weakref
from itertools import chain

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl
from tests.toys import sgd, train

CLASSES = 8


def clusters(wrong: float = 0.0, n: int = 400, seed: int = 0) -> tuple[TensorDataset, np.ndarray]:
    """One cluster per class. A part of the labels is replaced by another class, at random. Return these samples too."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    inputs = np.eye(CLASSES, dtype=np.float32)[labels] + rng.normal(0, 0.05, (n, CLASSES)).astype(np.float32)
    changed = np.sort(rng.choice(n, round(wrong * n), replace=False))
    labels[changed] = (labels[changed] + rng.integers(1, CLASSES, len(changed))) % CLASSES
    return TensorDataset(torch.from_numpy(inputs), torch.from_numpy(labels)), changed


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(CLASSES, CLASSES)


def begun(data: TensorDataset, **options) -> tuple[smdl.DataLoader, nn.Module, torch.optim.Optimizer]:
    network = linear()
    return smdl.DataLoader(data, network, 20, **options), network, torch.optim.SGD(network.parameters(), lr=5.0)


def left_out_of(loader: smdl.DataLoader) -> list[int]:
    return loader.state_dict()["strategy"]["left_out"].nonzero()[:, 0].tolist()


def test_on_clean_data_it_draws_what_uniform_draws():
    data, _ = clusters()
    one, other = begun(data), begun(data, method="uniform")
    assert train(*one, steps=100) == train(*other, steps=100)
    assert left_out_of(one[0]) == []
    assert one[0].forwards == 0


def test_wrong_labels_are_left_out_from_the_third_epoch_on():
    data, wrong = clusters(0.2)
    run = begun(data)
    first = train(*run, steps=40)
    assert sorted(chain(*first)) == sorted([*range(400)] * 2), "two plain passes"
    later = train(*run, steps=60)
    found = set(left_out_of(run[0]))
    assert found <= set(wrong.tolist())
    assert len(found) > 0.8 * len(wrong)
    assert found.isdisjoint(chain(*later[40:]))
    assert {len(batch) for batch in later} == {20}


def test_what_is_left_out_stays_out():
    run = begun(clusters(0.2)[0])
    before: set[int] = set()
    for _ in range(6):
        train(*run, steps=20)
        now = set(left_out_of(run[0]))
        assert before <= now
        before = now
    assert before


def test_check_labels_leaves_nothing_out_and_observes_nothing():
    data, _ = clusters(0.2)
    run = begun(data, options={"check_labels": False})
    assert train(*run, steps=100) == train(*begun(data, method="uniform"), steps=100)
    assert left_out_of(run[0]) == []
    with pytest.raises(ValueError, match='needs method="recommended", which checks the labels'):
        run[0].suspects()


def test_a_rare_class_is_no_wrong_label():
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(400) % 7, np.full(8, 7)])
    inputs = np.eye(CLASSES)[labels] + rng.normal(0, 0.05, (408, CLASSES))
    run = begun(TensorDataset(torch.from_numpy(inputs).float(), torch.from_numpy(labels)))
    train(*run, steps=120)
    assert left_out_of(run[0]) == []


def test_a_model_that_has_learned_nothing_judges_nothing():
    data, _ = clusters(0.2)
    loader, network, _ = begun(data)
    for _ in range(4):
        for inputs, _ in loader:
            network(inputs)
    assert left_out_of(loader) == []
    assert loader.suspects().noise == 0
    assert len(loader.suspects().indices) == 0


def test_an_epoch_is_resumed_with_the_identical_tail_in_the_middle_of_it_and_at_its_end():
    data, _ = clusters(0.2)
    for steps in (40, 47, 60, 75):
        run = begun(data)
        train(*run, steps=steps)
        state = copy.deepcopy([part.state_dict() for part in run])
        runs = run, begun(data)
        for one in runs:
            for part, saved in zip(one, state, strict=True):
                part.load_state_dict(copy.deepcopy(saved))
        tails = [train(*one, steps=45) for one in runs]
        assert tails[0] == tails[1], steps
        assert left_out_of(runs[0][0]) == left_out_of(runs[1][0]) != []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(noise=-1.0), "noise must be a number ≥ 0"),
        (lambda s: s.update(left_out=torch.zeros(3, dtype=torch.bool)), "left_out must be 400 flags"),
        (lambda s: s["record"].update(sums=torch.zeros(400, 2, dtype=torch.float64)), "sums must have 4 columns"),
        (lambda s: s["record"].update(forwards=torch.full((400,), -1)), "forwards must be 400 whole numbers ≥ 0"),
        (lambda s: s["record"].update(classes=1), "classes must be a whole number ≥ 4"),
        (lambda s: s["record"].pop("labels"), "labels missing"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, message):
    data, _ = clusters(0.2)
    run = begun(data)
    train(*run, steps=70)
    loader = run[0]
    state, before = loader.state_dict(), copy.deepcopy(loader.state_dict())
    change(state["strategy"])
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)
    after = loader.state_dict()["strategy"]
    assert torch.equal(after["left_out"], before["strategy"]["left_out"])
    assert torch.equal(after["record"]["sums"], before["strategy"]["record"]["sums"])


def test_a_balanced_test_set_and_wrong_labels_go_together():
    data, wrong = clusters(0.2)
    labels = data.tensors[1].numpy()
    run = begun(data, options={"test_set": "balanced"})
    batches = train(*run, steps=100)
    counts = np.array([np.bincount(labels[batch], minlength=CLASSES) for batch in batches])
    assert (np.abs(counts - 2.5) < 1).all()
    assert len(set(left_out_of(run[0])) & set(wrong.tolist())) > 0.5 * len(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"test_set": "large"}, "unknown test_set 'large'"), ({"check_labels": 1}, "check_labels must be True or False")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        begun(clusters()[0], options=options)


def test_suspects_are_the_wrong_labels_the_least_probable_first():
    data, wrong = clusters(0.2)
    run = begun(data)
    with pytest.raises(ValueError, match="trained on twice, with class numbers of at least 4 classes"):
        run[0].suspects()
    train(*run, steps=60)
    found = run[0].suspects()
    assert 0.15 < found.noise < 0.25
    assert len(found.indices) == round(found.noise * 400)
    assert np.isin(found.indices, wrong).mean() > 0.9
    assert (np.diff(found.probabilities) >= 0).all()
    assert run[0].suspects(7).indices.tolist() == found.indices[:7].tolist()
    assert len(run[0].suspects(1000).indices) == 400


def test_targets_of_any_kind_and_few_classes_are_drawn_as_by_uniform():
    inputs = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    for targets, outputs, loss in (
        (torch.arange(60) % 3, 3, F.cross_entropy),
        (inputs.sum(1, keepdim=True), 1, F.mse_loss),
        (inputs.abs().softmax(1), 5, F.cross_entropy),
        ((inputs > 0).float(), 5, F.binary_cross_entropy_with_logits),
    ):
        data, drawn = TensorDataset(inputs, targets), []
        for method in ("recommended", "uniform"):
            network = nn.Linear(5, outputs)
            loader, optimizer = smdl.DataLoader(data, network, 10, method=method), sgd(network)
            drawn.append([])
            for _ in range(3):
                for x, y in loader:
                    optimizer.zero_grad()
                    loss(network(x), y).backward()
                    optimizer.step()
                    drawn[-1].append(loader.selection.indices.tolist())  # type: ignore[union-attr]
        assert drawn[0] == drawn[1]


def test_batches_that_cannot_be_recognised_are_a_warning_and_nothing_is_left_out():
    class Texts(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, row: int) -> dict[str, str]:
            return {"text": f"sample {row}"}

    loader = smdl.DataLoader(Texts(), linear(), 10)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="method recommended cannot check the labels") as caught:
        seen = [text for _ in range(2) for batch in loader for text in batch["text"]]
    assert sorted(seen) == sorted([f"sample {row}" for row in range(40)] * 2)
    assert sum("cannot check" in str(warning.message) for warning in caught) == 1


@pytest.mark.parametrize("first", [True, False], ids=["from the first batch on", "later"])
@pytest.mark.parametrize("loss", [None, "cross_entropy"])
def test_labels_that_the_loss_ignores_are_not_judged(first, loss):
    data, wrong = clusters(0.2)
    loader, network, optimizer = begun(data, scoring=smdl.Scoring(loss=loss))
    labels, order = data.tensors[1], train(*begun(data), steps=20)
    ignored = order[0][:3] if first else order[10][:3]
    labels[ignored] = -100
    train(loader, network, optimizer, steps=80)
    assert len(set(left_out_of(loader)) & set(wrong.tolist())) > 0.7 * len(wrong)
    assert set(left_out_of(loader)).isdisjoint(ignored)


def plain_loop(data: TensorDataset, network: nn.Module, **options) -> smdl.DataLoader:
    """Two epochs of a loop that asks for the gradients of the mean output."""
    loader = smdl.DataLoader(data, network, 4, **options)
    for _ in range(2):
        for inputs, _ in loader:
            network(inputs).mean().backward()
    return loader


def test_outputs_that_are_probabilities_are_a_warning_and_nothing_is_left_out():
    data, _ = clusters(0.2)
    with pytest.warns(UserWarning, match="cannot check the labels.* these are probabilities") as caught:
        loader = plain_loop(data, nn.Sequential(linear(), nn.Softmax(dim=1)))
    assert sum("cannot check" in str(warning.message) for warning in caught) == 1
    assert left_out_of(loader) == []


def test_outputs_of_another_form_are_not_held():
    """One output per token, of texts of several lengths: the loss of a text says nothing about a label."""
    texts = TensorDataset(torch.randint(9, (80, 7)), torch.randint(9, (80, 7)))
    lengths = iter(range(3, 8))

    def shortened(items: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        length = next(lengths, 5)
        return torch.stack([item[0][:length] for item in items]), torch.stack([item[1][:length] for item in items])

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)

    network = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 9))
    scoring = smdl.Scoring(loss=loss, pooling="mean")
    loader = plain_loop(texts, network, collate_fn=shortened, scoring=scoring)
    assert loader.epoch == 2
    with pytest.raises(ValueError, match="class numbers of at least 4 classes"):
        loader.suspects()


def test_outputs_of_several_widths_stop_no_loop():
    """As in multiple choice: a batch has as many classes as there are answers."""

    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.calls = nn.Linear(CLASSES, CLASSES), 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls += 1
            return self.linear(inputs)[:, : 4 + self.calls % 4]

    inputs, labels = clusters()[0].tensors
    assert plain_loop(TensorDataset(inputs, labels % 4), Answers()).epoch == 2


@pytest.mark.filterwarnings("ignore:.*cannot check the labels")
def test_parts_of_a_batch_with_outputs_of_several_widths_stop_no_loop():
    data, _ = clusters()
    loader = smdl.DataLoader(data, nn.Linear(CLASSES, CLASSES), 20)
    widths = iter([])
    loader.model.register_forward_hook(lambda _, __, outputs: outputs[:, : next(widths)])
    for inputs, _ in loader:
        widths = iter([4, 5])
        for part in (inputs[:2], inputs[2:]):
            loader.model(part).sum().backward()
    assert loader.epoch == 1


def test_a_check_that_gave_up_keeps_no_batch_in_memory():
    inputs = torch.randn(60, 5)
    network = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 2))
    seen = []
    for batch, targets in smdl.DataLoader(TensorDataset(inputs, torch.arange(60) % 2), network, 10):
        F.cross_entropy(network(batch), targets).backward()
        seen.append(weakref.ref(batch))
        assert sum(found() is not None for found in seen) <= 2


def test_logits_may_be_passed_by_hand():
    data, wrong = clusters(0.2)
    loader, network, optimizer = begun(data)
    for _ in range(4):
        for inputs, targets in loader:
            logits = network(2 * inputs)
            optimizer.zero_grad()
            F.cross_entropy(logits, targets).backward()
            optimizer.step()
            loader.observe(logits=logits)
    assert len(set(left_out_of(loader)) & set(wrong.tolist())) > 0.5 * len(wrong)
    next(iter(loader))
    with pytest.raises(ValueError, match="needs the logits of the batch"):
        loader.observe(torch.ones(20))
