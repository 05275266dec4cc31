"""A web server on this machine that misbehaves on demand."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class Server:
    """files       path: content
    ranges      whether it understands Range
    breaks      so many answers that end after `cut` bytes
    status      answered instead of the file, if set
    asked       the Range of every request so far, or None
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.breaks = 0
        self.cut = 0
        self.status = 0
        self.asked: list[str | None] = []
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers["Range"]
        self.asked.append(asked)
        content = self.files.get(handler.path.lstrip("/"))
        if content is None or self.status:
            handler.send_error(self.status or 404)
            return
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        if begin >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.end_headers()
            return
        handler.send_response(206 if asked and self.ranges else 200)
        if asked and self.ranges:
            handler.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - begin))
        handler.end_headers()
        end = len(content)
        if self.breaks:
            self.breaks -= 1
            end = begin + self.cut
        handler.wfile.write(content[begin:end])


@contextmanager
def serving() -> Iterator[Server]:
    """A server while the block lasts."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Silence."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}/"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
