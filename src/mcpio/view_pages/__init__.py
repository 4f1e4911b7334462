"""Show views in a browser on this machine: a page for the host and a sandbox, two origins on the loopback address."""

from __future__ import annotations

import json
import secrets
import threading
import time
import webbrowser
from collections import deque
from collections.abc import Callable, Collection, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Self

from mcpio._checks import required
from mcpio.apps import ViewConnection, allow_of, csp_of, html_of, pump, view_uri_of

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.runtime import OneShot
    from mcpio.types.features import CallToolResult

__all__ = ["ViewPage", "ViewPages"]

_HOST: Final = "127.0.0.1"
_MAX_BODY: Final = 4 << 20
"""Bytes of the longest message of a view that is taken."""
_MOST_WAITING: Final = 64
"""How many messages of a view wait for the program, before its page has to wait."""
_MAX_OUTPUT: Final = 8 << 20
"""How many characters wait for a page, before the program has to wait."""
_MOST_CONNECTIONS: Final = 64
"""How many connections of browsers each of the two ports has at once."""
_POLL: Final = 20.0
"""Seconds that a page waits for messages, before it asks again."""
_SILENCE: Final = 10.0
"""Seconds without a question of a page, after which it is taken for closed."""
_TICK: Final = 0.1
"""Seconds between two looks for pages that were closed."""
_IDLE: Final = 60.0
"""Seconds that a connection may stay without a request."""


