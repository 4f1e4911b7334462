"""One HTTP/1.1 connection of a server: a parser on one side, the HTTP machine on the other.

The events that are allowed, and their consequences, are the table of ``mcpio.http.server.lifecycle``: this adapter
reports what it read and wrote, and carries out the ``Action`` that comes back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from inspect import isawaitable
from typing import TYPE_CHECKING, Final

import trio

from mcpio._drivers import report
from mcpio.app.http_host import HttpHost
from mcpio.http.checks import Rejection
from mcpio.http.model import (
    Answer,
    Body,
    End,
    RequestHead,
    RequestItem,
    Reset,
    ResponseHead,
    ResponseItem,
    whole_request,
)
from mcpio.http.server.lifecycle import LINGER, TIMEOUTS, Action, Input, Lifecycle, State
from mcpio.trio._event_loop import BROKEN
from mcpio.trio._fd_streams import RECEIVE_SIZE
from mcpio.trio._http.config import FindPrincipal, HttpTimeouts, begin_lookup, end_lookup
from mcpio.trio._http.parsers import BadRequest, ParsedHead, Parser, ParserEvent, ParserMark
from mcpio.trio._http.responses import ResponseWriter, plain_text
from mcpio.trio._net.listening import SocketPeer
from mcpio.trio._timekeeper import Signal
from mcpio.trio._transport import quickened

if TYPE_CHECKING:
    from mcpio.trio._websocket.handler import WebSocketHandler
    from mcpio.websocket.server_opening import AcceptedHandshake

__all__ = ["HttpConnection"]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_IN_BODY: Final = (State.BODY, State.EARLY)
_ANSWERING: Final = (State.EARLY, State.ANSWER)
_OVER: Final = (State.DRAINING, State.CLOSED)


class HttpConnection:
    """Serves the requests of one connection, one after the other.

    One task reads, and goes on reading while a response is under way, to notice a client that disconnects. Responses
    are written where the host drains, as far as the socket takes them at once; only the rest costs a task, which waits
    for a client that reads slowly.
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
        """Without ``find_principal`` the identity in the client's certificate is the principal.

        With ``websockets`` a client may upgrade to WebSocket.
        """
        self.peer = peer
        self._stream = quickened(stream)
        self._host = host
        self._parser = parser
        self._responses = ResponseWriter()
        self._timeouts = timeouts
        self._find_principal = find_principal
        self._websockets = websockets
        self._needs_lookup = find_principal is not None or websockets is not None
        self._principal = peer.identity
        self._send_nowait: Callable[[bytes], int] | None = getattr(self._stream, "send_nowait", None)
        self._life = Lifecycle(timeouts, host.clock())
        # Holds the reader, with the deadline of the state that it waits in.
        self._scope = trio.CancelScope()
        self._armed = self._scope.deadline
        self._requests = 0
        self._is_retired = False
        # The request under way: the machine's name for it while its response has more to pull; its head until the
        # head of the response is encoded; and what was read of it and not handed over.
        self._exchange: Hashable = None
        self._head: ParsedHead | None = None
        self._items: list[RequestItem] = []
        # Output that the socket did not take, which the writing task begins with.
        self._unsent = b""
        self._is_writing = False
        # A response is written where it is produced, once; what follows is left to the task, so that everything a
        # handler sends in one turn of the loop goes out in one write.
        self._may_write_now = True
        # Input after the request under way, beyond what the parser holds: at most one more read.
        self._ahead = b""
        self._ahead_scope: trio.CancelScope | None = None
        # Set when a response is out, or all output is: the reader may wait for either.
        self._progress = Signal()

    # From the connection handler, in the loop's own thread

    @property
    def is_idle(self) -> bool:
        """Whether it has served a request, and no other has begun."""
        return self._life.state is State.IDLE and not self._has_more

    def wake(self, exchange: Hashable) -> None:
        """Write the host's output of a response. The host calls this in its drain."""
        if exchange != self._exchange or self._is_writing:
            return  # the task that writes pulls until there is nothing left
        if self._may_write_now:
            self._may_write_now = False
            self._write_now()
        else:
            self._write_later(b"")

    def retire(self) -> None:
        """Serve one more request, or the one that has begun, and no other: its answer says so."""
        self._is_retired = True

    def close(self) -> None:
        """Serve the request that has begun, and no other."""
        if self._life.is_resting and self._has_more:
            # A request has begun that the reader has not come to: it is served.
            self._step(Input.RECV_BYTES)
        if self._step(Input.SEND_CLOSE) is Action.CLOSE:
            self._scope.cancel()

    def abort(self) -> None:
        """End the connection."""
        self._step(Input.RECV_LOSS)
        self._scope.cancel()

    # The reader

    async def run(self, data: bytes = b"") -> None:
        """Serve until the connection ends; never raises for the client's input. ``data`` was read earlier."""
        if data:
            self._parser.feed(data)
        try:
            async with trio.open_nursery() as self._nursery:
                try:
                    with self._scope:
                        try:
                            await self._serve()
                        except BadRequest as error:
                            self._act(Input.RECV_INVALID, error.status, str(error))
                        except BROKEN:
                            self._step(Input.RECV_LOSS)
                    state = self._life.state
                    # All who cancel the scope take a step to the end before, so this was its deadline.
                    if state not in _OVER and TIMEOUTS[state] is not None:
                        self._act(Input.TIMEOUT, 408, f"the {state.value} of the request took too long")
                    elif state not in _OVER:
                        # The awaited bytes came in the same turn, but a scope that is cancelled stays so.
                        self._step(Input.RECV_LOSS)
                    if self._life.state is State.DRAINING:
                        await self._linger()
                finally:
                    # Handlers that go on may produce output before the nursery is left, which takes no more tasks.
                    self._lose()
                self._nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LINGER), contextlib.suppress(*BROKEN):
                await self._stream.aclose()

    async def _serve(self) -> None:
        life, parser = self._life, self._parser
        while (state := life.state) not in _OVER:
            if state is State.ANSWER:
                if self._has_more:
                    self._arm()  # the deadline of the request does not hold for the response
                    await self._read_ahead()
                    continue
            elif (event := parser.next_event()) is not None:
                if self._needs_lookup and isinstance(event, ParsedHead):
                    await self._look_up(event)
                else:
                    self._take(event)
                if life.state is State.IDLE and event is ParserMark.END and self._has_more:
                    # A client that pipelines without end must not keep the loop from the others.
                    await trio.lowlevel.checkpoint()
                continue
            elif self._exchange is not None:
                self._continue()
            elif parser.has_more and state is not State.HEAD:
                self._step(Input.RECV_BYTES)
            self._arm()
            if self._ahead:
                data, self._ahead = self._ahead, b""
            else:
                # In ANSWER too: the end of input is how a client that gives up is noticed.
                data = bytes(await self._stream.receive_some(RECEIVE_SIZE))
            parser.feed(data)
            if life.state in _IN_BODY:
                # Every byte earns time, framing included: the parser reports those of the body only.
                life.step(Input.RECV_BYTES, self._host.clock(), len(data))
            elif not data and life.state is State.ANSWER:
                self._step(Input.RECV_LOSS)

    @property
    def _has_more(self) -> bool:
        return bool(self._ahead) or self._parser.has_more

    async def _read_ahead(self) -> None:
        """Wait for the end of the response; behind pipelined input too, the end of input is noticed.

        What is read is kept until the parser has no more, and is no more than one read gives: a client that sends more
        meanwhile is held back, and its end is noticed only after the response.
        """
        room = RECEIVE_SIZE - len(self._ahead)
        if not room:
            await self._progress.wait()
            return
        with trio.CancelScope() as self._ahead_scope:  # cancelled when the response is out
            data = bytes(await self._stream.receive_some(room))
            self._ahead += data
            if not data:
                self._step(Input.RECV_LOSS)
        self._ahead_scope = None

    def _take(self, event: ParserEvent) -> None:
        if isinstance(event, ParsedHead):
            self._begin(event, self._principal)
        elif isinstance(event, bytes):
            if self._head is not None:
                self._head.expects = False  # the client does not wait for leave
            self._items.append(Body(self._exchange, event))
        elif event is ParserMark.END:
            self._items.append(End(self._exchange))
            self._step(Input.RECV_END if self._life.state in _IN_BODY else Input.RECV_REQUEST)
            self._hand_over()
        else:
            self._step(Input.RECV_LOSS)

    async def _look_up(self, head: ParsedHead) -> None:
        """Find out whose a request is, and whether it asks for WebSocket, before the machine gets it."""
        principal = self._principal
        if self._find_principal is not None:
            item = RequestHead(None, head.method, head.target, head.headers, principal)
            found = begin_lookup(self._find_principal, item, self.peer)
            if isawaitable(found):
                self._step(Input.SEND_LOOKUP)
                self._arm()
                found = await end_lookup(found)
            principal = found
        if self._websockets is not None:
            item = RequestHead(None, head.method, head.target, head.headers, principal)
            answer = self._websockets.answer(item, is_current=head.is_current)
            if answer is not None:
                await self._leave_http(self._websockets, head, answer, principal)
                return
        self._begin(head, principal)

    def _begin(self, head: ParsedHead, principal: Hashable) -> None:
        self._requests += 1
        self._head, self._exchange, self._may_write_now = head, (self, self._requests), True
        if not head.keeps_alive:
            self._life.is_last = True
        self._items.append(RequestHead(self._exchange, head.method, head.target, head.headers, principal))

    def _continue(self) -> None:
        """Pass an incomplete request to the machine; unless it is rejected, send ``100 Continue`` if asked to."""
        if self._life.state not in _IN_BODY:
            self._step(Input.RECV_HEAD)
        self._hand_over()
        if self._life.state is State.BODY and self._head is not None and self._head.expects:
            self._head.expects = False
            self._write(CONTINUE)

    async def _leave_http(
        self, websockets: WebSocketHandler, head: ParsedHead, answer: AcceptedHandshake | Rejection, principal: Hashable
    ) -> None:
        """Answer a request for WebSocket: the connection continues in that protocol, or ends."""
        if isinstance(answer, Rejection):
            self._step(Input.RECV_HEAD)
            self._step(Input.SEND_HEAD)
            self._step(Input.SEND_LAST)
            self._write(self._responses.rejection(head, answer))
            return
        if self._life.state is not State.LOOKUP:
            self._step(Input.SEND_LOOKUP)
        self._step(Input.SEND_UPGRADE)
        self._arm()  # no deadline of HTTP holds for the WebSocket, which runs within the same scope
        await self._send(self._responses.upgrade(answer.headers))
        await websockets.carry(self._stream, self._parser.take_rest() + self._ahead, answer, principal)

    def _hand_over(self) -> None:
        """Pass the items of one read to the machine together. It may answer within this call."""
        items = self._items
        if not items:
            return
        self._items = []
        whole = whole_request(items)
        if whole is not None:
            answer = self._host.serve(*whole)
            if answer is not None:
                self._answer(answer)
        else:
            self._host.receive(*items)

    def _answer(self, answer: Answer) -> None:
        """Write a whole response."""
        head, self._head, self._exchange = self._head, None, None
        if self._is_retired:
            self._life.is_last = True
        responses = self._responses
        try:
            data = responses.head(head, answer.status, answer.headers, closes=self._life.is_last)
        except Exception as error:
            report("a response could not be written", error)
            self.abort()
            return
        self._write(data + responses.body(answer.body))
        if not self._is_writing:
            self._finish()

    def _act(self, event: Input, status: int, message: str) -> None:
        """Step, and answer where the table says so: a request that cannot be served, or that comes too slowly."""
        if self._step(event) is not Action.REFUSE:
            return
        self._lose()
        headers, body = plain_text(message)
        self._write(self._responses.head(None, status, headers, closes=True) + body)

    async def _linger(self) -> None:
        """End the output, and read for a while: closing over unread bytes could take the answer from the client."""
        while self._is_writing:
            await self._progress.wait()
        with trio.move_on_after(LINGER), contextlib.suppress(*BROKEN):
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            while await self._stream.receive_some(RECEIVE_SIZE):
                pass

    def _step(self, event: Input) -> Action:
        return self._life.step(event, self._host.clock())

    def _arm(self) -> None:
        """Set the reader's deadline to that of the state."""
        deadline, armed = self._life.deadline, self._armed
        # Between two requests, up to a second early will do: setting a deadline costs more than the comparison.
        if deadline != armed and not (self._life.state is State.IDLE and 0 <= deadline - armed < 1):
            self._scope.deadline = self._armed = deadline

    # Writing

    def _write_now(self) -> None:
        """Write the host's output of the response, as much as the socket accepts."""
        while self._exchange is not None and (data := self._pull()) is not None:
            self._write(data)
            if self._is_writing:
                return
        self._finish()

    def _write(self, data: bytes) -> None:
        """Write without waiting, where the stream can; start a task for the rest."""
        if self._is_writing:
            # A client at fault is answered while ``100 Continue`` may still be on its way: one writer at a time.
            self._unsent += data
            return
        sent = 0
        if self._send_nowait is not None:
            try:
                sent = self._send_nowait(data)
            except Exception:
                sent = 0  # not lost: the task that writes the rest meets it again
        if sent < len(data):
            self._write_later(data[sent:])

    def _write_later(self, unsent: bytes) -> None:
        """Start the task that writes the rest that the socket did not accept, and then further output."""
        self._is_writing = True
        self._unsent += unsent
        self._nursery.start_soon(self._write_rest)

    async def _write_rest(self) -> None:
        try:
            # Nothing is waited for between an empty pull and the end of _is_writing, so no wake is lost in between.
            # Nothing follows a write that took too long: how much of it was sent is unknown, and a gap is misread.
            while self._life.state is not State.CLOSED:
                data: bytes | None = self._unsent
                self._unsent = b""
                if data or (self._exchange is not None and (data := self._pull())):
                    await self._send(data)
                elif self._exchange is None or data is None:
                    break
        except BROKEN:
            self.abort()
        finally:
            self._is_writing, self._may_write_now = False, True
            self._progress.set()
        self._finish()

    def _pull(self) -> bytes | None:
        """Pull the next piece of the response as bytes; ``None`` if no output is ready.

        A piece is about 64 KiB, the most that is held here beside one read: the rest stays in the machine, which
        counts it in ``held.unwritten``.
        """
        # Contained: the host calls this in its drain, for all sessions, and a response that cannot be encoded costs
        # only its own connection.
        try:
            items = self._host.responses_to_send(self._exchange)
            data = b"".join([self._encode(item) for item in items]) if items else None
        except Exception as error:
            report("a response could not be written", error)
            self.abort()
            return None
        return data

    def _encode(self, item: ResponseItem) -> bytes:
        if isinstance(item, Body):
            return self._responses.body(item.data)
        if isinstance(item, ResponseHead):
            is_complete = self._life.state is State.ANSWER
            if not is_complete:
                self._step(Input.SEND_HEAD)
            head, self._head = self._head, None
            if self._is_retired:
                self._life.is_last = True
            # A response that comes before the end of its request is the last one: where the rest of the body ends and
            # the next request begins is known only by reading all of it.
            return self._responses.head(head, item.status, item.headers, closes=self._life.is_last or not is_complete)
        self._exchange = None
        if isinstance(item, End):
            return self._responses.end()
        self._step(Input.SEND_RESET)
        self._scope.cancel()
        return b""

    def _finish(self) -> None:
        """Continue with the next request, or the end, if a whole response is written."""
        if self._exchange is not None or self._life.state not in _ANSWERING:
            return  # more of the response is to come, or this was 100 Continue or the answer to a client at fault
        if self._step(Input.SEND_END) is Action.REUSE:
            self._parser.next_cycle()
            self._arm()
            if self._ahead_scope is not None:
                self._ahead_scope.cancel()
        else:
            self._scope.cancel()
        self._progress.set()

    async def _send(self, data: bytes) -> None:
        """Write, for as long as the client may take to read."""
        with trio.move_on_after(self._timeouts.to_read(len(data))) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            self.abort()

    def _lose(self) -> None:
        """Report to the machine that the exchange has no more input or output."""
        self._items.clear()
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            self._head = None
            self._host.receive(Reset(exchange))
