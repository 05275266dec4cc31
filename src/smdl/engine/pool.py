"""Pool: what a selection may look at."""

import math
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.common.messages import choice, names_checked, true_or_false, unknown
from smdl.engine import arithmetic

Array = np.ndarray | Tensor | Sequence[Any]


@names_checked
class Pool:
    """N candidates: their features and, optionally, what the model says about them.

    `rows` is the index of each candidate in the dataset, (N,), in pools that a loader of a dataset makes; else None.

    Pass NumPy arrays, memory maps or torch tensors, on any device. Everything is checked here, once, and copied only if
    its type must change. More than 16 million numbers in float16 or bfloat16 are read as they are. Do not write to
    these arrays afterwards: scores are kept with the pool.

    Args:
        features: (N, D) usually the input of the model's last linear layer
        probabilities: (N, C) softmax of its output; rows sum to 1
        labels: (N,) class of each sample, 0..C-1
        losses: (N,) the training loss of each sample
        reference: (N, M) features of a frozen reference model (for feature_match)
        errors: (N, C) gradient of each sample's loss with respect to the model's output (for space="gradients"); by
            default that of cross-entropy, probabilities − onehot(labels)
        query: (Q, D) features of samples that the picks are to be about
        away_from: (P, D) features of samples that are there already: the picks are to add to them
        importance: (N,) how much each sample counts, ≥ 0, when facility_location asks how well it is represented; 1 by
            default
        utility: (N,) how good each sample is to choose (for utility); any finite numbers, scaled over the pool
        feature_weights: (D,) how much each feature counts, ≥ 0, for set_cover and probabilistic_set_cover; 1 by default
        bias: whether the last layer has a bias (for space="gradients").

    Raises:
        ValueError: numbers that are not finite, shapes that do not fit, probabilities that do not sum to 1.

    Examples:
        >>> import numpy as np, smdl
        >>> rng = np.random.default_rng(0)
        >>> pool = smdl.Pool(rng.normal(size=(50, 8)), probabilities=rng.dirichlet(np.ones(3), 50))
        >>> len(pool), len(smdl.select(pool, smdl.Objective(uncertainty=1.0), 5))
        (50, 5)
    """

    def __init__(
        self,
        features: Array,
        probabilities: Array | None = None,
        labels: Array | None = None,
        losses: Array | None = None,
        reference: Array | None = None,
        *,
        errors: Array | None = None,
        query: Array | None = None,
        away_from: Array | None = None,
        importance: Array | None = None,
        utility: Array | None = None,
        feature_weights: Array | None = None,
        bias: bool = True,
    ) -> None:
        self.is_torch = isinstance(features, Tensor)  # indices come back in kind
        self._on_host: dict[str, np.ndarray] = {}  # see on_host
        self.features, self.largest = self._checked("features", features)  # largest: the greatest |feature|
        self.device, self._size = self.features.device, self.features.shape[0]
        if self._size == 0:
            raise ValueError("features must have at least one row, got an empty pool of shape (0, ...)")
        self.bias = true_or_false("bias", bias)
        self.probabilities = self._column("probabilities", probabilities)
        self.reference = self._column("reference", reference)
        self.losses = self._column("losses", losses, dimensions=1)
        self.labels = None if labels is None else self._class_numbers(labels)
        self.given_errors = self._column("errors", errors)
        self.query = None if query is None else other_rows("query", query, self.features.shape[1])
        self.away_from = None if away_from is None else other_rows("away_from", away_from, self.features.shape[1])
        self.importance = None if importance is None else self._column("importance", importance, dimensions=1)
        if self.importance is not None and float(self.importance.min()) < 0:
            raise ValueError(f"importance must be ≥ 0, got {float(self.importance.min()):.6g}")
        self.utility = self._column("utility", utility, dimensions=1)
        self.feature_weights = None if feature_weights is None else self._weights_of_features(feature_weights)
        self.similarities: Any = None  # see from_similarities
        self.rows: np.ndarray | None = None
        self.represented: np.ndarray | None = None  # rows that sums of similarities run over; None: the engine decides
        if self.probabilities is not None:
            self._check_probabilities(self.probabilities)
        if self.labels is not None:
            self._check_classes(self.labels)
        self.problems: dict[Any, Any] = {}  # see Objective.on
        self.kept: dict[Any, Any] = {}  # similarities of the features, see Geometry

    @classmethod
    @names_checked
    def from_logits(
        cls,
        features: Array,
        logits: Array,
        labels: Array | None = None,
        *,
        reference: Array | None = None,
        bias: bool = True,
    ) -> "Pool":
        """Make a pool of the features and logits of a forward: probabilities are the softmax of the logits."""
        outputs = as_matrix("logits", logits)
        if len(outputs) != len(features):
            raise ValueError(f"logits must have one row per sample: {len(features)} features, {len(outputs)} logits")
        if outputs.shape[1] < 2:
            raise ValueError(f"logits must have shape (samples, classes ≥ 2), got shape {tuple(outputs.shape)}")
        return cls(features, outputs.softmax(dim=1), labels, reference=reference, bias=bias)

    @classmethod
    @names_checked
    def from_similarities(
        cls,
        similarities: Any,
        labels: Array | None = None,
        *,
        importance: Array | None = None,
        utility: Array | None = None,
    ) -> "Pool":
        """Make a pool of similarities alone, (N, N) ≥ 0, for facility_location: s_ij says how well sample i represents
        sample j. Pass an array, a tensor, or a sparse matrix of SciPy, whose missing entries are 0."""
        sparse = hasattr(similarities, "tocsr")
        if len(similarities.shape) != 2 or similarities.shape[0] != similarities.shape[1]:
            raise ValueError(f"similarities must have shape (N, N), got {tuple(similarities.shape)}")
        if sparse:
            similarities = similarities.tocsr(copy=True)  # the next line changes it
            similarities.sum_duplicates()
        values = np.asarray(similarities.data) if sparse else similarities
        checked, _, largest = _floats("similarities", values)
        if checked.numel() and float(checked.min()) < 0:
            raise ValueError(f"similarities must be ≥ 0, got {float(checked.min()):.6g}")
        features = np.zeros((similarities.shape[0], 1), np.float32)
        pool = cls(features, labels=labels, importance=importance, utility=utility)
        scale = 1.0 / largest if largest > 0 else 0.0
        pool.similarities = _neighbour_lists(similarities, scale) if sparse else _on_grid(checked, scale)
        return pool

    def changed(self, **columns: Any) -> "Pool":
        """Return a pool of the same features with other columns: `pool.changed(probabilities=p)`. What was computed
        from the features alone is not computed again, so the next selection from the same rows is cheap."""
        known = {**dict(self._columns()), **{name: getattr(self, name) for name in _OTHERS}}
        for name in columns:
            if name not in known:
                raise ValueError(unknown("column", name, known))
        twin = Pool(self.features, **{**known, **columns}, bias=self.bias)
        for name in ("is_torch", "similarities", "rows", "kept"):
            setattr(twin, name, getattr(self, name))
        if twin.query is not self.query:  # similarities that are kept are those to the query
            twin.kept = {}
        return twin

    def without_scores(self) -> "Pool":
        """Return a pool of the same tensors. The scores that a pool keeps refer to this one: if they referred to the
        pool itself, its memory would be freed only by Python's garbage collector, many steps later."""
        twin = object.__new__(Pool)
        twin.__dict__.update(self.__dict__, problems={})
        return twin

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its shape decides how to select from it."""
        return self.similarities is self.represented is self.query is self.away_from is None

    def on_host(self, name: str) -> np.ndarray:
        """Return a column as the compiled loops read it, see `stored`."""
        if name not in self._on_host:
            by_loops = name == "errors" and self.features.is_cpu
            self._on_host[name] = self._cross_entropy_errors() if by_loops else stored(getattr(self, name))
        return self._on_host[name]

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        held = [f"features {tuple(self.features.shape)}"]
        for name, value in self._columns():
            if value is not None:
                held.append(f"{name} {tuple(value.shape)}")
        return f"Pool({', '.join(held)}, device={self.device})"

    @cached_property
    def classes(self) -> int:
        """C: the number of columns of probabilities, or else the largest label plus 1."""
        if self.probabilities is not None:
            return self.probabilities.shape[1]
        return 0 if self.labels is None else int(self.labels.max()) + 1

    @cached_property
    def errors(self) -> Tensor:
        """The gradient of each sample's loss with respect to the model's output, (N, C); p_i − onehot(y_i) unless
        errors were given."""
        if self.given_errors is not None:
            return self.given_errors
        assert self.probabilities is not None
        assert self.labels is not None
        if self.features.is_cpu:
            return torch.from_numpy(self.on_host("errors"))
        return self.probabilities.scatter(1, self.labels.unsqueeze(1), -1.0, reduce="add")

    def _cross_entropy_errors(self) -> np.ndarray:
        """Return `errors` on the host: torch takes several times as long for the pool of a step."""
        errors = self.on_host("probabilities").copy()
        arithmetic.subtract_ones(errors, self.on_host("labels"))
        return errors

    def _columns(self) -> tuple[tuple[str, Tensor | None], ...]:
        return (
            ("probabilities", self.probabilities),
            ("labels", self.labels),
            ("losses", self.losses),
            ("reference", self.reference),
            ("errors", self.given_errors),
            ("importance", self.importance),
            ("utility", self.utility),
        )

    def _checked(self, name: str, value: Array, dimensions: int = 2) -> tuple[Tensor, float]:
        """Return a tensor of finite numbers and the largest |x|. Keep its values on the host if it is there."""
        tensor, values, largest = _floats(name, value)
        _check_shape(name, tensor, dimensions)
        if values is not None:
            self._on_host[name] = values
        return tensor, largest

    def _column(self, name: str, value: Array | None, dimensions: int = 2) -> Tensor | None:
        return None if value is None else self._one_row_per_sample(name, self._checked(name, value, dimensions)[0])

    def _weights_of_features(self, value: Array) -> Tensor:
        weights, width = self._checked("feature_weights", value, dimensions=1)[0], self.features.shape[1]
        if len(weights) != width:
            raise ValueError(
                f"feature_weights must have one number per feature: {width} features, {len(weights)} weights"
            )
        if float(weights.min()) < 0:
            raise ValueError(f"feature_weights must be ≥ 0, got {float(weights.min()):.6g}")
        return weights

    def _class_numbers(self, value: Array) -> Tensor:
        return self._one_row_per_sample("labels", _labels(value))

    def _one_row_per_sample(self, name: str, value: Tensor) -> Tensor:
        if value.shape[0] != self._size:
            raise ValueError(f"{name} must have one row per sample: {self._size} features, {len(value)} {name}")
        if value.device != self.device:
            raise ValueError(f"{name} must be on the features' device {self.device}, got {value.device}")
        return value

    def _check_probabilities(self, rows: Tensor) -> None:
        if rows.is_cpu:
            least, low, high = arithmetic.row_range(self.on_host("probabilities"))
        else:
            sums = rows.sum(dim=1)
            least, low, high = float(rows.min()), float(sums.min()), float(sums.max())
        if least < 0:
            raise ValueError(f"probabilities must be ≥ 0, got {least:.6g}")
        if max(high - 1, 1 - low) > 1e-3:
            sums = rows.sum(dim=1)
            row = int((sums - 1).abs().argmax())
            raise ValueError(
                f"probabilities must sum to 1 in every row, got {float(sums[row]):.6g} in row {row}"
                " (are these logits? take their softmax first)"
            )

    def _check_classes(self, labels: Tensor) -> None:
        if labels.is_cpu:
            low, high = arithmetic.whole_range(self.on_host("labels"))
        else:
            low, high = map(int, labels.aminmax())
        if low < 0:
            raise ValueError(f"labels must be class numbers ≥ 0, got {low}")
        if self.probabilities is not None and high >= self.probabilities.shape[1]:
            classes = self.probabilities.shape[1]
            raise ValueError(f"labels must be below the {classes} classes of probabilities, got {high}")


#: What a pool holds besides its columns.
_OTHERS = ("query", "away_from", "feature_weights")


def _on_grid(similarities: Tensor, scale: float) -> Tensor:
    """Scale to [0, 1] and round to multiples of 2⁻²⁴, whose sums are exact."""
    return ((similarities.to(real(similarities.device)) * (scale * 2.0**24)).round() / 2.0**24).to(torch.float32)


def _neighbour_lists(rows: Any, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and values of a sparse matrix, (N, most entries per row); short rows get zeros in column 0."""
    lengths = np.diff(rows.indptr)
    shape = (len(lengths), max(1, int(lengths.max(initial=0))))
    columns, values = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    row = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(rows.data)) - np.repeat(rows.indptr[:-1], lengths)
    columns[row, place] = rows.indices
    values[row, place] = _on_grid(torch.from_numpy(np.asarray(rows.data, np.float64)), scale).numpy()
    return columns, values


