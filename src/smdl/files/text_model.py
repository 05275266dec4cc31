"""A sentence-embedding model that the user has: a folder, or a model in the local cache. Nothing is downloaded."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.messages import install
from smdl.files.kept_parts import key_of
from smdl.files.texts import DTYPE, has_content

#: Texts that go through the model at once.
BATCH = 32


class TextModel:
    """A model of sentence-transformers: its tokenizer, its pooling, and vectors of length 1."""

    def __init__(self, name: str) -> None:
        self.folder = find_model(name)
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        stamps = [[str(path.relative_to(self.folder)), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
        self.key = key_of(stamps)
        self._model = _load(name, self.folder)
        self.width = len(self._encode(["width"])[0])

    @property
    def longest(self) -> int | None:
        """Return how many tokens of a text the model reads; None if it does not say."""
        return self._model.max_seq_length

    def embed(self, texts: Sequence[str | None]) -> np.ndarray:
        """Return one vector of length 1 per text, (N, width). A missing or empty text has a vector of NaN."""
        out = np.full((len(texts), self.width), np.nan, DTYPE)
        full = [place for place, text in enumerate(texts) if has_content(text)]
        if full:
            out[full] = self._encode([texts[place] for place in full])
        return out

    def _encode(self, texts: Sequence[str | None]) -> np.ndarray:
        return self._model.encode(texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)


def find_model(name: str) -> Path:
    """Return the folder of a model: `name` itself, or its place in the cache of Hugging Face."""
    if os.path.isdir(name):
        if not any((Path(name) / file).is_file() for file in ("modules.json", "config.json")):
            raise ValueError(f"--model {name} holds no model: it has neither modules.json nor config.json")
        return Path(name)
    hub = _library("huggingface_hub")
    for full in (name, f"sentence-transformers/{name}"):
        try:
            return Path(hub.snapshot_download(full, local_files_only=True))
        except (OSError, ValueError):  # not in the cache, or no name of a model
            continue
    raise ValueError(
        f"--model {name} is neither a folder nor a model in the local cache, and smdl downloads none."
        f" Run hf download {name}, or give the folder of a model"
    )


def _load(name: str, folder: Path) -> Any:
    sentences = _library("sentence_transformers")
    _library("transformers").utils.logging.disable_progress_bar()
    try:
        return sentences.SentenceTransformer(str(folder), local_files_only=True)
    except Exception as error:  # files are missing, damaged, or of another kind; each library raises errors of its own
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"--model {name} cannot be loaded: {reason or type(error).__name__}") from error


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(f"--text needs sentence-transformers. Run {install('text')}") from error
