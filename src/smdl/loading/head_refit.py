"""refit_head: fit the last linear layer of a trained model again, on features that are known or on one pass."""

import copy as copies
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from smdl.common.messages import choice, names_checked, number, one_of, true_or_false, whole_number
from smdl.common.names import Balance
from smdl.loading.candidates.observed import Observed
from smdl.loading.head_checks import check_finite, check_hooks, linear_head
from smdl.loading.loader import DataLoader
from smdl.loading.ranks import Ranks, current_ranks
from smdl.scoring.losses import Loss
from smdl.scoring.model_access import unwrapped
from smdl.scoring.reading import Reader, ReadRequest, check_dataset, stored_labels, worker_errors
from smdl.scoring.scorer import NotFiniteError, Scorer
from smdl.scoring.scoring_options import Scoring
from smdl.scoring.taps import FEW

#: What `balance` may say, besides weights.
BALANCES = get_args(Balance)
#: Most iterations of L-BFGS; it stops earlier where the gradient is small.
ITERATIONS, SMALL_GRADIENT = 300, 1e-7


class _Known(NamedTuple):
    """Features and targets of samples."""

    rows: np.ndarray | None  # of the dataset; None if the data are batches without a known order
    features: Tensor  # (n, D)
    targets: Tensor  # (n, …)
    samples: int  # of the whole data


@names_checked
def refit_head(
    model: nn.Module,
    data: DataLoader | Dataset | Iterable[Any],
    balance: Balance | Tensor | np.ndarray = "classes",
    *,
    l2: float = 1e-3,
    gamma: float = 4.0,
    scoring: Scoring | None = None,
    batch_size: int = 500,
    copy: bool = False,
) -> nn.Module:
    """Fit the last linear layer of a trained model again, and leave all other weights as they are.

    Minimises the weighted mean of the losses plus l2 · ‖head − old head‖² by L-BFGS. If the classes differ in size and
    the test set is not like the training set, this gains most of what class-balanced training gains, in about a second.

    Args:
        model: The trained model. Its outputs must be made by a linear layer.
        data: A `smdl.DataLoader` of the model: with `smdl.Observed` (method="observed") the features that it has
            kept are used and nothing is forwarded, otherwise its dataset is forwarded once. Or a map-style dataset, or
            an iterable of batches such as a DataLoader of torch.
        balance: "classes" gives every class the same weight, "errors" weights sample i of class y with
            exp(−gamma · p(y)) / size of class y, where p is the probability by the old head (AFR, Qiu et al. 2023),
            "none" weights all samples alike. Or one weight per sample, (N,), in the order of the dataset.
        l2: How much the new head is held to the old one. 0 forgets the old one.
        gamma: For "errors": how much samples that the model gets wrong are preferred.
        scoring: How to read other batches, models and losses. By default that of the loader.
        batch_size: Samples per forward, if a dataset is forwarded.
        copy: Return a refitted copy and leave the model unchanged. Otherwise the model itself is refitted and returned.

    Returns:
        The model, or its copy. With several ranks of torch.distributed call it on every rank: all get the same head.

    Raises:
        ValueError: If the head is not linear, shares its weight with another module or has a hook that changes its
            output, if a class has no sample, there is a single class, numbers are not finite, or an argument is wrong.
            The model is then unchanged.
        TypeError: If an argument has the wrong type.

    Examples:
        >>> import smdl, torch
        >>> data = torch.utils.data.TensorDataset(torch.randn(100, 8), (torch.arange(100) % 10 == 0).long())
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        >>> smdl.refit_head(model, data) is model
        True
    """
    number("l2", l2, "a number ≥ 0", low=0.0)
    number("gamma", gamma, "a number ≥ 0", low=0.0)
    true_or_false("copy", copy)
    weights = one_of("balance", balance, BALANCES) if isinstance(balance, str) else _as_weights(balance)
    if isinstance(data, DataLoader) and scoring is None:
        if unwrapped(data.model) is not unwrapped(model):
            raise ValueError(
                "the loader chooses batches for another model: pass the model that the loader was made for"
            )
        scoring = data.scorer.scoring
    scorer, ranks = Scorer(model, scoring), current_ranks(_group(data))
    known = _kept(data, scorer) if isinstance(data, DataLoader) else None
    if known is None:
        known = _one_pass(scorer, data, whole_number("batch_size", batch_size), ranks)
    head, loss = linear_head(scorer), scorer.criterion.loss
    assert loss is not None
    check_finite(head, known.features, known.targets, known.rows)
    check_hooks(scorer.model, head, known.features)
    importance = _importance(weights, known, head, loss, gamma)
    fitted = _fitted(head, known, importance, loss, l2, scorer.kept.shape)
    if ranks.size > 1:  # each has fitted the same, up to rounding
        fitted = [torch.from_numpy(ranks.first(part.cpu().numpy())) for part in fitted]
    if not all(bool(part.isfinite().all()) for part in fitted):
        raise NotFiniteError("the refitted head is not finite: use a larger l2")
    return _written(model, scorer.model, head, fitted, copy)


