"""Try the rows of the table on a server, in each revision that it speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

import attrs

from mcpio.cli.rules.carriers import RawCarrier
from mcpio.cli.rules.rows import (
    Conversation,
    Reply,
    Row,
    Send,
    Tried,
    Violated,
    has_capability,
    notification,
    request,
)
from mcpio.revisions import REVISIONS, Era, Revision

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[RawCarrier]]
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

    @property
    def is_violation(self) -> bool:
        """Whether a MUST is broken."""
        return self.fault is not None and self.row.level == "must"


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
