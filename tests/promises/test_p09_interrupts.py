"""P9: a Ctrl-C, a callback, the body or a cancellation ends a program with a client or a server: it does not hang."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from carriers import CARRIERS
from interrupted import KINDS, Interruption, Open, asking_server, converse, round_trip, served

from mcpio import Client, Context, McpError, Server
from mcpio.asyncio import connect, open_streams
from mcpio.http import HttpClientOptions
from mcpio.trio import memory_client
from mcpio.trio._event_loop import TrioEventLoop

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="processes and sockets of POSIX"),
    pytest.mark.timeout(40),
]

IS_SHORT = bool(os.environ.get("MCPIO_BREAKAGE"))
"""Whether the library is broken on purpose, which a twentieth of the points shows as well."""

MOMENTS = 2 if IS_SHORT else 16
"""How many steps of a conversation are tried, out of one hundred to two thousand."""

EVERY = 20 if IS_SHORT else 1
"""One of how many places in the code is tried."""

FORMS = ["open", "connect"]


@contextmanager
def ended_by(kind: type[BaseException]) -> Iterator[None]:
    """Check that an exception ends a program; calls in flight may fail beside it in the test's nursery."""
    try:
        yield
    except kind:
        return
    except BaseExceptionGroup as group:
        ending, others = group.split(kind)
        assert ending is not None
        assert others is None or others.split(McpError)[1] is None
        return
    raise AssertionError("the program went on")


def conversation(opens: Open) -> Callable[[], Any]:
    async def main() -> None:
        async with opens(roots=()) as client:
            await converse(client)

    return main


def end_by_ctrl_c(main: Callable[[], Any], moments: Callable[[Interruption], Sequence[int]]) -> None:
    """Run a program again and again, and end it at each of the moments of a whole run."""
    trio.run(main)  # imports and caches are not part of the steps
    with Interruption() as whole:
        trio.run(main)
    reached, tried = 0, moments(whole)
    for at in tried:
        with Interruption(at) as interruption, ended_by(KeyboardInterrupt):
            trio.run(main)
            if interruption.calls < at:  # conversations differ in length
                raise KeyboardInterrupt
        reached += interruption.calls == at
    assert reached > len(tried) // 2
    gc.collect()  # what was left open is reported now


