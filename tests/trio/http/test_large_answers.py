"""A client of one session that requests more than may be held gets all its answers, as long as it reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from http2wire import Http2Client, http2_site, session
from runners import run_by
from triowire import RawHttp, in_virtual_time, memory_site

from mcpio import Limits, Options, Server
from mcpio.http.model import Body, HttpOptions

COUNT = 20
SIZE = 200_000
LIMITS = Limits(high_water=2 * SIZE, queued_bytes=6 * SIZE)


def large_server() -> Server:
    server = Server("large", "1", options=Options(limits=LIMITS))

    @server.tool
    def large(text: str = "") -> str:
        return "x" * SIZE

    @server.tool
    async def later(text: str = "") -> str:
        await trio.sleep(0.1)
        return "x" * SIZE

    return server


def call(id: int, name: str = "large", **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("answers", ["json", "sse"])
@pytest.mark.parametrize("arguments", [{}, {"text": "y" * SIZE}, {"name": "later"}], ids=["small", "large", "async"])
def test_large_answers_arrive_over_many_connections(answers: Any, arguments: dict[str, Any]) -> None:
    async def main() -> None:
        options = HttpOptions(answers=answers)
        async with memory_site(large_server(), options=options) as site, trio.open_nursery() as nursery:
            first = site.connect()
            await first.initialize()
            answered: list[int] = []
            (hosted,) = site.listening.host.machine.sessions
            most = 0

            async def ask(id: int) -> None:
                # What is written waits until it is read.
                client = RawHttp(site.listener.connect(trio.testing.lockstep_stream_pair))
                client.session = first.session
                await client.say(client.posted(call(id, **arguments)))
                await trio.testing.wait_all_tasks_blocked()
                nonlocal most
                most = max(most, hosted.connection.held.unwritten)
                heard = await client.hear()
                most = max(most, hosted.connection.held.unwritten)
                assert heard.status == 200
                assert len(heard.body) > SIZE
                answered.append(id)

            for id in range(COUNT):
                nursery.start_soon(ask, id)
        assert sorted(answered) == list(range(COUNT))
        assert 0 < most < 4 * SIZE

    in_virtual_time(main)


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("name", ["large", "later"])
@run_by(in_virtual_time)
async def test_large_answers_arrive_over_one_http2_connection(name: str) -> None:
    async with http2_site(large_server(), options=HttpOptions(answers="json")) as (site, nursery):
        client = await Http2Client(site.listener.connect()).begin(nursery)
        headers = await session(client)
        asked = []
        for id in range(COUNT):
            body = call(id, name)
            pseudo = {":method": "POST", ":scheme": "http", ":path": "/mcp", ":authority": "localhost"}
            number = client.http.get_next_available_stream_id()
            client.http.send_headers(number, [*{**pseudo, **headers}.items()])
            client.http.send_data(number, body, end_stream=True)
            asked.append(client.expect(number))
        await client.flush()
        for each in asked:
            await each.ended.wait()
        assert [each.json["id"] for each in asked] == list(range(COUNT))
        assert site.listening.host.machine.sessions


@run_by(in_virtual_time)
async def test_large_answers_leave_the_machine_in_pieces() -> None:
    async with memory_site(large_server()) as site:
        pulled = []
        pull = site.listening.host.responses_to_send

        def seen(exchange: Any, max_bytes: int = 65536) -> Any:
            items = pull(exchange, 4096)
            pulled.append(sum(len(item.data) for item in items if isinstance(item, Body)))
            return items

        site.listening.host.responses_to_send = seen  # type: ignore[method-assign]  # to see what passes
        client = site.connect()
        await client.initialize()
        heard = await client.post(call(1))
        assert len(json.loads(heard.body)["result"]["content"][0]["text"]) == SIZE
        assert max(pulled) == 4096
