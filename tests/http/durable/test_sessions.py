"""Sessions that outlive the process: a server is killed wherever it may be, and the next one goes on (P4, P12)."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from httpsite import BOTH, initialize, note, tool_call
from httpwire import Exchange, MemoryWire, RawClient
from keptsite import KeptSite

from mcpio import Context, Server
from mcpio.app.session_store import MemorySessionStore
from mcpio.engine.limits import Limits
from mcpio.errors import RequestError
from mcpio.framing.sse import ServerSentEvent
from mcpio.http.model import Body, HttpOptions
from mcpio.http.sessions import SessionSave
from mcpio.testing import ManualRuntime


class Killed(BaseException):
    """The process ends here."""


class FatalStore(MemorySessionStore):
    """Kills the process before the n-th call, or right after it."""

    def __init__(self, inner: MemorySessionStore, *, at: int = 1 << 30, after: bool = False) -> None:
        super().__init__()
        self._records, self._events = inner._records, inner._events
        self.calls = 0
        self._at = at
        self._after = after
        self.is_failing = self.is_dead = False

    def _call(self, function: Callable[..., Any], argument: Any) -> Any:
        self.calls += 1
        if self.is_dead:
            return None
        if self.is_failing:
            raise OSError("the disk is full")
        if self.calls == self._at and not self._after:
            raise Killed
        found = function(argument)
        if self.calls == self._at:
            raise Killed
        return found

    def session(self, key: str) -> Any:
        return self._call(super().session, key)

    def write(self, changes: Any) -> None:
        self._call(super().write, changes)


class LateStore(FatalStore):
    """Answers a turn later, as if it were in a thread."""

    blocking = True


def steady_server() -> Server:
    server = Server("steady", "1")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        for number in range(count):
            await ctx.session.driver.runtime.sleep(1.0)
            ctx.progress(number + 1, count)
        return f"{count} steps"

    @server.resource("memo://note")
    def note() -> str:
        return "text"

    return server


def play(steps: Any) -> Any:
    """Run what never waits for an event loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("something waits for what an event loop must give")


def process(store: Any, *, unanswered: str = "fail", **options: Any) -> MemoryWire:
    """Return a server as a new process has it: no two draw the same ids."""
    runtime = ManualRuntime()
    for _ in range(next(PROCESSES)):
        runtime.entropy(8)
    wire = MemoryWire(steady_server(), HttpOptions(**options), runtime=runtime, store=store, unanswered=unanswered)

    def send(number: Any) -> None:
        for item in wire.host.responses_to_send(number):
            wire.exchanges[number].take(item)

    # What may go out goes at once: whatever should have waited for the store is found out.
    wire.host._on_ready = send
    return wire


PROCESSES = itertools.count(0, 10)


def in_next(store: Any, client: RawClient, **more: Any) -> RawClient:
    """Return the same client, with a new process."""
    return RawClient(process(store, **more), client.path, client.headers)


# Going on


@pytest.mark.parametrize("make", [FatalStore, LateStore], ids=["at once", "late"])
def test_session_continues_in_the_next_process(make: Any) -> None:
    async def case() -> None:
        store = make(MemorySessionStore())
        client = RawClient(process(store))
        await client.initialize()
        subscribe = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "memo://note"}}
        assert (await client.post(subscribe)).status == 200
        client = in_next(store, client)
        assert (await client.call("echo", text="again")).json["result"]["content"][0]["text"] == "again"
        (session,) = client.wire.host.machine.sessions  # type: ignore[attr-defined]  # a wire in memory
        served = client.wire.host._sessions[session.key].session  # type: ignore[attr-defined]  # as above
        assert served.subscriptions == ("memo://note",)

    play(case())


