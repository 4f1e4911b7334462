"""HTTP/2."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import IntEnum
from inspect import isawaitable
from math import inf
from typing import Final, cast

import attrs
import h2.events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hpack import Encoder
from hyperframe.frame import GoAwayFrame

from mcpio._drivers.event_loop import RECEIVE_SIZE, ByteStream, Deadlines, EventLoop, end_output
from mcpio._drivers.http_parsers import LINE_END, FindPrincipal, HttpTimeouts, http_date, plain_text
from mcpio._drivers.socket_server import SocketPeer
from mcpio.app.http_host import HttpHost
from mcpio.app.runtime import Spawned
from mcpio.engine.channel import Timers
from mcpio.http.lifecycle import LINGER, TIMEOUTS, Action, Input, Lifecycle, State, announces_short_body
from mcpio.http.model import Body, End, Headers, RequestHead, RequestItem, Reset, ResponseHead
from mcpio.http.sessions import EXCHANGE_COST

# --------------------------------------------------------------------------------------------------------------- frames
# Reads HTTP/2 frames ahead of h2, so that oversized and abusive ones never reach it.
# h2 parses as many frames as it is given, buffers a frame of any announced length before it looks at that length, and
# answers pings and settings as often as they come. So h2 is given one frame at a time, and only while the client's
# budget lasts.

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every client (RFC 9113 section 3.4)."""

FRAME_BYTES: Final = 16384
"""The most bytes in a frame. This is the initial value of SETTINGS_MAX_FRAME_SIZE; this server never offers more."""

SHORT: Final = 256
"""DATA frames with fewer bytes are charged to the budget, unless they end the request: they cost more than they
bring."""

_HEADER = 9
_SETTING = 6
_END_STREAM = 0x1
_END_HEADERS = 0x4


class Kind(IntEnum):
    """The frame types that are treated differently here (RFC 9113 section 6)."""

    DATA = 0
    HEADERS = 1
    SETTINGS = 4
    GOAWAY = 7
    CONTINUATION = 9


@attrs.frozen
class Frame:
    """One frame."""

    kind: int
    """A ``Kind``, or any other number."""
    flags: int
    data: bytes
    """The whole frame, header included."""

    @property
    def is_last(self) -> bool:
        """Whether a DATA or HEADERS frame ends its request."""
        return bool(self.flags & _END_STREAM)


class ConnectionFault(Exception):
    """A fault of the client that ends the connection."""

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code


class FrameReader:
    """Splits the bytes after the preface into frames. It buffers less than one frame besides the last read."""

    is_in_head: bool
    """Whether a head is incomplete, so that only its CONTINUATION frames may follow."""

    def __init__(self, head_bytes: int) -> None:
        """Reject heads with more than ``head_bytes`` of compressed fields."""
        self.is_in_head = False
        self._head_bytes = head_bytes
        self._head_size = 0
        self._preface = PREFACE
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Store received bytes."""
        self._data += data

    def next_frame(self) -> Frame | None:
        """Return the next frame; ``None`` means "feed me". Raises ConnectionFault."""
        if self._preface:
            self._skip_preface()
        data = self._data
        if self._preface or len(data) < _HEADER:
            return None
        size, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
        if size > FRAME_BYTES:
            raise ConnectionFault(ErrorCodes.FRAME_SIZE_ERROR, "a frame is too long")
        if len(data) < _HEADER + size:
            return None
        self._follow_head(kind, flags, size)
        frame = Frame(kind, flags, bytes(data[: _HEADER + size]))
        del data[: _HEADER + size]
        return frame

    def _skip_preface(self) -> None:
        seen = bytes(self._data[: len(self._preface)])
        if not self._preface.startswith(seen):
            raise ConnectionFault(ErrorCodes.PROTOCOL_ERROR, "the client does not speak HTTP/2")
        self._preface = self._preface[len(seen) :]
        del self._data[: len(seen)]

    def _follow_head(self, kind: int, flags: int, size: int) -> None:
        """Bound a head over all its CONTINUATION frames, which h2 would collect without a limit (CVE-2024-27316)."""
        if kind not in (Kind.HEADERS, Kind.CONTINUATION):
            return
        self._head_size = size if kind == Kind.HEADERS else self._head_size + size
        if self._head_size > self._head_bytes:
            raise ConnectionFault(ErrorCodes.ENHANCE_YOUR_CALM, "the head of a request is too long")
        self.is_in_head = not flags & _END_HEADERS


def cost(frame: Frame) -> int:
    """Return the cost of a frame in the budget.

    Frames that make or continue a request are free, since other limits bound requests. All others cost 1:
    resets, pings, priorities, window updates, unknown frames, and short pieces of bodies. SETTINGS cost 1 for each
    setting: a frame has room for 2,730 of them, and each may change the windows of all streams.
    """
    if frame.kind == Kind.SETTINGS:
        return max(1, (len(frame.data) - _HEADER) // _SETTING)
    if frame.kind == Kind.DATA:
        return 0 if frame.is_last or len(frame.data) >= _HEADER + SHORT else 1
    return 0 if frame.kind in (Kind.HEADERS, Kind.CONTINUATION) else 1


class FrameBudget:
    """Token bucket of frames that request nothing, refilled by time and by the data that the client reads.

    The budget stops the attacks that no limit on open requests stops: requests that are reset at once
    (CVE-2023-44487), floods of pings, settings and empty frames (CVE-2019-9512, 9515 and 9518), and windows opened
    byte by byte (CVE-2019-9511).
    """

    MOST: Final = 1000.0
    RATE: Final = 33.0
    """Frames a second."""

    def __init__(self, now: float) -> None:
        self._left = self.MOST
        self._since = now

    def spend(self, count: int, now: float) -> bool:
        """Subtract ``count`` from the budget; return whether it sufficed."""
        if not count:
            return True
        self._left = min(self.MOST, self._left + (now - self._since) * self.RATE) - count
        self._since = now
        return self._left >= 0

    def earn(self) -> None:
        """Refill for a full or last frame of a response: the client answers it with two window updates."""
        self._left += 2


# -------------------------------------------------------------------------------------------------------------- streams
# The streams of one HTTP/2 connection: translate between h2 and the HTTP machine, without waiting.
# Each stream is one exchange, with its ``Lifecycle``. Response data that the client has no window for stays in
# the machine, except for the frame that is on its way.

MAX_STREAMS: Final = 100
"""How many requests of one connection may be open at once. RFC 9113 recommends at least 100, and clients assume it
until they have read the server's settings."""
MAX_DRAINING: Final = MAX_STREAMS // 2
"""How many of them may be answered while their short bodies are to come: a client that sends no more of its body and
does not say so must find room for its next requests."""

