"""Try the rows of the table on a server, in each revision that it speaks."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias

import attrs
import h11
import trio

from mcpio._drivers.event_loop import reason_of
from mcpio.cli.rules.rows import (
    Carrier,
    Conversation,
    Reply,
    Row,
    Send,
    Sent,
    Tried,
    Violated,
    has_capability,
    notification,
    request,
    same_id,
)
from mcpio.framing.json import JsonError, loads
from mcpio.framing.lines import LineFramer
from mcpio.framing.sse import SseParser
from mcpio.http.client import Location
from mcpio.revisions import REVISIONS, Era, Revision
from mcpio.trio._event_loop import BROKEN, TrioEventLoop

Connect: TypeAlias = "Callable[[], AbstractAsyncContextManager[RawCarrier]]"
"""Connects to the server anew."""

MAX_PAGES: Final = 100
"""How many pages of tools are read."""


@attrs.frozen
class Outcome:
    """The result of a row in a revision."""

    row: Row
    revision: Revision
    tried: Tried
    fault: str | None
    """How the answers break the rule; ``None`` if they keep it."""


@attrs.define
class Trial:
    """A server under test, and the results of the rows."""

    outcomes: list[Outcome] = attrs.Factory(list)
    opened: dict[Revision, Tried] = attrs.Factory(dict)
    """The opening of each revision that the server speaks."""
    refused: dict[Revision, Tried] = attrs.Factory(dict)
    """That of those which it does not speak."""
    untried: dict[Revision, int] = attrs.Factory(dict)
    """How many rows could not be tried, because a conversation that had ended could not be opened again."""
    tools: list[dict[str, Any]] = attrs.Factory(list)
    """The tools of the newest revision that was tried."""

    @property
    def faults(self) -> list[Outcome]:
        """The outcomes with a fault."""
        return [outcome for outcome in self.outcomes if outcome.fault is not None]

    def take(self, row: Row, tried: Tried) -> None:
        """Judge the answers to a row."""
        self.outcomes.append(Outcome(row, tried.conversation.revision, tried, _fault(row, tried)))


def _fault(row: Row, tried: Tried) -> str | None:
    """Return how the answers break a row's rule, or ``None``."""
    try:
        row.judge(tried)
    except Violated as violated:
        return str(violated)
    return None


async def try_rows(
    connect: Connect,
    rows: Iterable[Row],
    *,
    revisions: Iterable[Revision] = REVISIONS,
    headers: Mapping[str, str] | None = None,
    on_revision: Callable[[Revision, bool], object] = lambda revision, is_spoken: None,
) -> Trial:
    """Try rows on a server. ``headers`` are fields of each HTTP request."""
    trial = Trial()
    rows = tuple(rows)
    for revision in revisions:
        await _Run(trial, connect, revision, dict(headers or {}), rows).run()
        on_revision(revision, revision in trial.opened)
    for era in Era:
        in_era = [revision for revision in trial.opened if revision.era is era]
        if in_era:
            await _Run(trial, connect, max(in_era, key=lambda each: each.rank), dict(headers or {}), rows).run_first()
    return trial


