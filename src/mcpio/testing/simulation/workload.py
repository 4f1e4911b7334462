"""The server that worlds exercise where no other is given, and what its clients do with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from mcpio.app.asking import Accepted
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.tasks import TaskLimits
from mcpio.errors import RequestError, RequestTimeout, ToolError
from mcpio.testing.simulation.invariants import Planned
from mcpio.testing.simulation.parties import URIS

if TYPE_CHECKING:
    from mcpio.app.listening import Listening
    from mcpio.testing.simulation.parties import Site, Visit

_Perform: TypeAlias = "Callable[[Visit], Awaitable[None]]"


@attrs.frozen
class _Name:
    name: str


def exercised_server(site: Site) -> Server:  # noqa: C901  one small function after another
    """Return a server that does what servers can do: it answers, waits, reports, asks, fails, and has tasks."""
    plan = site.plan
    limits = Limits(sessions=len(plan.parties) + 1, replay_events=64)
    tasks = (
        TaskOptions(store=site.task_store, task_after=1.0, limits=TaskLimits(default_ttl=100.0))
        if plan.processes == 1
        else None
    )
    options = Options(limits=limits)
    server = Server("exercised", "1", options=options, changes=site.bus(), tasks=tasks)

    def answer(token: str, ctx: Context) -> str:
        return f"{token} for {ctx.peer.principal}"

    @server.tool
    def echo(token: str, ctx: Context) -> str:
        return answer(token, ctx)

    @server.tool
    async def work(token: str, steps: int, seconds: float, ctx: Context) -> str:
        for step in range(steps):
            ctx.progress(step, steps, token)
            ctx.info({"act": token, "step": step})
            await ctx.sleep(seconds / steps)
        return answer(token, ctx)

    @server.tool
    async def hang(token: str, ctx: Context) -> str:
        await ctx.sleep(100_000)
        return token

    @server.tool
    async def fail(how: int, ctx: Context) -> str:
        await ctx.sleep(0.01 * how)
        raise (ToolError("planned"), RequestError(-32050, "planned"), Planned())[how % 3]

    @server.tool
    def fail_at_once(how: int) -> str:
        raise (ToolError("planned"), RequestError(-32050, "planned"), Planned())[how % 3]

    @server.tool
    def long(size: int) -> str:
        return "x" * size

    @server.tool
    async def in_thread(token: str, ctx: Context) -> str:
        return await ctx.run_in_thread(partial(answer, token, ctx))

    @server.tool
    async def ask(token: str, ctx: Context) -> str:
        reply = await ctx.elicit("Who are you?", _Name, key=token)
        who = reply.value.name if isinstance(reply, Accepted) else "?"
        return f"{answer(token, ctx)} who is {who}"

    @server.tool
    def touch(uri: str) -> str:
        server.notify_resource_updated(uri)
        return uri

    if tasks is not None:

        @server.tool(task_support="required", resume=True)
        async def job(token: str, seconds: float, owner: str, ctx: Context) -> str:
            await ctx.sleep(seconds)
            return f"{token} for {owner}"

    for uri in URIS:
        server.resource(uri, name=uri)(partial(_contents, uri))
    return server


def _contents(uri: str) -> str:
    return uri


# ----------------------------------------------------------------------------------------------------------------- acts


async def _echo(visit: Visit) -> None:
    visit.check(await visit.call("echo", token=visit.token), visit.own)


async def _work(visit: Visit) -> None:
    seen: list[float] = []

    def progressed(progress: float, total: float | None, message: str | None) -> None:
        visit.check(str(message), visit.token)
        visit.invariants.holds("order", not seen or progress > seen[-1], f"progress {progress} after {seen[-1:]}")
        seen.append(progress)

    arguments: dict[str, Any] = {"token": visit.token, "steps": visit.act.size * 2, "seconds": visit.act.lasts}
    visit.check(await visit.call("work", progressed, **arguments), visit.own)


async def _hang(visit: Visit) -> None:
    await visit.call("hang", token=visit.token)


async def _fail(visit: Visit) -> None:
    tool = "fail" if visit.act.lasts else "fail_at_once"
    try:
        await visit.client.call_tool(tool, {"how": visit.act.size}, timeout=visit.act.timeout)
    except RequestError as error:
        visit.invariants.holds("errors", error.code in (-32050, -32603) or error.is_closing(), f"{error!r:.200}")


async def _long(visit: Visit) -> None:
    size = visit.act.size * 5000
    visit.check(await visit.call("long", size=size), "x" * size)


async def _in_thread(visit: Visit) -> None:
    visit.check(await visit.call("in_thread", token=visit.token), visit.own)


async def _ask(visit: Visit) -> None:
    visit.check(await visit.call("ask", token=visit.token), f"{visit.own} who is {visit.visitor.name}")


async def _job(visit: Visit) -> None:
    if visit.visitor.site.plan.processes > 1:
        return  # the stores of worlds are not shared between processes
    owner = str(visit.visitor.principal)
    answer = await visit.call("job", token=visit.token, seconds=visit.act.lasts, owner=owner)
    visit.check(answer, visit.own)


async def _touch(visit: Visit) -> None:
    visit.check(await visit.call("touch", uri=visit.uri), visit.uri)


async def _lists(visit: Visit) -> None:
    client, timeout = visit.client, visit.act.timeout
    await client.list_tools(timeout=timeout, fresh=True)
    result = await client.read_resource(visit.uri, timeout=timeout)
    visit.check(result.contents[0].text, visit.uri)  # type: ignore[union-attr]  # it is a text


async def _ping(visit: Visit) -> None:
    await visit.client.ping(timeout=visit.act.timeout)


async def _listen(visit: Visit) -> None:
    listening = visit.client.listen(uris=[visit.uri], keep=visit.visitor.party.keeps)
    async with listening:
        visit.visitor.listeners[listening] = visit.uri
        try:
            await visit.visitor.process.sleep(visit.act.lasts)
        finally:
            del visit.visitor.listeners[listening]


async def _keep_listening(visit: Visit) -> None:
    """Listen to the end of the world, beside what else the task does."""
    listening: Listening = visit.client.listen(uris=[visit.uri], keep=visit.visitor.party.keeps)
    await listening.__aenter__()
    visit.visitor.listeners[listening] = visit.uri


async def _subscribe(visit: Visit) -> None:
    await visit.client.subscribe_resource(visit.uri, timeout=visit.act.timeout)


async def _unsubscribe(visit: Visit) -> None:
    await visit.client.unsubscribe_resource(visit.uri, timeout=visit.act.timeout)


async def _close(visit: Visit) -> None:
    await visit.client.aclose(visit.act.lasts)


def _limited(perform: _Perform, calls: int = 1, more: float = 1.0) -> _Perform:
    """Return an act that must end within the timeouts of its calls and some seconds more, once its client is open."""

    async def limited(visit: Visit) -> None:
        act = visit.act
        call = visit.invariants.begin(act.what, visit.visitor.process, calls * act.timeout + act.lasts + more)
        try:
            await perform(visit)
        except RequestTimeout:
            if act.timeout >= _PATIENT and perform is not _hang:
                raise
        finally:
            call.is_over = True

    return limited


_PATIENT: Final = 10.0
"""Seconds of a timeout within which each act but one ends without faults."""

ACTS: Final[dict[str, _Perform]] = {
    "echo": _limited(_echo),
    "work": _limited(_work),
    "hang": _limited(_hang),
    "fail": _limited(_fail),
    "long": _limited(_long),
    "in_thread": _limited(_in_thread),
    "ask": _limited(_ask, 4),  # a stateless server is asked anew with each answer
    "job": _limited(_job, 2, 130.0),  # a call that becomes a task has its timeout twice, after the list of tools
    "touch": _limited(_touch),
    "lists": _limited(_lists, 2),
    "ping": _limited(_ping),
    "listen": _limited(_listen, 1, 130.0),
    "keep_listening": _limited(_keep_listening, 1, 130.0),  # its requests have the timeout of the client
    "subscribe": _limited(_subscribe, 2, 130.0),
    "unsubscribe": _limited(_unsubscribe, 2, 130.0),
    "close": _limited(_close, 0, 12.0),
}
"""What a program may do, by name."""
