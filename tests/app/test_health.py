from __future__ import annotations

from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.table import Phase


def test_health_follows_a_call() -> None:
    server = Server("s")

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.session.driver.runtime.sleep(1)
        return "done"

    link = Link(server, era="handshake")
    (session,) = server.sessions
    fresh = session.health()
    assert (fresh.phase, fresh.asked, fresh.serving, fresh.queued_bytes) == (Phase.OPERATING, 0, 0, 0)
    link.advance(5)
    ask = link.start(link.client.call_tool("wait"))
    serving = session.health()
    assert set(serving.held) == {"requests"}
    assert serving.held["requests"] > 4096
    assert (link.client.health().asked, serving.silent_for) == (1, 0.0)
    assert serving.received_bytes > fresh.received_bytes
    link.advance(2)
    assert ask.result is not None
    later = session.health()
    assert later.held == fresh.held == {}
    assert (later.age - fresh.age, later.silent_for, later.serving, later.dropped_logs) == (7, 2, 0, 0)
    assert later.sent_bytes > fresh.sent_bytes