class _Run:
    """The rows of one revision."""

    def __init__(
        self, trial: Trial, connect: Connect, revision: Revision, headers: Mapping[str, str], rows: tuple[Row, ...]
    ) -> None:
        self._trial = trial
        self._connect = connect
        self._revision = revision
        self._headers = headers
        self._rows = rows
        self._seen: list[Tried] = []

    async def run(self) -> None:
        """Open a conversation, and try what all rows can share it for, then those that need their own."""
        remaining = [row for row in self._rows if row.send and row.place == "shared"]
        is_first = True
        # A row whose answer ends the connection is not tried again: the next one begins a new connection.
        while remaining or is_first:
            async with self._open(is_first=is_first) as talk:
                if talk is None:
                    if remaining and not is_first:
                        self._trial.untried[self._revision] = len(remaining)
                    return
                if is_first:
                    self._judge_opening(talk)
                    self._trial.tools = await talk.tools()
                while remaining:
                    tried = await self._try(remaining.pop(0), talk)
                    if tried is not None and talk.kind == "stream" and tried.reply.ended:
                        break
            is_first = False
        for row in self._rows:
            if row.place == "own" and row.send:
                async with self._open(is_first=False) as talk:
                    if talk is not None:
                        await self._try(row, talk)
        for row in self._rows:
            if row.watches and self._seen and row.applies(self._seen[0].conversation):
                self._watch(row)

    async def run_first(self) -> None:
        """Try the rows that have a connection to themselves from its beginning."""
        for row in self._rows:
            if row.place != "first":
                continue
            async with self._connect() as carrier:
                conversation = Conversation(self._revision, carrier.kind, extra_headers=self._headers)
                if row.applies(conversation):
                    talk = _Talk(carrier, conversation)
                    await self._try(row, talk)

    def _judge_opening(self, talk: _Talk) -> None:
        tried = self._trial.opened[self._revision]
        for row in self._rows:
            if not row.send and not row.watches and row.applies(talk.conversation):
                self._trial.take(row, tried)

    def _watch(self, row: Row) -> None:
        """Judge everything that was seen, and report the first fault."""
        at_fault = (tried for tried in self._seen if _fault(row, tried) is not None)
        self._trial.take(row, next(at_fault, self._seen[0]))

    async def _try(self, row: Row, talk: _Talk) -> Tried | None:
        """Send the messages of a row and judge the answers. Returns ``None`` if the row does not apply."""
        if not row.applies(talk.conversation):
            return None
        tried = Tried(talk.conversation, (), ())
        for step in row.send:
            send = step if isinstance(step, Send) else step(tried)
            if send is None:
                return tried
            tried = await talk.say(send, tried)
            if tried.reply.ended:
                break
        self._seen.append(tried)
        self._trial.take(row, tried)
        return tried

    @asynccontextmanager
    async def _open(self, *, is_first: bool) -> AsyncIterator[_Talk | None]:
        """Open a conversation in the revision; yields ``None`` if the server does not speak it."""
        async with self._connect() as carrier:
            talk = _Talk(carrier, Conversation(self._revision, carrier.kind, extra_headers=self._headers))
            tried = await talk.open()
            is_spoken = bool(talk.conversation.server)
            if is_first:
                (self._trial.opened if is_spoken else self._trial.refused)[self._revision] = tried
            if not is_spoken:
                yield None
                return
            self._seen.append(tried)
            try:
                yield talk
            finally:
                await talk.close()


