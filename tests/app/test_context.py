from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from linked import Link
from questions import ELICIT, SAMPLE, captured

import mcpio
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.errors import (
    ErrorCode,
    RequestError,
)
from mcpio.revisions import REV_2025_11_25
from mcpio.types import (
    CallToolRequest,
    CustomRequest,
    Implementation,
    LoggingMessageNotification,
    TextContent,
)

# What a request says


def test_a_handler_sees_its_request() -> None:
    server, found = Server("s"), []

    @server.tool
    def tool(ctx: Context) -> None:
        found.append((dict(ctx.meta), ctx.peer, ctx.state, ctx.session, ctx.id, ctx.cancelled))

    link = Link(server, state="the state", principal="ada", info=Implementation("client", "2"), era="handshake")
    link.do(link.client.call_tool("tool", meta={"example.com/trace": "abc"}))
    meta, peer, state, session, id, cancelled = found[0]
    assert meta == {"example.com/trace": "abc"}
    assert (peer.revision, peer.info, peer.principal) == (REV_2025_11_25, Implementation("client", "2"), "ada")
    assert (state, session, cancelled) == ("the state", link.session, False)
    assert id == 1


def test_a_request_without_metadata() -> None:
    meta, _ = captured(lambda ctx: dict(ctx.meta), era="handshake")
    assert meta == {}


@pytest.mark.parametrize("params", ["", ',"params":{}', ',"params":{"_meta":{}}'])
def test_a_request_without_params_has_no_metadata(params: str) -> None:
    found: list[Any] = []

    def note(ctx: Context, _: CustomRequest) -> dict[str, Any]:
        found.append(dict(ctx.meta))
        return {}

    server = Server("s")
    server.handlers["a/b"] = note
    link = Link(server, era="handshake")
    link.pair.server.receive_data(f'{{"jsonrpc":"2.0","id":"x","method":"a/b"{params}}}\n'.encode(), 0)
    link.run()
    assert found == [{}]


def test_context_parameter_is_found_under_any_annotation() -> None:
    server = Server("s")

    names: dict[str, Any] = {}  # a module that imports it for type checkers only
    exec("def by_text(text: str, ctx: Context) -> str: return f'{text} {type(ctx).__name__}'", names)
    server.tool(names["by_text"])

    @server.tool
    def by_module(text: str, *, where: mcpio.Context) -> str:
        return f"{text} {type(where).__name__}"

    @server.tool
    def optional(text: str, ctx: Context | None = None) -> str:
        return f"{text} {type(ctx).__name__}"

    link = Link(server)
    for tool in link.do(link.client.list_tools()).tools:
        assert list(tool.input_schema["properties"]) == ["text"]
        assert link.text(tool.name, text="a") == "a Context"


# Telling the client


def test_progress_is_sent_only_if_requested() -> None:
    seen: list[Any] = []
    server = Server("s")

    @server.tool
    def work(ctx: Context) -> str:
        ctx.progress(0.5, 1.0, "half")
        return "done"

    link = Link(server)
    assert link.text("work") == "done"
    link.do(link.client.call_tool("work", on_progress=lambda *said: seen.append(said)))
    assert seen == [(0.5, 1.0, "half")]


class Weird:
    def __repr__(self) -> str:
        return "weird"


@pytest.mark.req("LOG-05")
@pytest.mark.parametrize(
    ("data", "sent"),
    [
        ("text", "text"),
        (None, None),
        ({"a": [1, 2.5]}, {"a": [1, 2.5]}),
        (dt.date(2025, 11, 25), "2025-11-25"),
        (Weird(), "weird"),
        ({1: 2}, "{1: 2}"),
        (float("nan"), "nan"),
    ],
)
def test_any_value_can_be_logged(data: Any, sent: Any) -> None:
    seen: list[LoggingMessageNotification] = []
    _, link = captured(lambda ctx: ctx.info(data, "logger"), on_log=seen.append, era="handshake")
    assert seen == [LoggingMessageNotification("info", sent, "logger")]
    assert link.reports == []


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_each_log_level_has_a_method(level: str) -> None:
    seen: list[LoggingMessageNotification] = []
    server = Server("s", log_level="debug")

    @server.tool
    def tool(ctx: Context) -> None:
        getattr(ctx, level)("text")

    link = Link(server, on_log=seen.append, era="handshake")
    link.call("tool")
    assert [message.level for message in seen] == [level]


