"""What a training function of the user gets: `make_loader`, and a loader that ends after the steps of the run."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data import Dataset

from smdl.common import clock
from smdl.common.names import Balance
from smdl.engine.selection import Selection
from smdl.loading.candidates.base import steps_per_epoch
from smdl.loading.head_refit import check_refit, refit_head
from smdl.loading.loader import DataLoader
from smdl.loading.methods import Method, as_method

_OVER = object()  # the end of an epoch


class RunLoader:
    """The batches of a whole run: the epochs of a `smdl.DataLoader`, one after the other, until `total_steps`. It has
    the attributes of that loader too, such as `selection` and `observe`."""

    def __init__(
        self,
        loader: DataLoader,
        total_steps: int,
        before_step: Callable[["RunLoader"], bool],
        refit: Balance | None = None,
    ) -> None:
        """`refit` says how the last layer is fitted again after the last step."""
        self.loader, self.total_steps = loader, total_steps
        self._refit: Balance | None = refit
        #: Whether the last layer was fitted again as asked, and whether a model was called after that.
        self.refitted = self.called_later = refit is None
        self.steps_per_epoch = len(loader)
        #: Steps done so far.
        self.step = 0
        #: Whether the method gave weights to some losses, and whether the function asked for them.
        self.weighted = self.selection_was_read = False
        #: Number of times that each sample was used.
        self.counts = np.zeros(len(loader.dataset), np.int32)  # type: ignore[arg-type]
        #: Seconds between the first batch and the end of the last step.
        self.seconds_of_run = 0.0
        self._before_step = before_step

    def __len__(self) -> int:
        return self.total_steps

    @property
    def selection(self) -> Selection | None:
        """The selection behind the current batch."""
        self.selection_was_read = True
        return self.loader.selection

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not set yet
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left. The epoch that was left half-way is over."""
        started, batches = clock.now(), iter(self.loader)
        try:
            while self._before_step(self):
                batch = next(batches, _OVER)
                if batch is _OVER:
                    batches = iter(self.loader)
                    batch = next(batches)
                selection = self.loader.selection
                assert selection is not None
                np.add.at(self.counts, selection.indices, 1)
                self.weighted |= selection.weights is not None
                self.step += 1
                yield batch
            if self._refit is not None and self.step == self.total_steps and not self.refitted:
                refit_head(self.loader.model, self.loader, self._refit)
                self._watch_calls()
        finally:
            batches.close()  # type: ignore[attr-defined]
            self.seconds_of_run += clock.now() - started

    def _watch_calls(self) -> None:
        """Note the next call of a module, whichever it is: the function may evaluate a copy of the model."""

        def called(*_: Any) -> None:
            self.called_later = True
            hook.remove()

        hook, self.refitted = register_module_forward_pre_hook(called), True


class LoaderFactory:
    """`make_loader` of one run: call it with the model, and with options of `smdl.DataLoader` if you need them. It
    returns the same loader for the same model.

    before_step   called before each step: False ends the iteration
    refit         how the last layer is fitted again after the last step; None: it stays as it is
    """

    def __init__(
        self,
        dataset: Dataset,
        method: str | Method,
        batch_size: int,
        seed: int,
        total_steps: int,
        before_step: Callable[[RunLoader], bool] | None = None,
        refit: Balance | None = None,
    ) -> None:
        self._settings = {"batch_size": batch_size, "seed": seed}
        self._dataset, self._method, self._total_steps = dataset, as_method(method), total_steps
        self._refit: Balance | None = refit
        self._before_step = before_step or (lambda loader: loader.step < loader.total_steps)
        self._loaders: list[tuple[nn.Module, RunLoader]] = []

    @property
    def loader(self) -> RunLoader | None:
        """The loader of the first model; None before there is one."""
        return self._loaders[0][1] if self._loaders else None

    def __call__(self, model: nn.Module, **options: Any) -> RunLoader:
        for known, loader in self._loaders:
            if known is model:
                return loader
        for name in ("method", *self._settings):
            if name in options:
                raise ValueError(f"`{name}` cannot be set in make_loader: smdl.compare sets it")
        if self._method.make()[1].needs_features:
            options.pop("scoring_dataset", None)  # these candidates forward no sample for scoring
        samples, short = len(self._dataset), bool(options.get("drop_last"))  # type: ignore[arg-type]
        epochs = math.ceil(self._total_steps / max(1, steps_per_epoch(samples, self._settings["batch_size"], short)))
        made = DataLoader(self._dataset, model, method=self._method, epochs=epochs, **self._settings, **options)
        made.warm_up()
        if self._refit is not None:
            check_refit(made, self._refit)
        self._loaders.append((model, RunLoader(made, self._total_steps, self._before_step, self._refit)))
        return self._loaders[-1][1]