@pytest.mark.parametrize("make", [FatalStore, LateStore], ids=["at once", "late"])
@pytest.mark.parametrize("policy", ["fail", "again"])
def test_stream_continues_in_the_next_process(make: Any, policy: str) -> None:
    async def case() -> None:
        store = make(MemorySessionStore())
        client = RawClient(process(store))
        await client.initialize()
        answer = await client.call("steps", progress="p", count=3)
        await client.wire.pass_time(1.5)
        assert [each["params"]["progress"] for each in answer.new_messages()] == [1]
        seen = answer.last_event_id
        client = in_next(store, client, unanswered=policy)
        rest = await client.listen(last_event_id=seen or "")
        assert rest.status == 200
        await client.wire.pass_time(10)
        messages = rest.new_messages()
        assert rest.is_over
        if policy == "fail":
            (failed,) = messages
            assert (failed["id"], failed["error"]["data"]) == (1, {"reason": "interrupted"})
        else:
            # What was reported before does not come again: progress only grows.
            assert [each.get("params", {}).get("progress", each.get("result")) for each in messages][:2] == [2, 3]
            assert messages[-1]["result"]["content"][0]["text"] == "3 steps"
        # It is over now, and the next process knows that too.
        client = in_next(store, client, unanswered=policy)
        late = await client.listen(last_event_id=rest.last_event_id or "")
        assert (late.is_over, late.new_messages()) == (True, [])

    play(case())


async def conversation(client: RawClient, seen: dict[str, Exchange]) -> None:
    """Talk to a server in all ways, and note what came of it as far as it gets."""
    await client.initialize()
    seen["listening"] = await client.listen()
    seen["first"] = await client.call("steps", id="first", progress=1, count=2)
    seen["second"] = await client.call("steps", id="second", progress=2, count=3)
    await client.wire.pass_time(1.2)
    seen["quick"] = await client.call("echo", id="quick", text="x")
    await client.wire.pass_time(1.2)
    client.wire.server.tool(lambda: None, name="new")  # type: ignore[attr-defined]  # a wire in memory
    await client.wire.pass_time(5)


@pytest.mark.long
@pytest.mark.req("RESUME-03", "RESUME-04")
def test_each_request_has_one_outcome_after_a_kill_at_any_point() -> None:
    whole = FatalStore(MemorySessionStore())
    wire = process(whole)
    play(conversation(RawClient(wire), {}))
    end(wire, whole)
    assert whole.calls > 12
    for make in (FatalStore, LateStore):
        for call in range(1, whole.calls + 4):
            for after in (False, True):
                for policy in ("fail", "again"):
                    killed_at(make, call, policy, after=after)


def end(wire: MemoryWire, store: FatalStore) -> None:
    """Clear away what a dead process left."""
    store.is_dead = True
    wire.host.close(0)
    wire.run()


def killed_at(make: Any, call: int, policy: str, *, after: bool) -> None:
    disk = MemorySessionStore()
    store = make(disk, at=call, after=after)
    wire = process(store)
    client = RawClient(wire)
    exchanges: dict[str, Exchange] = {}
    with contextlib.suppress(Killed):
        play(conversation(client, exchanges))
    # A client has what came before, of the exchange in which the process died too.
    cut = {f"cut {number}": each for number, each in wire.exchanges.items() if each not in exchanges.values()}
    streams = {
        name: (each.is_over, each.new_events())
        for name, each in (exchanges | cut).items()
        if each.headers.get("content-type") == "text/event-stream"
    }
    names = [each.headers["mcp-session-id"] for each in wire.exchanges.values() if "mcp-session-id" in each.headers]
    disk = copy.deepcopy(disk)
    end(wire, store)
    for name in names:
        next_store = FatalStore(disk)
        again = RawClient(process(next_store, unanswered=policy), client.path, {"mcp-session-id": name})
        assert play(again.call("echo", text="there")).status == 200
        for is_over, events in streams.values():
            play(resumed(again, is_over, events))
        assert again.wire.reports == []  # type: ignore[attr-defined]  # a wire in memory
        end(again.wire, next_store)  # type: ignore[arg-type]  # as above


async def resumed(client: RawClient, is_over: bool, events: list[ServerSentEvent]) -> None:
    """Resume a stream, and see that it is whole."""
    rest: list[ServerSentEvent] = []
    ids = [event.id for event in events if event.id]
    is_listening = not ids or ids[0].startswith("0-")
    if ids and not is_over:
        exchange = await client.listen(last_event_id=ids[-1])
        assert exchange.status == 200
        await client.wire.pass_time(10)
        assert exchange.is_over or is_listening
        rest = exchange.new_events()
        ids += [event.id for event in rest if event.id]
    assert [id.partition("-")[2] for id in ids] == [str(place + 1) for place in range(len(ids))]
    answers = [message for message in (json.loads(each.data) for each in events + rest if each.data) if "id" in message]
    assert len(answers) == (0 if is_listening else 1)


