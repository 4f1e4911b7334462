"""Standard input and output as a stream, in real processes: what the parent keeps, and what nobody else may write."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from mcpio._drivers.stdio import claim_stdio
from mcpio.trio._stdio import stdio_stream

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

ECHO = """
import trio
from mcpio.trio._stdio import stdio_stream

async def main():
    async with stdio_stream() as stream:
        await stream.send_all(b"ready\\n")
        while data := await stream.receive_some():
            await stream.send_all(data)
        await stream.send_eof()

trio.run(main)
"""


@dataclass
class Ends:
    """The child's standard input and output, the parent's ends of them, and how the parent ends the input."""

    stdin: int
    stdout: int
    to_child: int
    from_child: int
    end_input: Callable[[], None]

    def close(self) -> None:
        for fd in {self.stdin, self.stdout, self.to_child, self.from_child}:
            os.close(fd)


def pipes() -> Ends:
    stdin, to_child = os.pipe()
    from_child, stdout = os.pipe()
    return Ends(stdin, stdout, to_child, from_child, lambda: replace_by_null(to_child))


def sockets() -> Ends:
    (ours_in, theirs_in), (ours_out, theirs_out) = socket.socketpair(), socket.socketpair()
    to_child, from_child = ours_in.detach(), ours_out.detach()
    return Ends(theirs_in.detach(), theirs_out.detach(), to_child, from_child, lambda: shut_down(to_child))


def one_socket() -> Ends:
    ours, theirs = socket.socketpair()
    our_end, their_end = ours.detach(), theirs.detach()
    return Ends(their_end, their_end, our_end, our_end, lambda: shut_down(our_end))


def terminal() -> Ends:
    control, line = pty.openpty()
    attributes = termios.tcgetattr(line)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(line, termios.TCSANOW, attributes)
    return Ends(line, line, control, control, lambda: type_ctrl_d(control))


def replace_by_null(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, fd)
    os.close(null)


def shut_down(fd: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as copy:
        copy.shutdown(socket.SHUT_WR)


def type_ctrl_d(fd: int) -> None:
    os.write(fd, b"\x04")


def start(source: str, *arguments: str, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", source, *arguments]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True)


def read_exactly(fd: int, size: int) -> bytes:
    received = b""
    while len(received) < size:
        ready, _, _ = select.select([fd], [], [], 20)
        assert ready
        received += os.read(fd, size - len(received))
    return received


def flags(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETFL)


@pytest.mark.parametrize("make", [pipes, sockets, one_socket, terminal])
@pytest.mark.parametrize("end", ["end of input", "SIGKILL", "SIGTERM"])
def test_flags_of_shared_files_survive_any_exit(make: Callable[[], Ends], end: str) -> None:
    ends = make()
    before = flags(ends.stdin), flags(ends.stdout)
    child = start(ECHO, stdin=ends.stdin, stdout=ends.stdout)
    try:
        assert read_exactly(ends.from_child, 6) == b"ready\n"
        os.write(ends.to_child, b"hello\n")
        assert read_exactly(ends.from_child, 6) == b"hello\n"
        assert (flags(ends.stdin), flags(ends.stdout)) == before
        if end == "end of input":
            ends.end_input()
            assert child.wait(20) == 0
        else:
            child.send_signal(signal.Signals[end])
            child.wait(20)
        assert (flags(ends.stdin), flags(ends.stdout)) == before
        assert child.communicate()[1] == b""
    finally:
        child.kill()
        child.wait()
        ends.close()


def test_files_and_the_null_device_work_as_standard_streams(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 200_000)
    with open(tmp_path / "in", "rb") as source, open(tmp_path / "out", "wb") as sink:
        child = start(ECHO, stdin=source.fileno(), stdout=sink.fileno())
        assert child.communicate(timeout=20)[1] == b""
    assert child.returncode == 0
    assert (tmp_path / "out").read_bytes() == b"ready\n" + b"x" * 200_000
    with open(os.devnull, "r+b") as null:
        child = start(ECHO, stdin=null.fileno(), stdout=null.fileno())
        assert child.communicate(timeout=20)[1] == b""
    assert child.returncode == 0


NOISE = """
import os, subprocess, sys, trio
from mcpio.trio._stdio import stdio_stream