def host(tensor: Tensor) -> np.ndarray:
    """Return the values as a contiguous NumPy array: a view of a CPU tensor, a copy of any other."""
    return np.ascontiguousarray(tensor.numpy(force=True))


def stored(tensor: Tensor) -> np.ndarray:
    """Return the values as the compiled loops read them: those of `host`, halves as `arithmetic.value` takes them."""
    if tensor.dtype in HALVES:
        return host(tensor.view(torch.int16)).view(HALVES[tensor.dtype])
    return host(tensor)


#: Halves, and the integers that compiled loops read them as.
HALVES = {torch.float16: np.uint16, torch.bfloat16: np.int16}

#: Features in halves with more numbers than this are not converted to float32: the pool of a step is, because compiled
#: loops over all pairs of it read every number many times.
LARGE = 1 << 24


def real(device: torch.device) -> torch.dtype:
    """Return float64 if the device supports it, else float32 (MPS)."""
    return torch.float32 if device.type == "mps" else torch.float64


def widest(values: np.ndarray, device: torch.device) -> Tensor:
    """Move numbers to a device in its widest float type (converted first: MPS cannot hold float64)."""
    return torch.from_numpy(values).to(real(device)).to(device)


def _tensor(name: str, value: Array) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach() if value.requires_grad else value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a plain array, got a masked one: fill or drop its masked values first")
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must have rows of one length, got rows of several") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers, got an array of {array.dtype}")
    if array.dtype.kind == "f" and array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # smdl never writes to what it is given
        # copied also if it only looks contiguous: torch takes no negative strides, not even over a single row
        return torch.from_numpy(array.copy() if min(array.strides, default=0) < 0 else np.ascontiguousarray(array))


