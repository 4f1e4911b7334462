"""Requests of an ASGI application: handlers, disconnects, cancellations, slow clients, and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
import trio
from asgiserved import Served, raw
from asgiwire import Called, EventLoop, as_call
from httpwire import RawClient

from mcpio.asgi._server import AsgiServer
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.http.model import HttpOptions, Reset

# The life of a call


def test_immediate_answer_starts_no_task(loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        served = Served(loop)
        monkeypatch.setattr(AsgiServer, "_drain", None)  # where tasks would begin
        await served.client.initialize()
        assert (await served.client.call("echo", text="x")).json["result"]["content"][0]["text"] == "x"
        assert [message["type"] for message in served.wire.calls[-1].messages] == [
            "http.response.start",
            "http.response.body",
        ]
        await served.client.end()
        served.assert_nothing_is_left()

    loop.run(main)


def test_whole_answer_says_that_it_is_the_last_part(loop: EventLoop) -> None:
    # ASGI lets that be left out, but middleware reads it.
    async def main() -> None:
        served = Served(loop)
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        headers = {"content-type": "application/json", "accept": "*/*"}
        await served.client.initialize()
        call = await served.wire.begin("POST", "/mcp", headers | served.client.headers, [body])
        assert [message.get("more_body") for message in call.messages] == [None, False]
        await served.client.end()
        served.assert_nothing_is_left()

    loop.run(main)


def statuses(call: Called) -> list[int]:
    """Return the statuses of a call; each response ends, whether or not its client reads it."""
    starts = [message["status"] for message in call.messages if message["type"] == "http.response.start"]
    assert [message.get("more_body") for message in call.messages if "body" in message].count(False) == len(starts)
    return starts


@pytest.mark.req("HTTP-24", "RESUME-01", "RESUME-03")
def test_handler_survives_a_disconnect_within_its_request(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop, http=HttpOptions(answers="sse"))
        await served.client.initialize()
        call = as_call(await served.client.call("wait"))
        call.new_events()
        seen = call.last_event_id
        await served.wire.leave(call)
        assert not call.returned()
        served.go_on.set()
        await loop.settle()
        assert call.returned()
        assert served.seen == ["begun", "done"]
        (answer,) = (await served.client.listen(last_event_id=seen or "")).new_messages()
        assert answer["result"]["content"][0]["text"] == "waited"
        served.assert_nothing_is_left()

    loop.run(main)


@pytest.mark.req("HTTP-19")
def test_disconnect_before_the_body_ends_drops_the_request(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        headers = {"content-type": "application/json", "accept": "*/*"} | served.client.headers
        call = await served.wire.begin("POST", "/mcp", headers, [b'{"jsonrpc":"2.0",'], is_slow=True)
        await served.wire.leave(call)
        assert (call.returned(), call.raised, statuses(call)) == (True, None, [400])
        served.assert_nothing_is_left()

    loop.run(main)


def test_disconnect_while_listening_ends_the_request(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        call = as_call(await served.client.listen())
        assert not call.returned()
        await served.wire.leave(call)
        assert (call.returned(), call.raised) == (True, None)
        served.assert_nothing_is_left()

    loop.run(main)


@pytest.mark.req("HTTP-14")
def test_early_rejection_stops_reading_the_body(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop, options=Options(limits=Limits(message_bytes=1000)))
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        call = await served.wire.begin("POST", "/mcp", headers, [b"x" * 600] * 4, is_slow=True)
        assert (call.status, call.returned()) == (413, True)
        # Its length says it all; more of the body is taken and passed over while the answer goes out.
        for length in ("2000", "9" * 5000):
            announced = headers | {"content-length": length}
            call = await served.wire.begin("POST", "/mcp", announced, [], is_slow=True)
            assert (call.status, call.returned(), call.raised) == (413, True, None)
        served.assert_nothing_is_left()

    loop.run(main)


def test_client_that_expects_to_be_told_to_go_on_is_refused_before_its_body(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        headers = {"accept": "text/html", "content-length": "2", "expect": "100-continue"}
        call = await served.wire.begin("POST", "/mcp", headers, [], is_slow=True)
        assert (call.status, call.returned(), call.raised) == (406, True, None)
        assert call.receives == 0  # at which ASGI servers send 100 Continue
        served.assert_nothing_is_left()

    loop.run(main)


def test_client_that_leaves_before_its_body_gets_nothing(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        headers = {"content-type": "application/json", "content-length": "2"}
        call = await served.wire.begin("POST", "/mcp", headers, [], is_slow=True)
        await served.wire.leave(call)
        assert (call.returned(), call.raised, statuses(call)) == (True, None, [400])
        served.assert_nothing_is_left()

    loop.run(main)


def test_client_that_leaves_before_its_answer_gets_an_empty_one(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        waiting = as_call(await served.client.call("wait"))
        await served.wire.leave(waiting)
        assert (waiting.returned(), waiting.messages) == (False, [])  # the handler goes on, for the client to resume
        served.go_on.set()
        await loop.settle()
        assert (waiting.returned(), waiting.raised, statuses(waiting)) == (True, None, [204])
        listening = as_call(await served.client.listen())
        await served.wire.leave(listening)
        assert [message["status"] for message in listening.messages if "status" in message] == [200]
        served.assert_nothing_is_left()

    loop.run(main)


def test_unread_answer_that_cannot_be_sent_is_no_fault(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        headers = {"content-type": "application/json", "content-length": "2"}
        call = await served.wire.begin("POST", "/mcp", headers, [], is_slow=True, refuses=OSError("gone"))
        await served.wire.leave(call)
        assert (call.returned(), call.raised) == (True, None)
        served.assert_nothing_is_left()

    loop.run(main)


@pytest.mark.parametrize("ending", ["comes", "stalls", "leaves"])
def test_short_body_of_a_refused_request_is_dropped_before_the_answer(loop: EventLoop, ending: str) -> None:
    async def main() -> None:
        served = Served(loop)
        headers = {"accept": "text/html", "content-length": "60000"}
        call = await served.wire.begin("POST", "/mcp", headers, [b"x" * 30000], is_slow=True)
        assert (call.messages, call.returned()) == ([], False)
        if ending == "comes":
            await call.send_more(b"x" * 10000, b"x" * 20000, b"")
        elif ending == "leaves":
            await served.wire.leave(call)
            assert (call.returned(), call.raised, statuses(call)) == (True, None, [400])
            return
        else:
            await served.wire.pass_time(0.9)
            assert call.messages == []
            await served.wire.pass_time(0.2)
        assert (call.status, call.returned(), call.raised, statuses(call)) == (406, True, None, [406])
        served.assert_nothing_is_left()

    loop.run(main)


def test_body_in_pieces_with_empty_ones_is_joined(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        params = b'{"name":"echo","arguments":{"text":"' + b"y" * 5000 + b'"}}'
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}"
        pieces = [body[at : at + 100] for at in range(0, len(body), 100)]
        pieces[3:3] = [b"", b""]
        call = await served.wire.begin("POST", "/mcp", headers | served.client.headers, pieces)
        assert call.json["result"]["content"][0]["text"] == "y" * 5000

    loop.run(main)


def test_head_request_gets_no_body(loop: EventLoop) -> None:
    async def main() -> None:
        call = await Served(loop).wire.begin("HEAD", "/nowhere", {}, [b""])
        assert (call.status, call.data, call.is_over) == (404, b"", True)
        assert int(call.headers["content-length"]) > 0

    loop.run(main)


def test_header_names_are_case_insensitive(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        served.client.headers = {name.title(): value for name, value in served.client.headers.items()}
        assert (await served.client.call("echo", text="x")).status == 200

    loop.run(main)


# Clients that read slowly, or not at all


@pytest.mark.parametrize("error", [OSError("gone"), ConnectionResetError()])
def test_os_error_of_send_counts_as_disconnect(loop: EventLoop, error: OSError) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{}}}'
        for tool in (b"wait", b"none"):
            call = await served.wire.begin(
                "POST", "/mcp", headers | served.client.headers, [body % tool], refuses=error
            )
            await served.wire.pass_time(1)
            assert call.returned() is (tool == b"none")
        served.go_on.set()
        await loop.settle()
        assert [call.raised for call in served.wire.calls] == [None] * 4
        assert served.seen == ["begun", "done"]
        served.assert_nothing_is_left()

    loop.run(main)


def test_other_error_of_send_propagates_and_fails_the_request(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        call = as_call(await served.client.call("wait"))
        call.refuses = ValueError("of the server")
        await served.wire.pass_time(1)
        assert call.raised is call.refuses
        assert call.returned()
        assert served.seen == ["begun", "cancelled"]
        (session,) = served.server.sessions
        assert session.connection.pending.incoming == ()
        served.assert_nothing_is_left()

    loop.run(main)


@pytest.mark.req("LOG-06")
def test_stalled_client_delays_no_other(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop, http=HttpOptions(answers="sse"), options=Options(limits=Limits(logs_per_second=0)))
        await served.client.initialize()
        other = RawClient(served.wire)
        await other.initialize()
        call = as_call(await served.client.call("wait"))
        call.stop_reading()
        flooded = as_call(await served.client.call("flood", id=2, pieces=3))
        assert flooded.is_over
        assert (await other.call("echo", text="x")).is_over
        served.go_on.set()
        await loop.settle()
        assert not call.over()
        call.read_on()
        await loop.settle()
        assert call.is_over
        assert call.new_messages()[-1]["result"]["content"][0]["text"] == "waited"
        served.assert_nothing_is_left()

    loop.run(main)


# Cancellation


@pytest.mark.req("HTTP-24")
def test_cancelled_request_ends_its_handlers_with_an_error_to_fetch(
    loop: EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        served = Served(loop, http=HttpOptions(answers="sse"))
        await served.client.initialize()
        call, other = as_call(await served.client.call("wait")), as_call(await served.client.call("wait", id=2))
        call.new_events()
        seen = call.last_event_id
        call.cancel()
        await loop.settle()
        assert isinstance(call.raised, trio.Cancelled | asyncio.CancelledError)
        assert call.returned()
        assert served.seen == ["begun", "begun", "cancelled"]
        (answer,) = (await served.client.listen(last_event_id=seen or "")).new_messages()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        served.go_on.set()
        await loop.settle()
        assert other.is_over
        served.assert_nothing_is_left()

    loop.run(main)
    assert caplog.records == []


def test_handler_not_yet_started_is_answered_when_its_request_is_cancelled(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        head = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}'
        call = Called(loop, served.wire.calls[0].scope | {"headers": raw(head | served.client.headers)}, [body])
        call.run_in(_cancelling(served, call))
        await loop.settle()
        assert call.returned()
        (session,) = served.server.sessions
        assert session.connection.pending.incoming == ()
        assert session._running == {}
        served.assert_nothing_is_left()

    loop.run(main)


def _cancelling(served: Served, call: Called) -> Any:
    """Return the application with the call cancelled in the very turn in which the request is complete."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        async def receive_and_cancel() -> Any:
            message = await receive()
            call.cancel()
            return message

        await served.application(scope, receive_and_cancel, send)

    return application


