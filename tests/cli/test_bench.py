"""``mcpio bench``: figures of servers in this process, and what is refused before anything is measured."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcpio import Context, RequestError, Server
from mcpio.cli import bench, main
from mcpio.cli.exit_status import Exit
from mcpio.types import CreateMessageRequest, SamplingMessage, TextContent

if TYPE_CHECKING:
    from tests.cli.conftest import Command

SERVER = """
from mcpio import Server

server = Server("measured", "1")

@server.tool
def echo(text: str) -> str:
    return text
"""


@pytest.fixture
def measured() -> Server:
    """Return a server with a tool that works and others that do not."""
    server = Server("measured", "1")
    calls = 0

    @server.tool
    def echo(text: str = "x") -> str:
        return text

    @server.tool
    def fail() -> str:
        raise ValueError("broken oven")

    @server.tool
    def tire() -> str:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            raise RequestError(-32000, "tired")
        return "fine"

    return server


def test_calls_are_counted_and_reported(command: Command, measured: Server) -> None:
    ran = command("bench", "--tool", "echo", "--calls", "40", "--callers", "4", server=measured)
    assert (ran.status, ran.err) == (Exit.DONE, "")
    # A fast machine gets one line more: that the client itself was the limit.
    heading, calls, latency, *client = ran.out.splitlines()
    assert heading == "the server: tools/call echo, 2025-11-25, 1 connection, 4 callers on each"
    assert " calls/s: 40 calls in " in calls
    assert latency.startswith("  latency  p50 ")
    assert "us of processor time a call" in "".join(client)


def test_json_has_every_round(command: Command, measured: Server) -> None:
    words = ["--json", "--calls", "10", "--rounds", "3", "--connections", "2"]
    ran = command("bench", *words, server=measured)
    value = json.loads(ran.out)
    assert (value["connections"], value["callers"]) == (2, 1)
    (server,) = value["servers"]
    assert (server["call"], server["protocolVersion"]) == ("tools/list", "2025-11-25")
    assert [each["calls"] for each in server["rounds"]] == [10, 10, 10]
    assert all(each["p50Milliseconds"] <= each["p99Milliseconds"] for each in server["rounds"])
    assert server["medians"]["callsPerSecond"] > 0
    assert 0 <= value["clockSeconds"] < 0.001


def test_time_limits_a_measurement(command: Command, measured: Server) -> None:
    ran = command("bench", "--json", "--seconds", "0.05", server=measured)
    (measured_round,) = json.loads(ran.out)["servers"][0]["rounds"]
    assert measured_round["seconds"] >= 0.05
    assert measured_round["calls"] > 0


def test_errors_are_counted_apart(command: Command, measured: Server) -> None:
    ran = command("bench", "--tool", "tire", "--calls", "20", server=measured)
    assert ran.status == Exit.REFUSED
    assert " calls/s: 16 calls in " in ran.out
    assert "the server: 4 calls failed, which no other figure counts:\n  4 times RequestError: " in ran.out


def test_tool_that_asks_for_a_message_and_the_roots_is_measured(
    command: Command, measured: Server, tmp_path: Path
) -> None:
    @measured.tool
    async def ask(ctx: Context) -> str:
        question = SamplingMessage("user", TextContent("How warm?"))
        result = await ctx.sample(CreateMessageRequest((question,), max_tokens=9))
        return f"{result.text} {len(await ctx.roots())}"

    said = tmp_path / "said.txt"
    said.write_text("warm")
    words = ["--sampling", str(said), "--root", str(tmp_path)]
    ran = command("bench", "--tool", "ask", "--calls", "3", *words, server=measured)
    assert (ran.status, ran.err) == (Exit.DONE, "")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--tool", "ecko"], Exit.NOT_FOUND, "no tool 'ecko': the server has echo, fail, tire. Did you mean 'echo'?"),
        (["--tool", "fail"], Exit.TOOL_FAILED, "nothing was measured: tools/call fail: the tool reports an error: "),
        (["--tool", "echo", "--arguments", "{"], Exit.USAGE, "--arguments must be JSON, not '{': "),
        (
            ["--tool", "echo", "--arguments", "[]"],
            Exit.USAGE,
            '--arguments must be a JSON object, such as \'{"text": "hello"}\', not ',
        ),
        (["--arguments", "{}"], Exit.USAGE, "--arguments needs --tool"),
        (["--calls", "1", "--seconds", "1"], Exit.USAGE, "give --seconds or --calls, not both"),
        (["--record", "f"], Exit.USAGE, "mcpio bench cannot record"),
        (["--sampling", "ask"], Exit.USAGE, "--sampling must be a file, not ask"),
        (["--tool", "echo", "more"], Exit.USAGE, "unexpected argument 'more'"),
    ],
)
def test_wrong_words_are_named_before_anything_is_measured(
    words: list[str], status: Exit, said: str, command: Command, measured: Server
) -> None:
    ran = command("bench", *words, server=measured)
    assert ran.status == status
    assert ran.err.startswith(f"mcpio: {said}")
    assert ran.out == ""


@pytest.mark.parametrize("words", [["--calls", "0"], ["--seconds", "-1"], ["--seconds", "x"], ["--callers", "two"]])
def test_numbers_are_checked(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "server.py", *words])
    assert repr(words[1]) in capsys.readouterr().err


def test_server_without_tools_is_pinged(command: Command) -> None:
    ran = command("bench", "--calls", "3", server=Server("bare", "1"))
    assert ran.out.startswith("the server: ping, 2025-11-25, ")


def test_percentiles_are_of_the_sorted_latencies() -> None:
    latencies = [number / 1000 for number in range(1, 101)]
    figures = bench._Figures(seconds=2, latencies=latencies, errors={}, server=None, client_cpu=1)
    values = figures.values()
    assert [values[name] for name in ("p50 ms", "p90 ms", "p99 ms", "max ms")] == pytest.approx([50, 90, 99, 100])
    assert values["calls/s"] == 50
    assert values["client us/call"] == 10_000


def test_ratios_are_of_the_figures_within_a_round() -> None:
    def figures(calls: int) -> bench._Figures:
        return bench._Figures(seconds=1, latencies=[0.001] * calls, errors={}, server=None, client_cpu=1)

    found = [[figures(100), figures(50), figures(0)], [figures(50), figures(50), figures(0)]]
    assert bench._ratios(found, "calls/s") == [2, 1]


@pytest.mark.long
def test_two_servers_are_compared_in_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "measured.py"
    file.write_text(SERVER)
    other = shlex.join([sys.executable, "-m", "mcpio", "serve", str(file)])
    words = ["--tool", "echo", "--arguments", '{"text": "x"}', "--calls", "20", "--rounds", "2", "--era", "stateless"]
    assert main(["bench", str(file), "--against", other, *words]) == Exit.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"A  {file}: tools/call echo, 2026-07-28, 1 connection, 1 caller on each"
    assert lines[1].startswith("B  ")
    assert lines[2].split() == ["A", "B", "A/B", "spread", "of", "A/B", "in", "2", "rounds"]
    assert [line.split("  ")[0] for line in lines[3:]][:5] == ["calls/s", "p50 ms", "p90 ms", "p99 ms", "max ms"]
    assert main(["bench", "--json", str(file), "--against", other, *words]) == Exit.DONE
    value: Any = json.loads(capsys.readouterr().out)
    assert len(value["servers"]) == 2
    assert value["ratios"]["callsPerSecond"] > 0
    assert main(["bench", str(file), "--against", "no-such-program"]) == Exit.NO_PROGRAM
    assert capsys.readouterr().err.startswith("mcpio: no-such-program: cannot start 'no-such-program'")
    if sys.platform == "linux":
        assert value["servers"][0]["medians"]["serverMebibytes"] > 1


@pytest.mark.long
def test_server_that_dies_ends_the_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "measured.py"
    file.write_text(
        SERVER.replace("    return text", "    CALLS.append(1)\n    if len(CALLS) > 9: os._exit(3)\n    return text")
        + "\nimport os\nCALLS = []\n"
    )
    words = ["--tool", "echo", "--arguments", '{"text": "x"}', "--calls", "50"]
    assert main(["bench", str(file), *words]) == Exit.SERVER_DIED
    assert "exited with status 3" in capsys.readouterr().err
