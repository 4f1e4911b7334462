"""The programs for loops of one's own do what they show, and a Trio client lives in any of its hosts."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import guest_mode
import pytest
import trio
from outcome import Outcome
from tree import ROOT

LOOPS = ROOT / "docs" / "examples" / "loops"


@pytest.mark.parametrize(
    "program", ["asyncio_protocol", "gevent_sockets", "qt_sockets", "selector_loop", "twisted_protocol"]
)
def test_program_prints_the_documented_output(program: str) -> None:
    run = subprocess.run([sys.executable, LOOPS / f"{program}.py"], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("echo speaks 2026-07-28\nit says: hello\n", "")


def test_guest_mode_program_prints_the_documented_output(capsys: pytest.CaptureFixture[str]) -> None:
    guest_mode.main()
    assert capsys.readouterr().out == "it says: hello\n"


def in_asyncio(texts: list[str]) -> list[str]:
    """Let a client live in asyncio; ask all at once when it is there, and return what came of it."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Outcome[None]] = loop.create_future()
        said: list[str] = []

        def on_open() -> None:
            for text in texts:
                loop.call_soon(echo.ask, text)

        def on_answer(text: str) -> None:
            said.append(text)
            if len(said) == len(texts):
                loop.call_soon(echo.close)

        echo = guest_mode.Echo(on_open, on_answer)
        trio.lowlevel.start_guest_run(
            echo.main, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=over.set_result
        )
        (await over).unwrap()
        return said

    return asyncio.run(main())


def test_a_trio_client_makes_64_calls_at_once_in_asyncio() -> None:
    texts = [str(n) for n in range(64)]
    assert sorted(in_asyncio(texts), key=int) == texts


def test_host_of_a_trio_client_reports_the_lost_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_mode, "SERVER", [sys.executable, "-c", LEAVES])
    (answer,) = in_asyncio(["hello"])
    assert answer.startswith("failed: tools/call: the connection ended")


LEAVES = """
import json, sys
probe = json.loads(input())
print(json.dumps({"jsonrpc": "2.0", "id": probe["id"], "error": {"code": -32601, "message": "what?"}}), flush=True)
hello = json.loads(input())
result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
print(json.dumps({"jsonrpc": "2.0", "id": hello["id"], "result": result}), flush=True)
input(), input()
"""