def _floats(name: str, value: Array) -> tuple[Tensor, np.ndarray | None, float]:
    """Return a contiguous float32 or float64 tensor of finite numbers, its values as the compiled loops read them if it
    is on the host, and the largest |x|. Many halves stay halves."""
    tensor = _tensor(name, value)
    large_halves = tensor.dtype in HALVES and tensor.numel() > LARGE
    if tensor.dtype not in (torch.float32, torch.float64) and not large_halves:
        if tensor.is_complex():
            raise ValueError(f"{name} must be real numbers, got {tensor.dtype}")
        tensor = tensor.to(_float_type(name, tensor))
    tensor = tensor.contiguous()
    values = stored(tensor) if tensor.is_cpu else None
    if values is not None:
        largest = arithmetic.largest(values)  # for the pool of one step, compiled loops take half the time of torch
    else:
        largest = max(map(abs, map(float, tensor.aminmax()))) if tensor.numel() else 0.0
    if not math.isfinite(largest):
        row = next(k for k, part in enumerate(tensor) if not bool(torch.isfinite(part).all()))
        where = (row, *torch.nonzero(~torch.isfinite(tensor[row]))[0].tolist())
        raise ValueError(f"{name} must be finite, got {tensor[where].item()} at {where}")
    return tensor, values, largest