# Its life


def test_session_is_found_until_it_is_deleted() -> None:
    site = KeptSite(options=HttpOptions(session_idle=100))
    session = site.open()
    assert site.listen("ab" * 16).status == 404
    site.listen(session)
    site.said()
    site.advance(210)
    assert "Save" in site.said()
    site.is_late = True
    ended = site.ask("DELETE", mcp_session_id=session)
    assert ended.status == 0
    site.answer_store()
    assert (ended.status, site.listen(session).status) == (204, 0)
    site.answer_store()
    assert site.machine.sessions == ()


def test_used_session_of_an_unstorable_principal_is_not_stored() -> None:
    site = KeptSite(options=HttpOptions(session_idle=100))
    session = site.open(principal=("a", "tuple"))
    site.listen(session, principal=("a", "tuple"))
    site.said()
    site.advance(210)
    assert "Save" not in site.said()
    assert len(site.machine.sessions) == 1


def test_idle_session_expires_in_the_store_too() -> None:
    site = KeptSite(options=HttpOptions(session_idle=100))
    site.open()
    site.advance(101)
    assert (site.machine.sessions, len(site.store)) == ((), 0)


def test_a_session_whose_client_reads_nothing_ends() -> None:
    site = KeptSite(limits=Limits(queued_bytes=1600))
    session = site.open()
    exchange, event = busy(site, session)
    site.stalled.add(site.name(exchange))
    for value in (2, 3, 4):
        assert len(site.machine.sessions) == 1
        site.session().connection.send_progress(event.id, value, message="x" * 400)
        site.touch(site.session())
    site.advance(100)
    assert (site.machine.sessions, site.listen(session).status) == ((), 404)


def test_failed_store_refuses_new_sessions_and_unreadable_ones_are_not_found() -> None:
    site = KeptSite()
    site.error = OSError("the disk is full")
    assert site.post(initialize()).status == 503
    assert (site.listen("ab" * 16).status, site.machine.sessions) == (503, ())
    site.error = None
    session = site.open()
    site.store.write([SessionSave(0, session, BROKEN, 1000, (), ())])
    site = site.next_process()
    assert site.listen(session).status == 404
    assert site.reports == ["a stored session cannot be taken up: no engine"]


def test_a_session_outlives_a_store_that_fails_for_a_while() -> None:
    site = KeptSite()
    session = site.open()
    site.error = OSError("the disk is full")
    exchange, event = site.call(session)
    assert site.post({"jsonrpc": "2.0", "id": 2, "method": "ping"}, session).status == 503
    site.answer(event)
    assert exchange.status == 0
    site.error = None
    site.advance(10)
    assert (exchange.status, exchange.json["id"], len(site.machine.sessions)) == (200, 1, 1)


def test_failed_write_is_due_before_the_later_deadlines_of_the_server() -> None:
    site = KeptSite(options=HttpOptions(session_idle=1000))
    session = site.open()
    site.error = OSError("the disk is full")
    site.call(session)
    due = site.machine.next_deadline()
    assert due is not None
    assert due < 60


BROKEN = b'{"format":1,"owner":null,"next_stream":1,"streams":[],"saved":{}}'


# A server that ends in order


def busy(site: KeptSite, session: str) -> tuple[Exchange, Any]:
    """Call a tool that has something to report: a stream begins."""
    exchange = site.post(tool_call(1, progressToken=1), session)
    event = site.requests()[-1]
    site.session(session).connection.send_progress(event.id, 1)
    site.touch(site.session(session))
    return exchange, event


def unfinished(site: KeptSite, session: str) -> Exchange:
    """Begin a POST whose body is yet to come. Its version says that it belongs to the session."""
    fields = {"mcp_session_id": session, "mcp_protocol_version": "2025-11-25"}
    return site.ask("POST", body=None, content_type="application/json", accept=BOTH, **fields)


