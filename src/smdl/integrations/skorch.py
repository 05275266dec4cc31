"""SelectiveNet: a net of skorch that trains on selected batches."""

from typing import Any

from smdl.loading.loader import DataLoader

Base: Any = object  # the net that follows in the list of base classes


class SelectiveNet(Base):
    """Put this before a net: `class MyNet(SelectiveNet, NeuralNetClassifier)`. Options of `smdl.DataLoader` are those
    of the training iterator: `iterator_train__method="fresh"`.

    The loader scores `module_`, the module that the net trains. (A loader that is made by hand would hold the module
    that you passed, and scikit-learn's `clone` trains a copy of it.) Every `fit` and `partial_fit` makes a loader, for
    its own data; `loader_` is the latest.
    """

    loader_: DataLoader | None = None

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        if not training:
            return super().get_iterator(dataset, training)
        options = {"batch_size": self.batch_size, **self.get_params_for("iterator_train")}
        before, self.loader_ = self.loader_, DataLoader(dataset, self.module_, **options)
        if before is not None and before.model is self.module_:  # partial_fit: not the random numbers of epoch 0 again
            self.loader_.set_epoch(before.epoch)
        return self.loader_
