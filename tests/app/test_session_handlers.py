"""What becomes of a request whose handler answers, fails, is cancelled, or takes too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from acting import ACT, act, both, failing_with, serving, waiting
from handlers import returning
from linked import Link
from unchecked import unchecked

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.asyncio import AsyncioRuntime
from mcpio.engine.limits import DEFAULT
from mcpio.errors import LocalProtocolError, Refusal, RequestError
from mcpio.events import RequestFailed
from mcpio.testing import ManualCancelled
from mcpio.types import CallToolResult, EmptyResult, PingRequest, TextContent

REFUSED = {"category": "rate-limit", "http_status": 429, "severity": "error", "retryable": False, "hint": "h"}


@both
@pytest.mark.parametrize(
    ("error", "code", "message", "data"),
    [
        (RequestError(7, "no", [1]), 7, "no", [1]),
        (Refusal(1056, "not today", hint="h", retryable=False), 1056, "not today", REFUSED),
        (ExceptionGroup("nursery", [RequestError(7, "no")]), 7, "no", None),
    ],
)
def test_handler_result_is_the_answer(later: bool, error: Exception, code: int, message: str, data: Any) -> None:
    link = Link(failing_with(error, later=later))
    with pytest.raises(RequestError) as caught:
        act(link)
    assert (caught.value.code, caught.value.message, caught.value.data) == (code, message, data)
    assert link.reports == []


@both
@pytest.mark.parametrize(
    "result",
    [
        None,
        5,
        EmptyResult(),
        "text",
        unchecked(CallToolResult(()), content=5),
        CallToolResult((TextContent("\ud800"),)),
        CallToolResult((), {"a": object()}),
    ],
)
def test_a_result_that_cannot_be_sent_is_an_internal_error(later: bool, result: Any) -> None:
    server = Server("s")

    @server.tool
    def echo() -> None: ...

    server.handlers["tools/call"] = returning(result, later=later)
    link = Link(server)
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        link.call("echo")
    assert link.reports == ["the result of tools/call 'echo' cannot be sent"]
    assert isinstance(link.errors[0], LocalProtocolError)


@both
def test_a_custom_method_is_answered_with_a_mapping(later: bool) -> None:
    link = Link(serving(returning([1], later=later)))
    with pytest.raises(RequestError, match="Internal error"):
        act(link)
    assert str(link.errors[0]) == "the result of test/act must be a mapping, not list"


@pytest.mark.req("CANC-07")
def test_an_answer_after_the_cancellation_is_dropped() -> None:
    go_on: list[Any] = []

    async def stubborn(ctx: Context) -> dict[str, Any]:
        try:
            await ctx.session.driver.runtime.one_shot().wait()
        except ManualCancelled:
            go_on.append(ctx.cancelled)
        return {"too": "late"}

    link = Link(serving(lambda ctx, _: stubborn(ctx)), era="handshake")
    link.start(link.client.request(ACT)).cancel()
    assert go_on == [True]
    assert link.reports == []
    assert link.do(link.client.request(PingRequest())) == EmptyResult()


def test_handler_cancelled_before_its_start_stops_at_its_first_wait() -> None:
    server, seen = waiting()
    link = Link(server)
    ask = link.client.connection.send_request(ACT, now=0)
    link.client.connection.cancel_request(ask)
    link.run()
    assert seen[0].cancelled
    assert seen[1:] == ["over"]
    assert link.reports == []


def test_late_cancellation_is_ignored() -> None:
    link = Link(serving(lambda _, __: {}))
    id = link.client.connection.send_request(ACT, now=0)
    link.pair.stall(link.pair.server.role)
    link.run()
    link.client.connection.cancel_request(id)
    link.pair.resume(link.pair.server.role)
    link.run()
    assert link.reports == []


def test_a_handler_that_merely_waits_is_not_reported() -> None:
    server, _ = waiting()
    link = Link(server)
    ask = link.start(link.client.request(ACT, timeout=10))
    link.advance(11)
    assert ask.state == "failed"
    assert link.reports == []


def test_asyncio_handler_that_awaits_a_cancelled_future_is_answered() -> None:
    async def wait() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def main() -> list[Any]:
        link = Link(serving(lambda _, __: wait()))
        link.client.connection.send_request(ACT, now=0, cookie="ours")
        async with asyncio.TaskGroup() as group:
            link.session.driver.runtime = AsyncioRuntime(group)  # type: ignore[misc]  # as a driver for asyncio has it
            link.run()
        link.run()
        assert link.reports == ["the handler of test/act was cancelled from inside"]
        return [event for event in link.pair.client_events if isinstance(event, RequestFailed)]

    (failed,) = asyncio.run(main())
    assert str(failed.error) == "Internal error (-32603)"


@pytest.mark.parametrize(("timeout", "state"), [(DEFAULT, "failed"), (None, "waits")])
def test_default_timeout_of_a_request_is_one_minute(timeout: Any, state: str) -> None:
    link = Link(waiting()[0])
    ask = link.start(link.client.request(ACT, timeout=timeout))
    link.advance(61)
    assert ask.state == state