class ViewPages:
    """Context manager that serves the pages of views, to browsers on this machine.

    Two ports of the loopback address are two origins: what a view does in the sandbox cannot touch the host's page.
    The address of a page has a secret in it, so that no other program or page can find it. Usable in any event loop.
    """

    def __init__(self) -> None:
        self._pages: dict[str, ViewPage] = {}
        self._servers: tuple[_Server, ...] = ()

    def __enter__(self) -> Self:
        """Listen on two ports. Raises OSError if that fails."""
        self._servers = (_Server(self._pages, _HostHandler), _Server(self._pages, _SandboxHandler))
        self._servers[0].other, self._servers[1].other = self._servers[1].origin, self._servers[0].origin
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(_TICK,), name="mcpio views", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all pages and both ports."""
        for page in tuple(self._pages.values()):
            page.close()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add(
        self, client: Client, html: str, meta: Mapping[str, Any], *, title: str = "View", grant: Collection[str] = ()
    ) -> ViewPage:
        """Return a page for a view, as ``html_of`` returns it. ``grant`` are the permissions that it may have.

        The page can be opened once. It is a ``ViewChannel`` for ``pump``, in the event loop of the client.
        """
        if not self._servers:
            raise RuntimeError("enter it first: with ViewPages() as pages")
        key = secrets.token_urlsafe(24)
        ui = meta.get("ui")
        described = {
            "title": title,
            "html": required("html", html, str),
            "sandbox": f"{self._servers[1].origin}/{key}",
            "allow": allow_of(meta, grant),
            "border": isinstance(ui, Mapping) and ui.get("prefersBorder") is True,
        }
        page = ViewPage(client, f"{self._servers[0].origin}/{key}", described, csp_of(meta))
        self._pages[key] = page
        page._forget = lambda: self._pages.pop(key, None)  # noqa: SLF001  the two classes are one
        return page

    async def show(
        self,
        client: Client,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        browse: Callable[[str], object] = webbrowser.open,
        grant: Collection[str] = (),
        **options: Any,
    ) -> CallToolResult | None:
        """Call a tool with its view in a browser; return the result once the view is closed.

        ``browse`` is called with the address of the page. ``options`` are those of ``ViewConnection`` (``host``,
        ``capabilities``, ``context``) and of ``pump`` (``answer``, ``on_event``). Raises LookupError if no tool of
        that name has a view, InvalidMessage if the view is none, and what the call of the tool raises.
        """
        tools = [tool async for tool in client.tools()]
        tool = next((each for each in tools if each.name == name), None)
        uri = None if tool is None else view_uri_of(tool)
        if tool is None or uri is None:
            raise LookupError(f"the server has no tool {name!r:.100} with a view")
        html, meta = html_of(await client.read_resource(uri))
        of_pump = {key: options.pop(key) for key in ("answer", "on_event") if key in options}
        view = ViewConnection(tool, tools, **options)
        page = self.add(client, html, meta, title=tool.title or tool.name, grant=grant)
        try:
            browse(page.url)
            return await pump(view, client, page, arguments or {}, **of_pump)
        finally:
            page.close()


class ViewPage:
    """The page of one view, and the channel of its messages."""

    url: str
    """The address to open in a browser on this machine."""

    def __init__(self, client: Client, url: str, described: Mapping[str, Any], policy: str) -> None:
        """Made by ``ViewPages.add``."""
        self.url = url
        self._runtime = client.driver.runtime
        self._described: Mapping[str, Any] | None = described
        self._policy = policy
        self._forget: Callable[[], object] = lambda: None
        # In the loop's thread.
        self._input: deque[str] = deque()
        self._receiving: OneShot | None = None
        self._sending: OneShot | None = None
        # Shared with the threads of the pages' connections.
        self._room = threading.Semaphore(_MOST_WAITING)
        self._lock = threading.Condition()
        self._output: deque[str] = deque()
        self._size = 0
        self._polls = 0
        self._seen = float("inf")
        self._is_over = False

    async def receive(self) -> str | None:
        """Wait for a message of the view; ``None`` once its page is closed."""
        while not self._input:
            if self._is_over:
                return None
            self._receiving = self._runtime.one_shot()
            await self._receiving.wait()
        self._room.release()
        return self._input.popleft()

    async def send(self, value: str, /) -> None:
        """Send a message to the view. Raises BrokenPipeError once its page is closed."""
        while self._size > _MAX_OUTPUT and not self._is_over:
            self._sending = self._runtime.one_shot()
            await self._sending.wait()
        if self._is_over:
            raise BrokenPipeError("the page of the view is closed")
        with self._lock:
            self._output.append(value)
            self._size += len(value)
            self._lock.notify_all()

    def close(self) -> None:
        """Have the page remove the view. Further calls do nothing; from any thread."""
        with self._lock:
            self._is_over = True
            self._lock.notify_all()
        self._forget()
        self._room.release(_MOST_WAITING)
        self._runtime.call_soon(self._wake)

    def _wake(self) -> None:
        for shot in (self._receiving, self._sending):
            if shot is not None:
                shot.set(None)

    # In the threads of the connections

    def _take(self) -> Mapping[str, Any] | None:
        """Return what the page shows, once."""
        with self._lock:
            taken, self._described = self._described, None
            self._seen = time.monotonic()
        return taken

    def _put(self, text: str) -> None:
        """Pass a message to the program, as soon as there is room."""

        def put() -> None:
            self._input.append(text)
            self._wake()

        self._room.acquire()
        self._runtime.call_soon(put)

    def _poll(self) -> list[str] | None:
        """Return the messages for the page, after a wait if there are none; ``None`` at the end."""
        with self._lock:
            self._polls += 1
            self._lock.wait_for(lambda: self._output or self._is_over, _POLL)
            output = list(self._output)
            self._output.clear()
            self._size = 0
            self._polls -= 1
            self._seen = time.monotonic()
        self._runtime.call_soon(self._wake)
        return None if self._is_over and not output else output

    def _check(self) -> None:
        if not self._polls and time.monotonic() - self._seen > _SILENCE:
            self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MOST_CONNECTIONS
    other: str
    """The origin of the other server."""

    def __init__(self, pages: Mapping[str, ViewPage], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((_HOST, 0), handler)
        self.pages = pages
        self.authority = f"{_HOST}:{self.server_address[1]}"
        self.origin = f"http://{self.authority}"
        self._free = threading.Semaphore(_MOST_CONNECTIONS)

    def service_actions(self) -> None:
        for page in tuple(self.pages.values()):
            page._check()  # noqa: SLF001  the two classes are one

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing: browsers go away at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE
    server: _Server

    def log_message(self, *_: object) -> None:
        """Addresses contain secrets: log nothing."""

    def _page(self) -> tuple[ViewPage | None, str]:
        """Return the page that is asked for, and the rest of the path; ``None`` where it is not found."""
        key, _, rest = self.path.removeprefix("/").partition("/")
        # Another site's name may resolve to this address.
        page = self.server.pages.get(key) if self.headers.get("Host") == self.server.authority else None
        return page, rest

    def _answer(self, status: int, body: bytes = b"", kind: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class _HostHandler(_Handler):
    def do_GET(self) -> None:
        page, rest = self._page()
        if self.path == "/host.js":
            self._answer(200, _file("host.js"), "text/javascript")
        elif page is None:
            self._answer(404)
        elif rest == "":
            policy = (
                "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
                f"frame-src {self.server.other}; frame-ancestors 'none'; base-uri 'none'"
            )
            self._answer(200, _file("host.html"), "text/html", Content_Security_Policy=policy, Referrer_Policy="origin")
        elif rest == "view":
            described = page._take()  # noqa: SLF001  the two classes are one
            body = b"" if described is None else json.dumps(described).encode()
            self._answer(410 if described is None else 200, body, "application/json")
        elif rest == "messages":
            messages = page._poll()  # noqa: SLF001  as above
            body = b"" if messages is None else json.dumps(messages).encode()
            self._answer(410 if messages is None else 200, body, "application/json")
        else:
            self._answer(404)

    def do_POST(self) -> None:
        page, rest = self._page()
        length = self.headers.get("Content-Length", "")
        self.close_connection = True
        if page is None or self.headers.get("Origin") != self.server.origin or rest not in ("messages", "gone"):
            self._answer(404)
        elif not length.isdecimal() or int(length) > _MAX_BODY:
            self._answer(413)
        else:
            text = self.rfile.read(int(length)).decode("utf-8", "replace")
            if rest == "gone":
                page.close()
            else:
                page._put(text)  # noqa: SLF001  as above
            self._answer(204)


class _SandboxHandler(_Handler):
    def do_GET(self) -> None:
        page, rest = self._page()
        if page is None or rest:
            self._answer(404)
        else:
            policy = f"{page._policy}; frame-ancestors {self.server.other}"  # noqa: SLF001  as above
            self._answer(200, _file("sandbox.html"), "text/html", Content_Security_Policy=policy)


def _file(name: str) -> bytes:
    return files(__name__).joinpath(name).read_bytes()
