"""One HTTP/1.1 connection of a server: a parser on one side, the HTTP machine on the other; it decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from math import inf
from typing import TYPE_CHECKING

import attrs
import trio

from mcpio._drivers import report
from mcpio.app.http_host import HttpHost
from mcpio.http.checks import Rejection
from mcpio.http.model import Body, End, RequestHead, RequestItem, Reset, ResponseHead, ResponseItem
from mcpio.trio._http.config import LINGER, FindPrincipal, HttpTimeouts, Stage, principal_of
from mcpio.trio._http.parsers import BadRequest, ParsedHead, Parser, ParserMark
from mcpio.trio._http.responses import ResponseWriter, plain_text
from mcpio.trio._net.listening import BROKEN, SocketPeer
from mcpio.trio._stdio.fd_streams import RECEIVE_SIZE
from mcpio.trio._timekeeper import Signal
from mcpio.trio._transport import quickened

if TYPE_CHECKING:
    from mcpio.trio._websocket.handler import WebSocketHandler
    from mcpio.websocket.server_opening import AcceptedHandshake

__all__ = ["HttpConnection"]

# By a name of its own where every request passes: see the same in ``mcpio.engine.channel``.
_IDLE = Stage.IDLE


class HttpConnection:
    """Serves the requests of one connection, one after the other.

    One task reads. What is ready when a request is read, it writes; what comes later is written where it comes from,
    as far as the socket takes it. Another task is setup only to wait for a client that reads slowly. While a response
    is under way the reader goes on reading, to notice a client that goes away; what it reads waits.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        host: HttpHost,
        parser: Parser,
        *,
        peer: SocketPeer,
        timeouts: HttpTimeouts,
        find_principal: FindPrincipal | None = None,
        websockets: WebSocketHandler | None = None,
    ) -> None:
        """Without ``find_principal``, the identity in the client's certificate is the principal.

        With ``websockets``, a client may go on with WebSocket.
        """
        self.peer = peer
        self._stream = quickened(stream)
        self._host = host
        self._parser = parser
        self._writer = ResponseWriter()
        self._timeouts = timeouts
        self._find_principal = find_principal
        self._websockets = websockets
        self._principal = peer.identity
        self._send_nowait: Callable[[bytes], int] | None = getattr(self._stream, "send_nowait", None)
        self._requests = 0
        self._exchange: Hashable = None
        self._items: list[RequestItem] = []
        # How it stands with the exchange.
        self._request: ParsedHead | None = None
        self._expects = self._is_read = self._has_head = self._is_answered = False
        # How it stands with the connection.
        self._is_closing = self._is_over = False
        # Who is at it.
        self._is_busy = True
        self._is_writing = False
        self._may_write_at_once = True
        self._unsent = b""
        # What the reader waits for, and until when.
        self._turn = Signal()
        self._stage = Stage.HEAD
        self._idle_timer = trio.CancelScope()

    # From the site

    @property
    def is_idle(self) -> bool:
        """Whether no request has begun that is not over."""
        # One whose principal is looked for has no exchange yet, and a WebSocket never has one.
        return self._exchange is None and self._stage is not Stage.ANSWER and not self._parser.has_more

    @property
    def is_at_rest(self) -> bool:
        """Whether it has served a request, and no other has begun."""
        return self._requests > 0 and self.is_idle

    def wake(self, exchange: Hashable) -> None:
        """Take note that a response has something to send."""
        if exchange != self._exchange or self._is_busy or self._is_writing:
            return  # Whoever is at it looks again.
        if self._may_write_at_once:
            # Once, and then when that is written: what comes in the same turn of the loop goes out together.
            self._may_write_at_once = False
            if self._write_now():
                return
        self._is_writing = True
        self._nursery.start_soon(self._write_later)

    def close(self) -> None:
        """Serve what is being served, and nothing after it."""
        self._is_closing = True
        if self.is_idle:
            self.abort()

    def abort(self) -> None:
        """End the connection."""
        self._is_over = True
        self._idle_timer.cancel()

    # The reader

    async def run(self, data: bytes = b"") -> None:
        """Serve until the connection ends; nothing that the client does raises here. ``data`` was read before."""
        if data:
            self._parser.feed(data)
        self._set_deadline(self._timeouts.head)
        try:
            async with trio.open_nursery() as self._nursery:
                try:
                    with self._idle_timer:
                        await self._serve()
                    if self._idle_timer.cancelled_caught and not self._is_over:
                        await self._give_up()
                finally:
                    # Handlers that go on may say something before this nursery is left, which takes no task any more.
                    self._lose()
                self._nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LINGER), contextlib.suppress(*BROKEN):
                await self._stream.aclose()

    async def _serve(self) -> None:
        parser, items = self._parser, self._items
        try:
            while not self._is_over:
                event = parser.next_event()
                if event is None:
                    self._hand_over()
                    await self._read_on()
                elif isinstance(event, bytes):
                    self._expects = False
                    items.append(Body(self._exchange, event))
                elif isinstance(event, ParsedHead):
                    await self._begin(event)
                elif event is ParserMark.END:
                    items.append(End(self._exchange))
                    self._is_read = True
                    self._hand_over()
                    await self._write_all()
                    await self._drain()
                else:
                    return
        except BadRequest as error:
            await self._refuse(error.status, str(error))
        except BROKEN:
            return

    async def _begin(self, head: ParsedHead) -> None:
        self._requests += 1
        exchange = (self, self._requests)
        item = RequestHead(exchange, head.method, head.target, head.headers, self._principal)
        if self._find_principal is not None:
            self._enter(Stage.ANSWER)
            item = attrs.evolve(item, principal=await principal_of(self._find_principal, item, self.peer))
        if self._websockets is not None:
            answer = self._websockets.answer(item, is_current=head.is_current)
            if answer is not None:
                await self._leave_http(self._websockets, head, answer, item.principal)
                return
        self._request, self._expects = head, head.expects
        self._is_read = self._has_head = self._is_answered = False
        self._may_write_at_once = True
        self._exchange = exchange
        self._items.append(item)

    async def _leave_http(
        self, websockets: WebSocketHandler, head: ParsedHead, answer: AcceptedHandshake | Rejection, principal: Hashable
    ) -> None:
        """Answer a request for a WebSocket. The connection is one then, or over."""
        self._is_over = True
        self._enter(Stage.ANSWER)
        if isinstance(answer, Rejection):
            await self._send(self._writer.rejection(head, answer))
            await self._linger()
            return
        await self._send(self._writer.upgrade(answer.headers))
        await websockets.carry(self._stream, self._parser.take_rest(), answer, principal)

    def _hand_over(self) -> None:
        """Give the machine what was read, all at once: that is no more than one read gives."""
        if self._items:
            self._host.receive(*self._items)
            self._items.clear()

    async def _read_on(self) -> None:
        """Let more of a request come. One that is answered before it is complete is the last."""
        if self._exchange is None:
            if self._parser.has_more:
                self._enter(Stage.HEAD)
            await self._receive()
            return
        await self._write_all()
        if self._is_over:
            await self._linger()
            return
        self._enter(Stage.BODY)
        if self._expects:
            self._expects = False
            await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._idle_timer.deadline += await self._receive() / self._timeouts.rate

    async def _drain(self) -> None:
        """Wait until the response is out. The client may go away meanwhile, or ask for more, which waits its turn."""
        while self._exchange is not None and not self._is_over:
            self._enter(Stage.ANSWER)
            if self._parser.has_more:
                self._is_busy = False
                await self._turn.wait()
                self._is_busy = True
            elif not await self._receive() and self._exchange is not None:
                self._is_over = True
        if self._parser.has_more:
            await trio.lowlevel.checkpoint()

    async def _receive(self) -> int:
        """Feed what comes, and return how many bytes that were: 0 for the end."""
        self._is_busy = False
        data = await self._stream.receive_some(RECEIVE_SIZE)
        self._is_busy = True
        self._parser.feed(bytes(data))
        return len(data)

    async def _give_up(self) -> None:
        """Act on a client that took too long."""
        self._is_busy = True
        if self._stage is Stage.BODY:
            await self._refuse(408, "the body of the request took too long")
        elif self._stage is Stage.HEAD and self._parser.has_more:
            await self._refuse(408, "the head of the request took too long")

    async def _refuse(self, status: int, message: str) -> None:
        """Answer what is no HTTP, or came too slowly."""
        may_answer = self._exchange is None or not self._has_head
        self._lose()
        if not may_answer:
            return
        self._enter(Stage.ANSWER)
        headers, body = plain_text(message)
        head = self._writer.head(None, status, headers, closes=True)
        with contextlib.suppress(*BROKEN):
            await self._send(head + body)
            await self._linger()

    async def _linger(self) -> None:
        """Read what still comes, for a while, so that the client can read our answer."""
        with trio.move_on_after(LINGER):
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            while await self._stream.receive_some(RECEIVE_SIZE):
                pass

    def _enter(self, stage: Stage) -> None:
        """Have the deadline of a stage hold, from its beginning."""
        if stage is not self._stage:
            self._stage = stage
            timeouts = self._timeouts
            self._set_deadline((timeouts.idle, timeouts.head, timeouts.body, None)[stage])

    def _set_deadline(self, timeout: float | None) -> None:
        self._since = trio.current_time()
        self._idle_timer.deadline = inf if timeout is None else self._since + timeout

    # Writing

    async def _write_all(self) -> None:
        """Write what is ready."""
        if not self._write_now():
            # How long the client may take to read has nothing to do with the stage before, whose deadline ends here.
            self._enter(Stage.ANSWER)
            self._is_writing = True
            await self._write_later()

    def _write_now(self) -> bool:
        """Write what is ready, as far as it finds room; return whether all of it did. What did not is ``_unsent``."""
        while data := self._pull():
            sent = self._try_to_send(data)
            if sent < len(data):
                self._unsent = data[sent:]
                return False
        if self._is_answered and self._exchange is not None:
            self._finish()
        return True

    async def _write_later(self) -> None:
        """Write what did not find room, and what came after it."""
        try:
            while not self._is_over:
                data, self._unsent = self._unsent, b""
                if data:
                    await self._send(data)
                if self._write_now():
                    break
        except BROKEN:
            self.abort()
        finally:
            self._is_writing = False
            self._may_write_at_once = True

    def _pull(self) -> bytes:
        """Take something of the response from the machine, and return its bytes.

        That is about 64 KiB, the most that is held here beside what one read gave: the rest stays in the machine, and
        counts in ``held.unwritten``.
        """
        if self._exchange is None or self._is_answered:
            return b""
        try:
            return b"".join([self._encode(item) for item in self._host.responses_to_send(self._exchange)])
        except Exception as error:
            report("a response could not be written", error)
            self.abort()
            return b""

    def _encode(self, item: ResponseItem) -> bytes:
        if isinstance(item, ResponseHead):
            self._has_head = True
            closes = self._is_closing or not self._is_read
            return self._writer.head(self._request, item.status, item.headers, closes=closes)
        if isinstance(item, Body):
            return self._writer.body(item.data)
        self._is_answered = True
        if isinstance(item, End):
            return self._writer.end()
        self.abort()
        return b""

    def _finish(self) -> None:
        """Go on to the next request, if there may be one: the response is out."""
        self._exchange = None
        if self._is_closing or not self._is_read or self._writer.closes:
            self._is_over = True
            if not self._is_busy:
                self._idle_timer.cancel()
            return
        self._parser.next_cycle()
        # Where nothing had to be waited for, a deadline of a moment ago will do: setting one costs more than this.
        if self._stage is not _IDLE or self._host.clock() > self._since + 1:
            self._stage = _IDLE
            self._set_deadline(self._timeouts.idle)
        self._turn.set()

    def _try_to_send(self, data: bytes) -> int:
        """Write without waiting, where that can be done; return how many bytes found room."""
        if self._send_nowait is None:
            return 0
        try:
            return self._send_nowait(data)
        except Exception:
            return 0  # The task that waits for room meets it again.

    async def _send(self, data: bytes) -> None:
        """Write, for as long as the client may take."""
        with trio.move_on_after(self._timeouts.to_read(len(data))) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            self.abort()

    def _lose(self) -> None:
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            self._items.clear()
            self._host.receive(Reset(exchange))
