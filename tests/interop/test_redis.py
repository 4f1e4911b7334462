"""Stores of tasks that processes share: what each promises, in memory and in Redis."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

import anyio
import coredis.exceptions
import pytest
import trio
import trio.testing
from redis_server import redis_server
from shared_tasks import SharedShelf, Shelf, changed, delete, put

from mcpio import Context
from mcpio.app.changes import Changed
from mcpio.app.runtime import settled
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.tasks import StoredTask, TaskLimits
from mcpio.errors import ConnectFailed
from mcpio.stores.redis import RedisStore
from mcpio.trio import memory_client
from mcpio.types import CallToolRequest

LONG_AGO, LATER = 1.0, 4e9

_prefixes = (f"test{number}:" for number in itertools.count())

# coredis leaves the streams inside of its connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect garbage while its warnings are ignored."""
    yield
    gc.collect()


Check = Callable[[Any, Any], Awaitable[None]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as found:
        yield found


@pytest.fixture(params=["memory", "redis on trio", "redis on asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Check], None]:
    """Return what runs a check with the ways of two processes to one store."""
    if request.param == "memory":
        shelf = Shelf()
        return lambda check: trio.run(check, SharedShelf(shelf), SharedShelf(shelf))
    url, prefix = request.getfixturevalue("url"), next(_prefixes)

    async def with_redis(check: Check) -> None:
        async with RedisStore(url, prefix=prefix) as one, RedisStore(url, prefix=prefix) as other:
            await check(one, other)

    if request.param.endswith("trio"):
        return lambda check: trio.run(with_redis, check)
    return lambda check: asyncio.run(with_redis(check))


def test_task_is_stored_and_read_by_any_process(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        assert await changed(one, put("a", b"one"))
        assert await settled(other.fetch("a")) == StoredTask("a", b"one", None, 1)
        assert await changed(one, put("a", b"\x00two", b"result", lease=None))
        assert await settled(other.fetch("a")) == StoredTask("a", b"\x00two", b"result", 2)
        assert await settled(one.fetch("b")) is None

    run(check)


def test_summary_of_a_task_is_without_its_result(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        assert await settled(other.summary("a")) is None
        await changed(one, put("a", b"one"))
        await settled(one.answer("a", {"x": b"\x00"}))
        await changed(one, put("a", b"two", b"result", lease=None))
        assert await settled(other.summary("a")) == StoredTask("a", b"two", None, 2, {"x": b"\x00"})
        assert await settled(other.fetch("a")) == StoredTask("a", b"two", b"result", 2, {"x": b"\x00"})

    run(check)


def test_only_the_process_with_the_lease_writes_and_deletes(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        await changed(one, put("a", b"one"))
        assert not await changed(other, put("a", b"two"))
        await delete(other, "a")
        assert (await settled(one.fetch("a"))).record == b"one"
        await delete(one, "a")
        await delete(one, "a")
        assert await settled(one.fetch("a")) is None
        await changed(one, put("b", b"over", b"result", lease=None))
        await delete(other, "b")
        assert await settled(one.fetch("b")) is None

    run(check)


def test_finished_task_has_no_owner_and_keeps_its_result(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        await changed(one, put("a", b"one", b"result", lease=None))
        assert await changed(one, put("a", b"one", b"result", lease=None)), "the first answer may have got lost"
        for process in (one, other):
            assert not await changed(process, put("a", b"two"))
            assert await settled(process.adopt(30.0)) == []
        assert (await settled(one.fetch("a"))).payload == b"result"
        assert list(await settled(one.renew(["a"], 30.0))) == ["a"]

    run(check)


def test_end_compares_the_version_and_breaks_the_lease(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        await changed(one, put("a", b"one"))
        assert not await settled(other.end("a", 2, b"wrong"))
        assert not await settled(other.end("b", 1, b"unknown"))
        assert await settled(other.end("a", 1, b"ended"))
        assert await settled(one.fetch("a")) == StoredTask("a", b"ended", None, 2)
        assert not await changed(one, put("a", b"late"))

    run(check)


def test_first_answer_to_each_question_is_kept(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        await changed(one, put("a"))
        await settled(other.answer("a", {"x": b"1", "y": b"2"}))
        await settled(one.answer("a", {"x": b"3", "z": b"\x00"}))
        await settled(one.answer("b", {"x": b"1"}))
        assert (await settled(one.fetch("a"))).answers == {"x": b"1", "y": b"2", "z": b"\x00"}
        assert await settled(one.fetch("b")) is None

    run(check)


def test_renewal_names_the_tasks_that_are_lost(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        await changed(one, put("a"))
        await changed(other, put("b"))
        assert list(await settled(one.renew(["a", "b", "c"], 30.0))) == ["b", "c"]

    run(check)


def test_expired_lease_is_taken_over_once(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        await changed(one, put("a", b"one", lease=0.0))
        await changed(one, put("b"))
        assert list(await settled(other.adopt(30.0))) == [StoredTask("a", b"one", None, 1)]
        assert await settled(one.adopt(30.0)) == []
        assert await changed(other, put("a", b"two"))
        assert list(await settled(one.renew(["a", "b"], 30.0))) == ["a"]

    run(check)


def test_owner_finds_own_tasks(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        for key, owner in (("a", "ada"), ("b", 7), ("c", "7"), ("d", None)):
            await changed(one, put(key, owner=owner))
        await changed(other, put("e", owner="ada", expires=LATER))
        found = {owner: sorted(each.key for each in await settled(other.owned(owner))) for owner in ("ada", 7, "7")}
        assert found == {"ada": ["a", "e"], 7: ["b"], "7": ["c"]}
        assert await settled(other.owned(None)) == []
        await delete(one, "a")
        assert [each.key for each in await settled(one.owned("ada"))] == ["e"]

    run(check)


def test_list_of_an_owner_reads_no_results(url: str) -> None:
    async def main() -> None:
        async with RedisStore(url, prefix=next(_prefixes)) as store:
            await changed(store, put("a", b"ended", b"result", owner="ada", lease=None))
            assert await store.owned("ada") == [StoredTask("a", b"ended", None, 1)]

    trio.run(main)


@pytest.mark.parametrize("damage", ["no record", "no version", "a word for a version", "another type"])
def test_damaged_task_costs_no_other(url: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    prefix = next(_prefixes)
    key = f"{prefix}task:b"

    async def main() -> None:
        async with RedisStore(url, prefix=prefix) as one, RedisStore(url, prefix=prefix) as other:
            for each in "abc":
                await changed(one, put(each, owner="ada", lease=0))
            match damage:
                case "no record":
                    await one._client.hdel(key, ["record"])
                case "no version":
                    await one._client.hdel(key, ["version"])
                case "a word for a version":
                    await one._client.hset(key, {"version": "many"})
                case _:
                    await one._client.set(key, "text")
            assert await other.fetch("b") is None
            assert sorted(each.key for each in await other.owned("ada")) == ["a", "c"]
            assert sorted(each.key for each in await other.adopt(30.0)) == ["a", "c"]
            assert await other.adopt(30.0) == []

    trio.run(main)
    (line,) = caplog.messages
    assert line.startswith("the task b in Redis at ")
    assert line.endswith(" is damaged: it was given up")


def test_every_process_is_signalled_about_changed_tasks(run: Callable[[Check], None]) -> None:
    async def check(one: Any, other: Any) -> None:
        seen: list[str] = []
        told = one.subscribe(seen.append), other.subscribe(seen.append)
        await changed(one, put("a"))
        await settled(other.end("a", 1, b"{}"))
        await changed(one, put("b"))
        await delete(one, "b")
        await _until(lambda: len(seen) == 8)
        assert sorted(seen) == ["a"] * 4 + ["b"] * 4
        for end in told:
            end()

    run(check)


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for what another task of the event loop brings about."""
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # Redis answers when it wants to
            await anyio.sleep(0.001)


# The bus of changes


CHANGES = (Changed("tools"), Changed("updated", "file:///a", ("file:///",)))


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_changes_reach_every_process(url: str, backend: str) -> None:
    prefix = next(_prefixes)

    async def main() -> None:
        async with RedisStore(url, prefix=prefix) as one, RedisStore(url, prefix=prefix) as other:
            here: list[Changed] = []
            there: list[Changed] = []
            ends = one.changes.subscribe(here.append), other.changes.subscribe(there.append)
            await one._client.publish(f"{prefix}changes", '{"kind": "weather"}')
            await one._client.publish(f"{prefix}changes", "?")
            for change in CHANGES:
                one.changes.publish(change)
                one.changes.publish(change)
            await _until(lambda: len(here) == len(there) == 2)
            assert tuple(here) == tuple(there) == CHANGES
            ends[0]()
            ends[0]()
            other.changes.publish(Changed("prompts"))
            await _until(lambda: len(there) == 3)
            assert len(here) == 2

    anyio.run(main, backend=backend)


def test_changes_from_before_the_store_is_open_wait_up_to_a_bound(url: str) -> None:
    store, heard = RedisStore(url, prefix=next(_prefixes)), list[Changed]()
    store.changes.subscribe(heard.append)
    for number in range(5000):
        store.changes.publish(Changed("updated", f"file:///{number}"))

    async def main() -> None:
        async with store:
            await _until(lambda: len(heard) == 4096)

    trio.run(main)
    assert heard[0].uri == "file:///904"


def test_change_that_cannot_be_sent_is_sent_later() -> None:
    async def main() -> None:
        changes, sent = RedisStore().changes, list[str]()

        async def publish(text: str) -> None:
            sent.append(text)
            if len(sent) == 1:
                raise coredis.exceptions.ConnectionError("away")

        changes.publish(Changed("tools"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes.send, publish)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        assert len(sent) == 2

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# Redis alone


def in_redis(url: str, check: Callable[[RedisStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with RedisStore(url, prefix=next(_prefixes)) as store:
            await check(store)

    trio.run(main)


def test_redis_forgets_expired_tasks(url: str) -> None:
    async def check(store: RedisStore) -> None:
        await changed(store, put("a", owner="ada", expires=LONG_AGO))
        assert await store.fetch("a") is None
        assert await store.owned("ada") == []
        await changed(store, put("b", owner="ada", expires=LATER))
        await changed(store, put("c", owner="ada", expires=LONG_AGO, lease=0.0))
        assert [each.key for each in await store.owned("ada")] == ["b"]
        assert await store.adopt(30.0) == []
        await store._client.delete([f"{store._prefix}task:b"])
        assert await store.owned("ada") == []

    in_redis(url, check)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_redis_that_is_not_there_is_an_error_on_opening(backend: str) -> None:
    async def main() -> None:
        store = RedisStore("redis://user:secret@127.0.0.1:1/2")
        for _ in range(2):
            with pytest.raises(ConnectFailed, match=r"Redis at redis://127\.0\.0\.1:1/2 cannot be used: "):
                async with store:
                    pass

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_store_waits_for_redis_if_told_to(backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def main() -> None:
        store, opened = RedisStore(f"redis://127.0.0.1:{port}", wait=60.0), anyio.Event()

        async def use() -> None:
            async with store:
                await changed(store, put("a"))
                opened.set()

        async with anyio.create_task_group() as group:
            group.start_soon(use)
            await anyio.sleep(0.5)
            assert not opened.is_set()
            with redis_server(port):
                with anyio.fail_after(20):
                    await opened.wait()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("seconds", [-7200.0, -30.0, 0.0, 30.0, 7200.0])
def test_clock_of_redis_decides_about_expiry(
    url: str, seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)

    async def main() -> None:
        async with RedisStore(url, prefix=next(_prefixes)) as store:
            assert abs(store.clock_offset + seconds) < 0.5
            limits = TaskLimits(max_ttl=60.0)
            server = Server("mine", tasks=TaskOptions(store=store, poll_interval=0.05, limits=limits))
            server.tool(lambda: "done", name="dig", task_support="required")
            async with memory_client(server) as client:
                task = await client.start_task(CallToolRequest("dig"))
                assert (await task.result()).text == "done"
                left = await store._client.pttl(f"{store._prefix}task:{task.id}")
                assert 30_000 < left <= 60_000

    trio.run(main)
    lines = [record.getMessage() for record in caplog.records if "the clock of Redis" in record.getMessage()]
    assert len(lines) == (seconds != 0)
    assert all(f"{abs(seconds):.0f}" in line and "127.0.0.1" in line for line in lines)


# Outages


class Line:
    """Passes connections to Redis on, holds their bytes, or lets them die silently. Runs on either event loop."""

    def __init__(self, url: str) -> None:
        self._to = int(url.rpartition(":")[2])
        self._connections: list[dict[str, bool]] = []
        self.is_held = False
        self.port = 0

    def kill_silently(self) -> None:
        """Pass nothing on in the connections that there are, without closing them."""
        for connection in self._connections:
            connection["dead"] = True

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
            task_status.started()
            await listener.serve(self._pass_on)

    async def _pass_on(self, near: anyio.abc.SocketStream) -> None:
        state = {"dead": False}
        self._connections.append(state)
        far = await anyio.connect_tcp("127.0.0.1", self._to)
        async with near, far, anyio.create_task_group() as group:
            group.start_soon(self._pump, near, far, state)
            group.start_soon(self._pump, far, near, state)

    async def _pump(self, source: anyio.abc.SocketStream, sink: anyio.abc.SocketStream, state: dict[str, bool]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            while True:
                data = await source.receive()
                while self.is_held or state["dead"]:  # noqa: ASYNC110  # for longer than most tests last
                    await anyio.sleep(0.01)
                await sink.send(data)
        for stream in (source, sink):
            await anyio.aclose_forcefully(stream)


def over_a_line(url: str, backend: str, check: Callable[[Line, RedisStore, RedisStore], Awaitable[None]]) -> None:
    """Run a check with a store behind a line, and one that is not."""
    prefix = next(_prefixes)

    async def main() -> None:
        line = Line(url)
        async with anyio.create_task_group() as group:
            await group.start(line.serve)
            behind = RedisStore(f"redis://127.0.0.1:{line.port}", prefix=prefix, lease=1.5)
            async with behind, RedisStore(url, prefix=prefix, lease=1.5) as direct:
                await check(line, behind, direct)
            group.cancel_scope.cancel()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_commands_time_out_and_work_again(url: str, backend: str) -> None:
    async def check(line: Line, store: RedisStore, other: RedisStore) -> None:
        await changed(store, put("a"))
        line.is_held = True
        for _ in range(3):
            with anyio.fail_after(5), pytest.raises((TimeoutError, coredis.exceptions.RedisError)):
                await store.fetch("a")
        heard: list[Changed] = []
        store.changes.subscribe(heard.append)
        line.is_held = False
        with anyio.fail_after(5):
            assert await store.fetch("a") is not None
        # The bus has its own connection again, so it takes none that a command leaves in the pool.
        await _until(lambda: Changed("anything") in heard)
        assert await store.fetch("a") is not None
        line.kill_silently()
        with pytest.raises((TimeoutError, coredis.exceptions.RedisError)):
            await store.fetch("a")
        assert await store.fetch("a") is not None, "over another connection"

    over_a_line(url, backend, check)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_bus_that_died_silently_is_replaced_and_changes_are_taken_for_missed(url: str, backend: str) -> None:
    async def check(line: Line, store: RedisStore, other: RedisStore) -> None:
        heard: list[Changed] = []
        keys: list[str | None] = []
        store.changes.subscribe(heard.append)
        store.subscribe(keys.append)
        other.changes.publish(CHANGES[0])
        await _until(lambda: heard == [CHANGES[0]])
        line.kill_silently()
        other.changes.publish(CHANGES[1])
        await _until(lambda: len(heard) > 1)
        assert (heard[1], keys[-1]) == (Changed("anything"), None)
        other.changes.publish(CHANGES[1])
        await _until(lambda: heard[2:] == [CHANGES[1]])

    over_a_line(url, backend, check)


def test_leases_that_nobody_could_renew_have_a_grace(url: str) -> None:
    async def check(line: Line, one: RedisStore, other: RedisStore) -> None:
        await changed(one, put("a", lease=0.3))
        await changed(one, put("given up", lease=0.0))
        assert await one.renew(["a"], 0.3) == []
        await anyio.sleep(0.5)  # as Redis sees it, nobody renewed
        assert [task.key for task in await other.adopt(0.3)] == ["given up"]
        await delete(other, "given up")
        assert await one.renew(["a"], 0.3) == [], "whoever still runs it has it"
        for _ in range(4):
            await anyio.sleep(0.1)
            await other.renew([], 0.3)
        assert [task.key for task in await other.adopt(0.3)] == ["a"]

    over_a_line(url, "trio", check)


def test_closed_redis_store_says_so(url: str) -> None:
    store = RedisStore(url)
    with pytest.raises(RuntimeError, match="async with store"):
        trio.run(store.fetch, "a")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "30", True])
@pytest.mark.parametrize("name", ["lease", "timeout", "wait"])
def test_invalid_time_is_refused(name: str, seconds: Any) -> None:
    if (name, seconds) == ("wait", 0):
        seconds = None
    options: dict[str, Any] = {name: seconds}
    with pytest.raises(ValueError, match=f"{name} must be a number of seconds"):
        RedisStore(**options)


def test_redis_store_listens_again_after_its_connection_broke(url: str) -> None:
    async def check(store: RedisStore) -> None:
        seen: list[str | None] = []
        store.subscribe(seen.append)
        assert await store._client.client_kill(type_=coredis.PureToken.PUBSUB) == 1
        with trio.fail_after(20):
            # First that any task may have changed, then what is heard again.
            while seen[:1] != [None] or "a" not in seen:
                await changed(store, put("a"))
                await trio.sleep(0.01)

    in_redis(url, check)


# Servers


def test_servers_share_tasks_through_redis(url: str) -> None:
    prefix = next(_prefixes)
    ended: list[str] = []

    async def main() -> None:
        gate = trio.Event()

        def mine(store: RedisStore) -> Server:
            server = Server("mine", tasks=TaskOptions(store=store, poll_interval=0.05), changes=store.changes)

            @server.tool(task_support="required")
            async def dig(depth: int) -> str:
                try:
                    await gate.wait()
                except BaseException:
                    ended.append("cancelled")
                    raise
                return f"{depth} m"

            return server

        async with (
            RedisStore(url, prefix=prefix) as one,
            RedisStore(url, prefix=prefix) as other,
            memory_client(mine(one)) as here,
            memory_client(mine(other)) as there,
        ):
            first = await here.start_task(CallToolRequest("dig", {"depth": 1}))
            second = await here.start_task(CallToolRequest("dig", {"depth": 2}))
            assert (await there.get_task(first.id)).status == "working"
            assert (await there.cancel_task(first.id)).status == "cancelled"
            await _until(lambda: ended == ["cancelled"])
            gate.set()
            assert (await there.task(second.id).result()).text == "2 m"
            assert (await here.get_task(first.id)).status == "cancelled"

    trio.run(main)


@pytest.mark.parametrize("on_lapse", ["cancel", "continue"])
def test_server_that_is_cut_off_stops_its_work_before_another_begins_it(
    url: str, on_lapse: Literal["cancel", "continue"], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def mine(name: str, store: RedisStore) -> Server:
        server = Server("mine", tasks=TaskOptions(store=store, poll_interval=0.05, on_lapse=on_lapse))

        @server.tool(task_support="required", resume=True)
        async def dig(ctx: Context) -> str:
            seen.append(f"{name} begins")
            try:
                while ctx.task is not None and ctx.task.is_leased:
                    await ctx.sleep(0.01)
            except BaseException:
                seen.append(f"{name} is cancelled")
                raise
            seen.append(f"{name} asks, and stops")
            return "stopped"

        return server

    async def check(line: Line, behind: RedisStore, other: RedisStore) -> None:
        async with memory_client(mine("first", behind)) as here, memory_client(mine("second", other)) as there:
            task = await here.start_task(CallToolRequest("dig"))
            await _until(lambda: seen == ["first begins"])
            line.is_held = True
            await _until(lambda: len(seen) == 3)
            line.is_held = False
            await _until(lambda: "was stopped here: another process has taken it over" in caplog.text)
            assert (await there.get_task(task.id)).status == "working"
            await there.cancel_task(task.id)

    over_a_line(url, "trio", check)
    if on_lapse == "cancel":
        assert seen[:3] == ["first begins", "first is cancelled", "second begins"]
    else:  # When the handler asks is up to the machine.
        assert sorted(seen[:3]) == ["first asks, and stops", "first begins", "second begins"]
    assert caplog.text.count("tasks whose leases have ended") == 1


@pytest.mark.parametrize("resumes", [True, False])
def test_live_servers_keep_their_tasks_when_redis_was_away_for_longer_than_a_lease(url: str, resumes: bool) -> None:
    prefix, seen = next(_prefixes), list[str]()

    def mine(name: str, store: RedisStore, goes_on: trio.Event) -> Server:
        server = Server("mine", tasks=TaskOptions(store=store, poll_interval=0.05, on_lapse="continue"))

        @server.tool(task_support="required", resume=resumes)
        async def dig() -> str:
            seen.append(name)
            await goes_on.wait()
            return name

        return server

    async def main() -> None:
        during, after = trio.Event(), trio.Event()
        async with (
            RedisStore(url, prefix=prefix, lease=1.5) as one,
            RedisStore(url, prefix=prefix, lease=1.5) as other,
            memory_client(mine("one", one, during)) as here,
            memory_client(mine("other", other, after)) as there,
        ):
            first = await here.start_task(CallToolRequest("dig"))
            second = await there.start_task(CallToolRequest("dig"))
            await _until(lambda: seen == ["one", "other"])
            await one._client.client_pause(4000)
            await trio.sleep(0.5)
            during.set()
            await trio.sleep(5)
            after.set()
            assert (await there.task(first.id).result()).text == "one", "what ended meanwhile is stored"
            assert (await here.task(second.id).result()).text == "other"
        assert seen == ["one", "other"]

    trio.run(main)
