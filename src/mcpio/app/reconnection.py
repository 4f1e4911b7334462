# ruff: noqa: SLF001 - the library uses clients from inside
"""Replacing a lost session inside the same client, whether its server forgot it (SESS-06) or the connection broke.

One mechanism for every transport that can reconnect. The transport says when a session is lost, and when to open the
next; a client without such a transport has no reconnector, and its requests do not pass through here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.app.runtime import BroadcastEvent, check_nothing_waits, checked_callback, failure_of
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.engine.payloads import method_to_send
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, McpError, NoBackChannel, RequestError, RequestTimeout
from mcpio.events import CloseReason
from mcpio.methods import Kind
from mcpio.types.features import EmptyResult, SetLevelRequest, SubscribeRequest, UnsubscribeRequest

if TYPE_CHECKING:
    from mcpio.app.client import Client

__all__ = ["SessionReconnector"]


class _State(Enum):
    OPEN = auto()
    """Requests pass."""
    ENDING = auto()
    """The server takes no more requests in this session, which ends when it has answered the others: they wait."""
    LOST = auto()
    """Requests wait for the next session."""
    OVER = auto()
    """There will be no further session."""


_WAITING: Final = (_State.ENDING, _State.LOST)
_RECORDED: Final = (SubscribeRequest, UnsubscribeRequest, SetLevelRequest)


class SessionReconnector:
    """Opens the next session when the transport says so; requests that begin meanwhile wait for it.

    Requests under way when the session was lost have failed; ``retry`` decides whether they are sent again. The new
    session first receives the subscriptions to resources and the log level of the last one, and then the waiting
    requests.
    """

    def __init__(self, client: Client, on_lost: Callable[[], None] | None) -> None:
        """``on_lost`` is called for each lost session, before the next one begins."""
        self._client = client
        self._on_lost = checked_callback("on_session_lost", on_lost, "()")
        self._state = _State.OPEN
        self._opened = BroadcastEvent(client.driver.runtime)
        # Why no session could be opened any more; None while there is one, and where the client itself was closed.
        self._failure: McpError | None = None
        self._losses = 0
        self._subscriptions: dict[str, Any] = {}
        self._told: set[str] = set()  # those that the current session was told of when it was opened
        self._log_level: Any = None

    async def send(
        self,
        send: Callable[..., Coroutine[Any, Any, Any]],
        request: Any,
        *,
        timeout: Timeout | float | Default | None = DEFAULT,
    ) -> Any:
        """Send a request in the current session, or in the next one if that was lost; return its typed result.

        A request that a closing server did not run is sent in the next session too, and so is, once, one that the
        server refused because it did not know the session. The wait for that counts for ``timeout``, the option of
        ``send``. Raises RequestTimeout, and NoBackChannel if no session can follow.
        """
        began, limited, may_repeat = self._client.driver.now(), send, True
        while True:
            has_waited = self._state in _WAITING
            if has_waited or limited is not send:
                # Of the whole time: an attempt before this one has taken some of it, too.
                limited = partial(send, timeout=await self.wait_for_session(request, timeout, began))
            if self._state is _State.OVER and (has_waited or self._failure is not None):
                why = "" if self._failure is None else f": {self._failure}"
                raise NoBackChannel(f"the session was lost, and another could not be had{why}")
            if has_waited and self._is_told(request):
                return EmptyResult()
            losses = self._losses
            try:
                result = await limited(request)
            except RequestError as error:
                if not self.is_followed(error, losses):
                    raise
                limited = partial(send)
                continue
            except ConnectionLost as error:
                if not (error.unprocessed and may_repeat and self._state is _State.LOST):
                    raise
                may_repeat, limited = False, partial(send)
                continue
            if isinstance(request, _RECORDED):
                self._record(request, is_current=losses == self._losses)
            return result

    @property
    def losses(self) -> int:
        """How many sessions were lost."""
        return self._losses

    def is_followed(self, error: RequestError, losses: int) -> bool:
        """Whether an error says that the session of a request ends, so that the request belongs to the next one.

        ``losses`` were lost when it was sent. From here on, requests wait for the next one.
        """
        # Over HTTP nothing would say that the session has ended, until another request is sent.
        if not error.is_closing() or self._client.connection.over_http:
            return False
        if self._state is _State.OPEN and self._losses == losses:
            self._state = _State.ENDING
        return True

    async def wait_for_session(
        self, request: Any, timeout: Timeout | float | Default | None, began: float | None = None
    ) -> Timeout:
        """Wait until a session is open, or none can follow; return the time that is left for the answer.

        ``began`` is when the time of the request began; ``None`` for now. Raises RequestTimeout.
        """
        if isinstance(timeout, Default):
            timeout = self._client.connection.options.request_timeout
        limit = timeout if isinstance(timeout, Timeout) else Timeout(timeout)
        now = self._client.driver.now
        until = None if limit.total is None else (now() if began is None else began) + limit.total
        while True:
            remaining = limit if until is None else attrs.evolve(limit, total=max(0.0, until - now()))
            if self._state not in _WAITING:
                return remaining
            if not await self._opened.wait(remaining.total):
                method = method_to_send(request, Kind.REQUEST)
                raise RequestTimeout(request.method if method is None else method.name, limit.total or 0.0, "total")

    def _record(self, request: Any, *, is_current: bool) -> None:
        """Remember a successful request that the next session has to repeat; ``is_current``: this session knows it."""
        if isinstance(request, SubscribeRequest):
            self._subscriptions[request.uri] = request
            if is_current:
                # It may have waited for this session, since the loss of the last one.
                self._client._restored_subscription(request.uri)
        elif isinstance(request, UnsubscribeRequest):
            self._subscriptions.pop(request.uri, None)
            self._told.discard(request.uri)
        else:
            self._log_level = request

    def _is_told(self, request: Any) -> bool:
        """Whether a request subscribes to a resource that the current session was told of when it was opened."""
        return isinstance(request, SubscribeRequest) and request.uri in self._told

    def forget_subscription(self, uri: str) -> None:
        """Do not restore the subscription to a resource."""
        self._subscriptions.pop(uri, None)

    def begin(self, again_in: float | None) -> None:
        """Record that the session was lost, and open the next after ``again_in`` seconds; ``None`` for never."""
        self.lose()
        self.tell()
        if again_in is None:
            self.give_up()
        else:
            self._client.driver.runtime.spawn(self._open(again_in))

    def lose(self) -> None:
        """Record that the session was lost, so that requests wait. Call ``tell``, then ``open`` or ``give_up``."""
        self._losses += 1
        self._told.clear()
        if self._state in (_State.OPEN, _State.ENDING):
            self._state = _State.LOST
        self._client._lose_session()

    def tell(self) -> None:
        """Call the program's callback for lost sessions."""
        if self._on_lost is None:
            return
        try:
            check_nothing_waits(self._on_lost())
        except BaseException as error:
            self._client.driver.report("the callback for a lost session failed", failure_of(error))

    async def open(self) -> None:
        """Perform the handshake, restore the server's view of this client, and release waiting requests.

        Raises ConnectFailed if the handshake fails, and McpError if the session is lost again.
        """
        client, losses = self._client, self._losses
        await client.initialize()
        for request in (*([] if self._log_level is None else [self._log_level]), *self._subscriptions.values()):
            try:
                await client._request_directly(request)
                if request is not self._log_level:
                    self._told.add(request.uri)
                    client._restored_subscription(request.uri)
            except McpError as error:
                if client.connection.phase is not Phase.OPERATING:
                    raise
                client.driver.report("the server does not know any more what it was asked for", error)
        if self._losses > losses:
            raise ConnectionLost("the session was lost as soon as it was opened")
        self._leave_lost(_State.OPEN)

    def give_up(self, why: McpError | None = None) -> None:
        """Record that no session can follow: waiting and later requests fail. Further calls do nothing.

        ``why`` is told to them; ``None`` if the client was closed.
        """
        if self._state is not _State.OVER:
            self._failure = why
            self._leave_lost(_State.OVER)

    def _leave_lost(self, state: _State) -> None:
        self._state = state
        self._opened.notify_all()

    async def _open(self, again_in: float) -> None:
        client, losses = self._client, self._losses
        await client.driver.runtime.sleep(again_in)
        try:
            await self.open()
        except McpError as error:
            if self._losses > losses:
                return  # lost again meanwhile, which has started another attempt
            if self.was_closed:
                self.give_up()
                return
            client.driver.report("the session was lost, and cannot be opened anew", error)
            client.close(0)
            self.give_up(error)

    @property
    def was_closed(self) -> bool:
        """Whether this side closed the connection."""
        connection = self._client.connection
        end = connection.end
        return connection.phase is Phase.CLOSING if end is None else end.reason is CloseReason.CLOSED
