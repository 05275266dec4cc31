"""Read pickles safely: numpy arrays and plain containers, and no code.

A pickle names the functions that it calls. The CIFAR files need four; every other name is refused before its module is
imported.
"""

import _codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from smdl.training.datasets.problems import DamagedError, DataError

_REBUILD = np.empty(0).__reduce__()[0]  # _reconstruct; its module depends on the version of numpy
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _codecs.encode,
}


def unpickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a pickle of Python 2 or 3, with its keys as text."""
    try:
        with path.open("rb") as file:
            found = _Unpickler(file, path).load()
    except (DataError, PermissionError):
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise DamagedError(path, f"a complete pickle was expected, reading it gave {error!r}") from error
    if not isinstance(found, dict):
        raise DamagedError(path, f"a pickled dictionary was expected, found {type(found).__name__}")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in found.items()}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")  # numpy needs it for arrays from Python 2
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        """Look the name up without an import. A dotted name is not resolved, so it is always refused."""
        if (module, name) not in _ADMITTED:
            raise DamagedError(
                self.path, f"it calls {module}.{name}, which data does not need; it may be an attack and was not run"
            )
        return _ADMITTED[module, name]