def check_refit(loader: DataLoader, balance: Balance) -> None:
    """Raise the error of `refit_head` before training, where a few samples and the labels that the dataset holds show
    it. The loader stays as it is."""
    scorer, stored = Scorer(loader.model, loader.scorer.scoring), stored_labels(loader.dataset)
    rows = np.linspace(0, len(loader.dataset) - 1, FEW).astype(np.int64)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]), worker_errors():
        _, batch = next(iter(loader.reader.read([ReadRequest(0, rows.tolist(), train=False, score=True)])))
        (_, targets), head = *_forwarded(scorer, [batch]), linear_head(scorer)
    labels = None if scorer.criterion.loss is None else scorer.criterion.loss.labels(targets)
    if balance == "none" or labels is None or stored is None or not np.array_equal(stored[rows], labels.cpu().numpy()):
        return
    if stored.dtype.kind in "iu" and stored.min() >= 0:
        _class_sizes(torch.from_numpy(stored.astype(np.int64)), head)


def _group(data: Any) -> Any:
    return data.arguments["process_group"] if isinstance(data, DataLoader) else None


def _as_weights(given: Any) -> np.ndarray:
    try:
        if given is None:
            raise TypeError
        weights = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(choice("balance", given, f"one of {', '.join(BALANCES)}, or one weight per sample")) from error
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError(
            f"balance must be one weight ≥ 0 per sample, not all of them 0, got {weights.dtype} of {weights.shape}"
        )
    return weights


def _kept(loader: DataLoader, scorer: Scorer) -> _Known | None:
    """Return the features that the candidates of a loader have kept; None if they keep none from which the head makes
    outputs."""
    candidates, network = loader.candidates, loader.scorer.network
    if not isinstance(candidates, Observed) or candidates.sketch is not None or not network.knows_head:
        return None
    cache = loader.state_dict()["candidates"]["cache"]  # with what the last step has shown
    if cache["features"] is None or cache["targets"] is None or cache["holds_losses"]:
        return None
    scorer.load_state_dict(loader.scorer.state_dict())
    seen = cache["seen"]
    return _Known(seen.nonzero()[:, 0].numpy(), cache["features"][seen].float(), cache["targets"][seen], len(seen))


def _one_pass(scorer: Scorer, data: Any, batch_size: int, ranks: Ranks) -> _Known:
    """Forward the data once, in eval mode. Each rank forwards its share of a dataset, or its own batches."""
    rows, samples = None, 0
    kinds = "a smdl.DataLoader, a dataset or an iterable of batches"
    if isinstance(data, IterableDataset):
        remedy = "pass torch.utils.data.DataLoader(data, batch_size=...) if it yields samples, iter(data) if batches"
        raise TypeError(f"data must be {kinds}, got the IterableDataset {type(data).__name__}: {remedy}")
    if isinstance(data, list | tuple):
        shapes = [tuple(part.shape) for part in data if isinstance(part, Tensor | np.ndarray)]
        if len(set(shapes)) > 1:  # no samples: they could not be made a batch
            found = f"a {type(data).__name__} of tensors of shapes {', '.join(map(str, shapes[:3]))}"
            remedy = "pass torch.utils.data.TensorDataset(inputs, targets)"
            raise TypeError(f"data must be {kinds}, got {found}: {remedy}")
    if isinstance(data, Mapping):
        raise TypeError(choice("data", type(data).__name__, kinds))
    if isinstance(data, DataLoader) or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        dataset: Any = data.dataset if isinstance(data, DataLoader) else data
        reader = data.reader if isinstance(data, DataLoader) else Reader(dataset, None, None, 0)
        samples = check_dataset(dataset, "data")
        rows = ranks.share(np.arange(samples))
        starts = range(0, len(rows), batch_size)
        requests = [ReadRequest(0, rows[at : at + batch_size].tolist(), train=False, score=True) for at in starts]
        batches: Iterable[Any] = (batch for _, batch in reader.read(requests))
    elif isinstance(data, Iterable):
        batches = data
    else:
        raise TypeError(choice("data", type(data).__name__, kinds))
    try:
        with worker_errors():
            parts = list(_forwarded(scorer, batches))
    except (RuntimeError, TypeError, ValueError) as error:
        if not isinstance(data, list | tuple) or isinstance(error, torch.OutOfMemoryError):
            raise
        found = f"a {type(data).__name__} must hold samples, as a dataset does: if it holds batches, pass iter(data)"
        raise ValueError(f"{found}. {error}") from error
    found = ranks.gather_objects([(features.cpu(), targets.cpu()) for features, targets in parts])
    features, targets = ([part[place] for one in found for part in one] for place in (0, 1))
    if not features:
        raise ValueError("refit_head needs samples, and the data have none")
    if rows is not None:
        rows = np.concatenate([np.arange(samples)[number :: ranks.size] for number in range(ranks.size)])
    known = _Known(rows, torch.cat(features), torch.cat(targets), samples)
    if rows is not None and len(rows) != len(known.features):
        raise ValueError(f"collate_fn must make one row of each sample, got {len(known.features)} rows of {samples}")
    return known


