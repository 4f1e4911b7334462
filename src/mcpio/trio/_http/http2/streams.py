"""The streams of one HTTP/2 connection: h2 on one side, the HTTP machine on the other. It waits for nothing.

Each stream is one exchange. What its client does not let out for lack of a window stays in the machine, but for the
piece that is on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Final, cast

import h2.events
import trio
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame

from mcpio._drivers import report
from mcpio.app.http_host import HttpHost
from mcpio.engine.timers import Timers
from mcpio.http.model import Body, End, Headers, RequestHead, RequestItem, Reset, ResponseHead
from mcpio.trio._http.config import HttpTimeouts, Stage
from mcpio.trio._http.http2.fields import request_head, response_fields
from mcpio.trio._http.http2.frames import FRAME_BYTES, ConnectionFault, Frame, FrameBudget, FrameReader, Kind, cost
from mcpio.trio._http.http2.state import Connection, Stream
from mcpio.trio._http.responses import plain_text

__all__ = ["Http2Streams"]

PIECE: Final = 65536
"""How much to write at once, about."""

CREDIT: Final = 16384
"""How much has to be consumed of a window before it is opened again: a quarter."""


class Http2Streams:
    """One connection.

    After ``receive``, ``admit``, ``handle_timeout`` and ``close``, write what ``data_to_send`` gives and arm
    ``deadline`` anew; also when the machine has named one of the exchanges to ``wake``. Nothing that a client does
    raises here.
    """

    is_over: bool
    """Whether the connection is to be closed, once everything is written."""
    has_failed: bool
    """Whether that is because of what the client did."""
    requests: int
    """How many requests there were."""

    def __init__(
        self,
        host: HttpHost,
        owner: Hashable,
        *,
        head_bytes: int,
        timeouts: HttpTimeouts,
        principal: Hashable,
        on_request: Callable[[RequestHead], None] | None,
    ) -> None:
        """Begin. The exchanges are pairs of ``owner`` and a number.

        Requests are those of ``principal``, or of whom ``admit`` says after ``on_request`` was called.
        """
        self.is_over = self.has_failed = self._is_closing = False
        self.requests = 0
        self._host = host
        self._owner = owner
        self._timeouts = timeouts
        self._principal = principal
        self._on_request = on_request
        self._body_bytes = host.server.options.limits.message_bytes
        self._http = Connection(head_bytes)
        self._now = trio.current_time()
        self._frames = FrameReader(head_bytes)
        self._allowance = FrameBudget(self._now)
        self._streams: dict[int, Stream] = {}
        self._ready: dict[int, None] = {}
        self._items: list[RequestItem] = []
        self._expecting: list[Stream] = []
        self._received = 0
        self._sent = 0
        self._owed = 0
        self._out = bytearray(self._http.data_to_send())
        # By the numbers of streams; that of the connection has 0.
        self._timers: Timers[int] = Timers()
        self._stage = Stage.IDLE
        self._attend()

    # Feed

    def receive(self, data: bytes) -> None:
        """Take in what arrived; ``b""`` is the end, after which there is nobody to write to."""
        if self.is_over:
            return
        if not data:
            self.is_over = True
            return
        self._now = trio.current_time()
        self._frames.feed(data)
        try:
            while (frame := self._frames.next_frame()) is not None and self._take(frame):
                pass
        except ConnectionFault as error:
            self._fail(error.code)
        except ProtocolError:
            # h2 has said so to the client.
            self.is_over = self.has_failed = True
        except Exception as error:
            report("HTTP/2 could not be read", error)
            self._fail(ErrorCodes.INTERNAL_ERROR)
        self._hand_over()
        self._attend()
        self._out += self._http.data_to_send()

    def admit(self, head: RequestHead) -> None:
        """Go on with a request whose principal is known."""
        stream = self._find(head.exchange)
        if stream is not None and stream.waiting is not None and not self.is_over:
            self._now = trio.current_time()
            self._items += (head, *stream.waiting)
            stream.waiting = None
            self._hand_over()
            self._open_window(stream)

    def wake(self, exchange: Hashable) -> None:
        """Take note that a response has something to send."""
        stream = self._find(exchange)
        if stream is not None:
            self._ready[stream.number] = None

    def handle_timeout(self) -> None:
        """Act on deadlines that have come."""
        self._now = trio.current_time()
        for number in self._timers.pop_expired(self._now):
            stream = None if self.is_over else self._streams.get(number)
            if number == 0:
                self._fail(ErrorCodes.NO_ERROR)
            elif stream is not None and not stream.is_read and not stream.is_ending:
                self._refuse(stream, 408, "the body of the request took too long")
            elif stream is not None and not self._has_earned_time(stream):
                self._cut(stream, ErrorCodes.CANCEL)
        self._attend()

    # Pull

    def data_to_send(self) -> bytes:
        """Return what to write next; nothing for "nothing now". Call when what it gave before is written."""
        self._now = trio.current_time()
        while self._ready and len(self._out) < PIECE and not self.is_over:
            number = next(iter(self._ready))
            del self._ready[number]
            try:
                self._advance(self._streams[number])
            except Exception as error:
                report("a response could not be written", error)
                self._fail(ErrorCodes.INTERNAL_ERROR)
            self._out += self._http.data_to_send()
        self._attend()
        self._out += self._http.data_to_send()
        data = bytes(self._out)
        self._out.clear()
        return data

    @property
    def deadline(self) -> float | None:
        """When ``handle_timeout`` is due, or ``None``."""
        return None if self.is_over else self._timers.next()

    @property
    def is_congested(self) -> bool:
        """Whether so much waits to be written that nothing more should be read."""
        return len(self._out) > PIECE

    @property
    def is_idle(self) -> bool:
        """Whether no request has begun that is not over."""
        return not self._streams and not self._frames.is_in_head

    # The end

    def close(self) -> None:
        """Serve what is being served, and nothing after it."""
        if not self._is_closing and not self.is_over:
            self._is_closing = True
            if self._streams:
                # h2 would say nothing more after its own.
                self._out += self._http.data_to_send()
                self._out += GoAwayFrame(0, last_stream_id=self._http.highest_inbound_stream_id).serialize()
            else:
                self._fail(ErrorCodes.NO_ERROR)

    def lose(self) -> None:
        """Let go of all requests: the client is gone, or is to go."""
        self.is_over = True
        streams, self._streams = tuple(self._streams.values()), {}
        self._ready.clear()
        for stream in streams:
            self._host.receive(Reset(stream.exchange))

    def _fail(self, code: ErrorCodes) -> None:
        """Say why the connection ends."""
        self.is_over = True
        self.has_failed = code is not ErrorCodes.NO_ERROR
        self._http.close_connection(code)

    # What the client says

    def _take(self, frame: Frame) -> bool:
        """Act on a frame; return whether another may come."""
        price = cost(frame)
        self._spend(price)
        if frame.kind == Kind.GOAWAY:
            # It makes no more requests. h2 would not let those be answered that it has made.
            self.close()
            return not self.is_over
        events = self._http.receive_data(frame.data)
        if not price and not self._frames.is_in_head and _is_vain(frame, events):
            self._spend(1)
        for event in events:
            self._handle(event)
        return True

    def _spend(self, count: int) -> None:
        if not self._allowance.spend(count, self._now):
            raise ConnectionFault(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event.stream_id, event.headers)
        elif isinstance(event, h2.events.DataReceived):
            self._take_body(event.stream_id, event.data, event.flow_controlled_length)
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            self._go_on(self._streams)
        elif isinstance(event, h2.events.WindowUpdated):
            self._go_on([event.stream_id] if event.stream_id else self._streams)
        elif isinstance(event, h2.events.StreamEnded):
            self._complete(event.stream_id)
        elif isinstance(event, h2.events.StreamReset) and event.stream_id in self._streams:
            self._drop(self._streams[event.stream_id], is_lost=True)

    def _begin(self, number: int, fields: Headers) -> None:
        head = request_head((self._owner, number), fields, self._principal)
        if head is None or self._is_closing:
            # As for a request that its client resets: this costs more work than it costs the client.
            self._spend(1)
            code = ErrorCodes.REFUSED_STREAM if self._is_closing else ErrorCodes.PROTOCOL_ERROR
            self._http.reset_stream(number, code)
            return
        self.requests += 1
        expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in head.headers)
        stream = Stream(number, head.exchange, head.method == "HEAD", expects)
        self._streams[number] = stream
        if expects:
            self._expecting.append(stream)
        if self._on_request is None:
            self._items.append(head)
            self._set_patience(stream)
        else:
            stream.waiting = []
            self._on_request(head)

    def _take_body(self, number: int, data: bytes, size: int) -> None:
        self._owed += size
        if self._owed >= CREDIT:
            self._http.increment_flow_control_window(self._owed)
            self._owed = 0
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.expects = False
        stream.owed += size
        stream.received += len(data)
        stream.until += len(data) / self._timeouts.rate
        self._received += len(data)
        self._put(stream, Body(stream.exchange, data))
        self._open_window(stream)

    def _complete(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            self._put(stream, End(stream.exchange))
            if not stream.is_ending:
                self._timers.clear(number)
            self._end_body(stream)

    def _put(self, stream: Stream, item: RequestItem) -> None:
        (self._items if stream.waiting is None else stream.waiting).append(item)

    def _hand_over(self) -> None:
        """Give the machine what was read, all at once: that is no more than one read gives."""
        if self._items:
            items, self._items = self._items, []
            self._host.receive(*items)
        expecting, self._expecting = self._expecting, []
        for stream in expecting:
            if stream.number not in self._streams or self.is_over:
                continue
            if stream.waiting is not None:
                self._expecting.append(stream)
            elif stream.expects and not stream.is_read and stream.number not in self._ready:
                self._http.send_headers(stream.number, [(b":status", b"100")])

    # How much it may say

    def _open_window(self, stream: Stream) -> None:
        """Let more of a body come, as fast as it is taken in.

        While the bodies of a connection have more together than one may have, only the oldest of them goes on.
        """
        if stream.waiting is not None or stream.is_read or stream.is_ending:
            return
        if self._received > self._body_bytes and stream is not self._oldest():
            self._timers.clear(stream.number)
            return
        if stream.owed >= CREDIT:
            self._http.increment_flow_control_window(stream.owed, stream.number)
            stream.owed = 0
        if self._timers.get(stream.number) is None:
            self._set_patience(stream)
        elif stream.until < inf:
            self._timers.set(stream.number, stream.until)

    def _oldest(self) -> Stream | None:
        return next((stream for stream in self._streams.values() if not stream.is_read and not stream.is_ending), None)

    def _end_body(self, stream: Stream) -> None:
        """Take note that nothing more comes of a body: others may go on."""
        was_full = self._received > self._body_bytes
        self._received -= stream.received
        stream.received = 0
        stream.is_read = True
        if was_full:
            for other in self._streams.values():
                self._open_window(other)

    def _set_patience(self, stream: Stream) -> None:
        """Begin to wait for a body."""
        if self._timeouts.body is not None:
            stream.until = self._now + self._timeouts.body
            self._timers.set(stream.number, stream.until)

    def _attend(self) -> None:
        """Have the deadline of the connection be that for what its client is at; end it where nothing more may come."""
        if self._frames.is_in_head or not self.requests:
            stage = Stage.HEAD
        else:
            stage = Stage.ANSWER if self._streams else Stage.IDLE
        if self._is_closing and not self._streams:
            self.is_over = True
        if stage is self._stage:
            return
        self._stage = stage
        limit = {Stage.HEAD: self._timeouts.head, Stage.IDLE: self._timeouts.idle}.get(stage)
        if limit is None:
            self._timers.clear(0)
        else:
            self._timers.set(0, self._now + limit)

    # Responses

    def _advance(self, stream: Stream) -> None:
        """Send a frame of a response, if there is one and room for it; name the stream again if there may be more."""
        if not stream.unsent and not stream.is_ending and not self._pull(stream):
            return
        room = self._room(stream)
        if stream.unsent and room <= 0:
            self._await_window(stream)
            return
        size = min(len(stream.unsent), room, FRAME_BYTES)
        piece, stream.unsent = stream.unsent[:size], stream.unsent[size:]
        is_last = stream.is_ending and not stream.unsent
        if piece:
            self._http.send_data(stream.number, bytes(piece), end_stream=is_last)
        elif is_last:
            self._http.end_stream(stream.number)
        self._sent += size
        stream.piece -= size
        if size == FRAME_BYTES or is_last:
            self._allowance.earn()
        if stream.piece <= 0:
            self._begin_piece(stream)
        if is_last:
            self._finish(stream)
        else:
            self._ready[stream.number] = None

    def _pull(self, stream: Stream) -> bool:
        """Take something of a response from the machine, and send its head; return whether there is more to send."""
        room = self._room(stream)
        if stream.has_head and room <= 0:
            self._await_window(stream)
            return False
        # One frame, if there is a window for it. What is here is counted nowhere, and each of a hundred streams of each
        # connection may be stalled; what stays in the machine counts in ``held.unwritten``.
        items = self._host.responses_to_send(stream.exchange, max(0, min(room, FRAME_BYTES)))
        if not items:
            if stream.piece < FRAME_BYTES:
                self._allowance.earn()
                self._begin_piece(stream)
            return False
        if isinstance(items[-1], Reset):
            self._cut(stream, ErrorCodes.INTERNAL_ERROR)
            return False
        stream.is_ending = isinstance(items[-1], End)
        if not stream.is_bodiless:
            stream.unsent = memoryview(b"".join([item.data for item in items if isinstance(item, Body)]))
        if isinstance(items[0], ResponseHead):
            self._timers.clear(stream.number)
            self._send_head(stream, items[0].status, items[0].headers)
        return stream.number in self._streams

    def _send_head(self, stream: Stream, status: int, headers: Headers) -> None:
        is_last = stream.is_ending and not stream.unsent
        stream.has_head = True
        self._http.send_headers(stream.number, response_fields(status, headers), end_stream=is_last)
        if is_last:
            self._finish(stream)

    def _refuse(self, stream: Stream, status: int, message: str) -> None:
        """Answer in the place of the machine."""
        self._host.receive(Reset(stream.exchange))
        headers, body = plain_text(message)
        stream.is_ending = True
        stream.unsent = memoryview(b"" if stream.is_bodiless else body)
        self._ready[stream.number] = None
        self._send_head(stream, status, headers)

    def _go_on(self, numbers: Iterable[int]) -> None:
        """Take note that windows may have been opened."""
        for number in numbers:
            stream = self._streams.get(number)
            if stream is not None and stream.is_stalled:
                stream.is_stalled = False
                self._ready[number] = None

    def _room(self, stream: Stream) -> int:
        return self._http.local_flow_control_window(stream.number)

    def _await_window(self, stream: Stream) -> None:
        """Start the time that a client has to read a piece. Reading a part of the piece gives it no more."""
        stream.is_stalled = True
        limit = self._timeouts.to_read(stream.piece)
        if self._timers.get(stream.number) is None and limit < inf:
            self._timers.set(stream.number, self._now + limit)
            stream.sent_before = self._sent

    def _begin_piece(self, stream: Stream) -> None:
        """Count anew what a client has to read in its time: it has read a piece, or all that there was."""
        stream.piece = FRAME_BYTES
        self._timers.clear(stream.number)

    def _has_earned_time(self, stream: Stream) -> bool:
        """Give a stream more time, for what its client read of others: all of them share the connection's window.

        Otherwise a client with many requests would have to read faster than one with a single request. A stream whose
        own window is closed waits for its client alone, and has no more time.
        """
        seconds = (self._sent - stream.sent_before) / self._timeouts.rate
        if not seconds or not self._http.may_send_on(stream.number):
            return False
        stream.sent_before = self._sent
        self._timers.set(stream.number, self._now + seconds)
        return True

    def _finish(self, stream: Stream) -> None:
        """Forget a stream that is answered. What its client still had to say nobody needs (RFC 9113 section 8.1)."""
        if not stream.is_read:
            self._http.reset_stream(stream.number, ErrorCodes.NO_ERROR)
        self._drop(stream)

    def _cut(self, stream: Stream, code: ErrorCodes) -> None:
        self._http.reset_stream(stream.number, code)
        self._drop(stream, is_lost=True)

    def _drop(self, stream: Stream, *, is_lost: bool = False) -> None:
        del self._streams[stream.number]
        self._ready.pop(stream.number, None)
        self._timers.clear(stream.number)
        self._end_body(stream)
        if is_lost and stream.waiting is None:
            # What was read of it comes first.
            self._items.append(Reset(stream.exchange))
            self._hand_over()

    def _find(self, exchange: Hashable) -> Stream | None:
        _, number = cast("tuple[Hashable, int]", exchange)
        return self._streams.get(number)


def _is_vain(frame: Frame, events: Sequence[h2.events.Event]) -> bool:
    """Whether a frame went on after the end of a request, which h2 resets for that.

    To have the server reset what was asked is no way round the price of a reset (CVE-2025-8671). Pieces of a body may
    still be on their way when their request is refused.
    """
    if frame.kind == Kind.DATA and not events and not frame.is_last:
        return False
    return not any(isinstance(event, _ASKING) for event in events)


_ASKING: Final = (h2.events.RequestReceived, h2.events.DataReceived, h2.events.TrailersReceived)
