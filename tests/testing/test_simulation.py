"""Simulated worlds: the library in them, and servers of users."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

from mcpio import Context, McpError, Server
from mcpio.app.client import Client
from mcpio.testing.manual_runtime import ManualOneShot
from mcpio.testing.simulation import Act, Faults, Mishap, Party, Plan, Program, Violation, explore, rerun, simulate
from mcpio.testing.simulation.__main__ import main
from mcpio.testing.simulation.exploring import run_plan


@pytest.mark.parametrize("faults", [Faults.none(), Faults.mild(), Faults.harsh()], ids=["none", "mild", "harsh"])
def test_worlds_of_the_first_seeds_break_no_invariant(faults: Faults) -> None:
    report = explore(worlds=6, faults=faults)
    assert not report.failures, report.failures[0].violation
    assert report.steps > 1000


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 1500, 500))
def test_worlds_of_many_seeds_break_no_invariant(first: int) -> None:
    report = explore(worlds=500, seed=first)
    assert not report.failures, f"seed {report.failures[0].plan.seed}: {report.failures[0].violation}"


def test_same_plan_gives_the_same_world() -> None:
    plan = Plan(5, (Party("http", "auto", lanes=((Act("work", size=3), Act("ask")),)),), (Mishap("resets", 0.1),))
    first, second = run_plan(plan), run_plan(plan)
    assert first.violation is None
    assert (first.steps, first.asked, first.faults) == (second.steps, second.asked, second.faults)


def racing_shop() -> Server:
    """Return a server that sells what it has only once, unless two clients pay at the same time."""
    server = Server("shop", "1")
    stock = {"left": 1}

    @server.tool
    async def buy(ctx: Context) -> bool:
        if stock["left"] < 1:
            return False
        await ctx.sleep(0.1)  # the payment
        stock["left"] -= 1
        return True

    @server.tool
    def left() -> int:
        return stock["left"]

    return server


async def visit(client: Client) -> None:
    await client.call_tool("buy")
    assert await client.call_tool("left", returns=int) >= 0


def test_server_with_a_race_is_found() -> None:
    report = explore(racing_shop, [visit], worlds=30, faults=Faults.none(), stop_after=1)
    [failure] = report.failures
    assert failure.violation is not None
    assert failure.violation.name == "program"


@pytest.mark.long
def test_plan_of_a_race_is_made_small() -> None:
    with pytest.raises(Violation, match="program") as caught:
        simulate(racing_shop, [visit], worlds=30, faults=Faults.none())
    [note] = caught.value.__notes__
    assert "made smaller" in note
    with pytest.raises(Violation, match="program"):
        exec(note.partition("\n")[2], globals())  # it is for pasting below the functions
    assert note.count("Act('visit'") <= 3
    assert note.count("\n") <= 20


def repaired_shop() -> Server:
    """Return the shop that takes the ticket before the payment, and gives it back when that fails."""
    server = Server("shop", "1")
    stock = {"left": 1}

    @server.tool
    async def buy(ctx: Context) -> bool:
        if stock["left"] < 1:
            return False
        stock["left"] -= 1
        try:
            await ctx.sleep(0.5)
        except BaseException:
            stock["left"] += 1
            raise
        return True

    @server.tool
    def left() -> int:
        return stock["left"]

    @server.tool
    async def last(seconds: float, ctx: Context) -> None:
        await ctx.sleep(seconds)

    return server


async def hang(client: Client) -> None:
    """Take longer than the act of the library with this name, and than the last phase of a world."""
    await client.call_tool("last", {"seconds": 45})


async def job(client: Client) -> None:
    for _ in range(5):
        with suppress(McpError):
            await client.call_tool("last", {"seconds": 1}, timeout=2)


@pytest.mark.parametrize("program", [visit, hang, job])
@pytest.mark.parametrize("faults", [Faults.none(), None], ids=["none", "default"])
def test_correct_server_and_program_pass_however_long_they_take(program: Program, faults: Faults | None) -> None:
    assert simulate(repaired_shop, [program], worlds=8, faults=faults).worlds == 8


@pytest.mark.long
def test_repaired_shop_passes_under_the_default_faults() -> None:
    simulate(repaired_shop, [visit, hang, job], seconds=8)


@pytest.mark.parametrize("faults", [Faults.none(), Faults.harsh()], ids=["none", "harsh"])
def test_program_that_never_ends_is_found(faults: Faults) -> None:
    async def wait(client: Client) -> None:
        await client.ping()
        await ManualOneShot()

    with pytest.raises(Violation, match=r"^(deadline: wait of client|liveness: .* steps)"):
        simulate(repaired_shop, [wait], worlds=5, faults=faults)


def test_call_that_is_not_answered_without_faults_is_found() -> None:
    async def wait(client: Client) -> None:
        await client.call_tool("last", {"seconds": 100})

    with pytest.raises(Violation, match="liveness: wait of client 1 failed with RequestTimeout"):
        simulate(repaired_shop, [wait], worlds=5, faults=Faults.none())


def test_programs_without_names_are_all_run() -> None:
    unknown = [lambda client: client.ping(), lambda client: client.call_tool("unknown")]
    with pytest.raises(Violation, match="Unknown tool") as caught:
        simulate(repaired_shop, unknown, worlds=5, faults=Faults.none())
    assert caught.value.__notes__[0].endswith("), server, clients)")


def test_violation_that_does_not_happen_again_is_raised_with_its_plan() -> None:
    fails = iter((True,))

    async def fail_once(client: Client) -> None:
        await client.ping()
        assert not next(fails, False)

    with pytest.raises(Violation, match="program") as caught:
        simulate(repaired_shop, [fail_once], worlds=5, faults=Faults.none(), era="handshake")
    assert caught.value.__notes__[0].startswith("seed 0, which passes when it runs again:\nfrom")


def test_server_without_a_race_passes() -> None:
    server = Server("shop", "1")

    @server.tool
    def left() -> int:
        return 1

    async def look(client: Client) -> None:
        assert await client.call_tool("left", returns=int) == 1

    assert simulate(lambda: server, [look], worlds=3, faults=Faults.none()).steps > 100


def test_replay_of_a_broken_invariant_raises() -> None:
    plan = Plan(1, (Party(lanes=((Act("nothing"),),)),))
    with pytest.raises(Violation, match="errors: nothing of client 1 failed with KeyError"):
        rerun(plan)


def test_clients_are_needed_for_a_server() -> None:
    with pytest.raises(ValueError, match="clients must be"):
        simulate(racing_shop, [])


def test_command_prints_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--faults", "mild", "--era", "stateless"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 worlds, ")
    assert "seeds that failed: none" in said


@pytest.mark.parametrize("level", ["machines", "programs"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_end_of_the_process_is_no_violation(level: Any, kind: type[BaseException]) -> None:
    runs = 0

    async def leave(client: Client) -> None:
        nonlocal runs
        runs += 1
        raise kind

    with pytest.raises(kind):
        simulate(racing_shop, [leave], worlds=20, level=level, faults=Faults.none())
    assert runs <= 4  # other tasks of the same world may have been scheduled already


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "program"}, "level must be 'machines' or 'programs', not 'program'"),
        ({"carrier": "smoke"}, "carrier must be 'pipe' or 'http', not 'smoke'"),
        ({"era": "statless"}, "era must be 'handshake', 'stateless' or 'auto', not 'statless'"),
        ({"worlds": 0}, "worlds must be an integer of at least 1, not 0"),
        ({"worlds": 1.5}, "worlds must be an integer of at least 1, not 1.5"),
        ({"seconds": -1}, "seconds must be a number above 0, not -1"),
        ({"seconds": float("nan")}, "seconds must be a number above 0, not nan"),
        ({"seed": "one"}, "seed must be an integer, not 'one'"),
    ],
)
def test_wrong_option_is_named(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        simulate(racing_shop, [visit], **{"worlds": 1, **options})


def test_wrong_faults_and_clients_are_named() -> None:
    wrong: Any = "harsh"
    with pytest.raises(TypeError, match="faults must be Faults, not 'harsh'"):
        simulate(racing_shop, [visit], worlds=1, faults=wrong)
    with pytest.raises(TypeError, match="clients must be a collection"):
        simulate(racing_shop, wrong, worlds=1)
    with pytest.raises(ValueError, match="stop_after must be an integer of at least 1, not 0"):
        explore(worlds=1, stop_after=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resets": -1}, "resets must be an integer of at least 0, not -1"),
        ({"kills": 0.5}, "kills must be an integer of at least 0, not 0.5"),
        ({"delay": -0.1}, "delay must be a number of seconds of at least 0, not -0.1"),
        ({"splits": 1.1}, "splits must be a number from 0 to 1, not 1.1"),
        ({"duplicates": "all"}, "duplicates must be a number from 0 to 1, not 'all'"),
    ],
)
def test_wrong_fault_is_named(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Faults(**options)


def test_wrong_parts_of_a_plan_are_named() -> None:
    wrong: Any = "smoke"
    with pytest.raises(ValueError, match="carrier must be"):
        Party(wrong)
    with pytest.raises(ValueError, match="era must be"):
        Party(era=wrong)
    with pytest.raises(ValueError, match="level must be"):
        Plan(0, (), level=wrong)


def test_command_refuses_a_time_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seconds", "0"])
    assert "argument --seconds: must be a number above 0, not 0" in capsys.readouterr().err