PIECE: Final = 65536
"""About how many bytes to write at once."""

CREDIT: Final = 16384
"""How many bytes of a window to consume before it is opened again: a quarter of its initial size."""

_CONNECTION: Final = 0
"""The key of the connection's own deadline, among those of the streams."""


@attrs.define(eq=False)
class Stream:
    """One request and its response."""

    number: int
    exchange: Hashable
    """The machine's name for it; ``None`` once the machine has given the last of the response."""
    life: Lifecycle
    is_bodiless: bool
    """Whether the response has no body, as for HEAD."""
    expects: bool
    """Whether the client waits for ``100 Continue`` before it sends the body."""
    has_short_body: bool = False
    """Whether the client sends a short body, unasked."""
    cost: int = 0
    """Bytes that its head takes while its principal is looked up. The ledger counts them, and ``waiting``."""
    lookup: Spawned | None = None
    """The task that looks its principal up."""
    waiting: bytearray = attrs.field(factory=bytearray)
    """The part of its body that arrived during the look-up."""
    has_ended: bool = False
    """Whether its end arrived during the look-up."""
    withheld: int = 0
    """Bytes of the connection's window that ``waiting`` takes, to be returned after the look-up."""
    received: int = 0
    """Bytes of its body so far, while it is incomplete."""
    owed: int = 0
    """Bytes consumed of the client's window that were not returned to it."""
    piece: int = FRAME_BYTES
    """Bytes that the client has yet to read before the write deadline."""
    unsent: memoryview | None = None
    """Response data of the machine that did not fit into the window, at most a frame; ``None`` until the head of the
    response is sent."""
    is_stalled: bool = False
    """Whether it waits for the client to open a window."""
    sent_before: int = 0
    """Bytes that had been sent on all streams when its write deadline was set."""
    read_before: int = 0
    """Bytes of bodies that had been read on all streams when its body deadline was set."""

    @property
    def is_incomplete(self) -> bool:
        """Whether more of the request is expected."""
        if self.life.state is State.LOOKUP:
            return not self.has_ended
        return self.life.state in (State.BODY, State.EARLY)


