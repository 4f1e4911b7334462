"""Log messages of requests that stand for themselves: what the request asks for, and nothing after its answer."""

from __future__ import annotations

from typing import Any

import pytest
from statelessly import StatelessClient
from waits import Wait

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.testing import ManualRuntime
from mcpio.types.features import LoggingLevel


def logging_server() -> Server:
    server = Server("s")

    @server.tool
    def work(ctx: Context) -> None:
        for level in ("debug", "warning", "error"):
            ctx.log(level, level)

    @server.tool
    async def wait(ctx: Context) -> None:
        try:
            await ctx.sleep(10)
        finally:
            ctx.error("cleaning up")

    return server


@pytest.mark.req("GONE-04")
@pytest.mark.parametrize(
    ("level", "said"), [(None, []), ("debug", ["debug", "warning", "error"]), ("error", ["error"]), ("alert", [])]
)
def test_request_gets_messages_of_its_log_level(level: LoggingLevel | None, said: list[str]) -> None:
    runtime = ManualRuntime()
    client = StatelessClient(logging_server(), runtime, log_level=level)
    exchange = client.begin("tools/call", {"name": "work"})
    assert [message["params"]["data"] for message in exchange.said] == said
    assert Wait(runtime, exchange.result()).state == "returned"


@pytest.mark.req("PAT-04", "GONE-04")
def test_cancelled_request_logs_nothing_more() -> None:
    runtime = ManualRuntime()
    exchange = StatelessClient(logging_server(), runtime, log_level="debug").begin("tools/call", {"name": "wait"})
    runtime.run()
    exchange.cancel()
    runtime.run()
    assert exchange.said == []


@pytest.mark.parametrize("level", [None, "debug"])
def test_unknown_level_is_refused(level: LoggingLevel | None) -> None:
    server, found = Server("s"), list[str]()

    @server.tool
    def work(ctx: Context) -> None:
        odd: Any = "loud"
        with pytest.raises(ValueError, match=r"level must be one of .*, not 'loud'"):
            ctx.log(odd, "text")
        found.append("refused")

    StatelessClient(server, ManualRuntime(), log_level=level).begin("tools/call", {"name": "work"})
    assert found == ["refused"]
