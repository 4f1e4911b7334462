"""A client that connects again: what fails, what waits, what is restored, and when it gives up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from carriers import until

from mcpio import (
    Client,
    ClientConnection,
    CloseReason,
    ConnectFailed,
    ConnectionLost,
    Implementation,
    NoBackChannel,
    Options,
    Server,
)
from mcpio._drivers.event_loop import stream_adapter
from mcpio._drivers.socket_client import SocketConnector
from mcpio.backoff import Backoff
from mcpio.engine import KeepAlive
from mcpio.trio import open_unix, serve, serve_unix
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._net import connect_by
from mcpio.types import LoggingMessageNotification

INFO = Implementation("test", "1")
POLICY = Backoff(base=0.01, tries=50)


def make_server(**options: Any) -> Server:
    server = Server("here", "1.0", **options)

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    server.resource("r://1", name="one")(lambda: "one")
    server.resource("r://2", name="two")(lambda: "two")
    return server


class Place:
    """Where servers come and go."""

    def __init__(self, nursery: trio.Nursery, path: Path) -> None:
        self.path = path / "s"
        self._nursery = nursery
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    async def begin(self, server: Server) -> None:
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        await self._nursery.start(self._serve, server)

    async def end(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    async def _serve(self, server: Server, *, task_status: Any) -> None:
        with self._scope:
            await serve_unix(server, self.path, grace=0, task_status=task_status)
        self._ended.set()


def run(main: Callable[[trio.Nursery], Awaitable[None]]) -> None:
    async def limited() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                await main(nursery)
                nursery.cancel_scope.cancel()

    trio.run(limited)


async def failure(client: Client, name: str, caught: list[BaseException]) -> None:
    try:
        await client.call_tool(name)
    except (ConnectionLost, NoBackChannel) as error:
        caught.append(error)


def test_lost_session_fails_running_calls_and_holds_new_ones(tmp_path: Path) -> None:
    async def main(nursery: trio.Nursery) -> None:
        place, caught = Place(nursery, tmp_path), list[BaseException]()
        await place.begin(make_server())
        async with open_unix(place.path, reconnect=POLICY) as client:
            nursery.start_soon(failure, client, "wait", caught)
            await trio.testing.wait_all_tasks_blocked()
            await place.end()
            await until(lambda: bool(caught))
            answers: list[Any] = []

            async def ask() -> None:
                answers.append((await client.call_tool("add", {"a": 1, "b": 2})).structured_content)

            nursery.start_soon(ask)
            await trio.sleep(0.05)
            assert answers == []
            again = make_server()
            await place.begin(again)
            await until(lambda: bool(answers))
            assert answers == [{"result": 3}]
            assert (len(again.sessions), client.ended) == (1, None)

    run(main)


def test_subscriptions_and_the_log_level_are_restored(tmp_path: Path) -> None:
    heard: list[LoggingMessageNotification] = []

    async def main(nursery: trio.Nursery) -> None:
        place = Place(nursery, tmp_path)
        await place.begin(make_server())
        async with open_unix(place.path, reconnect=POLICY, on_log=heard.append, era="handshake") as client:
            await client.set_log_level("error")
            await client.subscribe_resource("r://1")
            await client.subscribe_resource("r://2")
            await client.unsubscribe_resource("r://2")
            await place.end()
            again = make_server()
            await place.begin(again)
            await client.ping()
            (session,) = again.sessions
            assert (session.subscriptions, session.log_level) == (("r://1",), "error")

    run(main)


def test_failure_to_restore_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main(nursery: trio.Nursery) -> None:
        place = Place(nursery, tmp_path)
        await place.begin(make_server())
        async with open_unix(place.path, reconnect=POLICY, era="handshake") as client:
            await client.subscribe_resource("r://1")
            await place.end()
            other = Server("other", "1.0")
            other.resource("r://3", name="three")(lambda: "three")
            await place.begin(other)
            await client.ping()

    run(main)
    assert "the server does not know any more what it was asked for" in caplog.text


@pytest.mark.req("PING-05")
def test_a_request_that_may_be_repeated_is_sent_again_by_retry(tmp_path: Path) -> None:
    async def main(nursery: trio.Nursery) -> None:
        place = Place(nursery, tmp_path)
        server = make_server()
        asked: list[int] = []

        @server.tool
        async def once() -> str:
            asked.append(1)
            if len(asked) == 1:
                await trio.sleep_forever()
            return "done"

        await place.begin(server)
        retry = Backoff(base=0.01, also=(ConnectionLost,))
        async with open_unix(place.path, reconnect=POLICY, retry=retry) as client:
            answers: list[str] = []

            async def ask() -> None:
                answers.append((await client.call_tool("once", retry=True)).text)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await place.end()
            await place.begin(server)
            await until(lambda: bool(answers))
            assert (answers, len(asked)) == (["done"], 2)

    run(main)


def test_exhausted_policy_ends_the_client_and_fails_waiting_calls(tmp_path: Path) -> None:
    async def main(nursery: trio.Nursery) -> None:
        place, caught = Place(nursery, tmp_path), list[BaseException]()
        await place.begin(make_server())
        async with open_unix(place.path, reconnect=Backoff(base=0.05, factor=1, tries=2)) as client:
            await place.end()
            await until(lambda: client.connection.phase.value != "operating")
            nursery.start_soon(failure, client, "add", caught)
            await client.driver.wait_closed()
            await until(lambda: bool(caught))
            assert client.ended is not None
            assert (client.ended.reason, type(client.ended.cause)) == (CloseReason.LOST, ConnectFailed)

    run(main)


@pytest.mark.parametrize("hears", [True, False])
def test_each_loss_is_passed_to_a_function_or_logged(
    hears: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    losses: list[int] = []

    async def main(nursery: trio.Nursery) -> None:
        place, server = Place(nursery, tmp_path), make_server()
        await place.begin(server)
        callback = (lambda: losses.append(1)) if hears else None
        async with open_unix(place.path, reconnect=POLICY, on_session_lost=callback, era="handshake") as client:
            for _ in range(2):
                server.sessions[0].close()
                await until(lambda: not server.sessions)
                await until(lambda: bool(server.sessions))
                await client.ping()

    run(main)
    assert len(losses) == (2 if hears else 0)
    assert ("trying again" in caplog.text) is not hears


def test_client_closed_while_it_connects_again_reports_nothing_of_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(nursery: trio.Nursery) -> None:
        place, silent = Place(nursery, tmp_path), tmp_path / "s"
        await place.begin(make_server())
        async with open_unix(place.path, reconnect=POLICY, era="handshake") as client:
            await place.end()
            with trio.socket.socket(trio.socket.AF_UNIX) as listener:
                await listener.bind(str(silent))
                listener.listen()
                accepted, _ = await listener.accept()
                with accepted:
                    assert b"initialize" in await accepted.recv(1000)
                    client.close(0)
                    await client.driver.wait_closed()

    run(main)
    assert "no session on the new connection" not in caplog.text


def test_block_without_a_connection_is_left_immediately(tmp_path: Path) -> None:
    async def main(nursery: trio.Nursery) -> None:
        place = Place(nursery, tmp_path)
        await place.begin(make_server())
        with trio.fail_after(30):
            async with open_unix(place.path, reconnect=Backoff(base=60, cap=60)) as client:
                await place.end()
                await until(lambda: client.connection.phase.value != "operating")

    run(main)


def test_the_first_connection_is_tried_once(tmp_path: Path) -> None:
    async def main(nursery: trio.Nursery) -> None:
        with pytest.raises(ConnectFailed):
            async with open_unix(tmp_path / "s", reconnect=POLICY):
                pass
        place = Place(nursery, tmp_path)

        def nobody(peer: object) -> None:
            raise PermissionError

        await nursery.start(_serve_with, place.path, nobody)
        with pytest.raises(ConnectFailed):
            async with open_unix(place.path, reconnect=POLICY):
                pass

    run(main)


class Gone(trio.abc.Stream):
    """The near end of a connection that the server closed before anybody looked."""

    async def send_all(self, data: Any) -> None:
        raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None:
        raise trio.BrokenResourceError

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        raise trio.BrokenResourceError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def test_server_that_closes_at_once_is_reconnected() -> None:
    async def main(nursery: trio.Nursery) -> None:
        server, losses, dialled = make_server(), list[int](), list[trio.abc.Stream]()

        async def dial() -> trio.abc.Stream:
            if len(dialled) in (1, 2):
                dialled.append(Gone())
            else:
                near, far = trio.testing.memory_stream_pair()
                nursery.start_soon(serve, server, far)
                dialled.append(near)
            return dialled[-1]

        adapted = partial(stream_adapter, loop=TrioEventLoop())
        options = {"reconnect": POLICY, "on_session_lost": lambda: losses.append(len(dialled))}
        client = await connect_by(SocketConnector(dial, "here", None, adapted, TrioEventLoop()), nursery, options)
        server.sessions[0].close()
        await until(lambda: len(dialled) == 4)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        assert losses == [1, 2, 3]

    run(main)


async def _serve_with(path: Path, principal: Any, *, task_status: Any) -> None:
    await serve_unix(make_server(), path, principal=principal, task_status=task_status)


def test_silent_server_is_reconnected(tmp_path: Path) -> None:
    async def main(nursery: trio.Nursery) -> None:
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        path = tmp_path / "s"
        await listener.bind(str(path))
        listener.listen()
        options = Options(keep_alive=KeepAlive(0.05, timeout=0.05, failures=1))
        came: list[int] = []

        async def answer_once() -> None:
            while True:
                stream = trio.SocketStream((await listener.accept())[0])
                hello = bytes(await stream.receive_some())
                came.append(1)
                id = hello.partition(b'"id":')[2].partition(b",")[0]
                await stream.send_all(
                    b'{"jsonrpc":"2.0","id":' + id + b',"result":{"protocolVersion":"2025-11-25","capabilities":{},'
                    b'"serverInfo":{"name":"s","version":"1"}}}\n'
                )
                held.append(stream)

        held: list[trio.SocketStream] = []
        nursery.start_soon(answer_once)
        async with open_unix(path, reconnect=POLICY, options=options, era="handshake") as client:
            await until(lambda: len(came) >= 3)
            assert client.ended is None
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            for stream in held:
                await stream.aclose()
        listener.close()

    run(main)


def test_a_ready_made_connection_cannot_be_made_again() -> None:
    async def main(nursery: trio.Nursery) -> None:
        with pytest.raises(TypeError, match="leave connection= out"):
            async with open_unix("/nowhere", reconnect=POLICY, connection=ClientConnection(INFO)):
                pass

    run(main)


def test_invalid_options_leave_no_connection(tmp_path: Path) -> None:
    async def main(nursery: trio.Nursery) -> None:
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        path = tmp_path / "s"
        await listener.bind(str(path))
        listener.listen()
        with pytest.raises(TypeError, match="a tap must be"):
            async with open_unix(path, reconnect=POLICY, tap=5):  # type: ignore[arg-type]  # which is the point
                pass
        stream = trio.SocketStream((await listener.accept())[0])
        assert await stream.receive_some() == b""
        await stream.aclose()
        listener.close()

    run(main)