def test_unknown_log_level_raises() -> None:
    error, _ = captured(lambda ctx: ctx.log("warn", "text"))  # type: ignore[arg-type]  # the mistake
    assert str(error) == (
        "level must be one of debug, info, notice, warning, error, critical, alert, emergency, not 'warn'"
    )


def test_a_log_message_that_cannot_be_sent_is_reported() -> None:
    seen: list[LoggingMessageNotification] = []
    found, link = captured(lambda ctx: ctx.info("x", logger="\ud800"), on_log=seen.append, era="handshake")
    assert (found, seen) == (None, [])
    assert link.reports == ["a LoggingMessageNotification cannot be sent"]


def test_log_message_after_the_end_of_its_request_is_sent() -> None:
    seen: list[Any] = []
    found, link = captured(lambda ctx: ctx, on_log=seen.append, era="handshake")
    found.info("late")
    found.progress(1)
    link.run()
    assert seen == [LoggingMessageNotification("info", "late")]
    assert link.reports == []


def test_log_of_a_cancelled_handler_is_sent() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.tool
    async def waits(ctx: Context) -> None:
        try:
            await ctx.sleep(100)
        finally:
            ctx.info("cleaned up")

    link = Link(server, on_log=lambda message: seen.append(message.data), era="handshake")
    call = link.start(link.client.call_tool("waits"))
    call.cancel()
    assert (call.state, seen) == ("cancelled", ["cleaned up"])


# Waiting


def test_sleep_uses_the_clock_of_the_event_loop() -> None:
    server = Server("s", tasks=TaskOptions())

    @server.tool(task_support="optional")
    async def waits(ctx: Context) -> str:
        began = ctx.now()
        await ctx.sleep(5)
        return f"{ctx.now() - began:.0f} seconds"

    link = Link(server, era="handshake")
    call = link.start(link.client.call_tool("waits"))
    task = link.do(link.client.start_task(CallToolRequest("waits")))
    link.advance(4.9)
    assert call.state == "waits"
    link.advance(0.1)
    assert call.result.text == "5 seconds"
    assert link.do(task.result()).text == "5 seconds"


def test_sleep_in_a_thread_raises_and_names_time_sleep() -> None:
    server = Server("s")

    @server.tool(blocking=True)
    def waits(ctx: Context) -> None:
        ctx.sleep(1).send(None)

    assert "must wait with time.sleep" in Link(server).text("waits")


# Threads


def refuse(*_: Any) -> Any:
    raise RequestError(ErrorCode.USER_REJECTED, "User rejected sampling request")


def test_handler_in_a_thread_sends_messages_and_cannot_ask() -> None:
    server = Server("s")
    seen: list[Any] = []
    asks: list[Callable[[Context], Any]] = [
        lambda ctx: ctx.sample(SAMPLE),
        lambda ctx: ctx.elicit(ELICIT),
        lambda ctx: ctx.roots(),
    ]

    @server.tool(blocking=True)
    def blocks(ctx: Context) -> str:
        ctx.progress(1)
        ctx.info("text")
        for ask in asks:
            with pytest.raises(RuntimeError, match="a handler that runs in a thread cannot wait for the client"):
                ask(ctx)
        return str(ctx.run_in_loop(lambda: server.notify_resource_updated("a:b")))

    link = Link(server, on_log=seen.append, sampling=refuse, elicitation=refuse, roots=[], era="handshake")
    result = link.do(link.client.call_tool("blocks", on_progress=lambda *said: seen.append(said)))
    assert result.content == (TextContent("0"),)
    assert seen == [(1, None, None), LoggingMessageNotification("info", "text")]


def test_a_handler_may_run_part_of_its_work_in_a_thread() -> None:
    found, _ = captured(lambda ctx: ctx.run_in_thread(lambda: 42))
    assert found == 42
    found, _ = captured(lambda ctx: ctx.run_in_loop(lambda: 42))
    assert found == 42
