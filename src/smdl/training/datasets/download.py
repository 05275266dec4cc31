"""Downloads that resume.

pooch checks the checksum and moves the file into place. This module adds what pooch lacks: a partial file that grows
over several attempts, and over several calls.
"""

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from smdl.common.progress_bar import progress_bar
from smdl.common.storage import disk_errors
from smdl.training.datasets.problems import DataError

FAILURES = 4  # attempts in a row without a new byte, after which it gives up
PAUSE = 0.25  # seconds, doubled after every failure
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 16  # bytes; at most this much is lost when a connection breaks
PARTIAL, BEYOND = 206, 416  # HTTP: partial content, and a range past the end


def fetch(url: str, path: Path, checksum: str) -> Path:
    """Download a file to `path`, unless it is there with this checksum (algorithm:digits)."""
    import pooch
    import requests

    part = path.with_name(f"{path.name}.part")
    downloader: Any = Resuming(part)  # pooch's protocol names the arguments differently
    pooch.get_logger().setLevel("WARNING")  # this module shows the progress
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return Path(pooch.retrieve(url, checksum, path.name, path.parent, downloader=downloader))
    except requests.RequestException as error:
        kept = f"; the first {part.stat().st_size / 1e6:.1f} MB are kept in {part}" if part.exists() else ""
        raise DataError(f"{urlsplit(url).netloc} could not be reached: {_reason(error)}{kept}") from None
    except DataError:
        raise
    except ValueError:  # from pooch: the checksums differ
        raise DataError(
            f"the file from {url} does not have the published checksum ({checksum}); it was removed"
        ) from None


class Resuming:
    """A downloader for pooch that keeps partial content in `part` and requests only the rest."""

    def __init__(self, part: Path) -> None:
        self.part = part

    def __call__(self, url: str, output_file: Any, pooch: Any, *, check_only: bool | None = None) -> None:  # noqa: ARG002
        import requests

        failures, most = 0, self._size()
        while True:
            try:
                self._resume(url)
                break
            except requests.RequestException:
                failures = 0 if self._size() > most else failures + 1
                most = max(most, self._size())
                if failures == FAILURES:
                    raise
                time.sleep(PAUSE * 2**failures)
        os.replace(self.part, output_file)

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _resume(self, url: str) -> None:
        import requests

        have = self._size()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            status, span = answer.status_code, answer.headers.get("Content-Range", "")
            if status == BEYOND and span == f"bytes */{have}":
                return  # the partial file is complete
            if status == BEYOND or (status == PARTIAL and not span.startswith(f"bytes {have}-")):
                self.part.unlink(missing_ok=True)  # a part of another version of the file
                raise requests.ConnectionError(f"asked for the bytes from {have} on, it offered {span or 'nothing'}")
            if 400 <= status < 500:  # trying again will not help
                raise DataError(f"{urlsplit(url).netloc} answered {status} {answer.reason} to {url}")
            if status >= 500:
                raise requests.ConnectionError(f"it answered {status} {answer.reason}")
            begin = have if status == PARTIAL else 0  # else the server does not know ranges and sends the whole file
            total = begin + int(answer.headers.get("Content-Length", 0))
            with self.part.open("ab" if begin else "wb") as file, progress_bar(self.part.stem, total) as advance:
                advance(begin)
                for chunk in answer.iter_content(CHUNK):
                    file.write(chunk)
                    advance(len(chunk))
        if self._size() < total:
            raise requests.ConnectionError(f"it sent {self._size()} of {total} bytes")


def _reason(error: Exception) -> str:
    """Return the innermost of the nested errors of requests, in words."""
    inner: Any = error
    while isinstance(deeper := getattr(inner, "reason", None) or next(iter(inner.args), None), Exception):
        inner = deeper
    return str(inner).rpartition(": ")[2] or type(inner).__name__
