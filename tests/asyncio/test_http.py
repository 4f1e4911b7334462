"""``open_http`` and ``connect_http`` on asyncio, over real sockets: a server on Trio in a thread, and scripted ones."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import attrs
import pytest
import trio
from certificates import serving_as, trusting
from streams import each_loop, run_in_real_time

from mcpio import Client, ConnectFailed, ConnectionLost, Context, NoBackChannel, RequestTimeout, Server
from mcpio.asyncio import HttpClientTimeouts, connect_http, open_http
from mcpio.http import HttpClientOptions
from mcpio.trio import serve_http
from mcpio.types.asking import ElicitResult

__all__ = ["each_loop"]


@attrs.frozen
class Answer:
    yes: bool


def a_server() -> Server:
    server = Server("there")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def never_ends(ctx: Context) -> None:
        ctx.progress(1)
        try:
            await trio.sleep_forever()
        finally:
            server.instructions = "cancelled"

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Really?", Answer))

    return server


class Served:
    """A server on Trio, in a thread."""

    def __init__(self, **options: Any) -> None:
        self.server = a_server()
        self.url = ""
        self._options = options
        self._scope = trio.CancelScope()
        self._token: Any = None
        self._listens = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                listening: Any = await nursery.start(functools.partial(serve_http, self.server, **self._options))
                self.url = listening.url
                self._listens.set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(port=0) as served:
        yield served


# A whole conversation


@pytest.mark.usefixtures("each_loop")
def test_client_in_a_block_calls_lists_and_is_asked(served: Served) -> None:
    progress: list[float] = []

    async def agree(*_: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"yes": True})

    async def main() -> None:
        async with open_http(served.url, elicitation=agree, era="handshake") as client:
            assert client.server.info.name == "there"
            assert [tool.name async for tool in client.tools()] == ["echo", "never_ends", "ask"]
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
            assert "True" in (await client.call_tool("ask")).text
            with pytest.raises(RequestTimeout):
                await client.call_tool("never_ends", timeout=0.2, on_progress=lambda *seen: progress.append(seen[0]))
        assert progress == [1]
        assert served.server.sessions == ()

    run_in_real_time(main)


def test_concurrent_calls_get_their_own_answers(served: Served) -> None:
    async def main() -> None:
        async with open_http(served.url, http=HttpClientOptions(max_requests=8)) as client:
            calls = [client.call_tool("echo", {"text": str(number) * 20_000}) for number in range(64)]
            results = await asyncio.gather(*calls)
        assert [result.text for result in results] == [str(number) * 20_000 for number in range(64)]

    run_in_real_time(main)


def test_client_on_a_unix_socket(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with open_http(url) as client:
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"

    with Served(unix=str(tmp_path / "s")) as served:
        run_in_real_time(lambda: main(served.url))


def test_client_over_tls() -> None:
    async def main(url: str) -> None:
        async with open_http(url, ssl_context=trusting()) as client:
            assert (await client.call_tool("echo", {"text": "x" * 300_000})).text == "x" * 300_000
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await connect_http(url)

    with Served(port=0, ssl_context=serving_as("127.0.0.1")) as served:
        run_in_real_time(lambda: main(served.url))


# Lifetimes


def test_client_may_be_closed_by_another_task_than_the_one_that_opened_it(served: Served) -> None:
    async def main() -> None:
        client = await asyncio.create_task(connect_http(served.url, era="handshake"))
        await asyncio.create_task(client.ping())

        async def end() -> None:
            client.close()
            await client.aclose()

        await asyncio.create_task(end())
        with pytest.raises(NoBackChannel):
            await client.ping()

    run_in_real_time(main)


def test_clients_may_be_closed_in_any_order(served: Served) -> None:
    async def main() -> None:
        first, second = await connect_http(served.url, era="handshake"), await connect_http(served.url, era="handshake")
        await first.aclose()
        await second.ping()
        await second.aclose()

    run_in_real_time(main)


def test_client_may_be_closed_from_another_thread(served: Served) -> None:
    async def main() -> None:
        client = await connect_http(served.url, era="handshake")
        call = asyncio.create_task(client.call_tool("never_ends"))
        await client.ping()
        thread = threading.Thread(target=client.close, args=(0,))
        thread.start()
        with pytest.raises(ConnectionLost):
            await call
        await client.aclose()
        thread.join()

    run_in_real_time(main)


def test_cancelled_call_cancels_its_handler_and_nothing_else(served: Served) -> None:
    async def main() -> None:
        async with open_http(served.url, era="handshake") as client:
            begun = asyncio.Event()
            call = asyncio.create_task(client.call_tool("never_ends", on_progress=lambda *_: begun.set()))
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while served.server.instructions != "cancelled":
                await client.ping()

    run_in_real_time(main)


def test_cancelled_block_ends_the_session_on_the_server(served: Served) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            async with open_http(served.url) as client:
                await client.call_tool("never_ends", on_progress=lambda *_: begun.set())

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            while served.server.sessions:  # noqa: ASYNC110 - they end in another thread
                await asyncio.sleep(0.01)

    run_in_real_time(main)


def test_exception_of_the_body_leaves_unwrapped(served: Served) -> None:
    async def main() -> None:
        with pytest.raises(KeyError, match="mine"):
            async with open_http(served.url):
                raise KeyError("mine")

    run_in_real_time(main)


def test_client_in_a_group_ends_with_it(served: Served) -> None:
    async def main() -> None:
        clients: list[Client] = []
        with pytest.raises(ExceptionGroup):
            await fail(clients)
        with pytest.raises(NoBackChannel):
            await clients[0].ping()

    async def fail(clients: list[Client]) -> None:
        async with asyncio.TaskGroup() as group:
            clients.append(await connect_http(served.url, group=group, era="handshake"))
            raise ValueError

    run_in_real_time(main)


def test_two_loops_in_one_process_have_their_own_clients(served: Served) -> None:
    async def main() -> None:
        async with open_http(served.url) as client:
            for _ in range(20):
                await client.call_tool("echo", {"text": "hi"})

    other = threading.Thread(target=run_in_real_time, args=(main,))
    other.start()
    run_in_real_time(main)
    other.join()


# Servers that misbehave

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw(handler: Handler) -> AsyncIterator[str]:
    """Serve by hand, and yield the URL."""
    tasks: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await handler(reader, writer)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(handle(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}/mcp"
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    return await reader.readexactly(length)


def refused(match: str, handler: Handler, **options: Any) -> None:
    async def main() -> None:
        async with raw(handler) as url:
            with pytest.raises(ConnectFailed, match=match):
                await connect_http(url, **options)

    run_in_real_time(main)


def test_server_that_closes_is_reported() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    refused("the server closed the connection", handler)


def test_server_that_resets_is_reported() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.transport.abort()

    refused("the server closed the connection|broke: Connection reset by peer", handler)


def test_malformed_http_is_reported() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"\x00\xff no http\r\n\r\n")
        await asyncio.sleep(1)

    refused("malformed HTTP", handler)


def test_server_that_never_answers_times_out() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    refused(r"sent nothing for 0\.2 s", handler, timeouts=HttpClientTimeouts(head=0.2))


def test_unanswered_tls_handshake_times_out() -> None:
    async def main() -> None:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(30)

        async with raw(handler) as url:
            with pytest.raises(ConnectFailed, match=r"within 0\.2 s"):
                await connect_http(
                    url.replace("http:", "https:"),
                    ssl_context=ssl.create_default_context(),
                    timeouts=HttpClientTimeouts(connect=0.2),
                )

    run_in_real_time(main)


def test_refused_connection_raises_connect_failed() -> None:
    async def main() -> None:
        async with raw(read_nothing) as url:
            pass
        with pytest.raises(ConnectFailed, match="Connection refused"):
            await connect_http(url)
        with pytest.raises(ConnectFailed, match="No such file"):
            await connect_http("http+unix://%2Fno%2Fsuch%2Fsocket/mcp")
        with pytest.raises(ValueError, match="must begin with http"):
            await connect_http("ftp://example.com")

    async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    run_in_real_time(main)


def test_connecting_that_is_cancelled_leaves_nothing() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            begun.set()
            await asyncio.sleep(30)

        async with raw(handler) as url:
            task = asyncio.create_task(connect_http(url))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run_in_real_time(main)
    gc.collect()
