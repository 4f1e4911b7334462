"""A relay between pipes, against the same programs without one: a host must not be able to tell."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from mcpio.cli.exit_status import Exit

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and descriptors of POSIX"),
]

RELAY = [sys.executable, "-m", "mcpio", "relay", "--quiet", "--"]
COPY = "import os\nwhile data := os.read(0, 65536):\n    while data: data = data[os.write(1, data):]\n"


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", "import os, signal, sys, time\n" + code]


class _Host(subprocess.Popen[bytes]):
    """A process, and the ends of its pipes that a host has."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, words: list[str]) -> None:
        pipe = subprocess.PIPE
        super().__init__(words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)


def _wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.01)  # another process acts
    raise TimeoutError


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(params=["direct", "relayed"])
def prefix(request: pytest.FixtureRequest) -> list[str]:
    """Return what precedes the server's command: nothing, or a relay."""
    return RELAY if request.param == "relayed" else []


def test_any_bytes_pass_unchanged_both_ways(prefix: list[str]) -> None:
    data = random.Random(7).randbytes(3_000_001)
    run = subprocess.run([*prefix, *_python(COPY)], input=data, capture_output=True)
    assert (run.returncode, run.stderr) == (0, b"")
    assert hashlib.sha256(run.stdout).digest() == hashlib.sha256(data).digest()


def test_long_message_passes_unchanged(prefix: list[str]) -> None:
    data = b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + b"x" * 50_000_000 + b'"}}\n{"jsonrpc":'
    run = subprocess.run([*prefix, *_python(COPY)], input=data, capture_output=True)
    assert run.stdout == data


def test_half_line_passes_at_once(prefix: list[str]) -> None:
    with _Host([*prefix, *_python(COPY)]) as host:
        host.stdin.write(b'{"jsonrpc"')
        assert host.stdout.read(10) == b'{"jsonrpc"'  # it would wait for ever if the relay waited for the line
        host.stdin.close()
        assert host.wait() == 0


LAST = "sys.stdin.read(); os.write(1, b'after the end'); os.write(2, b'words'); "


@pytest.mark.parametrize(
    ("code", "status"),
    [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -signal.SIGKILL), ("os.abort()", -signal.SIGABRT)],
)
def test_end_of_input_output_and_status_pass(prefix: list[str], code: str, status: int) -> None:
    run = subprocess.run([*prefix, *_python(LAST + code)], input=b"{}\n", capture_output=True)
    assert (run.returncode, run.stdout, run.stderr) == (status, b"after the end", b"words")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signal_reaches_the_server(prefix: list[str], number: signal.Signals, request: pytest.FixtureRequest) -> None:
    # Where these tests run under nohup, a child would ignore SIGHUP, and so would its relay.
    request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, signal.SIG_DFL)))
    code = (
        "def handle(number, _):\n    os.write(1, b'%d' % number); os._exit(5)\n"
        f"signal.signal({int(number)}, handle)\nos.write(1, b'ready ')\ntime.sleep(60)\n"
    )
    with _Host([*prefix, *_python(code)]) as host:
        assert host.stdout.read(6) == b"ready "
        host.send_signal(number)
        assert host.stdout.read(3) == b"%d" % number
        assert host.wait() == 5


def test_ignored_signal_stays_ignored(prefix: list[str]) -> None:
    ignoring = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
    code = "os.write(1, b'%d' % (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)); sys.stdin.read()"
    with _Host([*ignoring, *prefix, *_python(code)]) as host:
        assert host.stdout.read(1) == b"1"
        host.send_signal(signal.SIGHUP)
        host.stdin.close()
        assert host.wait() == 0


def test_killed_server_looks_killed(prefix: list[str]) -> None:
    with _Host([*prefix, *_python("os.write(1, b'%8d' % os.getpid()); time.sleep(60)")]) as host:
        os.kill(int(host.stdout.read(8)), signal.SIGTERM)
        assert host.wait() == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="the tie to the parent is Linux's")
def test_kill_of_the_relay_ends_the_server() -> None:
    with _Host([*RELAY, *_python("os.write(1, b'%8d' % os.getpid()); time.sleep(60)")]) as host:
        server = int(host.stdout.read(8))
        host.kill()
        host.wait()
        _wait_until(lambda: not _runs(server))


def test_server_that_never_reads_holds_back_the_host(prefix: list[str]) -> None:
    with _Host([*prefix, *_python("os.write(1, b'ready'); time.sleep(60)")]) as host:
        assert host.stdout.read(5) == b"ready"
        os.set_blocking(host.stdin.fileno(), False)
        written = 0
        while select.select([], [host.stdin], [], 1.0)[1]:
            written += host.stdin.write(b"x" * 65536) or 0
        assert written < 1_000_000
        host.terminate()
        assert host.wait() == -signal.SIGTERM


