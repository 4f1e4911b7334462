"""What ends together: a server with its parent, and the children of a process with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pidfd_open is Linux's")

# A server, and its parent that ends while another process holds the pipe open
SERVER = """
import sys, time
from mcpio import Server
from mcpio.{loop} import serve_stdio

server = Server("orphan", "1")

@server.tool
def hang() -> None:
    print("hanging", file=sys.stderr, flush=True)
    time.sleep(60)
"""

RUN = {
    "trio": "import trio; from functools import partial; trio.run(partial(serve_stdio, server{option}))",
    "asyncio": "import asyncio; asyncio.run(serve_stdio(server{option}))",
}

HOST = """
import subprocess, sys

pipe = subprocess.PIPE
server = subprocess.Popen({command!r}, stdin=pipe, stdout=pipe)
# Another child, which inherits the host's end of the server's input.
holder = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=[server.stdin.fileno()])
server.stdin.write({hello!r})
server.stdin.flush()
server.stdout.readline()
# Not before that answer: it would wait for the call that hangs, if both came in one read.
server.stdin.write({call!r})
server.stdin.flush()
print(server.pid, holder.pid, flush=True)
sys.stdin.read()
"""

HELLO = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"c","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","arguments":{}}}\n'


@contextlib.contextmanager
def orphaned(command: list[str], call: bytes = b"") -> Iterator[tuple[int, int]]:
    """Kill the host of a server; give descriptors that are readable when the server has ended, and the holder."""
    program = HOST.format(command=command, hello=HELLO, call=call)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as host:
        server, holder = host.stdout.readline().split()  # type: ignore[union-attr]  # it is a pipe
        ends = [os.pidfd_open(int(pid)) for pid in (server, holder)]
        try:
            if call:
                assert host.stderr.readline() == "hanging\n"  # type: ignore[union-attr]  # likewise
            host.kill()
            yield ends[0], ends[1]
        finally:
            for end in ends:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(end, signal.SIGKILL)
                os.close(end)


def has_ended(end: int, within: float) -> bool:
    return bool(select.select([end], [], [], within)[0])


@pytest.mark.parametrize("call", [b"", CALL], ids=["idle", "hanging"])
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize("how", ["call", "command"])
def test_server_ends_with_its_parent(tmp_path: Path, loop: str, how: str, call: bytes) -> None:
    program = SERVER.format(loop=loop)
    if how == "call":
        command = [sys.executable, "-c", program + RUN[loop].format(option=", end_with_parent=True")]
    else:
        (tmp_path / "orphan.py").write_text(program)
        command = [sys.executable, "-m", "mcpio", "serve", str(tmp_path / "orphan.py"), "--loop", loop]
    with orphaned(command, call) as (server, holder):
        assert has_ended(server, 20)
        assert not has_ended(holder, 0)


@pytest.mark.parametrize("how", ["trio", "asyncio", "command"])
def test_server_that_may_outlive_its_parent_ends_with_its_input(tmp_path: Path, how: str) -> None:
    program = SERVER.format(loop="asyncio" if how == "asyncio" else "trio")
    if how == "command":
        (tmp_path / "orphan.py").write_text(program)
        command = [sys.executable, "-m", "mcpio", "serve", str(tmp_path / "orphan.py"), "--outlive-parent"]
    else:
        command = [sys.executable, "-c", program + RUN[how].format(option="")]
    with orphaned(command) as (server, holder):
        assert not has_ended(server, 2.5)
        signal.pidfd_send_signal(holder, signal.SIGKILL)
        assert has_ended(server, 20)


# A proxy, and its child that hangs when a signal ends the proxy

CHILD = """
import os, signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
from mcpio import Server
from mcpio.trio import serve_stdio
import trio

server = Server("child", "1")

@server.tool
def hang() -> None:
    print(os.getpid(), flush=True, file=sys.stderr)
    while True:
        time.sleep(1)

trio.run(serve_stdio, server)
"""

PROXY = """
import sys
from functools import partial
from mcpio.{loop} import open_stdio, proxy, serve_stdio

child = [sys.executable, *sys.argv[1:]]
server = proxy(partial(open_stdio, child, close_grace=0.3, terminate_grace=0.3))
{run}
"""

PROXY_RUN = {
    "trio": "import trio; trio.run(serve_stdio, server)",
    "asyncio": "import asyncio; asyncio.run(serve_stdio(server))",
}


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("child", ["hanging", "deaf"])
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_signal_ends_a_proxy_together_with_a_child_that_hangs(
    tmp_path: Path, loop: str, child: str, signum: signal.Signals
) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    program = PROXY.format(loop=loop, run=PROXY_RUN[loop])
    command = [sys.executable, "-c", program, str(tmp_path / "child.py"), child]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]  # all are the same
        try:
            process.stdin.write((HELLO + CALL).decode())
            process.stdin.flush()
            end = os.pidfd_open(int(process.stderr.readline()))
            process.send_signal(signum)
            assert process.wait(20) == 128 + signum
        finally:
            process.kill()
    assert has_ended(end, 5)
    os.close(end)
