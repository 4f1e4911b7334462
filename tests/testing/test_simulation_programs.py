"""Simulated worlds of whole programs: servers and clients on Trio."""

from __future__ import annotations

import gc
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from mcpio import Context, Server
from mcpio.testing.simulation import Act, Faults, Mishap, Outcome, Party, Plan, explore
from mcpio.testing.simulation.__main__ import main
from mcpio.testing.simulation.exploring import run_plan
from mcpio.testing.simulation.parties import Acts, Visit
from mcpio.testing.simulation.trio_world import TrioWorld


@pytest.mark.parametrize("faults", [Faults.none(), Faults.harsh()], ids=["none", "harsh"])
def test_programs_of_the_first_seeds_break_no_invariant(faults: Faults) -> None:
    report = explore(worlds=2, faults=faults, level="programs")
    assert not report.failures, report.failures[0].violation
    assert report.steps > 500


@pytest.mark.long
@pytest.mark.timeout(300)
def test_programs_of_further_seeds_break_no_invariant() -> None:
    report = explore(worlds=20, seed=100, level="programs")
    assert not report.failures, f"seed {report.failures[0].plan.seed}: {report.failures[0].violation}"


PLAN = Plan(
    5,
    (
        Party("http", "auto", lanes=((Act("work", size=3, lasts=1.0), Act("in_thread")), (Act("ask", steps=20),))),
        Party("pipe", "handshake", lanes=((Act("listen", lasts=1.0), Act("work", lasts=0.5, steps=30)),)),
    ),
    (Mishap("resets", 0.6), Mishap("restarts", 1.0), Mishap("vanishing", 1.2)),
    delay=0.2,
    splits=0.3,
    calm_at=5.0,
    level="programs",
)


def test_same_plan_gives_the_same_run_of_programs() -> None:
    first, second = run_plan(PLAN), run_plan(PLAN)
    assert first.violation is None
    assert (first.steps, first.asked, first.faults) == (second.steps, second.asked, second.faults)
    assert first.faults.total() == 3


def test_what_worlds_replace_is_put_back() -> None:
    before = trio.open_tcp_stream, trio.open_tcp_listeners, trio.to_thread.run_sync
    run_plan(PLAN)
    assert before == (trio.open_tcp_stream, trio.open_tcp_listeners, trio.to_thread.run_sync)

    async def thread() -> int:
        return await trio.to_thread.run_sync(threading.get_ident)

    assert trio.run(thread) != threading.get_ident()


def found(server: Server, *acts: Act, clients: int = 1) -> Outcome:
    """Return the outcome of a world whose clients call the tools of a server that acts are named after."""

    async def perform(visit: Visit) -> None:
        await visit.client.call_tool(visit.act.what, timeout=visit.act.timeout)

    acts_by_name: Acts = {each.what: perform for each in acts}
    plan = Plan(1, (Party(lanes=tuple((each,) for each in acts)),) * clients, calm_at=5.0, level="programs")
    return run_plan(plan, lambda site: server, acts_by_name)


def test_printer_that_a_cancelled_handler_keeps_is_found() -> None:
    server = Server("printer", "1")
    printers = trio.Semaphore(1)

    @server.tool
    async def print_page() -> bool:
        await printers.acquire()
        await trio.sleep(0.5)  # a cancelled call ends here, and keeps the printer
        printers.release()
        return True

    assert found(server, Act("print_page")).violation is None
    violation = found(server, Act("print_page", cancel=0.2)).violation
    assert violation is not None
    assert violation.name == "liveness"


def test_handler_that_nothing_can_end_is_found() -> None:
    server = Server("stubborn", "1")
    ended: list[bool] = []

    @server.tool
    async def wait() -> bool:
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()
        finally:
            ended.append(True)
        return True

    violation = found(server, Act("wait", timeout=1.0)).violation
    assert violation is not None
    assert violation.name in ("liveness", "nothing is left", "no faults of ours")
    assert ended


async def stay_busy_behind_shields() -> None:
    while True:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.1)


async def catch_cancellation() -> None:
    while True:
        with suppress(trio.Cancelled):
            await trio.sleep(0.1)


async def await_while_closed() -> None:
    try:
        await catch_cancellation()
    finally:
        await trio.sleep(0.1)


@pytest.mark.long
@pytest.mark.parametrize("work", [stay_busy_behind_shields, catch_cancellation, await_while_closed])
def test_world_that_ends_leaves_no_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    ended: list[bool] = []

    async def child() -> None:
        try:
            await work()
        finally:
            ended.append(True)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(trio.sleep_forever)

    world = TrioWorld(1)
    world.has_ended = lambda: world.steps > 9
    world.run(main)
    assert ended == [True]
    gc.collect()  # what is left would be reported here, which pytest turns into a failure


def test_counts_that_tasks_lose_between_awaits_can_be_asserted() -> None:
    server = Server("counter", "1")
    counts = {"calls": 0, "seen": 0}

    @server.tool
    async def count(ctx: Context) -> int:
        counts["calls"] += 1
        seen = counts["seen"]
        await trio.to_thread.run_sync(lambda: None)
        counts["seen"] = seen + 1
        return seen

    assert found(server, Act("count"), clients=4).violation is None
    assert counts["seen"] < counts["calls"]


def test_crash_of_a_client_program_is_a_violation() -> None:
    outcome = run_plan(Plan(1, (Party(lanes=((Act("nothing"),),)),), calm_at=5.0, level="programs"))
    assert outcome.violation is not None
    assert str(outcome.violation).startswith("errors: nothing of client 1 failed with KeyError")


def test_command_runs_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--faults", "mild", "--level", "programs"]) == 0
    assert "seeds that failed: none" in capsys.readouterr().out