def _forwarded(scorer: Scorer, batches: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in batches:
        features, _, targets = scorer.forward(batch)
        if targets is None:
            raise ValueError("refit_head needs targets: pass scoring=smdl.Scoring(targets=…, loss=…)")
        yield features, targets


def _importance(balance: str | np.ndarray, known: _Known, head: nn.Linear, loss: Loss, gamma: float) -> Tensor:
    """Return the weight of each sample, (n,), with mean 1."""
    n, labels = len(known.features), loss.labels(known.targets)
    if isinstance(balance, np.ndarray):
        if len(balance) != known.samples or known.rows is None:
            why = f"{known.samples}, got {len(balance)}" if known.rows is not None else "which batches do not have"
            raise ValueError(f"balance must be one weight per sample of a dataset, {why}")
        weights = torch.from_numpy(balance[known.rows])
        if not bool(weights.any()):
            raise ValueError("balance gives weight 0 to every sample whose features are known")
    elif balance == "none":
        weights = torch.ones(n, dtype=torch.float64)
    elif labels is None:
        raise ValueError(f'balance="{balance}" needs class numbers as targets: use balance="none" or weights')
    else:
        labels = labels.cpu()
        weights = 1 / _class_sizes(labels, head).double()[labels]
        if balance == "errors":
            weights = weights * torch.exp(-gamma * _own_probability(known, head, labels))
    if labels is not None:
        counted = labels[weights.to(labels.device) > 0].unique()
        if len(counted) < 2:
            found = f"class {int(counted[0])} only" if len(counted) else "none"
            raise ValueError(f"refit_head needs samples of two classes or more with a weight above 0, got {found}")
    return weights * (len(weights) / weights.sum())


def _class_sizes(labels: Tensor, head: nn.Linear) -> Tensor:
    """Return the number of samples of each class of a head, or raise an error if one has none."""
    counts = labels.bincount(minlength=max(2, head.out_features))  # an output of binary cross-entropy tells two classes
    missing = (counts == 0).nonzero()[:, 0].tolist()
    if len(counts) - len(missing) < 2:
        raise ValueError(f"refit_head needs samples of two classes or more, got class {int(counts.argmax())} only")
    if missing:
        named = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise ValueError(
            f"classes cannot have equal weights: of the head's {len(counts)} classes, {len(missing)} have no sample"
            f' ({named}). Train until every class was seen, pass the whole dataset, or use balance="none" or weights'
        )
    return counts


def _own_probability(known: _Known, head: nn.Linear, labels: Tensor) -> Tensor:
    """Return the probability that the old head gives to the label of each sample, (n,), in main memory."""
    with torch.no_grad():
        outputs = head(known.features.to(head.weight.device, head.weight.dtype)).double().cpu()
    if outputs.shape[1] == 1:
        outputs = torch.cat([torch.zeros_like(outputs), outputs], dim=1)
    return outputs.softmax(dim=1).gather(1, labels[:, None])[:, 0]


def _fitted(
    head: nn.Linear, known: _Known, importance: Tensor, loss: Loss, l2: float, shape: tuple[int, ...] | None
) -> list[Tensor]:
    """Return the new weight and, if the head has one, the new bias."""
    device = head.weight.device
    dtype = torch.float32 if device.type == "mps" else torch.float64  # which has no float64
    old = [part.detach().to(dtype).clone() for part in (head.weight, head.bias) if part is not None]
    new = [part.clone().requires_grad_() for part in old]
    features, importance = known.features.to(device, dtype), importance.to(device, dtype)
    targets = known.targets.to(device)
    if targets.is_floating_point():
        targets = targets.to(dtype)
    optimizer = torch.optim.LBFGS(
        new,
        max_iter=ITERATIONS,
        tolerance_grad=SMALL_GRADIENT,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def value() -> Tensor:
        optimizer.zero_grad()
        outputs = nn.functional.linear(features, *new)
        outputs = outputs if shape is None else outputs.reshape(len(outputs), *shape)
        found = (importance * loss(outputs, targets)).mean()
        found = found + l2 * sum(((part - before) ** 2).sum() for part, before in zip(new, old, strict=True))
        found.backward()
        return found

    with torch.enable_grad():
        optimizer.step(value)
    return [part.detach() for part in new]


def _written(model: nn.Module, inner: nn.Module, head: nn.Linear, fitted: list[Tensor], copy: bool) -> nn.Module:
    """Write the new head into the model, or into a copy of it."""
    if copy:
        place = next(name for name, module in inner.named_modules() if module is head)
        model = copies.deepcopy(model)
        found = unwrapped(model).get_submodule(place)
        assert isinstance(found, nn.Linear)
        head = found
    with torch.no_grad():
        for part, new in zip((head.weight, head.bias), fitted, strict=False):
            part.copy_(new)
    return model
