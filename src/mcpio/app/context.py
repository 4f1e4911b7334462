"""What a handler sees of the request that it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcpio.events import RequestContext, RequestReceived

if TYPE_CHECKING:
    from mcpio.app.session import Session

__all__ = ["RequestScope"]


class RequestScope:
    """One request of the peer's, while it is served. Its calls do not wait, so a plain function can use them."""

    __slots__ = ("_event", "_session", "_through", "cancelled")

    cancelled: bool
    """Whether the peer gave the request up, or the connection ended. Nobody will read the answer."""

    def __init__(self, session: Session, event: RequestReceived) -> None:
        self._session = session
        self._event = event
        self._through: Callable[[Callable[[], Any]], Any] | None = None
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
        """From now on the handler runs in a thread, and its calls go through the loop's."""
        self._through = self._session.driver.runtime.from_thread

    def _call(self, function: Callable[[], Any]) -> Any:
        return function() if self._through is None else self._through(function)
