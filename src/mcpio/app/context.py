"""What a handler sees of the request that it serves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mcpio.events import RequestContext, RequestReceived

if TYPE_CHECKING:
    from mcpio.app.serving import ServerSession
    from mcpio.app.session import Session
    from mcpio.types.elicitation import ElicitRequest, ElicitResult
    from mcpio.types.logging import LoggingLevel
    from mcpio.types.roots import Root
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = ["Context", "RequestScope"]

T = TypeVar("T")


class RequestScope:
    """One request of the peer's, while it is served. Its plain calls do not wait: any function can use them."""

    __slots__ = ("_event", "_in_thread", "_session", "cancelled")

    cancelled: bool
    """Whether the peer gave the request up, or the connection ended. Nobody will read the answer."""

    def __init__(self, session: Session, event: RequestReceived) -> None:
        self._session = session
        self._event = event
        self._in_thread = False
        self.cancelled = False

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's ``_meta``, as it came."""
        params = self._event.raw.get("params")
        meta = params.get("_meta") if isinstance(params, Mapping) else None
        return meta if isinstance(meta, Mapping) else {}

    @property
    def peer(self) -> RequestContext:
        """Who asks, in which revision, and what it declared."""
        return self._event.context

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is. ``progress`` must increase; ``total`` is its value at the end.

        Does nothing when the peer did not ask for progress, or no longer wants an answer.
        """
        self._call(lambda: self._session.send_progress(self._event.id, progress, total, message))

    def enter_thread(self) -> None:
        """Note that the handler runs in a thread, so that its calls go through the loop's."""
        self._in_thread = True

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread. Cancelling the wait abandons the thread."""
        return await self._session.driver.runtime.to_thread(function)

    def _call(self, function: Callable[[], T]) -> T:
        return self._session.driver.runtime.from_thread(function) if self._in_thread else function()


class Context(RequestScope):
    """What a tool, resource or prompt sees of its request: a parameter annotated with it is filled in."""

    __slots__ = ()

    _session: ServerSession

    @property
    def session(self) -> ServerSession:
        """The session that the request came in."""
        return self._session

    @property
    def state(self) -> Any:
        """What the server's ``lifespan`` gave; ``None`` without one."""
        return self._session.state

    def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message, any JSON value, to the client. Left out below the level that the client asked for."""
        self._call(lambda: self._session.log(level, data, logger, related_to=self._event.id))

    def debug(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``debug``."""
        self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``info``."""
        self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``warning``."""
        self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> None:
        """Log at level ``error``."""
        self.log("error", data, logger)

    def sample(self, request: CreateMessageRequest, **options: Any) -> Coroutine[Any, Any, CreateMessageResult]:
        """Ask the client's model. ``options`` are those of ``Session.request``; so are the errors."""
        return self._ask(request, options)

    def elicit(self, request: ElicitRequest, **options: Any) -> Coroutine[Any, Any, ElicitResult]:
        """Ask the client's user. ``options`` are those of ``Session.request``; so are the errors."""
        return self._ask(request, options)

    async def roots(self, **options: Any) -> tuple[Root, ...]:
        """Ask for the client's roots. ``options`` are those of ``Session.request``; so are the errors."""
        from mcpio.types.roots import ListRootsRequest

        result = await self._ask(ListRootsRequest(), options)
        roots: tuple[Root, ...] = result.roots
        return roots

    def _ask(self, request: Any, options: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        if self._in_thread:
            raise RuntimeError("a handler that runs in a thread cannot wait for the client: make it async")
        return self._session.request(request, related_to=self._event.id, **options)
