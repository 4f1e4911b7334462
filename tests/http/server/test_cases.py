"""What a server does over HTTP, whatever adapter stands between: each case runs by every adapter.

What needs no adapter is tested at the machine, in the files beside this one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpwire import RawClient, Serve, everywhere
from stateless import stateless

from mcpio import Context, Limits, Options, Server
from mcpio.app.reporting import Advice
from mcpio.app.runtime import STRANGERS
from mcpio.errors import URLElicitationRequired
from mcpio.http.model import HostPolicy, HttpOptions
from mcpio.types import ElicitURLRequest


def small_server() -> Server:
    """Return a server with a tool for each kind of answer."""
    server = Server("cases", "1")

    @server.tool
    def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        """Report progress, then answer."""
        for number in range(count):
            ctx.progress(number + 1, count)
        return "done"

    @server.tool
    async def wait(ctx: Context, seconds: float) -> str:
        """Answer after a while."""
        await ctx.session.driver.runtime.sleep(seconds)
        return "waited"

    return server


@pytest.mark.req("HTTP-11", "SESS-01", "SESS-02")
@everywhere
async def test_quick_answer_is_json(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        hello = await client.initialize()
        assert (hello.status, hello.headers["content-type"]) == (200, "application/json")
        assert hello.json["result"]["protocolVersion"] == "2025-11-25"
        assert len(client.headers["mcp-session-id"]) == 32
        answer = await client.call("echo", text="hello")
        assert answer.json["result"]["content"] == [{"type": "text", "text": "hello"}]
        assert "mcp-session-id" not in answer.headers


@pytest.mark.req("HTTP-11", "HTTP-15", "HTTP-16", "HTTP-17", "HTTP-23")
@everywhere
async def test_answer_with_progress_is_a_stream(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        answer = await client.call("steps", progress="p", count=2)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        said = answer.new_messages()
        assert [each.get("method", "answer") for each in said] == ["notifications/progress"] * 2 + ["answer"]
        assert said[-1]["id"] == 1
        assert answer.is_over


@pytest.mark.req("HTTP-09")
@everywhere
async def test_notification_gets_202_without_body(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        taken = await client.post(json.loads('{"jsonrpc":"2.0","method":"notifications/initialized"}'))
        assert (taken.status, taken.data, taken.is_over) == (202, b"", True)


@pytest.mark.req("HTTP-11")
@everywhere
async def test_slow_answer_becomes_a_stream(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions(sse_after=0.5)) as wire:
        client = RawClient(wire)
        await client.initialize()
        answer = await client.call("wait", seconds=2.0)
        assert answer.status == 0
        await wire.pass_time(1.0)
        assert (answer.headers["content-type"], answer.is_over) == ("text/event-stream", False)
        await wire.pass_time(2.0)
        assert [each["id"] for each in answer.new_messages()] == [1]
        assert answer.is_over


@pytest.mark.req("HTTP-09", "CANC-10")
@everywhere
async def test_cancelled_request_ends_without_answer(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        call = await client.call("wait", id=7, seconds=60.0)
        params = {"requestId": 7}
        taken = await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert (taken.status, taken.data, taken.is_over) == (202, b"", True)
        assert (call.status, call.data, call.is_over) == (200, b"", True)


@pytest.mark.req("HTTP-24", "HTTP-25", "RESUME-03", "RESUME-04")
@everywhere
async def test_client_that_was_cut_off_resumes(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions(answers="sse")) as wire:
        client = RawClient(wire)
        await client.initialize()
        call = await client.call("wait", id="w", seconds=1.0)
        (first,) = call.new_events()
        assert first.data == ""
        await wire.leave(call)
        await wire.pass_time(2.0)
        rest = await client.listen(last_event_id=first.id or "")
        assert [each["id"] for each in rest.new_messages()] == ["w"]
        assert rest.is_over


@pytest.mark.req("HTTP-26", "HTTP-29", "HTTP-34")
@everywhere
async def test_listener_gets_each_broadcast_once(serve: Serve) -> None:
    server = small_server()
    async with serve(server, HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        first = await client.listen()
        second = await client.listen()
        assert first.is_over

        @server.tool
        def new() -> str:
            """Be new."""
            return "new"

        await wire.settle()
        assert [each["method"] for each in second.new_messages()] == ["notifications/tools/list_changed"]
        assert first.new_messages() == []
        await wire.leave(second)


@pytest.mark.req("SESS-05", "SESS-08")
@everywhere
async def test_ended_session_gets_404(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        listening = await client.listen()
        ended = await client.end()
        assert (ended.status, ended.data, ended.is_over) == (204, b"", True)
        assert listening.is_over
        assert (await client.call("echo", text="x")).status == 404


@pytest.mark.req("SESS-09", "SEC-04")
@everywhere
async def test_other_principal_gets_404(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire, headers={"x-user": "me"})
        await client.initialize()
        assert (await client.call("echo", text="x")).status == 200
        client.headers["x-user"] = "you"
        assert (await client.call("echo", text="x")).status == 404


@pytest.mark.req("HTTP-01", "HTTP-07", "HTTP-08", "HTTP-13", "HTTP-31", "SESS-04")
@everywhere
async def test_bad_request_gets_its_status_and_the_next_is_served(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        echo = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await RawClient(wire).post(b"{")).status == 400
        assert (await RawClient(wire).post(b"")).status == 400
        assert (await client.post(echo, accept="application/json")).status == 406
        assert (await client.post(echo, content_type="text/plain")).status == 415
        assert (await client.post(echo, mcp_protocol_version="1999-01-01")).status == 400
        assert (await RawClient(wire).post(echo)).status == 400
        assert (await RawClient(wire, "/elsewhere").post(echo)).status == 404
        refused = await wire.ask("PUT", "/mcp", client.headers, b"")
        assert (refused.status, refused.headers["allow"]) == (405, "POST, GET, DELETE")
        assert (await client.call("echo", text="x")).status == 200


@pytest.mark.req("RPC-07")
@everywhere
async def test_twelve_calls_with_one_id_get_their_own_answers(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions(sse_after=None)) as wire:
        client = RawClient(wire)
        await client.initialize()
        slow = [await client.call("wait", seconds=1.0 + number % 3) for number in range(6)]
        quick = [await client.call("echo", text=str(number)) for number in range(6)]
        await wire.pass_time(5.0)
        assert [each.json["result"]["content"][0]["text"] for each in slow] == ["waited"] * 6
        assert [each.json["result"]["content"][0]["text"] for each in quick] == [str(number) for number in range(6)]


@pytest.mark.req("HTTP-28", "HTTP-37")
@everywhere
async def test_handler_asks_on_its_stream_and_is_answered_by_post(serve: Serve) -> None:
    server = small_server()

    @server.tool
    async def where(ctx: Context) -> str:
        """Say where the client's roots are."""
        return " ".join(root.uri for root in await ctx.roots())

    async with serve(server, HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize(roots={})
        call = await client.call("where")
        (asked,) = call.new_messages()
        assert asked["method"] == "roots/list"
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": "file:///a"}]}}
        assert (await client.post(answer)).status == 202
        await wire.settle()
        assert call.new_messages()[0]["result"]["content"][0]["text"] == "file:///a"
        assert call.is_over


@pytest.mark.req("HTTP-02", "HTTP-04")
@everywhere
async def test_refused_host_and_origin_are_told_to_the_operator_once(serve: Serve) -> None:
    server, told = small_server(), list[str]()

    class Told(Advice):
        def give(self, advice: str, report: Any) -> None:
            super().give(advice, lambda text, _: told.append(text))

    server.advice = Told()
    policy = HostPolicy(frozenset({"localhost"}), frozenset({"http://localhost"}))
    async with serve(server, HttpOptions(policy=policy)) as wire:
        client = RawClient(wire, headers={"host": "localhost"})
        for _ in range(2):
            for name in ("api.example", "evil.example"):
                assert (await client.post({}, host=name)).status == 403
            assert (await client.post({}, origin="https://page.example")).status == 403
        assert (await client.initialize()).status == 200
        for number in range(100):
            assert (await client.post({}, host=f"{number}.example")).status == 403
    assert told[0] == (
        "the Host 'api.example' is refused: if its clients are to be served, add it to hosts= of HostPolicy, for"
        " HttpOptions(policy=…)"
    )
    assert "the Origin 'https://page.example' is refused" in told[2]
    assert "origins= of HostPolicy" in told[2]
    assert len(told) == 64


@pytest.mark.req("SEC-10")
@everywhere
async def test_requests_without_principal_and_session_count_as_one_peer_for_threads(serve: Serve) -> None:
    server, seen = Server("cases", "1"), list[Any]()

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.thread_account)

    named = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "look"}
    call = stateless("tools/call", name="look", arguments={})
    async with serve(server, HttpOptions()) as wire:
        client = RawClient(wire)
        for more in ({}, {}, {"x_user": "ada"}):
            assert (await client.post(call, **named, **more)).status == 200
        await client.initialize()
        await client.call("look")
    async with serve(server, HttpOptions(sessions=False)) as wire:
        client = RawClient(wire, headers={"mcp-protocol-version": "2025-11-25"})
        await client.call("look")
    assert [each if each == STRANGERS else each[0] for each in seen] == [
        STRANGERS,
        STRANGERS,
        "principal",
        "session",
        STRANGERS,
    ]


