"""Requests of the stateless era over HTTP: each brings all that is to be known, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import Any, get_args

import pytest
from httpsite import Site
from httpwire import Exchange, RawClient, Serve, everywhere
from stateless import CAPABILITIES, LEVEL, VERSION, meta
from statelesshttp import ONE_ERA, TWO_ERAS, Post, calls_of, engine_of, post_to, server_of

from mcpio import Server
from mcpio.app.session_store import MemorySessionStore
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import ErrorCode
from mcpio.http.model import Answers, Body, Cors, End, HttpOptions, RequestHead
from mcpio.revisions import REVISIONS
from mcpio.types import CallToolResult

STREAM = "text/event-stream"


def relayed(**arguments: Any) -> Post:
    """Return a call of ``relay`` in a region."""
    post = Post(name="relay", arguments={"region": "eu", **arguments})
    post.fields["mcp-param-region"] = "eu"
    return post


def said(exchange: Exchange) -> tuple[int, Any]:
    """Return the status and the code of an answer with an error."""
    assert exchange.headers["content-type"] == "application/json"
    return exchange.status, exchange.json["error"]["code"]


# The ladder


def no_array(post: Post) -> None:
    post.body = [post.body]


def no_version(post: Post) -> None:
    del post.meta[VERSION]


def other_header(post: Post) -> None:
    post.fields["mcp-protocol-version"] = "2026-07-29"


def not_served(post: Post) -> None:
    post.meta[VERSION] = post.fields["mcp-protocol-version"] = "v999"


def no_capabilities(post: Post) -> None:
    del post.meta[CAPABILITIES]


def other_method(post: Post) -> None:
    post.fields["mcp-method"] = "tools/list"


def other_name(post: Post) -> None:
    post.fields["mcp-name"] = "other"


def undeclared(post: Post) -> None:
    post.body["method"] = post.fields["mcp-method"] = "prompts/get"


def wrong_params(post: Post) -> None:
    post.body["params"]["arguments"] = 5


def other_param(post: Post) -> None:
    post.fields["mcp-param-region"] = "us"


def failing(post: Post) -> None:
    post.body["params"]["arguments"]["code"] = -32601


LADDER: list[tuple[Callable[[Post], None], int, int]] = [
    (no_array, 400, -32600),
    (no_version, 400, -32602),
    (other_header, 400, -32020),
    (not_served, 400, -32022),
    (no_capabilities, 400, -32602),
    (other_method, 400, -32020),
    (other_name, 400, -32020),
    (undeclared, 404, -32601),
    (wrong_params, 200, -32602),
    (other_param, 400, -32020),
    (failing, 200, -32601),
]
"""What may be wrong, in the order of looking, with the answers."""


@pytest.mark.req("ERA-13", "SHTTP-08", "SHTTP-09", "HDR-03", "HDR-09", "VER-01", "ENV-03", "RPC-05")
@everywhere
async def test_first_of_two_faults_gives_the_answer(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client = RawClient(wire)
        for first, second in combinations([None, *LADDER], 2):
            post = relayed()
            # The later one first: what it changes may be what the earlier one takes away.
            assert second is not None
            second[0](post)
            fault, status, code = first or second
            if first is not None:
                fault(post)
            answer = await post.to(client)
            assert said(answer) == (status, code), (fault.__name__, second[0].__name__)
            assert answer.json.get("id") == (None if fault is no_array else 7)
        assert (await relayed().to(client)).json["result"]["content"][0]["text"] == "in eu"


@pytest.mark.req("SHTTP-08", "ENV-03", "HDR-01", "VER-01", "RPC-12")
@everywhere
async def test_each_malformed_message_gets_a_descriptive_error(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client = RawClient(wire)
        fields = {"mcp-protocol-version": "2026-07-28"}
        for body, code, id in [
            (b"{", -32700, None),
            (b"\xff\xfe", -32700, None),
            (b"", -32700, None),
            (b'{"jsonrpc":"2.0","id":3,"method":5,"params":{}}', -32600, 3),
            (b'{"jsonrpc":"2.0","id":3,"result":{}}', -32600, None),
            (b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":""}}', -32600, None),
            (b'{"jsonrpc":"2.0","id":3,"method":"tools/list"}', -32602, 3),
            (b'{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":5}}', -32602, 3),
            (b'{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{}}}', -32602, 3),
        ]:
            answer = await client.post(body, **fields)
            assert said(answer) == (400, code), body
            assert answer.json.get("id") == id
        for header, code in [(None, -32020), ("2025-11-25", -32020), ("2026-07-28 ,2026-07-28", -32020)]:
            post = relayed()
            post.fields.pop("mcp-protocol-version")
            answer = await client.post(
                post.body, **post.fields, **({} if header is None else {"mcp-protocol-version": header})
            )
            assert said(answer) == (400, code), header
        post = relayed()
        post.meta[VERSION] = post.fields["mcp-protocol-version"] = "2025-11-25"
        answer = await post.to(client)
        assert said(answer) == (400, ErrorCode.UNSUPPORTED_VERSION)
        assert answer.json["error"]["data"]["requested"] == "2025-11-25"
        kinds: tuple[Any, ...] = (5, "x", [], None)
        for kind in kinds:
            post = relayed()
            post.meta[CAPABILITIES] = kind
            assert said(await post.to(client)) == (400, -32602)


@pytest.mark.req("GONE-01", "VER-07", "SHTTP-09")
@everywhere
async def test_removed_methods_are_not_found(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client = RawClient(wire)
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "x", "prompts/list"):
            answer = await Post(method).to(client)
            assert said(answer) == (404, -32601), method
        assert (await Post("server/discover").to(client)).json["result"]["supportedVersions"][0] == "2026-07-28"


# Status and form of an answer


@pytest.mark.req("SHTTP-05", "SHTTP-08")
@everywhere
async def test_status_of_a_handlers_error_is_200_but_for_a_missing_capability(serve: Serve) -> None:
    for answers in get_args(Answers):
        async with serve(server_of(), HttpOptions(answers=answers)) as wire:
            client = RawClient(wire)
            for code in (-32601, -32602, -32000, 5):
                answer = await relayed(code=code).to(client)
                message = answer.new_messages()[0] if answers == "sse" else answer.json
                assert (answer.status, message["error"]["code"]) == (200, code)
            assert said(await relayed(code=-32021).to(client)) == (400, -32021)
            answer = await relayed().to(client)
            assert answer.headers["content-type"] == (STREAM if answers == "sse" else "application/json")
            assert answer.is_over


@pytest.mark.req("SHTTP-05", "GONE-04", "SUB-10")
@everywhere
async def test_message_before_the_answer_makes_a_stream(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client = RawClient(wire)
        post = Post(name="tell", arguments={})
        assert (await post.to(client)).headers["content-type"] == "application/json"
        post.meta[LEVEL] = "info"
        answer = await post.to(client)
        assert answer.headers["content-type"] == STREAM
        assert answer.headers["x-accel-buffering"] == "no"
        assert b"id:" not in answer.data
        first, last = answer.new_messages()
        assert (first["method"], last["id"], answer.is_over) == ("notifications/message", 7, True)


@pytest.mark.req("SHTTP-05", "SHTTP-08")
@everywhere
async def test_stream_begins_late_enough_for_a_late_status(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client = RawClient(wire)
        answer = await Post(name="wait", arguments={"seconds": 14, "code": -32021}).to(client)
        await wire.pass_time(13)
        assert answer.status == 0
        await wire.pass_time(2)
        assert said(answer) == (400, -32021)
        answer = await Post(name="wait", arguments={"seconds": 35}).to(client)
        await wire.pass_time(16)
        assert (answer.status, answer.headers["content-type"]) == (200, STREAM)
        await wire.pass_time(20)
        assert answer.is_over
        assert b": \n\n" in answer.data or b":\n\n" in answer.data
        assert answer.new_messages()[-1]["result"]["content"][0]["text"] == "in "


# Cancellation, and what is left


@pytest.mark.req("SHTTP-06", "PAT-04")
@everywhere
async def test_client_that_leaves_cancels_its_request(serve: Serve) -> None:
    server: Any = server_of()
    async with serve(server, HttpOptions()) as wire:
        client = RawClient(wire)
        exchange = await Post(name="wait", arguments={"seconds": 5}).to(client)
        assert server.ended == []
        await wire.leave(exchange)
        await wire.settle()
        assert len(server.ended) == 1
        exchange = await Post(name="wait", arguments={"seconds": 50}).to(client)
        await wire.pass_time(16)  # it is a stream by now
        assert exchange.status == 200
        await wire.leave(exchange)
        await wire.settle()
        assert len(server.ended) == 2


@pytest.mark.req("SHTTP-04", "PAT-04")
@everywhere
async def test_notification_is_accepted_and_ends_no_request_of_another_exchange(serve: Serve) -> None:
    server: Any = server_of()
    async with serve(server, HttpOptions()) as wire:
        client = RawClient(wire)
        running = await Post(name="wait", arguments={"seconds": 5}).to(client)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "_meta": meta()}}
        for fields in ({}, {"mcp-protocol-version": "2026-07-28"}):
            answer = await client.post(cancel, **fields)
            assert (answer.status, answer.data) == (202, b"")
        answer = await client.post(cancel, **{"mcp-protocol-version": "v999"})
        assert said(answer) == (400, -32022)
        assert "id" not in answer.json
        await wire.pass_time(6)
        assert running.json["result"]["content"][0]["text"] == "in "


@pytest.mark.req("SHTTP-01", "ERA-12", "SESS-01")
@everywhere
async def test_two_eras_share_an_endpoint(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client, alone = RawClient(wire), RawClient(wire)
        await client.initialize()
        alone.headers = {"mcp-session-id": "no such session", "last-event-id": "5"}
        for id in range(3):
            answer = await relayed().to(alone)
            assert answer.json["result"]["resultType"] == "complete"
            assert "mcp-session-id" not in answer.headers
            answer = await client.call("relay", id)
            assert "resultType" not in answer.json["result"]
        # The fields of a session do not make a request one of the session.
        post = relayed()
        del post.fields["mcp-protocol-version"]
        assert said(await post.to(client)) == (400, -32020)
        assert (await client.call("relay")).status == 200
        assert (await client.end()).status == 204


@pytest.mark.req("ERA-12", "HTTP-32", "SESS-05", "HDR-04")
@everywhere
async def test_session_is_found_without_a_version_in_the_header(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize("2025-03-26")
        del client.headers["mcp-protocol-version"]
        assert (await client.call("relay")).json["result"]["content"][0]["text"] == "in "
        client.headers["mcp-session-id"] = "unknown"
        assert (await client.call("relay")).status == 404
        del client.headers["mcp-session-id"]
        assert (await client.call("relay")).status == 400


@pytest.mark.req("SHTTP-01", "ERA-12", "VER-07")
@everywhere
async def test_server_of_one_era_has_no_sessions(serve: Serve) -> None:
    async with serve(server_of(ONE_ERA), HttpOptions(resumable=False)) as wire:
        client = RawClient(wire)
        assert (await client.listen()).status == 405
        assert (await client.end()).status == 405
        hello = await client.initialize()
        assert said(hello) == (400, -32602)
        assert (await relayed().to(client)).status == 200


@pytest.mark.req("SHTTP-02")
@everywhere
async def test_page_of_another_origin_is_refused(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions()) as wire:
        client = RawClient(wire)
        post = relayed()
        post.fields["origin"] = "https://evil.example"
        assert (await post.to(client)).status == 403
        del post.fields["origin"]
        assert (await post.to(client)).status == 200


@pytest.mark.req("HDR-05")
def test_tool_whose_annotation_breaks_a_rule_is_refused() -> None:
    server = Server("bad", "1")
    schema = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    with pytest.raises(ValueError, match=r"tool\(\), input schema: the property 'a': x-mcp-header is for string"):

        @server.tool(input_schema=schema)
        def tool(a: float) -> str:
            return ""


@pytest.mark.req("HTTP-02")
@everywhere
async def test_page_may_send_the_fields(serve: Serve) -> None:
    async with serve(server_of(), HttpOptions(cors=Cors())) as wire:
        asked = "content-type, Mcp-Param-Region, mcp-param-a b, mcp-method,mcp-param-region, x-other"
        fields = {"origin": "http://a.example", "access-control-request-method": "POST"}
        answer = await wire.ask("OPTIONS", "/mcp", {**fields, "access-control-request-headers": asked}, b"")
        assert answer.status == 204
        allowed = answer.headers["access-control-allow-headers"].split(", ")
        assert {"mcp-method", "mcp-name", "mcp-protocol-version"} <= set(allowed)
        assert allowed[-2:] == ["mcp-param-region", "mcp-param-a"]
        answer = await wire.ask("OPTIONS", "/mcp", fields, b"")
        assert "mcp-param" not in answer.headers["access-control-allow-headers"]


@pytest.mark.req("SHTTP-05")
@everywhere
async def test_subscription_is_a_stream_from_its_acknowledgement_on(serve: Serve) -> None:
    server = server_of()
    async with serve(server, HttpOptions()) as wire:
        exchange = await Post("subscriptions/listen", notifications={"toolsListChanged": True}).to(RawClient(wire))
        assert (exchange.status, exchange.headers["content-type"], exchange.is_over) == (200, STREAM, False)
        assert [message["method"] for message in exchange.new_messages()] == [
            "notifications/subscriptions/acknowledged"
        ]
        server.tools.disable("tell")
        await wire.settle()
        await wire.pass_time(1)
        (change,) = exchange.new_messages()
        assert change["method"] == "notifications/tools/list_changed"
        assert change["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 7
        await wire.leave(exchange)


# At the machine


@pytest.mark.req("SHTTP-01", "ENV-04")
def test_nothing_is_left_after_an_answer() -> None:
    site = Site(engine=TWO_ERAS)
    for id in range(3):
        post = Post("tools/call", id, name="x")
        response = post_to(site, post)
        assert engine_of(site).serving == 1
        site.answer(site.requests()[-1])
        assert (response.status, response.json["id"]) == (200, id)
        assert not engine_of(site).is_serving
    assert site.kinds() == ["RequestReceived"] * 3
    assert site.machine._ledger.total == 0
    assert site.machine.next_deadline() is None
    assert post_to(site, Post("tools/nothing")).status == 404
    assert site.kinds() == []  # no handler hears of it


@pytest.mark.req("HDR-01", "HDR-03")
@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
def test_field_given_twice_is_refused(name: str) -> None:
    site, post = Site(engine=TWO_ERAS), Post(name="x")
    fields = {"content-type": "application/json", "accept": "application/json, text/event-stream", **post.fields}
    given = [(key.encode(), value.encode()) for key, value in fields.items()]
    given.append((name.encode(), post.fields[name].encode()))
    exchange = site.machine.serve(RequestHead(99, "POST", "/mcp", given), json.dumps(post.body).encode(), 0.0)
    site.settle()
    answer = site.machine.answer_of(exchange)
    assert answer is not None
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32020)


@pytest.mark.req("SHTTP-04")
def test_listening_needs_a_client_that_takes_streams() -> None:
    site = Site(HttpOptions(strict_accept=False), engine=TWO_ERAS)
    post = Post("subscriptions/listen", notifications={})
    assert post_to(site, post, accept="application/json").status == 406


@pytest.mark.req("SHTTP-01")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_other_methods_of_a_stateless_revision_are_refused_with_the_reason(method: str) -> None:
    response = Site(engine=TWO_ERAS).ask(method, accept="text/event-stream", mcp_protocol_version="2026-07-28")
    said = f"Invalid request: {method} is for sessions, and 2026-07-28 has none: only POST"
    assert (response.status, response.json["error"]["message"]) == (400, said)


def end_overloaded(site: Site) -> None:
    ledger = site.machine._ledger
    ledger.limit = 1
    ledger.settle(other := object(), 2, lambda _: None)
    ledger.settle(other, 0, lambda _: None)


def end_slow(site: Site) -> None:
    calls = calls_of(site)
    (call,) = calls._waiting.values()
    calls.cut(call)


def end_closing(site: Site) -> None:
    site.machine.close(0.0, 0.0)
    site.machine.handle_timeout(0.0)


@pytest.mark.req("SHTTP-09")
@pytest.mark.parametrize(
    ("end", "status", "message"),
    [
        (end_overloaded, 503, "Service unavailable: too much is held for clients"),
        (end_slow, 503, "Service unavailable: too much is held for clients"),
        (end_closing, 503, "Service unavailable: the server is closing"),
    ],
)
def test_request_that_is_cut_off_is_not_answered_as_by_an_older_server(
    end: Callable[[Site], None], status: int, message: str
) -> None:
    site = Site(engine=TWO_ERAS)
    response = post_to(site, Post(name="x"))
    end(site)
    site.settle()
    assert (response.status, response.json["error"]["message"]) == (status, message)
    assert site.kinds()[:2] == ["RequestReceived", "CancelReceived"]
    assert not engine_of(site).is_serving
    assert site.machine._ledger.total == 0


def test_client_that_leaves_cancels_its_request_once() -> None:
    site = Site(engine=TWO_ERAS)
    response = post_to(site, Post(name="x"))
    (event,) = site.requests()
    site.reset(response, OSError("gone"))
    assert site.kinds() == ["RequestReceived", "CancelReceived"]
    site.reset(response)
    engine_of(site).send_result(event.id, CallToolResult(()))  # too late, and dropped
    site.settle()
    assert (site.kinds(), response.status, engine_of(site).serving) == ([], 0, 0)


def test_requests_are_limited_in_number() -> None:
    site = Site(
        HttpOptions(), limits=Limits(exchanges=2), engine=Options(revisions=REVISIONS, limits=Limits(exchanges=2))
    )
    answers = [post_to(site, Post("tools/call", id, name="x")) for id in range(3)]
    assert [answer.status for answer in answers] == [0, 0, 503]


def test_handler_of_a_disconnected_client_gives_way_to_a_request() -> None:
    site = Site(HttpOptions(sessions=False), limits=Limits(exchanges=1), engine=TWO_ERAS)
    exchange, _ = site.call(None, mcp_protocol_version="2025-11-25")
    (session,) = site.machine.sessions
    assert post_to(site, Post(name="x")).status == 503
    site.reset(exchange)
    assert post_to(site, Post(name="x")).status == 0
    assert session not in site.machine.sessions


def test_closing_server_answers_running_requests() -> None:
    site = Site(engine=TWO_ERAS)
    post = Post(name="x")
    running = post_to(site, post)
    fields = [(name.encode(), value.encode()) for name, value in post.fields.items()]
    usual = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    late = site._responses[98] = Exchange()
    site.machine.receive(RequestHead(98, "POST", "/mcp", [*usual, *fields]), 0.0)
    site.machine.close(0.0, 5.0)
    site.answer(site.requests()[-1])
    assert running.status == 200
    site.machine.receive(Body(98, json.dumps(post.body).encode()), 0.0)
    site.machine.receive(End(98), 0.0)
    site.settle()
    assert late.status == 503


def test_stored_session_is_found_for_a_request_without_a_version() -> None:
    store = MemorySessionStore()
    first = Site(store=store, engine=TWO_ERAS)
    session = first.open("2025-03-26")
    first.machine.close(0.0, 0.0)
    first.settle()
    second = Site(store=store, engine=TWO_ERAS, first_id=50)
    answer, event = second.call(session)
    second.answer(event)
    assert answer.status == 200
