"""Taps: observers of everything that passes a connection, and that change nothing of it (P15).

A connection without a tap has no test for one anywhere: with its first tap it becomes of a class whose verbs tell what
they did. It stays of that class when the tap is taken off, since somebody may hold one of the verbs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from mcpio.engine.batches import as_item
from mcpio.engine.channel import ANY
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import DEFAULT, Connection, Default
from mcpio.engine.limits import Timeout
from mcpio.engine.outbox import Outgoing
from mcpio.engine.payloads import encode, method_to_send
from mcpio.engine.pending import IncomingRequest
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import RequestInput
from mcpio.errors import McpError
from mcpio.events import CloseReason, Event, IncomingId, OutgoingId
from mcpio.framing.lines import Overlong
from mcpio.methods import Kind
from mcpio.revisions import Revision
from mcpio.types.lifecycle import ClientCapabilities, Implementation

__all__ = ["Observation", "Reporter", "Tap", "add_tap"]

Reporter: TypeAlias = Callable[[str, BaseException | None], None]
"""Tells an operator something, with the exception behind it."""


class Tap:
    """Hears of what passes a connection. Override what you want to hear of; each method here does nothing.

    A tap looks on: it must not call the connection, and must not change what it is given. Its methods are plain
    functions, called without waiting, in the middle of the verb that they tell of. One that raises is switched off:
    the connection goes on as if there had been none. ``now`` is the latest time that the connection was told.
    """

    def opened(self, connection: Connection, now: float) -> None:
        """Begin: the tap was given to this connection. What this raises goes to whoever gave it."""

    def received(self, data: bytes | None, now: float) -> None:
        """Hear that bytes were fed, in the pieces in which they came; ``None`` is the end of file.

        Message channels have no bytes.
        """

    def sent(self, data: bytes | None, now: float) -> None:
        """Hear that a chunk of bytes was pulled, to be written; ``None`` is the half-close."""

    def message_received(self, text: bytes | str, via: Hashable, now: float) -> None:
        """Hear that a whole message is about to be acted on: its JSON, or whatever came in place of that."""

    def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
        """Hear that a whole message was pulled, to be written."""

    def event(self, event: Event, now: float) -> None:
        """Hear that an event was given to the program."""

    def called(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        """Hear that a verb that changes something was called, and did not raise. Payloads are in their wire form.

        ``next_event`` is told of here only where it gave nothing. The verbs that answer are told of as ``respond``,
        with the whole message, and only where there was something to answer.
        """


class Observation:
    """A tap on a connection. Made by ``add_tap``."""

    tap: Tap
    """What observes."""
    error: Exception | None
    """What the tap raised, for which it was switched off."""

    def __init__(self, connection: Connection, tap: Tap, report: Reporter | None) -> None:
        self.tap = tap
        self.error = None
        self._connection = connection
        self._report = report

    def stop(self) -> None:
        """Take the tap off. A second time does nothing."""
        connection = self._connection
        if isinstance(connection, Tapped):
            connection.untap(self)

    def tell(self, what: str, *arguments: Any) -> None:
        """Call a method of the tap. What it raises ends the observation, and is reported once."""
        try:
            _check_nothing_waits(getattr(self.tap, what)(*arguments))
        except Exception as error:
            self.error = error
            self.stop()
            if self._report is not None:
                with suppress(Exception):
                    self._report(f"a tap failed in {what}, and is switched off", error)


def add_tap(connection: Connection, tap: Tap, now: float = 0.0, *, report: Reporter | None = None) -> Observation:
    """Let a tap hear of everything that passes a connection from here on.

    ``now`` is the time on the connection's clock: a recording begins there. ``report`` is called once if the tap fails;
    beside it only ``Observation.error`` tells. Raises what ``tap.opened`` does, and then nothing is observed. A
    connection may have any number of taps; each hears of everything.
    """
    tap.opened(connection, now)
    observation = Observation(connection, tap, report)
    if not isinstance(connection, Tapped):
        connection.__class__ = _tapped(connection.__class__)
    connection.tap(observation)  # type: ignore[attr-defined]  # the class that it has by now
    return observation


if TYPE_CHECKING:
    _Base = Connection
    _ClientBase = ClientConnection
    _ServerBase = ServerConnection
else:
    # Python lets an object change its class only where the new one adds no base that has room for attributes.
    _Base = object
    _ClientBase = object
    _ServerBase = object


class Tapped(_Base):
    """What makes the verbs of a connection tell its taps what they did. It stands before the connection's own class."""

    __slots__ = ()

    def tap(self, observation: Observation) -> None:
        """Add an observation."""
        self._taps = (*(self._taps or ()), observation)

    def untap(self, observation: Observation) -> None:
        """Remove an observation."""
        self._taps = tuple(each for each in self._taps or () if each is not observation) or None

    def _tell(self, what: str, *arguments: Any) -> None:
        for observation in self._taps or ():
            observation.tell(what, *arguments, self._now)

    def _told(self, verb: str, **arguments: Any) -> None:
        self._tell("called", verb, arguments)

    def _in_words(self, payload: Any, kind: Kind) -> dict[str, Any]:
        """Return the method and the params of what was just sent."""
        method = method_to_send(payload, kind)
        return {
            "method": payload.method if method is None else method.name,
            "params": encode(self._codec, payload),
        }

    # Feed

    def receive_data(self, data: bytes | None, now: float) -> None:
        """Do it, and tell the taps."""
        ended = self._inbox.ended
        super().receive_data(data, now)
        if not ended and data != b"":
            # The caller may write into its buffer again.
            data = None if data is None else bytes(data)
            self._tell("received", data)
            self._told("receive_data", data=data)

    def receive_message(self, text: bytes | str | None, now: float, *, via: Hashable = None) -> None:
        """Do it, and tell the taps."""
        ended = self._inbox.ended
        super().receive_message(text, now, via=via)
        if not ended:
            self._told("receive_message", text=text, via=via)

    def connection_lost(self, cause: BaseException | None, now: float) -> None:
        """Do it, and tell the taps."""
        super().connection_lost(cause, now)
        self._told("connection_lost", cause=cause)

    def _receive_text(self, text: bytes | str, via: Hashable) -> None:
        self._tell("message_received", text, via)
        super()._receive_text(text, via)

    def _receive_overlong(self, overlong: Overlong, via: Hashable) -> None:
        self._tell("message_received", overlong.head, via)
        super()._receive_overlong(overlong, via)

    # Pull

    def next_event(self) -> Event | None:
        """Do it, and tell the taps."""
        event = super().next_event()
        if event is None:
            self._told("next_event")
        else:
            self._tell("event", event)
        return event

    def data_to_send(self, max_bytes: int = 65536) -> list[bytes | None]:
        """Do it, and tell the taps."""
        chunks = super().data_to_send(max_bytes)
        if chunks:
            for chunk in chunks:
                self._tell("sent", chunk)
                if chunk is not None:
                    self._tell("message_sent", chunk[:-1], None)
            self._told("data_to_send", max_bytes=max_bytes, chunks=tuple(chunks))
        return chunks

    def next_message(self, *, via: Hashable = ANY) -> Outgoing | None:
        """Do it, and tell the taps."""
        was = self._phase
        message = super().next_message(via=via)
        if message is not None:
            self._tell("message_sent", message.text, message.via)
        if message is not None or was is not self._phase:
            which = {} if via is ANY else {"via": via}
            self._told("next_message", text=None if message is None else message.text, **which)
        return message

    def set_unwritten(self, size: int) -> None:
        """Do it, and tell the taps where it may decide whether requests wait."""
        before = self._held.unwritten
        super().set_unwritten(size)
        if size != before and max(size, before) > self._limits.high_water:
            self._told("set_unwritten", size=size)

    # Time and the end

    def handle_timeout(self, now: float) -> None:
        """Do it, and tell the taps."""
        super().handle_timeout(now)
        self._told("handle_timeout")

    def close(self, now: float, grace: float | None = 5.0) -> None:
        """Do it, and tell the taps."""
        super().close(now, grace)
        self._told("close", grace=grace)

    def abort(self, cause: BaseException | None = None, *, reason: CloseReason = CloseReason.ABORTED) -> None:
        """Do it, and tell the taps."""
        super().abort(cause, reason=reason)
        self._told("abort", cause=cause, close_reason=reason.name)

    # Act

    def send_request(
        self,
        request: Any,
        *,
        now: float,
        timeout: Timeout | float | Default | None = DEFAULT,
        cookie: Any = None,
        related_to: IncomingId | None = None,
        progress: bool = False,
    ) -> OutgoingId:
        """Do it, and tell the taps."""
        id = super().send_request(
            request, now=now, timeout=timeout, cookie=cookie, related_to=related_to, progress=progress
        )
        self._told(
            "send_request",
            **self._in_words(request, Kind.REQUEST),
            timeout=timeout,
            cookie=cookie,
            related_to=related_to,
            progress=progress,
        )
        return id

    def send_batch(
        self, items: Iterable[Any], *, now: float, related_to: IncomingId | None = None
    ) -> tuple[OutgoingId | None, ...]:
        """Do it, and tell the taps."""
        batch = [as_item(item) for item in items]
        ids = super().send_batch(batch, now=now, related_to=related_to)
        said = [
            {
                **self._in_words(item.payload, Kind.NOTIFICATION if id is None else Kind.REQUEST),
                "waits": id is not None,
                "timeout": item.timeout,
                "cookie": item.cookie,
                "progress": item.progress,
            }
            for item, id in zip(batch, ids, strict=True)
        ]
        self._told("send_batch", items=said, related_to=related_to)
        return ids

    def fail_request(self, id: OutgoingId, error: McpError, now: float) -> bool:
        """Do it, and tell the taps."""
        was_running = super().fail_request(id, error, now)
        self._told("fail_request", id=id, error=error)
        return was_running

    def cancel_request(self, id: OutgoingId, reason: str | None = None) -> bool:
        """Do it, and tell the taps."""
        was_running = super().cancel_request(id, reason)
        self._told("cancel_request", id=id, reason=reason)
        return was_running

    def send_progress(
        self, id: IncomingId, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Do it, and tell the taps."""
        super().send_progress(id, progress, total, message)
        self._told("send_progress", id=id, progress=progress, total=total, message=message)

    def send_notification(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Do it, and tell the taps."""
        super().send_notification(notification, related_to=related_to)
        self._told("send_notification", **self._in_words(notification, Kind.NOTIFICATION), related_to=related_to)

    def _respond(self, request: IncomingRequest, what: RequestInput, text: bytes) -> None:
        super()._respond(request, what, text)
        self._told("respond", id=request.id, text=text)


class TappedClient(Tapped, _ClientBase):
    """The same for the verbs that only a client has."""

    __slots__ = ()

    def send_initialize(
        self, *, now: float, timeout: Timeout | float | Default | None = DEFAULT, cookie: Any = None
    ) -> OutgoingId:
        """Do it, and tell the taps."""
        id = super().send_initialize(now=now, timeout=timeout, cookie=cookie)
        self._told("send_initialize", timeout=timeout, cookie=cookie)
        return id

    def reset_session(self, now: float) -> None:
        """Do it, and tell the taps."""
        super().reset_session(now)
        self._told("reset_session")


class TappedServer(Tapped, _ServerBase):
    """The same for the verb that only a server has."""

    __slots__ = ()

    def skip_handshake(
        self,
        revision: Revision,
        *,
        capabilities: ClientCapabilities | None = None,
        info: Implementation | None = None,
    ) -> None:
        """Do it, and tell the taps."""
        super().skip_handshake(revision, capabilities=capabilities, info=info)
        said = {
            "capabilities": None if capabilities is None else encode(self._codec, capabilities),
            "info": None if info is None else encode(self._codec, info),
        }
        self._told("skip_handshake", revision=revision.name, **said)


@cache
def _tapped(cls: type[Connection]) -> type[Tapped]:
    """Return the class that an observed connection of a class is of."""
    base: type = TappedClient if issubclass(cls, ClientConnection) else TappedServer
    make: Any = type(cls)
    made: type[Tapped] = make(
        f"Tapped{cls.__name__}", (base, cls), {"__slots__": (), "__doc__": cls.__doc__, "__module__": cls.__module__}
    )
    return made


def _check_nothing_waits(result: Any) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("a tap's methods are plain functions: nobody awaits what they return")
