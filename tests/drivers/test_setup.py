from __future__ import annotations

from typing import Any

import pytest
import trio
from peers import run
from runners import run_by
from trio.testing import memory_stream_pair

from mcpio.app.client import client_connection
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.client import ClientConnection
from mcpio.engine.server import ServerConnection
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.observe.tap import Tap
from mcpio.testing import pair
from mcpio.trio import connect, memory_client, open_transport, serve
from mcpio.types import CallToolRequest, Implementation

server = Server("s")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def wait(ctx: Context) -> str:
    await trio.sleep(1)
    return "waited"


class Counting(Tap):
    """Counts what passes."""

    def __init__(self) -> None:
        self.received_messages = self.sent_messages = 0

    def message_received(self, text: bytes, via: Any, now: float) -> None:
        self.received_messages += 1

    def message_sent(self, text: bytes, via: Any, now: float) -> None:
        self.sent_messages += 1


def operating() -> tuple[ClientConnection, ServerConnection]:
    link = pair(client_connection(), server.connection())
    link.handshake()
    return link.client, link.server


@run_by(run)
async def test_connections_with_a_finished_handshake_continue() -> None:
    near, far = operating()
    here, there = memory_stream_pair()
    taps = [Counting(), Counting()]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve(server, there, connection=far, tap=taps[0]))
        async with open_transport(here, connection=near, tap=taps[1]) as client:
            assert client.connection is near
            result = await client.call_tool("add", {"a": 1, "b": 2})
    assert result.structured_content == {"result": 3}
    assert [(tap.received_messages, tap.sent_messages) for tap in taps] == [(1, 1), (1, 1)]


@run_by(run)
async def test_a_new_connection_shakes_hands() -> None:
    here, there = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve(server, there, tap=Counting))
        connection = ClientConnection(Implementation("mine", "1"))
        async with open_transport(here, connection=connection) as client:
            assert client.server.info.name == "s"


@run_by(run)
async def test_both_sides_continue_from_snapshots_on_another_transport() -> None:
    here, there = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        session: Any = await nursery.start(serve, server, there)
        client = await connect(here, nursery=nursery, era="handshake")
        await client.set_log_level("error")
        await trio.testing.wait_all_tasks_blocked()
        saved = client.snapshot(), session.snapshot()
        nursery.cancel_scope.cancel()
    here, there = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        session = await nursery.start(
            lambda task_status: serve(server, there, snapshot=saved[1], task_status=task_status)
        )
        assert session.log_level == "error"
        async with open_transport(here, snapshot=saved[0], era="handshake") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}


@pytest.mark.parametrize("unanswered", ["again", "fail"])
@run_by(run)
async def test_restored_requests_run_again_or_fail(unanswered: Any) -> None:
    near, far = operating()
    near.send_request(CallToolRequest("wait"), now=0.0, cookie="mine")
    (request,) = near.data_to_send()
    here, there = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        session: Any = await nursery.start(
            lambda task_status: serve(server, there, connection=far, task_status=task_status)
        )
        await here.send_all(request or b"")
        await trio.testing.wait_all_tasks_blocked()
        saved = session.snapshot()
        nursery.cancel_scope.cancel()
    here, there = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve(server, there, snapshot=saved, unanswered=unanswered))
        near.receive_data(bytes(await here.receive_some()), trio.current_time())
        event: Any = next(near.events())
        await here.aclose()
    if unanswered == "again":
        assert event.result.content[0].text == "waited"
    else:
        assert isinstance(event.error, RequestError)
    assert event.cookie == "mine"


@run_by(run)
async def test_a_tap_may_be_put_on_a_client_in_memory() -> None:
    tap = Counting()
    async with memory_client(server, tap=tap, era="handshake") as client:
        await client.ping()
    assert (tap.received_messages, tap.sent_messages) == (2, 3)


def test_failing_tap_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Tap):
        def event(self, event: Any, now: float) -> None:
            raise RuntimeError("no")

    async def main() -> None:
        async with memory_client(server, tap=Broken, era="handshake") as client:
            await client.ping()

    run(main)
    assert [record.getMessage() for record in caplog.records] == ["a tap failed in event, and is switched off"]


def begun() -> ClientConnection:
    connection = client_connection()
    connection.send_initialize(now=0.0)
    return connection


@pytest.mark.parametrize(
    ("options", "error", "fault"),
    [
        (
            lambda: {"connection": operating()[1]},
            TypeError,
            "connection must be ClientConnection, not <mcpio",
        ),
        (lambda: {"connection": begun()}, LocalProtocolError, "cannot use a connection in phase initializing"),
        (lambda: {"connection": operating()[0], "snapshot": {}}, TypeError, "either connection= or snapshot="),
        (lambda: {"snapshot": {}}, LocalProtocolError, "not the snapshot of a session"),
        (lambda: {"unanswered": "x"}, ValueError, "unanswered must be 'again' or 'fail', not 'x'"),
        (lambda: {"tap": 5}, TypeError, "a tap must be an mcpio.observe.Tap, or a function that returns one, not 5"),
        (lambda: {"tap": lambda: None}, TypeError, "not None"),
        (lambda: {"nonsense": 5}, TypeError, "unknown option 'nonsense'"),
    ],
)
@run_by(run)
async def test_invalid_setup_raises(options: Any, error: type[Exception], fault: str) -> None:
    here, _ = memory_stream_pair()
    with pytest.raises(error, match=fault):
        async with open_transport(here, **options()):
            pass


@run_by(run)
async def test_a_server_takes_a_connection_of_a_server() -> None:
    _, there = memory_stream_pair()
    wrong: Any = operating()[0]
    with pytest.raises(TypeError, match="connection must be ServerConnection, not <mcpio"):
        await serve(server, there, connection=wrong)
    with pytest.raises(TypeError, match="unknown option 'nonsense'"):
        await serve(server, there, nonsense=5)  # type: ignore[call-arg]  # the wrong one
