"""``serve_http`` over memory streams, with either parser: requests in turn, disconnects, limits and the end."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from triowire import MemoryListener, RawHttp, each_parser, in_virtual_time, memory_site

from mcpio import Context, Server
from mcpio.http.model import Denied, HttpOptions, RequestHead
from mcpio.trio import SocketPeer, serve_http, serve_tcp, serve_websocket


class Shop:
    """A server with a tool for each kind of answer."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("shop", "1", **options)
        self.asked: list[Any] = []
        self.go_on = trio.Event()

        @self.server.tool
        def echo(text: str) -> str:
            self.asked.append(text)
            return text

        @self.server.tool
        async def wait(ctx: Context, steps: int = 0) -> str:
            for step in range(steps):
                ctx.progress(step)
            await self.go_on.wait()
            return "waited"

        @self.server.tool
        async def whose(ctx: Context) -> str:
            return repr(ctx.peer.principal)


def text_of(message: Any) -> Any:
    return message["result"]["content"][0]["text"]


@each_parser
@pytest.mark.req("HTTP-14")
def test_connection_serves_requests_in_turn(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect()
            await client.initialize()
            for text in ("a", "b"):
                heard = await client.post(client.call("echo", text=text))
                assert (heard.status, text_of(heard.json)) == (200, text)
                assert "connection" not in heard.headers
                assert heard.headers["date"].endswith("GMT")

    in_virtual_time(main)


@each_parser
def test_pipelined_requests_wait_their_turn(parser: str) -> None:
    async def main() -> None:
        shop = Shop()
        async with memory_site(shop.server, parser=parser, options=HttpOptions(sse_after=None)) as site:
            client = site.connect()
            await client.initialize()
            calls = [client.call("wait", 1), client.call("echo", 2, text="x"), client.call("echo", 3, text="y")]
            await client.say(b"".join(map(client.posted, calls)))
            await trio.testing.wait_all_tasks_blocked()
            assert shop.asked == []
            shop.go_on.set()
            assert [(await client.hear()).json["id"] for _ in calls] == [1, 2, 3]

    in_virtual_time(main)


@each_parser
@pytest.mark.parametrize("size", [1, 30_000, 65_000, 200_000])
def test_input_read_ahead_of_an_answer_is_served_in_order(parser: str, size: int) -> None:
    async def main() -> None:
        shop = Shop()
        async with memory_site(shop.server, parser=parser, options=HttpOptions(sse_after=None)) as site:
            client = site.connect()
            await client.initialize()
            texts = [letter * size for letter in "abcde"]
            calls = [client.call("wait", 0), *(client.call("echo", id, text=text) for id, text in enumerate(texts, 1))]
            data = b"".join(map(client.posted, calls))
            async with trio.open_nursery() as nursery:

                async def say() -> None:
                    for start in range(0, len(data), 40_000):
                        await client.say(data[start : start + 40_000])
                        await trio.testing.wait_all_tasks_blocked()

                nursery.start_soon(say)
                await trio.testing.wait_all_tasks_blocked()
                assert shop.asked == []
                shop.go_on.set()
                assert [(await client.hear()).json["id"] for _ in calls] == [0, 1, 2, 3, 4, 5]
            assert shop.asked == texts

    in_virtual_time(main)


@each_parser
def test_pipelined_input_is_bounded(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect(trio.testing.lockstep_stream_pair)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.say, client.posted(client.call("echo", text="x")) * 10_000)
                with trio.move_on_after(5) as scope:
                    await trio.sleep_forever()
                assert scope.cancelled_caught
                (sending,) = nursery.child_tasks
                assert sending.name.endswith("say")
                nursery.cancel_scope.cancel()

    in_virtual_time(main)


@each_parser
@pytest.mark.req("HTTP-14")
def test_chunked_body_after_continue_is_served(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect()
            await client.initialize()
            usual = {"content_type": "application/json", "transfer_encoding": "chunked", "expect": "100-continue"}
            await client.say(client.head("POST", **usual))
            assert (await client.hear()).status == 100
            for piece in (b'{"jsonrpc":"2.0","id":1,', b'"method":"ping"}'):
                await client.say(b"%x\r\n%b\r\n" % (len(piece), piece))
            await client.say(b"0\r\n\r\n")
            assert (await client.hear()).json == {"jsonrpc": "2.0", "id": 1, "result": {}}

    in_virtual_time(main)


@each_parser
def test_continue_is_sent_only_to_admitted_requests(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect()
            await client.say(client.head("POST", content_type="text/html", content_length="9", expect="100-continue"))
            heard = await client.hear()
            assert (heard.status, heard.headers["connection"]) == (415, "close")
            assert await client.rest() == b""

    in_virtual_time(main)


@each_parser
def test_early_answer_keeps_the_connection_when_the_body_has_arrived(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect()
            for _ in range(2):
                heard = await client.post(b"text", content_type="text/plain")
                assert (heard.status, heard.headers.get("connection")) == (415, None)

    in_virtual_time(main)


@each_parser
def test_head_response_has_no_body(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect()
            await client.say(client.head("HEAD"))
            heard = await client.hear(has_body=False)
            assert (heard.status, int(heard.headers["content-length"]) > 0) == (405, True)
            assert (await client.initialize()).status == 200

    in_virtual_time(main)


@each_parser
def test_http_1_0_response_ends_with_the_connection(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser, options=HttpOptions(answers="sse")) as site:
            client = site.connect()
            await client.initialize()
            request = client.posted(client.call("echo", text="x"), connection="keep-alive")
            await client.say(request.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            heard = await client.hear()
            assert (heard.status, heard.headers["connection"].lower()) == (200, "close")
            assert "transfer-encoding" not in heard.headers
            assert heard.body.endswith(b'"text":"x"}]}}\n\n')

    in_virtual_time(main)


@each_parser
def test_connection_close_ends_the_connection(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect()
            heard = await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, connection="close")
            assert (heard.status, heard.headers["connection"].lower()) == (400, "close")
            assert await client.rest() == b""

    in_virtual_time(main)


@each_parser
@pytest.mark.parametrize("other", ["websocket", "h2c"])
def test_upgrade_without_websockets_is_ignored(parser: str, other: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser) as site:
            client = site.connect()
            await client.initialize()
            offer = {"connection": "upgrade", "upgrade": other}
            heard = await client.post(client.call("echo", text="x"), **offer)
            assert text_of(heard.json) == "x"
            await client.say(client.head("GET", **offer, accept="*/*", mcp_session_id="none"))
            assert (await client.hear()).status == 404

    in_virtual_time(main)


@each_parser
@pytest.mark.req("HTTP-24")
def test_disconnect_is_noticed_while_the_handler_continues(parser: str) -> None:
    async def main() -> None:
        shop = Shop()
        async with memory_site(shop.server, parser=parser) as site:
            client, other = site.connect(), site.connect()
            await client.initialize()
            other.session = client.session
            await client.say(client.posted(client.call("wait")))
            await trio.sleep(1)
            first = (await client.until(b"\n\n")).partition(b"id: ")[2].split(b"\n")[0].decode()
            await client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            shop.go_on.set()
            await other.say(other.head("GET", last_event_id=first))
            assert b'"text":"waited"' in (await other.hear()).body

    in_virtual_time(main)


@pytest.mark.long
def test_idle_session_has_no_task() -> None:
    async def main() -> None:
        async with memory_site(Shop().server) as site:
            await site.connect().initialize()
            client = site.connect()
            await trio.testing.wait_all_tasks_blocked()
            before = trio.lowlevel.current_statistics().tasks_living
            for _ in range(1000):
                client.session = {}
                await client.initialize()
            await trio.testing.wait_all_tasks_blocked()
            assert len(site.listening.host.machine.sessions) == 1001
            assert trio.lowlevel.current_statistics().tasks_living == before

    in_virtual_time(main)


@each_parser
@pytest.mark.req("HTTP-36")
def test_cancelled_server_answers_and_ends_streams(parser: str) -> None:
    async def main() -> None:
        shop = Shop()
        with trio.fail_after(3):
            async with memory_site(shop.server, parser=parser, grace=2) as site:
                listening, running, idle = site.connect(), site.connect(), site.connect()
                await listening.initialize()
                running.session = listening.session
                await listening.say(listening.head("GET"))
                await listening.until(b"\n\n")
                await running.say(running.posted(running.call("wait")))
                await trio.testing.wait_all_tasks_blocked()
                site.scope.cancel()
                with trio.CancelScope(shield=True):
                    assert await idle.rest() == b""
                    shop.go_on.set()
                    heard = await running.hear()
                    assert (text_of(heard.json), heard.headers["connection"].lower()) == ("waited", "close")
                    assert await running.rest() == b""
                    assert (await listening.rest()).endswith(b"0\r\n\r\n")

    in_virtual_time(main)


@each_parser
def test_draining_server_ends_each_connection_with_its_next_answer(parser: str) -> None:
    async def main() -> None:
        shop = Shop()
        with trio.fail_after(20):
            async with memory_site(shop.server, parser=parser, drain=10, grace=2) as site:
                busy, resting, unused = site.connect(), site.connect(), site.connect()
                await busy.initialize()
                resting.session = busy.session
                assert text_of((await resting.post(resting.call("echo", text="before"))).json) == "before"
                await busy.say(busy.posted(busy.call("wait")))
                await trio.testing.wait_all_tasks_blocked()
                began = trio.current_time()
                site.scope.cancel()
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.2)
                    heard = await resting.post(resting.call("echo", text="after"))
                    assert (text_of(heard.json), heard.headers["connection"].lower()) == ("after", "close")
                    assert await resting.rest() == b""
                    shop.go_on.set()
                    heard = await busy.hear()
                    assert (text_of(heard.json), heard.headers["connection"].lower()) == ("waited", "close")
                    assert trio.current_time() - began < 6
                    assert await unused.rest() == b""
                    assert trio.current_time() - began == 10

    in_virtual_time(main)


@each_parser
def test_handlers_beyond_the_grace_are_cancelled(parser: str) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser=parser, grace=2) as site:
            client, reading = site.connect(), site.connect()
            await client.initialize()
            await client.say(client.posted(client.call("wait")))
            await reading.say(reading.head("POST"))
            await trio.sleep(1)
            began = trio.current_time()
        assert trio.current_time() - began < 2.5
        assert (await client.rest()).endswith(b"0\r\n\r\n")

    in_virtual_time(main)


@each_parser
def test_principal_hook_sets_the_principal_of_a_request(parser: str) -> None:
    async def find(head: RequestHead, peer: SocketPeer) -> Any:
        await trio.sleep(20)
        assert (head.method, peer) == ("POST", SocketPeer(None))
        (user,) = [value.decode() for name, value in head.headers if name == b"authorization"]
        if user == "boom":
            raise RuntimeError("no database")
        return user if user == "ada" else Denied(401, "Who are you?", ((b"www-authenticate", b"Bearer"),))

    async def main() -> None:
        async with memory_site(Shop().server, parser=parser, principal=find) as site:
            client = site.connect()
            await client.initialize(authorization="ada")
            heard = await client.post(client.call("whose"), authorization="ada")
            assert text_of(heard.json) == "'ada'"
            heard = await client.post(client.call("whose"), authorization="eve")
            assert (heard.status, heard.headers["www-authenticate"]) == (401, "Bearer")
            assert heard.json["error"]["message"] == "Who are you?"
            assert (await client.post(client.call("whose"), authorization="boom")).status == 500

    in_virtual_time(main)


def test_connection_limit_closes_idle_connections_and_delays_others() -> None:
    async def main() -> None:
        shop = Shop()
        async with memory_site(shop.server, max_connections=2) as site:
            busy, resting = site.connect(), site.connect()
            await busy.initialize()
            await resting.initialize()
            await busy.say(busy.posted(busy.call("wait")))
            await trio.testing.wait_all_tasks_blocked()
            third = site.connect()
            await third.initialize()
            assert await resting.rest() == b""
            await third.say(third.posted(third.call("wait")))
            await trio.testing.wait_all_tasks_blocked()
            fourth = site.connect()
            await fourth.say(fourth.posted({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
            with trio.move_on_after(5) as scope:
                await fourth.hear()
            assert scope.cancelled_caught
            shop.go_on.set()
            await third.hear()
            await third.stream.aclose()
            assert (await fourth.hear()).status == 400

    in_virtual_time(main)


def test_pending_principal_lookup_keeps_the_connection() -> None:
    async def find(head: RequestHead, peer: SocketPeer) -> str:
        await trio.sleep(0.1)
        return "ada"

    async def main() -> None:
        listener = MemoryListener()
        serve = partial(serve_http, Shop().server, listeners=[listener], principal=find, max_connections=1)
        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            client = RawHttp(listener.connect())
            await client.say(client.head("OPTIONS"))
            await trio.testing.wait_all_tasks_blocked()
            listener.connect()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                assert (await client.hear()).status == 405

    in_virtual_time(main)


def test_tasks_outlive_sessions_within_one_lifespan() -> None:
    lives = []

    @asynccontextmanager
    async def live(server: Server) -> AsyncIterator[str]:
        lives.append(server)
        yield "alive"

    server = Server("mine", lifespan=live)
    enough = trio.Event()

    @server.tool(task_support="optional")
    async def dig(ctx: Context) -> str:
        await enough.wait()
        return f"{ctx.state}"

    async def main() -> None:
        async with memory_site(server, principal=lambda head, peer: "ada") as site:
            client = site.connect()
            await client.initialize()
            call = {**client.call("dig")["params"], "task": {}}
            heard = await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
            task = heard.json["result"]["task"]["taskId"]
            await client.say(client.head("DELETE"))
            assert (await client.hear()).status == 204
            enough.set()
            client.session = {}
            await client.initialize()
            asked = {"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": task}}
            assert text_of((await client.post(asked)).json) == "alive"

    in_virtual_time(main)
    assert len(lives) == 1


def test_tap_is_attached_to_each_session(caplog: pytest.LogCaptureFixture) -> None:
    from mcpio.observe import Recorder

    lines: list[list[str]] = []

    def tap() -> Recorder:
        if len(lines) == 2:
            raise OSError("disk full")
        lines.append([])
        return Recorder(lines[-1].append)

    async def main() -> None:
        async with memory_site(Shop().server, tap=tap) as site:
            for _ in range(3):
                client = site.connect()
                await client.initialize()
                assert text_of((await client.post(client.call("echo", text="x"))).json) == "x"

    with caplog.at_level(logging.ERROR, "mcpio"):
        in_virtual_time(main)
    assert [any("tools/call" in line for line in each) for each in lines] == [True, True]
    assert [record.getMessage() for record in caplog.records] == ["a tap cannot be attached to a session"]


def test_closed_listeners_end_the_server() -> None:
    async def main() -> None:
        async with memory_site(Shop().server) as site:
            client = site.connect()
            await client.initialize()
            await site.listener.aclose()
            assert await client.rest() == b""

    in_virtual_time(main)


def test_unknown_parser_is_rejected_before_listening() -> None:
    async def main() -> None:
        async with memory_site(Shop().server, parser="nginx"):
            pass

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="parser must be .* not 'nginx'")):
        in_virtual_time(main)


def test_running_handler_of_a_lost_client_ends_with_the_server() -> None:
    async def main() -> None:
        shop = Shop()
        async with memory_site(shop.server) as site:
            client = site.connect()
            await client.initialize()
            await client.say(client.posted(client.call("wait")))
            await trio.testing.wait_all_tasks_blocked()
            await client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert len(shop.server.sessions) == 1
        assert not shop.server.sessions

    in_virtual_time(main)


@pytest.mark.parametrize("serve", [serve_http, partial(serve_tcp, port=0), serve_websocket])
@pytest.mark.parametrize("steps", range(6))
def test_server_cancelled_during_startup_ends(serve: Any, steps: int) -> None:
    async def main() -> None:
        async def cancel() -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()

        listener = MemoryListener()
        async with trio.open_nursery() as nursery:
            with trio.fail_after(10), trio.CancelScope() as scope:
                if steps:
                    nursery.start_soon(cancel)
                else:
                    scope.cancel()
                await serve(Shop().server, listeners=[listener])
            assert scope.cancelled_caught

    in_virtual_time(main)


@pytest.mark.parametrize("serve", [serve_http, serve_tcp, serve_websocket])
def test_port_is_the_second_argument(serve: Any) -> None:
    assert list(inspect.signature(serve).parameters)[:2] == ["server", "port"]
    port = inspect.signature(serve).parameters["port"]
    assert port.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