earlier = sys.stdout
sys.stdout.reconfigure(write_through=False)
print("unwritten before the block", end=";")

async def main():
    async with stdio_stream() as stream:
        await stream.send_all(b"<protocol>")
        print("print")
        earlier.write("a kept sys.stdout;")
        os.write(1, b"descriptor 1;")
        subprocess.run([sys.executable, "-c", "import sys; print('a child that read', repr(sys.stdin.read()))"])
        if sys.argv[1] == "with its own end":
            await stream.send_eof()
        earlier.write("late")

trio.run(main)
print("after the block")
"""

STRAY = b"unwritten before the block;", b"print\n", b"a kept sys.stdout;", b"descriptor 1;", b"a child that read ''\n"


@pytest.mark.req("STDIO-04", "STDIO-06")
def test_other_output_goes_to_standard_error() -> None:
    command = [sys.executable, "-c", NOISE, "without an end"]
    done = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, timeout=20)
    assert done.stdout == b"<protocol>after the block\n"
    for text in (*STRAY, b"late"):
        assert done.stderr.count(text) == 1, text


@pytest.mark.req("STDIO-04", "STDIO-09")
def test_pipe_ended_by_send_eof_is_not_restored() -> None:
    command = [sys.executable, "-c", NOISE, "with its own end"]
    done = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, b"<protocol>")
    for text in (*STRAY, b"late", b"after the block\n"):
        assert done.stderr.count(text) == 1, text


@pytest.mark.req("STDIO-04")
def test_standard_output_is_restored_after_send_eof(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as sink:
        child = start(NOISE, "with its own end", stdin=subprocess.DEVNULL, stdout=sink.fileno())
        child.communicate(timeout=20)
    assert (tmp_path / "out").read_bytes() == b"<protocol>after the block\n"


LIVES_ON = """
import os, sys, trio
from mcpio.trio._stdio import stdio_stream

async def main():
    async with stdio_stream() as stream:
        await stream.send_all(b"last")
        await stream.send_eof()
        while await stream.receive_some():
            pass

trio.run(main)
"""


def test_the_peer_sees_the_end_of_the_output_while_the_process_lives() -> None:
    child = subprocess.Popen([sys.executable, "-c", LIVES_ON], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.read() == b"last"
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(20) == 0
    child.stdout.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_process_started_without_standard_streams_still_runs(closed: str) -> None:
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, ECHO]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout == (b"" if ">&-" in closed.replace("2>&-", "") else b"ready\n")


def test_second_concurrent_block_raises(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with stdio_stream() as stream:
            with pytest.raises(RuntimeError, match="in use by another block"), claim_stdio():
                pass
            await stream.aclose()
        async with stdio_stream():
            pass

    trio.run(main)


def test_a_replaced_sys_stdout_is_not_replaced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w", encoding="utf-8") as mine:
        with monkeypatch.context() as patch, claim_stdio():
            assert sys.stdout is sys.stderr
            patch.setattr(sys, "stdout", mine)
            patch.setattr(sys, "stderr", None)
            os.write(1, b"")
        before = sys.stdout
        with claim_stdio():
            sys.stdout = mine
        assert sys.stdout is mine
        sys.stdout = before


def test_a_program_without_a_console_has_no_sys_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with claim_stdio():
        print("to standard error")
    assert sys.stdout is None


def test_standard_streams_are_restored_after_an_exception() -> None:
    before = os.fstat(1)
    seen: list[int] = []

    def fail() -> None:
        with claim_stdio() as claimed:
            seen.extend((claimed.input_fd, claimed.output_fd))
            assert not any(os.get_inheritable(fd) for fd in seen)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert os.path.samestat(os.fstat(1), before)
    for fd in seen:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
