"""``mcpio relay`` as a command: what it takes, its page, and servers and hosts as processes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
import trio

from mcpio.cli import main
from mcpio.cli.exit_status import Exit
from mcpio.observe.relayed import is_relayed
from mcpio.trio import open_http, open_stdio, open_websocket
from mcpio.types.base import CustomRequest

RELAY = [sys.executable, "-m", "mcpio", "relay"]

SERVER = """
from mcpio import Context, Server

server = Server("behind", "1")

@server.tool
async def echo(text: str, ctx: Context) -> str:
    ctx.progress(1)
    return text

@server.tool
async def wait(ctx: Context) -> None:
    await ctx.sleep(60)
"""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], Exit.USAGE, "no server given; see mcpio relay --help"),
        (["--"], Exit.USAGE, "no server: give its command in quotes, or its words after --"),
        (["python", "more"], Exit.USAGE, "unexpected argument 'more'"),
        (["-q", "--log", "f", "--", "python"], Exit.USAGE, "--quiet cannot be combined with --log"),
        (["--port", "1", "--", "python"], Exit.USAGE, "--port is for servers at a URL"),
        (["--chaos", "status=401", "--", "python"], Exit.USAGE, "--chaos status=401 is for servers at a URL"),
        (["--chaos", "kill=1", "http://x/mcp"], Exit.USAGE, "--chaos kill=1 is for servers that are started"),
        (["ws://x/mcp"], Exit.USAGE, "the server must be a program or an HTTP URL, not ws://x/mcp"),
        (["http://x:y/mcp"], Exit.USAGE, "Port could not be cast to integer value"),
        (
            ["headers.json"],
            Exit.USAGE,
            "the server's entry must not have headers: write them into the host's entry, and relay the URL",
        ),
        (["--record", "missing/file", "--", "python"], Exit.USAGE, "cannot write 'missing/file': "),
    ],
)
def test_wrong_words_are_named(
    words: list[str],
    status: Exit,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("headers.json").write_text('{"mcpServers": {"a": {"url": "http://x/mcp", "headers": {"X-Key": "1"}}}}')
    assert main(["relay", *words]) == status
    assert capfd.readouterr().err.startswith(f"mcpio: {said}")


def test_wrong_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["relay", "--port", "70000", "http://x/mcp"])
    assert "argument --port: must be a port from 0 to 65535, not '70000'" in capsys.readouterr().err


def test_wrong_fault_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["relay", "--chaos", "cuts=1", "--", "python"])
    assert "argument --chaos: no fault 'cuts'. Did you mean 'cut'?" in capsys.readouterr().err


@pytest.fixture
def served(tmp_path: Path) -> str:
    """Return the file of a server."""
    file = tmp_path / "behind.py"
    file.write_text(SERVER)
    return str(file)


class _Process(subprocess.Popen[str]):
    stderr: IO[str]


def _started(*words: str) -> _Process:
    return _Process([sys.executable, "-m", "mcpio", *words], stderr=subprocess.PIPE, text=True)


async def _shown(address: str, until: str) -> list[dict[str, Any]]:
    """Return the entries of the page's ladder, once one has the text."""
    found = re.fullmatch(r"mcpio relay: http://127\.0\.0\.1:(\d+)/#(\S+)\n", address)
    assert found is not None
    async with open_websocket(f"ws://127.0.0.1:{found[1]}/mcp?token={found[2]}") as page:
        while True:
            answer: Any = await page.request(CustomRequest("inspect/watch", {"after": 0}))
            if any(until in str(entry) for entry in answer["entries"]):
                now: Any = await page.request(CustomRequest("inspect/now", {}))
                assert isinstance(now["open"], list)
                saved: Any = await page.request(CustomRequest("inspect/save", {}))
                assert is_relayed(saved["text"].partition("\n")[0])
                assert until in saved["text"]
                entries: list[dict[str, Any]] = answer["entries"]
                return entries
            await trio.sleep(0.05)  # the next message has not come


@pytest.mark.long
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_client_uses_a_program_through_it_and_the_page_shows_both(era: Any, served: str) -> None:
    async def main() -> None:
        lines: list[str] = []
        words = [*RELAY, "--page", "--quiet", served]
        async with open_stdio(words, era=era, stderr=lines.append) as client:
            assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"
            entries = await _shown(f"{lines[0]}\n", "tools/call")
        methods = [entry.get("method") for entry in entries]
        assert methods[:2] == [None, "initialize" if era == "handshake" else "server/discover"]
        assert any(entry["kind"] == "result" and entry.get("name") == "echo" for entry in entries)

    trio.run(main)


@pytest.mark.long
def test_client_uses_a_url_through_it(served: str, tmp_path: Path) -> None:
    record = tmp_path / "recording"
    with _started("serve", served, "--http", "0") as serving:
        url = re.search(r"http://\S+", serving.stderr.readline())
        assert url is not None
        with _started("relay", url[0], "--record", str(record), "--chaos", "seed=1,split=5") as relaying:
            near, _, far = relaying.stderr.readline().strip().partition(" is ")
            assert far == url[0]

            async def call() -> None:
                async with open_http(near) as client:
                    assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"

            trio.run(call)
            relaying.send_signal(signal.SIGTERM)
            assert "tools/call echo: result, " in relaying.stderr.read()
            assert relaying.wait() == 143
        serving.send_signal(signal.SIGTERM)
    assert '"text":"{\\"jsonrpc\\"' in record.read_text()
    assert main(["replay", str(record)]) == Exit.DONE


LIMITED = """
import resource, sys
from mcpio.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
sys.exit(main(sys.argv[1:]))
"""
"""The command with a limit of file sizes: a write takes what remains, and the next one fails, as on a full disk."""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("option", ["--log", "--record"])
def test_messages_pass_after_the_disk_of_a_file_is_full(option: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    line = '{"jsonrpc":"2.0","method":"notifications/of-some-length"}\n'
    words = [sys.executable, "-c", LIMITED, "relay", option, str(file), "--", sys.executable, "-c", CAT]
    relaying = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with relaying:
        assert relaying.stdin is not None
        assert relaying.stdout is not None
        for _ in range(120):  # one by one: the log has a batch for each
            relaying.stdin.write(line)
            relaying.stdin.flush()
            assert relaying.stdout.readline() == line
        _, shown = relaying.communicate()
    assert relaying.returncode == 0
    assert "Traceback" not in shown
    assert 3900 < file.stat().st_size <= 4000


CAT = "import os\nwhile data := os.read(0, 65536): os.write(1, data)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
def test_recording_on_a_full_disk_ends_and_the_relay_works() -> None:
    words = [*RELAY, "--record", "/dev/full", "--", sys.executable, "-c", CAT]
    ran = subprocess.run(words, input="{}\n", capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "{}\n")
    assert "--- the recording ends here: No space left on device" in ran.stderr
