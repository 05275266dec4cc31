"""CompileNotice: say that loops are being compiled, if that takes long. The first selection would seem to hang."""

import sys
import threading

#: Seconds of compiling after which it is said.
PATIENCE = 2.0


class CompileNotice:
    """Prints one line on stderr, once per process."""

    def __init__(self) -> None:
        self._depth, self._said = 0, False  # loops that are being compiled: a loop compiles those that it calls
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A loop is not in the cache and will be compiled."""
        with self._lock:
            self._depth += 1
            if self._timer is None and not self._said:
                self._timer = threading.Timer(PATIENCE, self._say)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        """A loop was compiled."""
        with self._lock:
            self._depth = max(0, self._depth - 1)
            if self._depth == 0 and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _say(self) -> None:
        with self._lock:
            if self._timer is None or self._said:
                return
            self._said = True
        print("smdl: compiling the selection, once: about 20 s", file=sys.stderr, flush=True)