# Deadlines


@pytest.mark.req("HTTP-22")
def test_one_open_request_watches_all_deadlines(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop, http=HttpOptions(sse_after=0.5, keep_alive=15))
        await served.client.initialize()
        first, second = as_call(await served.client.listen()), as_call(await served.client.call("wait"))
        watch = served.asgi_server._watch
        assert watch._sleeper is not None
        assert list(watch._watching) == [served.asgi_server._requests[3], served.asgi_server._requests[4]]
        await served.wire.pass_time(1)
        assert second.status == 200
        await served.wire.leave(first)  # the one that watched
        assert list(watch._watching) == [served.asgi_server._requests[4]]
        second.new_events()
        before = len(second.data)
        await served.wire.pass_time(20)
        assert second.data[before:].startswith(b":")
        served.go_on.set()
        await loop.settle()
        assert second.is_over
        served.assert_nothing_is_left()

    loop.run(main)


def test_request_without_a_client_still_watches_deadlines(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop, http=HttpOptions(answers="sse"))
        await served.client.initialize()
        served.began = loop.now()
        gone = as_call(await served.client.call("ask"))
        await served.wire.leave(gone)
        await served.wire.pass_time(4)
        assert not gone.returned()
        await served.wire.pass_time(2)
        assert gone.returned()
        assert served.seen == ["asked until 5"]
        served.assert_nothing_is_left()

    loop.run(main)


