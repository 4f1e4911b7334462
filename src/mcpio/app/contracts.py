"""Contracts between the modules of the application layer: callable types and protocols, no behaviour.

Sessions, scopes, tasks and servers refer to one another. Each of them depends on these few protocols and on modules
below its own, so no two modules import each other, not even for their types.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar

from mcpio.engine.connection import Connection
from mcpio.engine.limits import DEFAULT, Default

if TYPE_CHECKING:
    from mcpio.app.runtime import Driver
    from mcpio.engine.limits import Timeout
    from mcpio.events import IncomingId, RequestContext, RequestReceived

__all__ = [
    "AskOptions",
    "CallNext",
    "Handler",
    "HandlerScope",
    "Middleware",
    "PeerSession",
    "ProgressCallback",
    "Requester",
    "RunningTask",
    "ScopeDriving",
]

T = TypeVar("T")

Handler: TypeAlias = Callable[[Any, Any], Any]
"""Takes the scope and the typed request. Returns the typed result, or an awaitable of it."""
ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes progress, total and message. A plain function: its result is not awaited."""
CallNext: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Passes the request, or another in its place, to the next layer, and returns its typed result."""
Middleware: TypeAlias = Callable[[Any, Any, CallNext], Awaitable[Any]]
"""An async function, or an object with an async ``__call__``. Its first argument is the ``Context`` of a request that a
server serves, the ``RequestScope`` of one that a client serves, and the ``OutgoingCall`` of one that a client sends."""


class AskOptions(TypedDict, total=False):
    """The options of every request of a handler to its client."""

    key: str | None
    """Names the request for handlers that are run again with the answers, as in the stateless era. By default the order
    of the requests names them. A handshake session ignores it: the handler itself waits for the answer."""
    timeout: Timeout | float | Default | None
    """Seconds, or a ``Timeout``; ``None`` waits without limit. People take longer than the default allows."""
    on_progress: ProgressCallback | None
    """Called with progress, total and message."""
    task: bool | float | None
    """Whether the client answers by a task (2025-11-25), so that it can report its state; the call waits for the result
    all the same. A number is the time in seconds that the client is asked to keep the task. Raises
    ``LocalProtocolError`` if the client did not declare such tasks; the roots never are one."""


class Requester(Protocol):
    """A session, as far as it sends requests."""

    @property
    def connection(self) -> Connection:
        """The engine."""

    @property
    def driver(self) -> Driver:
        """The driver that carries the session."""

    def request(
        self,
        request: Any,
        *,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Send a request and return its typed result."""


class PeerSession(Requester, Protocol):
    """A session, as far as tasks, snapshots and features need it."""

    @property
    def account(self) -> Hashable:
        """The key that the peer's work is counted under."""

    def notify(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Send a notification."""


class HandlerScope(Protocol):
    """The scope of a request, as far as what serves the request needs it."""

    @property
    def id(self) -> IncomingId:
        """The id of the request on this side."""

    @property
    def method(self) -> str:
        """The method of the request."""

    @property
    def session(self) -> PeerSession:
        """The session that the request came in."""

    @property
    def account(self) -> Hashable:
        """The key that the work of the request is counted under."""

    @property
    def thread_account(self) -> Hashable:
        """The key that the threads of the request are counted under."""

    @property
    def cancelled(self) -> bool:
        """Whether the peer no longer wants the answer."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """The ``_meta`` of the request."""

    @property
    def peer(self) -> RequestContext:
        """The requester: its identity, its revision, and the capabilities that it declared."""

    @property
    def driving(self) -> ScopeDriving:
        """The side of the scope that handlers have no use for."""

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread."""


class ScopeDriving(Protocol):
    """The side of a scope for sessions, tasks and registries; handlers have no use for it."""

    @property
    def event(self) -> RequestReceived:
        """The request, as the engine reported it."""

    def abandon(self) -> None:
        """Record that the peer no longer wants the answer."""

    def is_from_peer(self, error: BaseException) -> bool:
        """Whether the peer answered one of the handler's own requests with this very error."""

    def for_thread(self) -> Any:
        """Return the same scope for a handler in a thread: its calls go through the loop's thread."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator, unless the connection merely ended."""


class RunningTask(Protocol):
    """A task while its handler runs: ``Context.task``. Use it in the loop's thread."""

    @property
    def id(self) -> str:
        """The task's id. A peer that knows it may be able to read the result (TASK-10)."""

    @property
    def owner(self) -> str | int | None:
        """The owner of the task; ``None`` for an unauthenticated one."""

    @property
    def is_resumed(self) -> bool:
        """Whether the handler was interrupted before, by the end of its process or session, and runs again."""

    @property
    def is_over(self) -> bool:
        """Whether the task has reached its final status or expired; the handler's work no longer matters."""

    @property
    def is_leased(self) -> bool:
        """Whether no other process can have taken the task over. See ``TaskOptions.on_lapse``."""

    def say(self, message: str) -> None:
        """Set the status message. Does nothing after the task has ended."""
