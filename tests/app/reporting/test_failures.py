from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from linked import Link

from mcpio import Context, Server
from mcpio.app.reporting import (
    MOST_TEXT,
    describe_error,
    describe_request,
    intended_answer,
    internal_error,
    is_connection_end,
    loop_hint,
    unwrap_group,
)
from mcpio.engine.server import ServerConnection
from mcpio.errors import (
    ConnectionLost,
    ErrorCode,
    InvalidMessage,
    NoBackChannel,
    Refusal,
    RequestError,
    ToolError,
)
from mcpio.types import Implementation


def test_exception_group_of_one_counts_as_its_exception() -> None:
    inner = ToolError("no")
    assert unwrap_group(inner) is inner
    assert unwrap_group(ExceptionGroup("nursery", [ExceptionGroup("nursery", [inner])])) is inner
    several = ExceptionGroup("nursery", [inner, ValueError()])
    assert unwrap_group(several) is several


def test_long_text_of_an_exception_is_cut() -> None:
    text = describe_error(ExceptionGroup("nursery", [ValueError("x" * 1_000_000), KeyError("y")]))
    assert text == f"ValueError: {'x' * MOST_TEXT}... (1,000,000 characters); KeyError: 'y'"


RATE = {"category": "rate-limit", "http_status": 429, "severity": "error", "retryable": True}


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        (None, RATE),
        ({"hint": "later"}, {"hint": "later", **RATE}),
        ({"retryable": "always"}, RATE),
        (["a"], {"data": ["a"], **RATE}),
    ],
)
def test_a_refusal_is_answered_with_its_own_code_and_a_hint(data: Any, sent: Mapping[str, Any]) -> None:
    error = intended_answer(Refusal(1056, "come back later", data=data))
    assert error is not None
    assert (error.code, error.message, error.data) == (1056, "come back later", sent)


def test_a_request_error_is_the_answer_itself() -> None:
    error = RequestError(7, "no")
    assert intended_answer(error) is error


@pytest.mark.req("RPC-19")
@pytest.mark.parametrize("error", [ValueError("secret"), ToolError("no"), InvalidMessage("a", "b")])
def test_other_exceptions_are_not_sent_as_answers(error: Exception) -> None:
    assert intended_answer(error) is None


@pytest.mark.parametrize("error", [ConnectionLost("closed"), NoBackChannel("closed"), ValueError("closed")])
def test_the_end_of_a_connection_explains_some_failures(error: Exception) -> None:
    connection = ServerConnection(Implementation("s", "1"))
    assert not is_connection_end(error, connection)
    connection.abort()
    assert is_connection_end(error, connection) is not isinstance(error, ValueError)


@pytest.mark.req("RPC-19")
def test_internal_error_has_no_details() -> None:
    error = internal_error()
    assert (error.code, error.message, error.data) == (ErrorCode.INTERNAL_ERROR, "Internal error", None)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "echo"}, "tools/call 'echo'"),
        ({"uri": "notes://a"}, "tools/call 'notes://a'"),
        ({"name": 5, "uri": None}, "tools/call"),
        ({"name": "x" * 200}, "tools/call '" + "x" * 99),
        ({}, "tools/call"),
        (None, "tools/call"),
    ],
)
def test_request_is_described_by_method_and_name(params: Any, words: str) -> None:
    message = {"method": "tools/call"} if params is None else {"method": "tools/call", "params": params}
    assert describe_request(message) == words


@pytest.mark.parametrize(
    ("error", "loop"),
    [
        (RuntimeError("must be called from async context"), "Trio"),
        (AttributeError("'RunContext' object has no attribute 'runner'"), "Trio"),
        (RuntimeError("no running event loop"), "asyncio"),
        (AttributeError("'NoneType' object has no attribute 'create_future'"), "asyncio"),
        (TypeError("trio.run received unrecognized yield message None. Are you trying to use"), "asyncio"),
    ],
)
def test_error_of_a_missing_event_loop_has_a_hint(error: Exception, loop: str) -> None:
    hint = loop_hint(error)
    assert hint is not None
    assert hint.startswith(f"there is no {loop} loop here")
    assert "ctx.sleep()" in hint
    assert f"mcpio serve --loop {loop.lower()} " in hint


@pytest.mark.parametrize("error", [RuntimeError("other"), ValueError("no running event loop")])
def test_other_errors_have_no_hint(error: Exception) -> None:
    assert loop_hint(error) is None


async def _await_info(ctx: Context) -> None:
    await ctx.info("x")  # type: ignore[func-returns-value, misc]  # as the test is about


async def _elicit_by_type(ctx: Context) -> None:
    await ctx.elicit("How many?", response_type=int)  # type: ignore[call-overload]  # likewise


async def _elicit_by_names(ctx: Context) -> None:
    await ctx.elicit(message="How many?", response_type=int)  # type: ignore[call-overload]  # likewise


@pytest.mark.parametrize(
    ("tool", "advice"),
    [
        (_await_info, "leave await out"),
        (_elicit_by_type, "write await ctx.elicit(message, Type)"),
        (_elicit_by_names, "write await ctx.elicit(message, Type)"),
    ],
)
def test_calls_as_other_libraries_write_them_are_explained(tool: Any, advice: str) -> None:
    server = Server("s")
    server.tool(tool, name="t")
    result = Link(server).call("t")
    assert result.is_error
    assert advice in result.text
