"""The table of raw messages: mcpio's own servers keep every rule of it, and each row finds a server that does not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import attrs
import pytest
from rawtalk import CARRIERS, connected, empty_server, full_server, in_virtual_time

from mcpio import Server
from mcpio.cli.rules.rows import Reply, Row, Sent, Tried, Violated
from mcpio.cli.rules.table import TABLE
from mcpio.cli.rules.trial import Outcome, Trial, try_rows
from mcpio.revisions import REVISIONS

SERVERS = (full_server, empty_server)

Liar = Callable[[Sent, Reply], Reply]
"""Makes the reply of a wrong server of that of a right one."""


@cache
def tried(make: Callable[[], Server], carrier: str) -> Trial:
    """Try the table on one of mcpio's own servers."""
    trials: list[Trial] = []

    async def main() -> None:
        async with connected(make(), carrier) as connect:
            trials.append(await try_rows(connect, TABLE))

    in_virtual_time(main)
    return trials[0]


def all_outcomes() -> list[Outcome]:
    return [each for make in SERVERS for carrier in CARRIERS for each in tried(make, carrier).outcomes]


@pytest.mark.long
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("make", SERVERS)
def test_own_servers_keep_every_rule_of_the_table(make: Callable[[], Server], carrier: str) -> None:
    trial = tried(make, carrier)
    assert [f"{each.revision} {each.row.name}: {each.fault}" for each in trial.faults] == []
    assert list(trial.opened) == list(REVISIONS)


def test_every_row_is_tried() -> None:
    outcomes = all_outcomes()
    assert {row.name for row in TABLE} == {each.row.name for each in outcomes}
    assert len({each.row for each in outcomes}) == len(TABLE)


def test_names_are_unique_in_a_revision() -> None:
    for carrier in CARRIERS:
        for revision in REVISIONS:
            rows = [row for row in TABLE if row.since <= revision <= row.until and row.carrier in ("any", carrier)]
            assert [name for name, count in Counter(row.name for row in rows).items() if count > 1] == []


# Wrong servers


def silence(_: Sent, reply: Reply) -> Reply:
    """Answer nothing."""
    return Reply(status=reply.status and 500)


def end(_: Sent, reply: Reply) -> Reply:
    """Close the connection in place of an answer."""
    return Reply(ended="the server closed the connection")


def agree(sent: Sent, reply: Reply) -> Reply:
    """Answer everything with a result, also what is not to be answered."""
    return _answered(sent, reply, 200, result={"what": "ever"})


def refuse(sent: Sent, reply: Reply) -> Reply:
    """Answer everything with an error."""
    return _answered(sent, reply, 418, error={"code": -32099, "message": "No."})


def _answered(sent: Sent, reply: Reply, status: int, **outcome: Any) -> Reply:
    message = {"jsonrpc": "2.0", "id": sent.ids[0] if sent.ids else None, **outcome}
    kind = {"content-type": "text/plain"}
    return Reply((json.dumps(message).encode(),), None if reply.status is None else status, kind)


def adding(*messages: Any) -> Liar:
    """Return what sends more messages than are due."""
    raw = tuple(each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages)
    return lambda sent, reply: attrs.evolve(reply, raw=(*raw, *reply.raw))


def changing(change: Callable[[dict[str, Any]], object]) -> Liar:
    """Return what changes each message."""

    def lie(_: Sent, reply: Reply) -> Reply:
        messages = json.loads(json.dumps(reply.messages))
        for message in messages:
            change(message)
        return attrs.evolve(reply, raw=tuple(json.dumps(message).encode() for message in messages))

    return lie


def in_results(change: Callable[[dict[str, Any]], object]) -> Liar:
    """Return what changes each result."""
    return changing(lambda message: change(message["result"]) if "result" in message else None)


def in_errors(change: Callable[[dict[str, Any]], object]) -> Liar:
    """Return what changes each error."""
    return changing(lambda message: change(message["error"]) if "error" in message else None)


def in_items(change: Callable[[dict[str, Any]], object]) -> Liar:
    """Return what changes each item of a list."""

    def each(result: dict[str, Any]) -> None:
        for items in result.values():
            for item in items if isinstance(items, list) else ():
                change(item) if isinstance(item, dict) else None

    return in_results(each)


class Turning:
    """Lists in another order each time."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, result: dict[str, Any]) -> None:
        self.count += 1
        if self.count % 2 and "tools" in result:
            result["tools"].reverse()


def call(method: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **more}


WRONG: dict[str, Liar] = {
    "silent": silence,
    "ending": end,
    "agreeing": agree,
    "refusing": refuse,
    "printing": adding(b"listening on port 8000"),
    "asking": adding(call("sampling/createMessage", id=1, params={})),
    "logging": adding(call("notifications/message", params={"level": "info", "data": "x"})),
    "reporting": adding(call("notifications/progress", params={"progressToken": 1, "progress": 1})),
    "changing": adding(call("notifications/tools/list_changed")),
    "cancelling": adding(call("notifications/cancelled", params={"requestId": 1})),
    "of another version": changing(lambda message: message.update(jsonrpc="1.0")),
    "of both outcomes": changing(lambda message: message.update(error={}, result={})),
    "of bare errors": in_errors(lambda error: error.pop("code")),
    "mixing ids up": changing(lambda message: message.update(id="another")),
    "of old codes": in_errors(lambda error: error.update(code=-32002)),
    "without types of results": in_results(lambda result: result.pop("resultType", None)),
    "without its info": in_results(lambda result: result.pop("_meta", None)),
    "without caching": in_results(lambda result: result.update(ttlMs=-1)),
    "without capabilities": in_results(lambda result: result.pop("capabilities", None)),
    "of malformed items": in_items(lambda item: item.update(name=5)),
    "of odd items": in_items(
        lambda item: item.update(name="a b", uri="notes", inputSchema={}, outputSchema={}, execution={})
    ),
    "turning": in_results(Turning()),
    "of odd sessions": lambda sent, reply: attrs.evolve(reply, headers={"mcp-session-id": "a b"}),
}


def broken_rows(name: str) -> set[Row]:
    """Return the rows whose judges find fault with what came from the right servers, and was made wrong."""
    return {each.row for each in all_outcomes() if _is_broken(each.row, _lied(each.tried, WRONG[name]))}


def _lied(tried: Tried, lie: Liar) -> Tried:
    replies = tuple(lie(sent, reply) for sent, reply in zip(tried.sent, tried.replies, strict=True))
    return attrs.evolve(tried, replies=replies)


def _is_broken(row: Row, tried: Tried) -> bool:
    try:
        row.judge(tried)
    except Violated:
        return True
    return False


@pytest.mark.parametrize("name", WRONG)
def test_wrong_servers_are_found(name: str) -> None:
    assert broken_rows(name)


@pytest.mark.long
def test_each_row_finds_a_wrong_server() -> None:
    found = set().union(*map(broken_rows, WRONG))
    assert [f"{row.name}, since {row.since}" for row in TABLE if row not in found] == []