@pytest.mark.req("SESS-07")
def test_expired_sessions_end_at_the_next_request(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop, http=HttpOptions(session_idle=60))
        await served.client.initialize()
        await served.wire.pass_time(100)
        assert len(served.server.sessions) == 1
        await RawClient(served.wire).initialize()
        assert len(served.server.sessions) == 1
        assert (await served.client.call("echo", text="x")).status == 404

    loop.run(main)


def test_sessions_expire_on_time_within_a_lifespan(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop, http=HttpOptions(session_idle=60))
        async with served.application.lifespan():
            await served.client.initialize()
            await served.wire.pass_time(100)
            assert served.server.sessions == ()
        served.assert_nothing_is_left()

    loop.run(main)


# What nobody acts for


def test_work_outside_requests_runs_in_an_open_or_the_next_request(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        seen: list[str] = []

        async def note(what: str) -> None:
            try:
                await loop.sleep(0)
            finally:
                seen.append(what)

        await served.client.initialize()
        runtime = served.server.sessions[0].driver.runtime
        runtime.spawn(note("in the next"))
        runtime.spawn(note("cancelled before")).cancel()
        runtime.call_later(5, lambda: seen.append("later"))
        runtime.call_later(5, lambda: seen.append("never")).cancel()
        await served.wire.pass_time(10)
        assert seen == []
        listening = as_call(await served.client.listen())
        assert sorted(seen) == ["cancelled before", "in the next", "later"]
        runtime.spawn(note("in one that is open"))
        runtime.call_later(1, lambda: seen.append("in time"))
        await served.wire.pass_time(2)
        assert seen[3:] == ["in one that is open", "in time"]
        await served.wire.leave(listening)
        assert listening.returned()
        served.assert_nothing_is_left()

    loop.run(main)


def test_store_work_does_not_wait_for_a_slow_body(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        runtime = served.server.sessions[0].driver.runtime
        over = loop.event()

        async def work() -> None:
            over.set()

        runtime.spawn(work())
        headers = {"content-type": "application/json", "accept": "*/*"} | served.client.headers
        call = await served.wire.begin("POST", "/mcp", headers, [b"{"], is_slow=True)
        assert over.is_set()
        assert not call.returned()
        await served.wire.leave(call)
        served.assert_nothing_is_left()

    loop.run(main)


def test_aborted_response_raises_for_the_server(loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        served = Served(loop)
        monkeypatch.setattr(served.asgi_server._host, "responses_to_send", lambda exchange: [Reset(exchange)])
        call = await served.wire.ask("GET", "/nowhere", {}, b"")
        assert isinstance(call.raised, ConnectionAbortedError)

    loop.run(main)


@pytest.mark.parametrize("is_at_the_end", [False, True])
def test_handler_that_does_not_end_with_its_session_is_named(
    loop: EventLoop, is_at_the_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def named() -> list[str]:
        return [text for record in caplog.records if "does not end" in (text := record.getMessage())]

    async def main() -> None:
        served = Served(loop)

        @served.server.tool
        async def stubborn() -> None:
            while not named():
                shield = trio.CancelScope(shield=True) if loop.name == "trio" else contextlib.nullcontext()
                with contextlib.suppress(BaseException), shield:
                    await loop.sleep(0.1)

        async with served.application.lifespan():
            await served.client.initialize()
            await served.client.call("stubborn")
            await served.client.call("wait", 2)
            if not is_at_the_end:
                await served.client.end()
                assert named() == []
                await loop.sleep(3)
                assert len(named()) == 1

    loop.run(main)
    assert named() == [
        "the handler of tools/call 'stubborn' does not end when it is cancelled, and keeps what serves it from ending"
    ]