# For instance between the call of an async function and the start of its task.
never_awaited = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@never_awaited
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_at_any_step_ends_the_program(kind: str, tmp_path: Path) -> None:
    with served(kind, tmp_path) as (_, connects):
        end_by_ctrl_c(conversation(connects), lambda whole: range(1, whole.calls, whole.calls // MOMENTS))


@never_awaited
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_in_every_place_ends_the_program(kind: str, tmp_path: Path) -> None:
    with served(kind, tmp_path) as (opens, _):
        end_by_ctrl_c(conversation(opens), lambda whole: list(whole.places.values())[::EVERY])


# A server

SOCKETS = [(kind, era) for kind in ("tcp", "unix", "http", "websocket") for era in ("handshake", "stateless")]


@never_awaited
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kind", "era"), SOCKETS)
def test_ctrl_c_in_any_place_ends_a_server(kind: str, era: str, tmp_path: Path) -> None:
    """It closes all that it opened, so that a client, in another thread, ends as well."""
    carrier = CARRIERS[kind]
    assert carrier is not None
    options: dict[str, Any] = {"http": HttpClientOptions(reconnect_tries=0)} if kind == "http" else {}
    threads: list[threading.Thread] = []

    async def talk(at: Any) -> None:
        with trio.fail_after(20):
            try:
                async with trio.open_nursery() as nursery:
                    client = await carrier.connect(at, tmp_path)(nursery=nursery, era=era, roots=(), **options)
                    await converse(client)
                    await client.aclose()
            except* McpError:
                pass

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            serve = partial(carrier.serve, asking_server(), grace=0.2, **carrier.where(tmp_path))
            at = await nursery.start(serve)
            thread = threading.Thread(target=trio.run, args=(talk, at), daemon=True)
            threads.append(thread)
            thread.start()
            await trio.to_thread.run_sync(thread.join, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()

    end_by_ctrl_c(main, lambda whole: list(whole.places.values())[:: 10 * EVERY])
    for each in threads:
        each.join(30)
        assert not each.is_alive()


@pytest.mark.parametrize("method", ["abort", "abandon"])
def test_cancellation_does_not_replace_the_exit_that_a_stream_is_closed_for(method: str) -> None:
    async def main() -> None:
        stream, _ = trio.testing.memory_stream_pair()
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                sys.exit(3)
            finally:
                await getattr(TrioEventLoop(), method)(stream)

    with pytest.raises(SystemExit):
        trio.run(main)


# Functions of users


def interrupt(reached: list[str]) -> None:
    signal.raise_signal(signal.SIGINT)
    reached.append("the line after")


OF_USERS = {
    "tool": "plain",
    "async tool": "waiting",
    "task": "task",
    "callback": "asking",
    "async callback": "asking",
    "lifespan": "plain",
}
"""By what is interrupted, the tool to call."""


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize(("where", "tool"), OF_USERS.items())
def test_ctrl_c_in_a_function_of_users_is_raised_at_once(where: str, tool: str, era: Any) -> None:
    reached: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        if where == "lifespan":
            interrupt(reached)
        yield

    server = Server("interrupted", "1.0", lifespan=lifespan)

    @server.tool
    def plain() -> None:
        interrupt(reached)

    @server.tool
    async def waiting() -> None:
        await trio.lowlevel.checkpoint()
        interrupt(reached)

    @server.tool(task_support="required")
    async def task() -> None:
        await trio.lowlevel.checkpoint()
        interrupt(reached)

    @server.tool
    async def asking(ctx: Context) -> None:
        await ctx.roots()

    def roots() -> Any:
        interrupt(reached)

    async def roots_later() -> Any:
        await trio.lowlevel.checkpoint()
        interrupt(reached)

    async def main() -> None:
        answer = roots_later if where == "async callback" else roots
        async with memory_client(server, roots=answer, era=era) as client:
            await client.call_tool(tool)

    with ended_by(KeyboardInterrupt):
        trio.run(main)
    assert reached == []


def in_roots(error: BaseException) -> dict[str, Any]:
    def roots() -> Any:
        raise error

    return {"roots": roots}


def in_progress(error: BaseException) -> dict[str, Any]:
    def on_progress(*_: object) -> None:
        raise error

    return {"on_progress": on_progress}


def in_waiting_roots(error: BaseException) -> dict[str, Any]:
    async def roots() -> Any:
        await trio.lowlevel.checkpoint()
        raise error

    return {"roots": roots}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("callback", [in_roots, in_progress, in_waiting_roots])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_base_exception_from_callback_ends_the_program(
    kind: str, form: str, callback: Callable[[BaseException], dict[str, Any]], error: BaseException, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"roots": (), **callback(error)}
    on_progress = given.pop("on_progress", lambda *_: None)

    async def main() -> None:
        async with opens(**given) as client:
            await converse(client, on_progress)

    with served(kind, tmp_path) as both:
        opens = both[FORMS.index(form)]
        with ended_by(type(error)):
            trio.run(main)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_base_exception_from_stderr_callback_ends_program_and_child(error: BaseException, tmp_path: Path) -> None:
    pids: list[int] = []

    def stderr(_: str) -> None:
        raise error

    async def main() -> None:
        async with opens(roots=(), stderr=stderr) as client:
            pids.append(client.child.pid)  # type: ignore[attr-defined]  # it is a StdioClient
            await converse(client)

    with served("stdio", tmp_path) as (opens, _), pytest.raises(type(error)):
        trio.run(main)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_base_exception_from_body_ends_the_program(kind: str, error: BaseException, tmp_path: Path) -> None:
    async def main() -> None:
        async with opens(roots=()) as client, trio.open_nursery() as nursery:
            nursery.start_soon(converse, client)
            await round_trip(client)
            raise error

    with served(kind, tmp_path) as (opens, _), ended_by(type(error)):
        trio.run(main)


class Cancelling(trio.abc.Instrument):
    """Cancels a scope at the n-th step of any task."""

    def __init__(self, at: int = 0) -> None:
        self.steps = 0
        self.scope = trio.CancelScope()
        self._at = at

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self._at:
            self.scope.cancel()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_cancellation_at_any_step_ends_the_program(kind: str, form: str, tmp_path: Path) -> None:
    with served(kind, tmp_path) as both:
        inner = conversation(both[FORMS.index(form)])

        async def main(cancelling: Cancelling) -> None:
            with cancelling.scope:
                await inner()

        whole = Cancelling()
        trio.run(main, whole, instruments=[whole])
        for at in range(1, whole.steps, max(1, whole.steps // MOMENTS)):
            cancelling = Cancelling(at)
            trio.run(main, cancelling, instruments=[cancelling])


@pytest.mark.parametrize("kind", KINDS)
def test_real_ctrl_c_ends_a_busy_program(kind: str, tmp_path: Path) -> None:
    """Send SIGINT at random moments: in the event loop or in the middle of any call."""
    program = f"import interrupted; interrupted.be_interrupted({kind!r}, {str(tmp_path)!r}, {MOMENTS})"
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        timeout=30,
        check=True,
    )
    assert done.stdout.split() == [b"%d" % each for each in range(MOMENTS)]


# On asyncio


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["a callback", "a waiting callback", "the body", "a cancellation"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_base_exception_ends_an_asyncio_program(where: str, form: str, error: BaseException, tmp_path: Path) -> None:
    def roots() -> Any:
        raise error

    async def roots_later() -> Any:
        await asyncio.sleep(0)
        raise error

    given: Any = {"a callback": roots, "a waiting callback": roots_later}.get(where, ())

    async def talk(client: Client) -> None:
        asking = asyncio.ensure_future(client.call_tool("ask"))
        if where == "the body":
            await round_trip(client)
            raise error
        if where == "a cancellation":
            await round_trip(client)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asking

    async def main() -> None:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        if form == "open":
            async with open_streams(reader, writer, roots=given) as client:
                await talk(client)
        else:
            client = await connect(reader, writer, roots=given)
            await talk(client)

    expected: type[BaseException] = asyncio.CancelledError if where == "a cancellation" else type(error)
    with served("unix", tmp_path), pytest.raises(expected):
        asyncio.run(main())