class _Talk:
    """A conversation, and what carries it."""

    def __init__(self, carrier: RawCarrier, conversation: Conversation) -> None:
        self.conversation = conversation
        self.kind = carrier.kind
        self._carrier = carrier

    async def say(self, send: Send, before: Tried | None = None) -> Tried:
        """Send a message. Returns the conversation so far."""
        before = before or Tried(self.conversation, (), ())
        sent = self.conversation.dress(send)
        reply = await self._carrier.exchange(sent, self.conversation.fence)
        if send.until == "message" and self.kind == "stream" and sent.ids:
            # Over HTTP the end of the request ended the subscription.
            await self.say(notification("notifications/cancelled", {"requestId": sent.ids[0]}))
        return Tried(self.conversation, (*before.sent, sent), (*before.replies, reply))

    async def open(self) -> Tried:
        """Open the conversation. The server's part is in ``conversation.server``, if it speaks the revision."""
        talk = self.conversation
        tried = await self.say(talk.opening())
        result = _result(tried.sent[0].ids[0], tried.reply)
        if talk.is_stateless:
            versions = result.get("supportedVersions")
            is_spoken = isinstance(versions, list) and talk.revision.name in versions
        else:
            is_spoken = result.get("protocolVersion") == talk.revision.name
        if not is_spoken:
            return tried
        talk.server = result
        talk.session = tried.reply.headers.get("mcp-session-id") if not talk.is_stateless else None
        if not talk.is_stateless:
            await self.say(notification("notifications/initialized"))
        return tried

    async def tools(self) -> list[dict[str, Any]]:
        """Return the tools of all pages."""
        tools: list[dict[str, Any]] = []
        cursor = None
        for _ in range(MAX_PAGES if has_capability(self.conversation.capabilities, "tools") else 0):
            tried = await self.say(request("tools/list", None if cursor is None else {"cursor": cursor}))
            result = _result(tried.sent[0].ids[0], tried.reply)
            items, cursor = result.get("tools"), result.get("nextCursor")
            tools += [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
            if not isinstance(cursor, str):
                break
        return tools

    async def close(self) -> None:
        """End the HTTP session, if there is one."""
        if self.kind == "http" and self.conversation.session is not None:
            await self.say(Send(None, verb="DELETE", headers={"content-type": None}))


def _result(id: Any, reply: Reply) -> dict[str, Any]:
    answer = reply.answer(id) or {}
    result = answer.get("result")
    return result if isinstance(result, dict) else {}


# ------------------------------------------------------------------------------------------------------------- carriers


SETTLE: Final = 0.1
"""Seconds to wait for an answer that should not come, or that is late, after the server showed that it reads on."""

RECEIVE_SIZE: Final = 65536

MAX_BYTES: Final = 64 << 20
"""The most bytes to read after one message."""

_TOO_MUCH: Final = f"the server sent more than {MAX_BYTES >> 20} MiB"


class RawCarrier(Protocol):
    """Carries messages of one conversation."""

    kind: Carrier

    async def exchange(self, sent: Sent, fence: Callable[[], Sent]) -> Reply:
        """Send a message and return the answer.

        ``fence`` makes a request whose answer shows that the server has read all earlier messages.
        """
        ...


class LineCarrier:
    """Messages on lines, over any stream."""

    kind: Carrier = "stream"

    def __init__(self, stream: Any, *, timeout: float, last_words: Callable[[], Awaitable[str]] | None = None) -> None:
        """``timeout`` is how long to wait for an answer. ``last_words`` tells how a server ended."""
        self._stream = stream
        self._framer = LineFramer()
        self._timeout = timeout
        self._last_words = last_words
        self._ended = ""

    async def exchange(self, sent: Sent, fence: Callable[[], Sent]) -> Reply:
        """Send a message, and read to its answer; where none is due, to that of the fence."""
        lines: list[bytes] = []
        await self._send(sent)
        if sent.ids or sent.until == "message":
            with trio.move_on_after(self._timeout):
                await self._read(lines, sent.ids, to_any=sent.until == "message")
        else:
            barrier = fence()
            await self._send(barrier)
            with trio.move_on_after(self._timeout):
                await self._read(lines, barrier.ids)
            lines = [line for line in lines if not any(_is_answer(line, id) for id in barrier.ids)]
            with trio.move_on_after(0 if lines else SETTLE):
                await self._read(lines, ())
        return Reply(tuple(lines), ended=self._ended)

    async def _send(self, sent: Sent) -> None:
        if self._ended:
            return
        try:
            with trio.move_on_after(self._timeout):
                await self._stream.send_all(sent.data + b"\n")
        except BROKEN:
            pass  # reading says so, after what came before

    async def _read(self, lines: list[bytes], ids: tuple[Any, ...], *, to_any: bool = False) -> None:
        """Read until each of ``ids`` is answered; without any, to the end."""
        unanswered, size = list(ids), 0
        while not self._ended:
            while (line := self._framer.next_line()) is not None:
                if not isinstance(line, bytes):
                    continue  # longer than any message may be
                lines.append(line)
                if to_any:
                    return
                unanswered = [id for id in unanswered if not _is_answer(line, id)]
                if ids and not unanswered:
                    return
            try:
                data = await self._stream.receive_some(RECEIVE_SIZE)
            except BROKEN:
                data = b""
            size += len(data)
            if size > MAX_BYTES:
                self._ended = _TOO_MUCH
            elif data:
                self._framer.receive(bytes(data))
            else:
                self._ended = await self._last_words() if self._last_words else "the server closed the connection"


def _is_answer(line: bytes, id: Any) -> bool:
    try:
        value = loads(line)
    except JsonError:
        return False
    return any(
        isinstance(each, dict) and "method" not in each and same_id(each.get("id"), id)
        for each in (value if isinstance(value, list) else [value])
    )


class HttpCarrier:
    """Sends each message as an HTTP request, on a separate connection."""

    kind: Carrier = "http"

    def __init__(self, location: Location, *, timeout: float, dial: Callable[[], Awaitable[Any]] | None = None) -> None:
        """``dial`` connects; by default to ``location``."""
        self._location = location
        self._timeout = timeout
        self._dial = dial or self._connect

    async def exchange(self, sent: Sent, fence: Callable[[], Sent]) -> Reply:
        """Send a request, and read its response: to the answer, if it is an event stream."""
        answer = _Response(sent)
        stream = None
        try:
            with trio.move_on_after(self._timeout) as scope:
                stream = await self._dial()
                await self._exchange(stream, sent, answer)
            if scope.cancelled_caught and answer.status is None:
                return answer.reply(f"no response within {self._timeout:g} s")
        except (*BROKEN, h11.ProtocolError) as error:
            return answer.reply("" if answer.status is not None else f"no response: {reason_of(error)}")
        finally:
            if stream is not None:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)
        return answer.reply("")

    async def _connect(self) -> Any:
        loop, location = TrioEventLoop(), self._location
        stream = await loop.open_stream(location.host, location.port, location.unix)
        if location.scheme == "http":
            return stream
        try:
            return await loop.start_tls(stream, ssl.create_default_context(), location.host)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise

    async def _exchange(self, stream: Any, sent: Sent, answer: _Response) -> None:
        http = h11.Connection(h11.CLIENT)
        fields = [("host", self._location.authority), ("connection", "close"), *sent.headers.items()]
        if sent.data or sent.verb == "POST":
            fields.append(("content-length", str(len(sent.data))))
        encoded = [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields]
        parts = [http.send(h11.Request(method=sent.verb, target=self._location.target, headers=encoded))]
        if sent.data:
            parts.append(http.send(h11.Data(data=sent.data)))
        parts.append(http.send(h11.EndOfMessage()))
        await stream.send_all(b"".join(part or b"" for part in parts))
        size = 0
        while not answer.is_complete and size <= MAX_BYTES:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(RECEIVE_SIZE)))
            elif isinstance(event, h11.Response):
                answer.begin(event)
            elif isinstance(event, h11.Data):
                size += len(event.data)
                answer.add(bytes(event.data))
            elif not isinstance(event, h11.InformationalResponse):
                return


class _Response:
    """A response as it comes."""

    def __init__(self, sent: Sent) -> None:
        self.status: int | None = None
        self.is_complete = False
        self._sent = sent
        self._left = list(sent.ids)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._parser: SseParser | None = None
        self._raw: list[bytes] = []

    def begin(self, head: h11.Response) -> None:
        self.status = head.status_code
        self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        if self._headers.get("content-type", "").startswith("text/event-stream"):
            self._parser = SseParser()
            self.is_complete = self._sent.verb == "GET"

    def add(self, data: bytes) -> None:
        if self._parser is None:
            self._body += data
            return
        for event in self._parser.receive(data):
            if event.data:  # an empty one only carries the id to resume from
                self._raw.append(event.data.encode())
                self._left = [id for id in self._left if not _is_answer(self._raw[-1], id)]
                self.is_complete = self._sent.until == "message" or (not self._left and bool(self._sent.ids))

    def reply(self, ended: str) -> Reply:
        raw = [*self._raw, *([bytes(self._body)] if self._body else [])]
        return Reply(tuple(raw), self.status, self._headers, ended)