def _float_type(name: str, tensor: Tensor) -> torch.dtype:
    """Return the float type that holds every value exactly."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.numel() == 0:
        return torch.float32
    largest = float(tensor.to(real(tensor.device)).abs().max())
    if largest >= 2**53:
        raise ValueError(f"{name} must be below 2^53 to be exact as floats, got {largest:.0f}")
    return torch.float32 if largest <= 2**24 else real(tensor.device)


def finite(name: str, value: Array) -> Tensor:
    """Return a tensor of finite numbers of any shape; errors call it `name`."""
    return _floats(name, value)[0]


def check_kind(features: Any) -> None:
    """Raise an error for features that are no array, such as a data frame."""
    if not isinstance(features, np.ndarray | Tensor | list | tuple):
        raise TypeError(choice("pool", type(features).__name__, "a smdl.Pool, or features as an array or a tensor"))


def with_others(pool: Pool, query: Array | None, away_from: Array | None) -> Pool:
    """Return the pool with this query and these samples to keep away from; None leaves the pool's own. The features
    are not read."""
    given = {name: rows for name, rows in (("query", query), ("away_from", away_from)) if rows is not None}
    if not given:
        return pool
    twin = pool.without_scores()
    twin.__dict__.update({name: other_rows(name, rows, pool.features.shape[1]) for name, rows in given.items()})
    if query is not None:  # similarities that are kept are those to the query
        twin.kept = {}
    return twin


def as_matrix(name: str, value: Array) -> Tensor:
    """Return a tensor of finite numbers, (samples, columns); errors call it `name`."""
    tensor = finite(name, value)
    _check_shape(name, tensor, dimensions=2)
    return tensor


def other_rows(name: str, value: Array, columns: int) -> Tensor:
    """Return features of samples outside of the pool, (at least 1, columns)."""
    tensor = as_matrix(name, value)
    if tensor.shape[1] != columns:
        raise ValueError(f"{name} must have as many columns as features: {columns}, got {tensor.shape[1]}")
    if len(tensor) == 0:
        raise ValueError(f"{name} must have at least one row, got an empty array of shape {tuple(tensor.shape)}")
    return tensor


def _check_shape(name: str, tensor: Tensor, dimensions: int) -> None:
    if dimensions == 1 and tensor.ndim != 1:
        raise ValueError(f"{name} must have one dimension (samples,), got shape {tuple(tensor.shape)}")
    if dimensions == 2 and (tensor.ndim != 2 or tensor.shape[1] == 0):
        raise ValueError(f"{name} must have two dimensions (samples, columns), got shape {tuple(tensor.shape)}")


def _labels(value: Array) -> Tensor:
    tensor = _tensor("labels", value)
    if tensor.ndim != 1:
        raise ValueError(f"labels must have one dimension (samples,), got shape {tuple(tensor.shape)}")
    if tensor.dtype != torch.int64:
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise ValueError(f"labels must be whole class numbers, got {tensor.dtype}")
        tensor = tensor.to(torch.int64)
    return tensor.contiguous()
