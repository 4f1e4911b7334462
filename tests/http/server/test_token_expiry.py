"""What a client's token and its scopes mean for streams that are gone, resumed, or of 2024-11-05; and secrets."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
from httpsaid import log, said
from httpsite import Site
from httpwire import InMemory, RawClient, Serve
from protectedsites import bearer, notes, protected, token

from mcpio import Context, Server
from mcpio.auth import Grant, Guard
from mcpio.http.model import HttpOptions


def in_memory(case: Any) -> Any:
    def test() -> None:
        InMemory().run(case)

    test.__name__ = case.__name__
    return test


@in_memory
async def test_token_of_a_client_that_left_ends_nothing(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected()) as wire:
        client = RawClient(wire, headers=bearer(lasts=40.0))
        await client.initialize()
        await wire.leave(await client.listen())
        await wire.pass_time(60)
        client.headers |= bearer(lasts=400.0)
        assert (await client.call("who")).status == 200


@in_memory
async def test_key_that_never_expires_ends_no_stream(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected()) as wire:
        client = RawClient(wire, headers={"x-api-key": "mcp_key"})
        await client.initialize()
        stream = await client.listen()
        await wire.pass_time(1000)
        assert not stream.is_over


def test_stream_of_a_token_that_never_expires_outlives_an_earlier_token() -> None:
    site = Site()
    site.machine.epoch = 0.0
    session = site.open(principal=Grant(None, "ada"))
    streams = []
    for expires_at in (40.0, None):
        grant = Grant(None, "ada", expires_at=expires_at)
        streams.append(site.ask("GET", principal=grant, accept="text/event-stream", mcp_session_id=session))
    site.advance(60)
    assert [each.is_over for each in streams] == [True, False]


def test_stream_of_a_token_that_has_just_expired_lasts_a_second() -> None:
    site = Site()
    site.machine.epoch = 0.0
    session = site.open(principal=Grant(None, "ada"))
    site.advance(40)
    grant = Grant(None, "ada", expires_at=39.75)
    stream = site.ask("GET", principal=grant, accept="text/event-stream", mcp_session_id=session)
    site.advance(0.75)
    assert not stream.is_over
    site.advance(0.5)
    assert stream.is_over


def test_message_that_was_begun_when_a_token_expired_is_finished_and_the_next_one_waits() -> None:
    site = Site()
    site.machine.epoch = 0.0
    grant = Grant(None, "ada", expires_at=40.0)
    session = site.open(principal=grant)
    stream = site.ask("GET", principal=grant, accept="text/event-stream", mcp_session_id=session)
    site.stall(stream)
    begun = "x" * 100_000
    log(site, begun)
    for item in site.machine.responses_to_send(site.name(stream), 10_000):
        stream.take(item)
    site.advance(60)
    log(site, "after")
    site.unstall(stream)
    assert (stream.is_over, said(stream.new_messages())) == (True, [begun])
    stream = site.ask("GET", principal=Grant(None, "ada"), accept="text/event-stream", mcp_session_id=session)
    assert said(stream.new_messages()) == ["after"]


@in_memory
async def test_resumed_answer_is_not_cut_off_by_the_token(serve: Serve) -> None:
    server = notes()

    @server.tool
    async def slow(ctx: Context) -> str:
        ctx.progress(1)
        await ctx.sleep(50)
        return "done"

    async with serve(server, HttpOptions(), auth=protected()) as wire:
        client = RawClient(wire, headers=bearer(lasts=40.0))
        await client.initialize()
        answer = await client.call("slow", progress="p")
        answer.new_events()
        await wire.leave(answer)
        resumed = await client.listen(last_event_id=answer.last_event_id or "")
        gone = await client.listen(last_event_id="99-1")
        await wire.pass_time(60)
        assert resumed.new_messages()[-1]["result"]["content"][0]["text"] == "done"
        assert gone.status == 410


def late_server(seconds: float) -> Server:
    server = Server("s", "1")

    @server.tool
    async def late(ctx: Context) -> str:
        await ctx.sleep(seconds)
        ctx.require_scopes("notes:admin")
        return "done"

    return server


@in_memory
async def test_refusal_for_a_disconnected_client_is_dropped(serve: Serve) -> None:
    async with serve(late_server(0.2), HttpOptions(resumable=False), auth=protected()) as wire:
        client = RawClient(wire, headers=bearer())
        await client.initialize()
        await wire.leave(await client.call("late"))
        await wire.pass_time(1)
        assert (await client.post({"jsonrpc": "2.0", "id": 2, "method": "ping"})).status == 200


@pytest.mark.req("AUTH-34")
@in_memory
async def test_refusal_in_a_session_of_2024_is_an_error_on_its_stream(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(legacy=("/sse", "/messages")), auth=protected()) as wire:
        client = RawClient(wire, path="/sse", headers=bearer())
        stream = await client.listen()
        client.path = f"/{stream.new_events()[0].data}"
        await client.initialize("2024-11-05")
        await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await client.call("erase", 7)).status == 202
        error = stream.new_messages()[-1]["error"]
        assert (error["code"], error["data"]["scope"]) == (1014, "notes:write")


CANARY = "canary5ecret"


@pytest.mark.req("AUTH-38")
def test_tokens_are_in_no_log_representation_or_traceback(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    server = notes()

    @server.tool
    def fails(ctx: Context) -> str:
        said.extend((repr(ctx.grant), repr(ctx.peer), str(ctx.session.connection.snapshot)))
        raise RuntimeError("a fault of the handler")

    async def case(serve: Serve) -> None:
        async with serve(server, HttpOptions(), auth=protected()) as wire:
            valid = {"authorization": f"Bearer {token(jti=CANARY)}"}
            client = RawClient(wire, headers=valid)
            await client.initialize()
            answer = await client.call("fails")
            said.append(answer.data.decode())
            said.extend(repr(each) for each in wire.host.machine.sessions)  # type: ignore[attr-defined]  # in memory
            client.headers["authorization"] = f"Bearer {CANARY}"
            refused = await client.call("who")
            said.extend((refused.data.decode(), repr(refused.headers)))
            said.extend(wire.reports)  # type: ignore[attr-defined]  # as above
            wire.reports.clear()  # type: ignore[attr-defined]  # as above

    with caplog.at_level(logging.DEBUG):
        InMemory().run(case)
    guard = Guard(protected())
    guard.admit("request", [("authorization", f"Bearer {CANARY}")], "/mcp", 0.0)
    said.extend((repr(guard), repr(guard.server), repr(vars(guard))))
    grant = Grant("https://id", "ada", claims={"jti": CANARY}, confirmation={"jkt": CANARY})
    said.extend((repr(grant), str(grant), grant.key))
    said.extend(traceback.format_exception(ValueError(grant)))
    said.extend(record.getMessage() for record in caplog.records)
    assert said
    assert not [each for each in said if CANARY in each]