class Http2Streams:
    """All requests of one connection.

    After ``receive``, ``admit``, ``handle_timeout`` and ``close``, and when the host has named an exchange to ``wake``:
    write what ``data_to_send`` returns and re-arm ``deadline``. Nothing that the client does raises here.
    """

    requests: int
    """How many requests there have been."""
    end: ErrorCodes | None
    """Why the connection ends once everything is written; ``None`` while it continues."""

    def __init__(
        self,
        host: HttpHost,
        owner: Hashable,
        *,
        head_bytes: int,
        timeouts: HttpTimeouts,
        principal: Hashable,
        on_request: Callable[[RequestHead], Spawned] | None,
        send_now: Callable[[], object],
        on_given_up: Callable[[], object],
    ) -> None:
        """Exchanges are pairs of ``owner`` and the number of the stream.

        Requests are those of ``principal``; with ``on_request``, of the principal that ``admit`` is called with after
        it, by the task that it returns. ``send_now`` writes what it can without waiting, before a handler that may
        block. ``on_given_up`` is called after the ledger had a request given up: write and re-arm as always.
        """
        self.requests = 0
        self.end = None
        self._is_closing = False
        self._host = host
        self._owner = owner
        self._timeouts = timeouts
        self._principal = principal
        self._on_request = on_request
        self._send_now = send_now
        self._on_given_up = on_given_up
        self._ledger = host.server.ledger
        self._body_bytes = host.server.options.limits.message_bytes
        self._http = _Http2(head_bytes)
        self._clock = host.clock
        self._now = self._clock()
        self._frames = FrameReader(head_bytes)
        self._budget = FrameBudget(self._now)
        self._streams: dict[int, Stream] = {}
        # The streams with something to send, in the order of their turns.
        self._ready: dict[int, None] = {}
        # Items that were read and not handed to the machine yet.
        self._items: list[RequestItem] = []
        self._expecting: list[Stream] = []
        # Streams that are answered, and whose short bodies are still to come.
        self._draining: dict[int, Lifecycle] = {}
        self._received = 0
        self._read = 0
        self._sent = 0
        self._owed = 0
        self._out = bytearray(self._http.data_to_send())
        self._timers: Timers[int] = Timers()
        self._timeout: str | None = None
        self._attend()

    # Feed

    def receive(self, data: bytes) -> None:
        """Process received bytes; ``b""`` is the end of input, after which writing is impossible too."""
        if self.is_over:
            return
        if not data:
            self.end = ErrorCodes.NO_ERROR
            return
        self._now = self._clock()
        self._frames.feed(data)
        try:
            while (frame := self._frames.next_frame()) is not None and self._take(frame):
                pass
        except ConnectionFault as error:
            self._fail(error.code)
        except ProtocolError as error:
            # h2 has put its GOAWAY into its output.
            self.end = error.error_code
        except Exception as error:
            self._host.report_fault("HTTP/2 could not be read", error)
            self._fail(ErrorCodes.INTERNAL_ERROR)
        self._hand_over()
        self._attend()
        self._out += self._http.data_to_send()

    def admit(self, head: RequestHead) -> None:
        """Continue with a request whose principal is known."""
        stream = self._find(head.exchange)
        if stream is not None and not self.is_over:
            self._now = self._clock()
            is_incomplete = stream.is_incomplete
            stream.life.step(Input.RECV_HEAD, self._now)
            if not is_incomplete:
                stream.life.step(Input.RECV_END, self._now)
            self._items.append(head)
            if stream.waiting:
                self._items.append(Body(stream.exchange, bytes(stream.waiting)))
            if stream.has_ended:
                self._items.append(End(stream.exchange))
            stream.lookup = None
            self._end_lookup(stream)
            self._hand_over()
            if stream.number in self._streams:
                self._open_window(stream)  # closed during the look-up: what waits is at most the initial window

    def wake(self, exchange: Hashable) -> None:
        """Queue a response that has something to send."""
        stream = self._find(exchange)
        if stream is not None:
            self._ready[stream.number] = None

    def handle_timeout(self) -> None:
        """Handle the expired deadlines."""
        self._now = self._clock()
        for number in self._timers.pop_expired(self._now):
            if (draining := self._draining.pop(number, None)) is not None:
                if not self.is_over and draining.step(Input.TIMEOUT, self._now) is Action.CLOSE:
                    self._http.reset_stream(number, ErrorCodes.NO_ERROR)
                continue
            stream = None if self.is_over else self._streams.get(number)
            if number == _CONNECTION:
                self._fail(ErrorCodes.NO_ERROR)  # a client that is merely idle, or sends no head, broke no rule
            elif stream is None:
                continue
            elif stream.unsent is None:  # no response has begun, so this is the deadline of the body
                if not self._has_earned_body_time(stream):
                    stream.life.step(Input.TIMEOUT, self._now)
                    self._refuse(stream, 408, "the body of the request took too long")
            elif not self._has_earned_time(stream):
                self._cut(stream, ErrorCodes.CANCEL)
        self._attend()

    # Pull

    def data_to_send(self) -> bytes:
        """Return the next bytes to write; ``b""`` if none are ready. Call it when earlier bytes are written."""
        self._now = self._clock()
        # In turns of one frame, so that no large response holds up the others.
        while self._ready and len(self._out) < PIECE and not self.is_over:
            number = next(iter(self._ready))
            del self._ready[number]
            try:
                self._advance(self._streams[number])
            except Exception as error:
                self._host.report_fault("a response could not be written", error)
                self._fail(ErrorCodes.INTERNAL_ERROR)
            self._out += self._http.data_to_send()
        self._attend()
        self._out += self._http.data_to_send()
        data = bytes(self._out)
        self._out.clear()
        return data

    @property
    def is_over(self) -> bool:
        """Whether to close the connection once everything is written."""
        return self.end is not None

    @property
    def deadline(self) -> float | None:
        """When to call ``handle_timeout``, or ``None``."""
        return None if self.is_over else self._timers.next()

    @property
    def is_congested(self) -> bool:
        """Whether too much output waits to read any more input."""
        return len(self._out) > PIECE

    @property
    def is_idle(self) -> bool:
        """Whether requests have been served, and none is open."""
        return self.requests > 0 and not self._streams and not self._frames.is_in_head

    # The end

    def close(self) -> None:
        """Serve the requests that are open, and no others."""
        if not self._is_closing and not self.is_over:
            self._is_closing = True
            if self._streams or self._draining:
                # Not by h2, which sends nothing more after its own GOAWAY.
                self._out += self._http.data_to_send()
                self._out += GoAwayFrame(0, last_stream_id=self._http.highest_inbound_stream_id).serialize()
            else:
                self._fail(ErrorCodes.NO_ERROR)

    def lose(self) -> None:
        """Drop all requests, because the client is gone or must be disconnected."""
        if self.end is None:
            self.end = ErrorCodes.NO_ERROR
        streams, self._streams = tuple(self._streams.values()), {}
        self._ready.clear()
        for stream in streams:
            self._ledger.settle(stream, 0, _nothing)
            self._host.receive(Reset(stream.exchange))

    def _fail(self, code: ErrorCodes) -> None:
        """End the connection, and tell the client why."""
        self.end = code
        self._http.close_connection(code)

    # Frames from the client

    def _take(self, frame: Frame) -> bool:
        """Process a frame; return whether another may follow."""
        price = cost(frame)
        self._spend(price)
        if frame.kind == Kind.GOAWAY:
            # The client makes no more requests. h2 would not let those be answered that it has made.
            self.close()
            return not self.is_over
        events = self._http.receive_data(frame.data)
        # While a head is incomplete, h2 has no events to judge the frame by.
        if not price and not self._frames.is_in_head and _is_vain(frame, events):
            self._spend(1)
        for event in events:
            self._handle(event)
        return True

    def _spend(self, count: int) -> None:
        if not self._budget.spend(count, self._now):
            raise ConnectionFault(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that request nothing")

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event.stream_id, event.headers)
        elif isinstance(event, h2.events.DataReceived):
            self._take_body(event.stream_id, event.data, event.flow_controlled_length)
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            # A new initial window changes that of every open stream (RFC 9113 section 6.9.2).
            self._resume(self._streams)
        elif isinstance(event, h2.events.WindowUpdated):
            self._resume([event.stream_id] if event.stream_id else self._streams)  # stream 0 is the connection
        elif isinstance(event, h2.events.StreamEnded):
            self._complete(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self._end_draining(event.stream_id)
            if event.stream_id in self._streams:
                self._drop(self._streams[event.stream_id], is_lost=True)

    def _begin(self, number: int, fields: Headers) -> None:
        head = request_head((self._owner, number), fields, self._principal)
        if head is None or self._is_closing:
            # Charged like a request that its client resets: it costs the server more than the client.
            self._spend(1)
            code = ErrorCodes.REFUSED_STREAM if self._is_closing else ErrorCodes.PROTOCOL_ERROR
            self._http.reset_stream(number, code)
            return
        self.requests += 1
        expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in head.headers)
        state = State.BODY if self._on_request is None else State.LOOKUP
        life = Lifecycle(self._timeouts, self._now, state=state, is_last=True)
        is_short = announces_short_body(head.fields)
        stream = Stream(number, head.exchange, life, head.method == "HEAD", expects, is_short)
        self._streams[number] = stream
        if expects:
            self._expecting.append(stream)
        if self._on_request is None:
            self._items.append(head)
            self._set_body_deadline(stream)
        else:
            stream.cost = EXCHANGE_COST + sum(len(name) + len(value) for name, value in head.headers) + len(head.target)
            self._settle_lookup(stream)
            if number in self._streams:
                stream.lookup = self._on_request(head)

    def _settle_lookup(self, stream: Stream) -> None:
        """Count a request whose principal is looked up: the machine counts it only from then on."""
        self._ledger.settle(stream, stream.cost + len(stream.waiting), self._give_up)

    def _give_up(self, stream: Stream) -> None:
        """Free the memory of a request whose principal is looked up. Its client may repeat it."""
        if not self.is_over:
            self._http.reset_stream(stream.number, ErrorCodes.REFUSED_STREAM)
        self._drop(stream)
        self._attend()
        self._on_given_up()

    def _end_lookup(self, stream: Stream) -> None:
        """Release what was held for a request during its look-up, and stop the look-up."""
        self._ledger.settle(stream, 0, _nothing)
        if stream.lookup is not None:
            stream.lookup.cancel()
            stream.lookup = None
        stream.waiting.clear()
        withheld, stream.withheld = stream.withheld, 0
        if withheld and not self.is_over:
            self._return_window(withheld)

    def _take_body(self, number: int, data: bytes, size: int) -> None:
        # The connection's window is returned at once, for dropped streams too: their data counts in it (RFC 9113
        # section 6.9.1). Only the window of a stream holds its client back, so that no body stalls the others. During
        # look-ups it is the connection's window: the windows of a hundred streams would hold megabytes. A look-up
        # needs no body, so none of them can wait for bodies that are held back.
        stream = self._streams.get(number)
        is_waiting = stream is not None and stream.life.state is State.LOOKUP
        if not is_waiting:
            self._return_window(size)
        if stream is None:
            return
        stream.expects = False
        stream.owed += size
        stream.received += len(data)
        self._read += len(data)
        stream.life.step(Input.RECV_BYTES, self._now, len(data))
        self._received += len(data)
        if is_waiting:
            stream.waiting += data
            stream.withheld += size
            self._settle_lookup(stream)
        else:
            self._items.append(Body(stream.exchange, data))
            self._open_window(stream)

    def _return_window(self, size: int) -> None:
        """Return a part of the connection's window to the client."""
        self._owed += size
        if self._owed >= CREDIT:
            self._http.increment_flow_control_window(self._owed)
            self._owed = 0

    def _complete(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            self._end_draining(number)
            return
        if stream.life.state is State.LOOKUP:
            stream.has_ended = True
        else:
            self._items.append(End(stream.exchange))
            stream.life.step(Input.RECV_END, self._now)
        if stream.unsent is None:
            self._timers.clear(number)
        self._end_body(stream)

    def _hand_over(self) -> None:
        """Pass the items of one read to the machine, then send ``100 Continue`` to admitted requests."""
        while self._items:
            # Request by request: a handler that blocks must not hold up the answers to those before it.
            ends = (count for count, item in enumerate(self._items, 1) if item.__class__ is End)
            end = next(ends, len(self._items))
            items, self._items = self._items[:end], self._items[end:]
            self._host.receive(*items)
            if self._ready and self._host.may_block:
                self._send_now()
        expecting, self._expecting = self._expecting, []
        for stream in expecting:
            if stream.number not in self._streams or self.is_over:
                continue
            if stream.life.state is State.LOOKUP:
                self._expecting.append(stream)
            elif stream.expects and stream.is_incomplete and stream.number not in self._ready:
                # Ready at this point means rejected by its head: the body would be thrown away.
                self._http.send_headers(stream.number, [(b":status", b"100")])

    # How much the client may send

    def _open_window(self, stream: Stream) -> None:
        """Return window to the client as fast as its body is consumed.

        Once the bodies of a connection exceed together what one body may have, only the oldest may continue.
        Otherwise each connection could hold a hundred bodies of the largest size.
        """
        if stream.life.state not in (State.BODY, State.EARLY) or stream.exchange is None:
            return
        if self._received > self._body_bytes and stream is not self._oldest():
            self._timers.clear(stream.number)
            return
        if stream.owed >= CREDIT:
            self._http.increment_flow_control_window(stream.owed, stream.number)
            stream.owed = 0
        if self._timers.get(stream.number) is None:
            self._set_body_deadline(stream)
        elif stream.unsent is None and stream.life.deadline < inf:
            self._timers.set(stream.number, stream.life.deadline)

    def _oldest(self) -> Stream | None:
        incomplete = (each for each in self._streams.values() if each.is_incomplete and each.exchange is not None)
        return next(incomplete, None)

    def _end_body(self, stream: Stream) -> None:
        """Release the share of a body that is complete, or no longer needed, to the other bodies."""
        was_full = self._received > self._body_bytes
        self._received -= stream.received
        stream.received = 0
        if was_full:
            for other in self._streams.values():
                self._open_window(other)

    def _set_body_deadline(self, stream: Stream) -> None:
        if self._timeouts.body is not None:
            stream.life.deadline = self._now + self._timeouts.body
            stream.read_before = self._read
            self._timers.set(stream.number, stream.life.deadline)

    def _has_earned_body_time(self, stream: Stream) -> bool:
        """Extend the body deadline of a stream if its client was busy sending other bodies, at the required rate.

        All streams share one connection, and the client chooses their order: it may send some bodies whole before it
        continues others. Their number is limited, and so is what they hold together.
        """
        limit, read = self._timeouts.body, self._read - stream.read_before
        if limit is None or read < limit * self._timeouts.rate:
            return False
        self._set_body_deadline(stream)
        return True

    def _attend(self) -> None:
        """Set the connection's deadline for the next action of the client; end the connection if none may follow."""
        if self._frames.is_in_head or not self.requests:
            state = State.HEAD
        else:
            state = State.ANSWER if self._streams else State.IDLE
        if self._is_closing and not (self._streams or self._draining) and self.end is None:
            self.end = ErrorCodes.NO_ERROR
        timeout = TIMEOUTS[state]
        if timeout == self._timeout:
            return
        self._timeout = timeout
        limit = {"head": self._timeouts.head, "idle": self._timeouts.idle, None: None}[timeout]
        if limit is None:
            self._timers.clear(_CONNECTION)
        else:
            self._timers.set(_CONNECTION, self._now + limit)

    # Responses

    def _advance(self, stream: Stream) -> None:
        """Send one frame of a response, if data and window allow it; queue the stream again for more."""
        if not stream.unsent and stream.exchange is not None and not self._pull(stream):
            return
        room, unsent = self._room(stream), stream.unsent or memoryview(b"")
        if unsent and room <= 0:
            self._await_window(stream)
            return
        size = max(0, min(len(unsent), room, FRAME_BYTES))
        piece, stream.unsent = unsent[:size], unsent[size:]
        is_last = stream.exchange is None and not stream.unsent
        if piece:
            self._http.send_data(stream.number, bytes(piece), end_stream=is_last)
        elif is_last:
            self._http.end_stream(stream.number)
        self._sent += size
        stream.piece -= size
        if size == FRAME_BYTES or is_last:
            self._budget.earn()
        if stream.piece <= 0:
            self._begin_piece(stream)
        if is_last:
            self._finish(stream)
        else:
            self._ready[stream.number] = None

    def _pull(self, stream: Stream) -> bool:
        """Pull a part of a response from the machine, and send its head; return whether data is left to send."""
        room = self._room(stream)
        if stream.unsent is not None and room <= 0:
            self._await_window(stream)
            return False
        # One frame, if there is a window for it. What is taken is counted nowhere, and each of a hundred streams of
        # each connection may be stalled; what stays in the machine is counted in ``held.unwritten``.
        items = self._host.responses_to_send(stream.exchange, max(0, min(room, FRAME_BYTES)))
        if not items:
            if stream.piece < FRAME_BYTES:
                self._budget.earn()
                self._begin_piece(stream)
            return False
        if isinstance(items[-1], Reset):
            self._cut(stream, ErrorCodes.INTERNAL_ERROR)
            return False
        if isinstance(items[-1], End):
            stream.exchange = None
        data = b"" if stream.is_bodiless else b"".join([item.data for item in items if isinstance(item, Body)])
        stream.unsent = memoryview(data)
        if isinstance(items[0], ResponseHead):
            self._timers.clear(stream.number)
            stream.life.step(Input.SEND_HEAD, self._now)
            self._send_head(stream, items[0].status, items[0].headers)
        return stream.number in self._streams

    def _send_head(self, stream: Stream, status: int, headers: Headers) -> None:
        is_last = stream.exchange is None and not stream.unsent
        self._http.send_headers(stream.number, response_fields(status, headers), end_stream=is_last)
        if is_last:
            self._finish(stream)

    def _refuse(self, stream: Stream, status: int, message: str) -> None:
        """Answer in place of the machine."""
        self._host.receive(Reset(stream.exchange))
        headers, body = plain_text(message)
        stream.exchange = None
        stream.unsent = memoryview(b"" if stream.is_bodiless else body)
        self._ready[stream.number] = None
        self._send_head(stream, status, headers)

    def _resume(self, numbers: Iterable[int]) -> None:
        """Queue the stalled streams whose windows may have been opened."""
        for number in numbers:
            stream = self._streams.get(number)
            if stream is not None and stream.is_stalled:
                stream.is_stalled = False
                self._ready[number] = None

    def _room(self, stream: Stream) -> int:
        return self._http.local_flow_control_window(stream.number)

    def _await_window(self, stream: Stream) -> None:
        """Start the write deadline of a piece. Reading a part of the piece does not extend it."""
        stream.is_stalled = True
        limit = self._timeouts.to_read(stream.piece)
        if self._timers.get(stream.number) is None and limit < inf:
            self._timers.set(stream.number, self._now + limit)
            stream.sent_before = self._sent

    def _begin_piece(self, stream: Stream) -> None:
        """Restart the write deadline: the client has read a piece, or everything that was sent."""
        stream.piece = FRAME_BYTES
        self._timers.clear(stream.number)

    def _has_earned_time(self, stream: Stream) -> bool:
        """Extend the write deadline of a stream for data read of others, which share the connection's window.

        Otherwise a client with many requests would have to read faster than one with a single request. A stream whose
        own window is closed waits for its client alone, and gets no extension.
        """
        seconds = (self._sent - stream.sent_before) / self._timeouts.rate
        if not seconds or not self._http.may_send_on(stream.number):
            return False
        stream.sent_before = self._sent
        self._timers.set(stream.number, self._now + seconds)
        return True

    def _finish(self, stream: Stream) -> None:
        """Forget a stream that is answered, and stop its client if the request is incomplete (RFC 9113 section 8.1).

        A short body may come first: some clients lose the response when the stream is reset while they send.
        """
        life = stream.life
        was_late = life.state is State.DRAINING
        lingers = was_late or life.step(Input.SEND_END, self._now) is Action.LINGER
        self._drop(stream)
        if lingers and stream.has_short_body and not was_late and len(self._draining) < MAX_DRAINING:
            self._draining[stream.number] = life
            self._timers.set(stream.number, life.deadline)
        elif lingers:
            self._http.reset_stream(stream.number, ErrorCodes.NO_ERROR)

    def _end_draining(self, number: int) -> None:
        """Forget an answered stream whose body has come, or whose client gave it up."""
        if self._draining.pop(number, None) is not None:
            self._timers.clear(number)

    def _cut(self, stream: Stream, code: ErrorCodes) -> None:
        self._http.reset_stream(stream.number, code)
        self._drop(stream, is_lost=True)

    def _drop(self, stream: Stream, *, is_lost: bool = False) -> None:
        del self._streams[stream.number]
        self._ready.pop(stream.number, None)
        self._timers.clear(stream.number)
        self._end_body(stream)
        if stream.life.state is State.LOOKUP:
            self._end_lookup(stream)
        elif is_lost:
            # The part that was read comes first.
            self._items.append(Reset(stream.exchange))
            self._hand_over()

    def _find(self, exchange: Hashable) -> Stream | None:
        _, number = cast("tuple[Hashable, int]", exchange)
        return self._streams.get(number)


TABLE_BYTES: Final = 4096
"""The most that a table of compressed header fields holds: the initial value of SETTINGS_HEADER_TABLE_SIZE."""


class _ClientSettings(Settings):
    """The settings of the client. It must ignore unknown ones (RFC 9113 section 6.5.2); h2 would keep each of them."""

    def __setitem__(self, key: int, value: int) -> None:
        if key in _SETTINGS:
            super().__setitem__(key, value)


_SETTINGS: Final = frozenset(SettingCodes)


class _Encoder(Encoder):
    """Compresses header fields with a table of at most ``TABLE_BYTES``, whatever size the client allows.

    hpack searches the whole table for each field, and every response adds fields to it, so a larger table would make
    each response cost more than the one before.
    """

    @property
    def header_table_size(self) -> int:
        """The size of the table."""
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        size = min(value, TABLE_BYTES)
        if size != self.header_table.maxsize:
            self.header_table.maxsize = size
            # The next head begins with the smallest size since the last one, and the current size (RFC 7541 section
            # 4.2). hpack would announce every size in between, however many there were.
            least = min(self.table_size_changes, default=size)
            self.table_size_changes = [least, size] if least < size else [size]


def _nothing(_: Stream) -> None:
    """Do nothing: the holder has left the ledger."""


class _Http2(H2Connection):
    """The connection as h2 knows it. It remembers fewer closed streams: 65,536 of them would take megabytes."""

    MAX_CLOSED_STREAMS = 1024

    def __init__(self, head_bytes: int) -> None:
        super().__init__(H2Configuration(client_side=False))
        limits = {SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS, SettingCodes.MAX_HEADER_LIST_SIZE: head_bytes}
        self.local_settings = Settings(client=False, initial_values=limits)
        self.remote_settings = _ClientSettings(client=True)
        self.encoder = _Encoder()
        # From the beginning, rather than from the client's acknowledgement.
        self.decoder.max_header_list_size = head_bytes
        self.initiate_connection()
        self.receive_data(PREFACE)  # ``FrameReader`` has taken the client's out of its bytes

    def may_send_on(self, number: int) -> bool:
        """Whether the window of a stream is open, regardless of the connection's window."""
        return self.streams[number].outbound_flow_control_window > 0


def _is_vain(frame: Frame, events: Sequence[h2.events.Event]) -> bool:
    """Whether a frame came after the end of its request, which h2 answers with a reset.

    Provoking resets must cost as much as sending them (CVE-2025-8671). Pieces of a body are exempt: they may still be
    on their way when their request is rejected.
    """
    if frame.kind == Kind.DATA and not events and not frame.is_last:
        return False
    return not any(isinstance(event, _REQUESTING) for event in events)


_REQUESTING: Final = (h2.events.RequestReceived, h2.events.DataReceived, h2.events.TrailersReceived)


def request_head(exchange: Hashable, fields: Headers, principal: Hashable) -> RequestHead | None:
    """Return a head in the form of HTTP/1.1, without pseudo-header fields; ``None`` if the path is malformed.

    h2 has validated everything else.
    """
    pseudo = {name: value for name, value in fields if name.startswith(b":")}
    # It takes the place of a Host field (RFC 9113 section 8.3.1). h2 rejects heads in which the two differ.
    host = pseudo.get(b":authority")
    headers = [(b"host", host)] if host is not None else []
    headers += [
        (bytes(name), bytes(value))
        for name, value in fields
        if not name.startswith(b":") and (name != b"host" or host is None)
    ]
    target = pseudo.get(b":path")
    if target is None:
        target = host or b""  # CONNECT has no path
    elif not target.startswith(b"/") and target != b"*":
        return None
    return RequestHead(exchange, pseudo[b":method"].decode("latin-1"), target.decode("latin-1"), headers, principal)


def response_fields(status: int, headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the fields of a response. Raises ValueError for one that HTTP/1.1 would read as several."""
    fields = [(b":status", b"%d" % status), *headers, (b"date", http_date())]
    text = b"".join([part for field in fields for part in field])
    if b"\r" in text or b"\n" in text or b"\0" in text:
        raise ValueError(LINE_END)
    return fields


# ----------------------------------------------------------------------------------------------------------- connection
# One HTTP/2 connection of a server: its tasks, how it begins and how it ends.


class Http2Connection:
    """Serves the requests of one connection concurrently.

    One task reads and another writes. Timers watch the deadlines, since both tasks may wait for the client.
    """

    def __init__(
        self,
        stream: ByteStream,
        host: HttpHost,
        loop: EventLoop,
        *,
        head_bytes: int,
        peer: SocketPeer,
        timeouts: HttpTimeouts,
        deadlines: Deadlines,
        find_principal: FindPrincipal | None = None,
    ) -> None:
        """Without ``find_principal`` the identity in the client's certificate is the principal."""
        self.peer = peer
        self._host = host
        self._stream = stream
        self._timeouts = timeouts
        self._deadlines = deadlines
        self._loop = loop
        self._find_principal = find_principal
        self._streams = Http2Streams(
            host,
            self,
            head_bytes=head_bytes,
            timeouts=timeouts,
            principal=peer.identity,
            on_request=None if find_principal is None else self._start_lookup,
            send_now=self._send_now,
            on_given_up=self._apply,
        )
        self._scope = loop.scope()
        # The writer waits for work, the reader for room.
        self._work, self._room = loop.signal(), loop.signal()
        self._input_ended = loop.event()
        self._send_nowait: Callable[[bytes], int] | None = getattr(stream, "send_nowait", None)
        # Output that the stream has not accepted yet. Only the writer may write while there is any.
        self._unsent = b""
        self._is_pulling = False

    # From the connection handler

    @staticmethod
    async def recognise(stream: ByteStream, timeout: float | None, loop: EventLoop) -> tuple[bool, bytes]:
        """Return whether a client speaks HTTP/2, and the bytes read to find out; ``b""`` if it has disconnected.

        TLS has negotiated the version before. Without TLS a client may begin with HTTP/2 (RFC 9113 section 3.3).
        Raises TimeoutError if the first bytes take longer than ``timeout``.
        """
        tls = loop.tls_of(stream)
        if tls is not None:
            return tls.selected_alpn_protocol() == "h2", b""
        data = b""
        with loop.scope(timeout):
            with contextlib.suppress(*loop.broken):
                while len(data) < len(PREFACE) and PREFACE.startswith(data):
                    more = bytes(await stream.receive_some(RECEIVE_SIZE))
                    if not more:
                        break
                    data += more
            return data.startswith(PREFACE), data
        raise TimeoutError

    @property
    def is_idle(self) -> bool:
        """Whether it has served a request, and none is open or has arrived."""
        return self._streams.is_idle and not self._loop.is_readable(self._stream)

    def wake(self, exchange: Hashable) -> None:
        """Wake the writer for a response that has something to send."""
        self._streams.wake(exchange)
        self._work.set()

    def retire(self) -> None:
        """Announce with GOAWAY that no more streams are accepted, and which requests are still served."""
        self.close()

    def close(self) -> None:
        """Serve the requests that are open, and no others."""
        self._streams.close()
        self._apply()

    def abort(self) -> None:
        """End the connection."""
        self._scope.cancel()

    def handle_timeout(self) -> None:
        """Handle the expired deadlines."""
        try:
            self._streams.handle_timeout()
        except Exception as error:
            self._host.report_fault("a deadline of a connection could not be acted on", error)
            self.abort()
        self._apply()

    async def run(self, data: bytes = b"") -> None:
        """Serve until the connection ends; never raises for the client's input. ``data`` was read earlier."""
        try:
            async with self._loop.lasting() as self._tasks:
                with self._scope:
                    if data:
                        self._streams.receive(data)
                    self._tasks.spawn(self._read())
                    await self._write()
                    await self._linger()
        finally:
            self._deadlines.arm(self, None)
            self._streams.lose()
            with contextlib.suppress(*self._loop.broken):
                async with self._loop.last_moment(LINGER):
                    await self._stream.aclose()

    # The tasks

    async def _read(self) -> None:
        """Read to the end of input, even when it is ignored: a client whose bytes are read can read our last ones."""
        try:
            while data := bytes(await self._stream.receive_some(RECEIVE_SIZE)):
                self._streams.receive(data)
                self._apply()
                while self._streams.is_congested:
                    await self._room.wait()
        except self._loop.broken:
            pass
        self._streams.receive(b"")
        self._input_ended.set()
        self._apply()

    async def _write(self) -> None:
        """Write until no more output can follow. A client that reads too slowly is disconnected."""
        with contextlib.suppress(*self._loop.broken):
            while True:
                has_written = self._send_now()
                self._arm()
                self._room.set()  # the output was taken, whether or not the client has read it
                if self._unsent:
                    with self._loop.scope(self._timeouts.to_read(len(self._unsent))) as scope:
                        await self._stream.send_all(self._unsent)
                    if scope.cancelled_caught:
                        return
                    self._unsent = b""
                elif has_written:
                    await self._loop.checkpoint()
                elif self._streams.is_over:
                    return
                else:
                    await self._work.wait()

    def _send_now(self) -> bool:
        """Write the ready output, as far as the stream accepts it without waiting; return whether there was any.

        Does nothing while the writer is in the middle of a write, or while it is called from within itself: pulling
        output may end requests, which the machine then hears of.
        """
        if self._unsent or self._is_pulling:
            return False
        self._is_pulling = True
        data = self._unsent = self._streams.data_to_send()
        self._is_pulling = False
        if data and self._send_nowait is not None:
            with contextlib.suppress(Exception):  # the writer meets it again
                self._unsent = data[self._send_nowait(data) :]
        return bool(data)

    async def _linger(self) -> None:
        """Wait for a client at fault to read the reason before the connection closes."""
        if self._streams.end not in (None, ErrorCodes.NO_ERROR):
            with self._loop.scope(LINGER), contextlib.suppress(*self._loop.broken):
                await end_output(self._stream)
                await self._input_ended.wait()

    def _apply(self) -> None:
        """Wake the writer and re-arm the deadline."""
        self._work.set()
        self._arm()

    def _arm(self) -> None:
        self._deadlines.arm(self, self._streams.deadline)

    # Principals

    def _start_lookup(self, head: RequestHead) -> Spawned:
        return self._tasks.spawn(self._look_up(head))

    async def _look_up(self, head: RequestHead) -> None:
        if self._find_principal is not None:
            lookup = self._find_principal(head, self.peer)
            principal = (await lookup) if isawaitable(lookup) else lookup
            self._streams.admit(attrs.evolve(head, principal=principal))
            self._apply()
