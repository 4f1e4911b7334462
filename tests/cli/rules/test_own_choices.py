"""What mcpio's servers do where the specification leaves a choice, by raw messages: no check asks it of others."""

from __future__ import annotations

from typing import Any

import pytest
from rawtalk import CARRIERS, connected, full_server, in_virtual_time

from mcpio.cli.rules.judges import both, error, error_of_malformed, has_status, object_result
from mcpio.cli.rules.rows import Row, Send, Tried, Violated, initialize, notification, request
from mcpio.cli.rules.trial import Trial, try_rows
from mcpio.revisions import (
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
)

B, C, D, E = REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28


def without_id(tried: Tried) -> None:
    if "id" in tried.reply.messages[0]:
        raise Violated("the error has an id")


def with_null_id(tried: Tried) -> None:
    if tried.reply.messages[0]["id"] is not None:
        raise Violated("the error has another id than null")


def answers_seven(tried: Tried) -> None:
    if "result" not in (tried.reply.answer(7) or {}):
        raise Violated("the request 7 has no result")


def with_params(value: bytes) -> Send:
    return Send(b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":' + value + b"}}")


def row(name: str, judge: Any, *send: Send, **more: Any) -> Row:
    return Row(name, "", "", judge, send, **more)


# fmt: off
CHOICES = (
    row("a list before initialize", error(-32600), request("tools/list"), place="first", until=D, carrier="stream"),
    row("an unknown method before it", error(-32601), request("no/such"), place="first", until=D, carrier="stream"),
    row("a second initialize", error(-32600), initialize("2025-11-25"), place="own", until=D, carrier="stream"),
    row("initialize in a batch", error_of_malformed(-32600), Send([initialize("2025-03-26").body]), place="first",
        until=D, carrier="stream"),
    row("a batch", error_of_malformed(-32600), Send([request("ping").body]), since=C),
    row("a parse error", both(error_of_malformed(-32700), without_id), Send(b"{"), since=D),
    row("a parse error, before", both(error_of_malformed(-32700), with_null_id), Send(b"{"), until=C,
        carrier="stream"),
    row("params that are an array", error_of_malformed(-32602), Send(request("ping", []).body), until=D),
    row("a large id", object_result, request("ping", id=2**70), until=D),
    row("a key that stands twice", answers_seven, Send(b'{"jsonrpc":"2.0","id":7,"method":"x","method":"ping"}'),
        until=D),
    row("NaN", error_of_malformed(-32700), with_params(b"NaN")),
    row("a lone surrogate", error_of_malformed(-32700), with_params(b'"\\ud800"')),
    row("deep nesting", error_of_malformed(-32700), with_params(b"[" * 127 + b"]" * 127)),
    row("a subscription to nothing", error(-32002), request("resources/subscribe", {"uri": "no://such"}), until=D),
    row("a handshake version in _meta", error(-32022),
        request("server/discover", meta={"protocolVersion": "2025-11-25"},
                headers={"mcp-protocol-version": "2025-11-25"}), since=E),
    row("the status of what is not JSON", has_status(400), Send(b"{"), since=B, carrier="http"),
    row("no Accept", has_status(406), request("ping", headers={"accept": None}), since=B, until=D, carrier="http"),
    row("another content type", has_status(415), request("ping", headers={"content-type": "text/plain"}), since=B,
        until=D, carrier="http"),
    row("PUT", has_status(405), Send(b"{}", verb="PUT"), since=B, until=D, carrier="http"),
    row("an unknown session", has_status(404), request("ping", headers={"mcp-session-id": "none"}), since=B, until=D,
        carrier="http"),
    row("another version than that of the session", has_status(400),
        request("ping", headers={"mcp-protocol-version": "2025-03-26"}), since=C, until=D, carrier="http"),
    row("no version in a session", object_result, request("ping", headers={"mcp-protocol-version": None}), since=C,
        until=D, carrier="http"),
    row("the status of an error of a handshake revision", has_status(200), request("no/such"), since=B, until=D,
        carrier="http"),
    row("the status of wrong params", has_status(200), request("prompts/get", {"name": "none"}), since=E,
        carrier="http"),
    row("a notification without Mcp-Method", has_status(202),
        notification("notifications/cancelled", {"requestId": "none"}, headers={"mcp-method": None}), since=E,
        carrier="http"),
)
# fmt: on


@pytest.mark.req("BATCH-02", "BATCH-03", "ERA-11", "HTTP-01", "HTTP-07", "HTTP-08", "HTTP-11", "HTTP-13", "HTTP-31")
@pytest.mark.req("HTTP-32", "LIFE-11", "LIFE-13", "LIFE-22", "RES-09", "RPC-12", "RPC-14", "RPC-21", "RPC-22")
@pytest.mark.req("SESS-05", "SHTTP-04", "SHTTP-08")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_raw_messages_are_answered_as_chosen(carrier: str) -> None:
    trials: list[Trial] = []

    async def main() -> None:
        async with connected(full_server(), carrier) as connect:
            trials.append(await try_rows(connect, CHOICES, revisions=REVISIONS))

    in_virtual_time(main)
    (trial,) = trials
    assert [f"{each.revision} {each.row.name}: {each.fault}: {each.tried.reply}" for each in trial.faults] == []
    applicable = {each.name for each in CHOICES if each.carrier in ("any", carrier)}
    assert {each.row.name for each in trial.outcomes} == applicable