def test_host_that_never_reads_holds_back_the_server(prefix: list[str]) -> None:
    code = (
        "os.set_blocking(1, False)\nimport select\nwritten = 0\n"
        "while select.select([], [1], [], 1.0)[1]: written += os.write(1, b'x' * 65536)\n"
        "os.write(2, b'%d' % written)\n"
    )
    with _Host([*prefix, *_python(code)]) as host:
        written = int(host.stderr.read(7))
        assert written < 1_000_000
        assert len(host.stdout.read()) == written
        assert host.wait() == 0


def test_host_that_closes_its_output_breaks_the_pipe_of_the_server(prefix: list[str]) -> None:
    code = (
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nos.write(1, b'ready')\nwhile True: os.write(1, b'x' * 65536)\n"
    )
    with _Host([*prefix, *_python(code)]) as host:
        assert host.stdout.read(5) == b"ready"
        host.stdout.close()
        assert host.wait() == -signal.SIGPIPE


def test_server_that_closes_its_input_breaks_the_pipe_of_the_host(prefix: list[str]) -> None:
    with _Host([*prefix, *_python("os.close(0)\nos.write(1, b'ready')\ntime.sleep(60)")]) as host:
        assert host.stdout.read(5) == b"ready"
        with pytest.raises(BrokenPipeError):
            _wait_until(lambda: not host.stdin.write(b"x" * 65536))
        host.terminate()
        host.wait()


def test_server_that_closes_its_output_ends_that_of_the_relay(prefix: list[str]) -> None:
    with _Host([*prefix, *_python("os.write(1, b'last')\nos.close(1)\nsys.stdin.read()\nsys.exit(3)")]) as host:
        assert host.stdout.read() == b"last"
        host.stdin.close()
        assert host.wait() == 3


def test_descendant_with_the_output_does_not_keep_the_relay() -> None:
    code = "child = os.fork()\nif not child: time.sleep(60)\nos.write(1, b'%8d' % child)\nos._exit(4)\n"
    with _Host([*RELAY, *_python(code)]) as host:
        child = int(host.stdout.read())
        assert host.wait() == 4
        os.kill(child, signal.SIGKILL)


def test_unread_log_delays_nothing() -> None:
    relay = [sys.executable, "-m", "mcpio", "relay", "--"]
    line = b'{"jsonrpc":"2.0","method":"notifications/%s"}\n' % (b"x" * 60)
    with _Host([*relay, *_python(COPY)]) as host:
        for _ in range(40):  # nearly 1 MB of log, in a pipe that nothing reads
            host.stdin.write(line * 100)
            left = len(line) * 100
            while left:
                left -= len(host.stdout.read(left))
        host.stdin.close()
        assert host.wait() == 0


NUMBERED = "for n in range(1, 10): os.write(1, b'%d\\n' % n)\nsys.stdin.read()\nsys.exit(3)\n"


@pytest.mark.parametrize(
    ("faults", "output", "status", "note"),
    [
        ("drop=3", b"1\n2\n4\n5\n6\n7\n8\n9\n", 3, "chaos drop=3: message 3 of the server: not passed on"),
        ("cut=3", b"1\n2\n3", 3, "chaos cut=3: message 3 of the server: the connection ends within it"),
        ("stall=3", b"1\n2\n", 3, "chaos stall=3: message 3 of the server: held, with all after it"),
        ("slow=1ms..2ms@3,split=1", b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", 3, "delayed by"),
    ],
)
def test_fault_is_injected_and_noted(faults: str, output: bytes, status: int, note: str) -> None:
    words = [*RELAY[:4], "--chaos", faults, "--", *_python(NUMBERED)]
    run = subprocess.run(words, input=b"", capture_output=True)
    assert (run.returncode, run.stdout) == (status, output)
    assert note in run.stderr.decode()


def test_kill_is_injected_and_noted() -> None:
    words = [*RELAY[:4], "--chaos", "kill=2", "--", *_python("os.write(1, b'1\\n2\\n')\ntime.sleep(60)\n")]
    run = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
    assert (run.returncode, run.stdout) == (-signal.SIGKILL, b"1\n")
    assert "chaos kill=2: message 2 of the server: the server is killed" in run.stderr.decode()


def test_missing_program_ends_as_in_a_shell() -> None:
    run = subprocess.run([*RELAY, "/no/such/program"], capture_output=True, text=True)
    assert run.returncode == Exit.NO_PROGRAM
    assert run.stderr == "mcpio: cannot start '/no/such/program': no such program\n"