@pytest.mark.req("SEC-10")
@everywhere
async def test_handler_of_a_client_that_left_gives_way_to_a_new_session(serve: Serve) -> None:
    server, ended = Server("cases", "1", options=Options(limits=Limits(sessions=2))), list[str]()

    @server.tool
    async def work(ctx: Context, name: str) -> None:
        try:
            await ctx.sleep(10_000)
        finally:
            ended.append(name)

    async with serve(server, HttpOptions()) as wire:
        idle, client, new = RawClient(wire), RawClient(wire), RawClient(wire)
        await idle.initialize()
        await client.initialize()
        call = await client.call("work", name="a")
        await wire.pass_time(1)
        await wire.leave(call)
        await wire.pass_time(70)
        assert ended == []
        assert (await new.initialize()).status == 200
        await wire.settle()
        assert ended == ["a"]
        assert (await idle.post({"jsonrpc": "2.0", "id": 2, "method": "ping"})).status == 200
        assert (await client.post({"jsonrpc": "2.0", "id": 2, "method": "ping"})).status == 404


@pytest.mark.req("BATCH-06")
@everywhere
async def test_batch_gets_one_array(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize("2025-03-26")
        both = await client.post([{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in (1, 2)])
        assert [each["id"] for each in both.json] == [1, 2]


@pytest.mark.req("SESS-10")
@everywhere
async def test_request_without_sessions_stands_alone(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions(sessions=False)) as wire:
        client = RawClient(wire)
        assert "mcp-session-id" not in (await client.initialize()).headers
        answer = await client.call("echo", text="x")
        assert answer.json["result"]["content"][0]["text"] == "x"
        steps = await client.call("steps", progress="p", count=1)
        assert len(steps.new_messages()) == 2
        assert (await client.listen()).status == 405


@pytest.mark.req("SESS-10", "CAP-03", "CAP-07", "ELIC-17")
@everywhere
async def test_server_without_sessions_declares_only_what_works(serve: Serve) -> None:
    server = small_server()

    @server.resource("memo://a")
    def memo() -> str:
        return "a"

    @server.tool
    def visit() -> str:
        raise URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com/1", "1")])

    async with serve(server, HttpOptions(sessions=False)) as wire:
        client = RawClient(wire)
        hello = await client.initialize()
        assert hello.json["result"]["capabilities"] == {"tools": {}, "resources": {}}
        client.headers["mcp-protocol-version"] = "2025-11-25"
        for method, params in (
            ("resources/subscribe", {"uri": "memo://a"}),
            ("resources/unsubscribe", {"uri": "memo://a"}),
            ("logging/setLevel", {"level": "debug"}),
        ):
            refused = await client.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            assert refused.json["error"]["code"] == -32601
        sent = (await client.call("visit")).json["error"]
        assert (sent["code"], sent["data"]["elicitations"][0]["url"]) == (-32042, "https://example.com/1")


@pytest.mark.req("FALL-01", "FALL-03", "FALL-05")
@everywhere
async def test_legacy_client_gets_everything_where_it_listens(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions(legacy=("/sse", "/messages"))) as wire:
        stream = await wire.ask("GET", "/sse", {"accept": "text/event-stream"}, b"")
        (endpoint,) = stream.new_events()
        assert endpoint.type == "endpoint"
        client = RawClient(wire, f"/{endpoint.data}")
        assert (await client.initialize("2024-11-05")).status == 202
        assert (await client.call("echo", text="x")).status == 202
        await wire.settle()
        assert [each["id"] for each in stream.new_messages()] == [0, 1]
        await wire.leave(stream)
        assert (await client.call("echo", text="x")).status == 404