def test_closing_server_leaves_its_sessions_to_the_next_process() -> None:
    site = KeptSite()
    idle, session = site.open(), site.open()
    listener = site.listen(session)
    exchange, event = busy(site, session)
    quick, other = site.call(session, 2)
    half = unfinished(site, session)
    site.machine.close(site.now, 5.0)
    site.settle()
    # Whoever listens is to come to the next; what runs may be answered; nothing new begins.
    assert (listener.is_over, exchange.is_over, [each.id for each in site.machine.sessions]) == (True, False, [session])
    assert site.listen(session).status == 503
    site.answer(other)
    assert quick.status == 200
    site.answer(event)
    assert exchange.is_over
    site.complete(half, json.dumps(note("roots/list_changed")).encode())
    assert half.status == 202
    assert site.machine.closed
    following = site.next_process()
    assert [following.listen(name).status for name in (idle, session)] == [200, 200]
    assert following.session(session).connection.unanswered == ()


def test_requests_beyond_the_grace_are_left_to_the_next_process() -> None:
    site = KeptSite(options=HttpOptions(sse_after=None))
    session = site.open()
    exchange, event = busy(site, session)
    last = exchange.new_events()[-1].id
    quick, other = site.call(session, 2)
    half = unfinished(site, session)
    site.machine.close(site.now, 5.0)
    site.settle()
    site.advance(4)
    site.is_late = True
    site.session().connection.send_progress(event.id, 2)
    site.touch(site.session())
    site.answer(other)
    assert (quick.status, len(site.machine.sessions)) == (0, 1)
    site.advance(1)
    assert site.machine.sessions == ()
    # 404 would make the client begin anew.
    assert (quick.status, exchange.is_over, exchange.new_events()) == (503, True, [])
    site.complete(half, b"{}")
    assert half.status == 503
    site = site.next_process()
    rest = site.listen(session, last)
    (running,) = site.session().connection.unanswered
    site.session().connection.send_error(running.id, RequestError(-32603, "interrupted"))
    site.touch(site.session())
    assert [each["id"] for each in rest.new_messages()] == [1]


def test_closing_server_without_a_grace_limit_waits() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = busy(site, session)
    site.machine.close(site.now, None)
    site.settle()
    site.advance(100)
    assert len(site.machine.sessions) == 1
    site.answer(event)
    assert (exchange.is_over, site.machine.closed) == (True, True)


def test_sessions_that_are_not_stored_end_with_the_server() -> None:
    site = KeptSite(options=HttpOptions(legacy=("/sse", "/messages")))
    site.open(principal=("a", "tuple"))
    legacy = site.ask("GET", "/sse", accept="text/event-stream")
    assert site.said() == ["Sweep"]
    site.machine.close(site.now, 0)
    site.settle()
    site.advance(1)
    assert (legacy.is_over, site.machine.closed) == (True, True)


# Taking up


def test_stored_session_beyond_the_limit_gets_503() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process(limits=Limits(sessions=1))
    _, event = site.call(site.open())
    assert site.listen(session).status == 503
    site.answer(event)
    assert site.listen(session).status == 200


def test_stored_session_is_not_restored_while_memory_is_short() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process(limits=Limits(total_bytes=400 * 1024))
    site.is_late = True
    exchange = site.listen(session)
    half = unfinished(site, "ab" * 16)
    site.machine.receive(Body(site.name(half), b" " * 360 * 1024), site.now)
    site.settle()
    site.answer_store()
    assert exchange.status == 503
    assert site.machine.sessions == ()


def test_session_loaded_while_the_server_closes_is_not_restored() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process()
    site.is_late = True
    exchange = site.listen(session)
    site.machine.close(site.now)
    site.answer_store()
    assert (exchange.status, site.machine.sessions) == (503, ())


def test_requests_of_unresumable_streams_are_not_repeated() -> None:
    site = KeptSite()
    session = site.open()
    site.call(session, "in one piece")
    busy(site, session)
    site = site.next_process()
    site.post(note("x"), session)
    assert [each.id for each in site.session().connection.unanswered] == [2]


@pytest.mark.req("RESUME-01")
def test_restored_session_continues_its_event_numbers() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = busy(site, session)
    site.answer(event)
    ids = {each.id for each in exchange.new_events()}
    for _ in range(3):
        site = site.next_process()
        exchange, event = busy(site, session)
        site.answer(event)
        again = {each.id for each in exchange.new_events()}
        assert (len(again), again & ids) == (3, set())
        ids |= again


@pytest.mark.parametrize("options", [{"resumable": False}, {"listening": False}, {"sessions": False}])
def test_options_that_exclude_a_store_raise(options: Any) -> None:
    with pytest.raises(ValueError, match="options of a server with a store must allow"):
        KeptSite(options=HttpOptions(**options))
