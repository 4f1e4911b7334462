"""Several questions in one array, over the session layer."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.server import Server
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError, RequestTimeout
from mcpio.revisions import REV_2025_03_26, REV_2025_11_25
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    CustomNotification,
    ListPromptsRequest,
    ListToolsRequest,
    ListToolsResult,
    PingRequest,
)


def server() -> Server:
    made = Server("s")

    @made.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @made.tool
    async def wait(seconds: int) -> None:
        """Wait for ever: nobody sets it."""
        await made.sessions[0].driver.runtime.one_shot().wait()

    return made


def link(revision: Any = REV_2025_03_26) -> Link:
    return Link(server(), revision=revision)


@pytest.mark.req("BATCH-01", "BATCH-07")
def test_outcomes_are_in_the_order_of_the_messages() -> None:
    joined = link()
    before = len(joined.pair.tap)
    messages = [
        ListToolsRequest(),
        CustomNotification("acme/x"),
        CallToolRequest("add", {"a": 1, "b": 2}),
        CallToolRequest("none"),
        PingRequest(),
    ]
    outcomes = joined.do(joined.client.batch(iter(messages)))
    tools, none, result, error, _ = outcomes
    assert isinstance(tools, ListToolsResult)
    assert none is None
    assert isinstance(result, CallToolResult)
    assert isinstance(error, RequestError)
    assert error.code == -32602
    assert (joined.pair.tap[before].data or b"").startswith(b"[{")


def test_timeout_applies_to_each_request_of_a_batch() -> None:
    joined = link()
    ask = joined.start(joined.client.batch([CallToolRequest("wait", {"seconds": 1}), PingRequest()], timeout=5.0))
    assert ask.state == "waits"
    joined.advance(5.0)
    failed, _ = ask.result
    assert isinstance(failed, RequestTimeout)


@pytest.mark.req("BATCH-07")
def test_cancelled_batch_cancels_its_running_requests() -> None:
    joined = link()
    ask = joined.start(joined.client.batch([CallToolRequest("wait", {"seconds": 1}), CustomNotification("acme/x")]))
    ask.cancel()
    assert ask.state == "cancelled"
    assert joined.pair.client.pending.outgoing == ()
    assert joined.pair.server.pending.incoming == ()


def test_batch_with_an_unsendable_message_sends_nothing() -> None:
    joined = link()
    with pytest.raises(LocalProtocolError, match="prompts"):
        joined.do(joined.client.batch([PingRequest(), ListPromptsRequest()]))
    assert joined.pair.client.pending.outgoing == ()
    other = link(REV_2025_11_25)
    with pytest.raises(LocalProtocolError, match="batches are for sessions of 2025-03-26"):
        other.do(other.client.batch([PingRequest()]))
    joined.client.close()
    with pytest.raises(NoBackChannel):
        joined.do(joined.client.batch([PingRequest()]))
