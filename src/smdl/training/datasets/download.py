"""Downloads that go on where they broke off.

pooch checks the sum and puts the file in its place; what it lacks, and what is here, is a file that grows over
several attempts, and over several calls.
"""

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from smdl.training.datasets.errors import DataError
from smdl.training.datasets.progress import progress
from smdl.training.files import disk_errors

FAILURES = 4  # in a row that brought it no farther than before, until it gives up
PAUSE = 0.25  # seconds, doubled by every failure
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 16  # bytes: less than this is lost when a connection breaks
PARTIAL, BEYOND = 206, 416  # HTTP: the range asked for, and a range past the end


def fetch(url: str, path: Path, md5: str) -> Path:
    """The file at `path`, downloaded unless it is there and has that checksum."""
    import pooch
    import requests

    part = path.with_name(f"{path.name}.part")
    downloader: Any = Resuming(part)  # pooch's protocol has other names for the arguments
    pooch.get_logger().setLevel("WARNING")  # progress is told here
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return Path(pooch.retrieve(url, f"md5:{md5}", path.name, path.parent, downloader=downloader))
    except requests.RequestException as error:
        kept = f"; {part.stat().st_size / 1e6:.1f} MB so far are kept in {part}" if part.exists() else ""
        raise DataError(f"{urlsplit(url).netloc} could not be reached: {_reason(error)}{kept}") from None
    except DataError:
        raise
    except ValueError:  # pooch compared the sums
        raise DataError(f"what {url} sent does not have the published checksum (md5 {md5}), and was removed") from None


class Resuming:
    """A downloader for pooch: what arrives is kept in `part`, and only the rest is asked for."""

    def __init__(self, part: Path) -> None:
        self.part = part

    def __call__(self, url: str, output_file: Any, pooch: Any, *, check_only: bool | None = None) -> None:  # noqa: ARG002
        import requests

        failures, most = 0, self._size()
        while True:
            try:
                self._go_on(url)
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

    def _go_on(self, url: str) -> None:
        import requests

        have = self._size()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            status, span = answer.status_code, answer.headers.get("Content-Range", "")
            if status == BEYOND and span == f"bytes */{have}":
                return  # all of it was here
            if status == BEYOND or (status == PARTIAL and not span.startswith(f"bytes {have}-")):
                self.part.unlink(missing_ok=True)  # not a part of what is there now
                raise requests.ConnectionError(f"asked to go on from byte {have}, it offered {span or 'nothing'}")
            if 400 <= status < 500:  # asking again will not help
                raise DataError(f"{urlsplit(url).netloc} answered {status} {answer.reason} to {url}")
            if status >= 500:
                raise requests.ConnectionError(f"it answered {status} {answer.reason}")
            begin = have if status == PARTIAL else 0  # else the server cannot go on, and sends all of it
            total = begin + int(answer.headers.get("Content-Length", 0))
            with self.part.open("ab" if begin else "wb") as file, progress(self.part.stem, total) as advance:
                advance(begin)
                for chunk in answer.iter_content(CHUNK):
                    file.write(chunk)
                    advance(len(chunk))
        if self._size() < total:
            raise requests.ConnectionError(f"{self._size()} of {total} bytes came")


def _reason(error: Exception) -> str:
    """The innermost of the reasons that requests wraps in one another."""
    inner: Any = error
    while isinstance(deeper := getattr(inner, "reason", None) or next(iter(inner.args), None), Exception):
        inner = deeper
    return str(inner).rpartition(": ")[2] or type(inner).__name__
