"""Simulated worlds: the library in them, and servers of users."""

from __future__ import annotations

import pytest

from mcpio import Context, Server
from mcpio.app.client import Client
from mcpio.testing.simulation import Act, Faults, Mishap, Party, Plan, Violation, explore, rerun, simulate
from mcpio.testing.simulation.__main__ import main
from mcpio.testing.simulation.levels import run_plan


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
    assert note.count("Act('visit'") <= 3
    assert note.count("\n") <= 20


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
