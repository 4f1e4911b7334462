"""The relay between a host and a server on standard input and output."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Final

import trio

from mcpio._drivers.stdio import Stderr, claim_stdio, describe_exit, environment, starting
from mcpio.cli.relaying.chaos import Chaos, Fault
from mcpio.cli.relaying.traffic import Direction, Traffic
from mcpio.trio._descriptors import Child, FdReader, FdWriter
from mcpio.trio._stdio import open_input, open_output, start_child

if sys.platform == "win32":
    PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
else:
    PASSED_ON: Final = (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    )
"""The signals that reach the server. SIGKILL reaches it by its tie to this process, where the system has one."""

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


async def relay_pipes(
    command: Sequence[str],
    traffic: Traffic,
    chaos: Chaos,
    *,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
) -> int:
    """Start a server, pass every byte on until it exits, and return its exit status, negative for a signal.

    Raises ConnectFailed if it cannot be started.
    """
    # A signal that this process was started to ignore, by nohup for instance, the server ignores as well.
    passed_on = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    with claim_stdio() as claimed, trio.open_signal_receiver(*passed_on) as signals:
        with starting(command, cwd):
            child = await start_child(
                command,
                env=environment(env, inherit_env=True),
                cwd=cwd,
                stderr=Stderr.INHERIT,
                die_with_parent=sys.platform == "linux",
            )
        traffic.note(f"started {shlex.join(command)}, process {child.pid}")
        output_ended, exited = trio.Event(), trio.Event()
        source, sink = open_input(claimed.input_fd), open_output(claimed.output_fd)
        to_server = _Pump(source, child.stdin, Direction(traffic, from_client=True), chaos, child, exited, traffic)
        to_host = _Pump(child.stdout, sink, Direction(traffic, from_client=False), chaos, child, exited, traffic)

        async def serve_input() -> None:
            await to_server.run()
            # The host sees that nothing reads its output any more.
            claimed.release_input()

        async def serve_output() -> None:
            await to_host.run()
            claimed.release_output()
            output_ended.set()

        async def pass_signals_on() -> None:
            async for number in signals:
                if exited.is_set():
                    # Only a host that does not read its last output keeps the relay.
                    nursery.cancel_scope.cancel()
                    return
                traffic.note(f"{signal.Signals(number).name}, passed on")
                _signal(child, number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_input)
            nursery.start_soon(serve_output)
            nursery.start_soon(pass_signals_on)
            status = await child.wait()
            exited.set()
            # Descendants of the server may hold its output open; what is in the pipe is passed on.
            child.end_stdout()
            await output_ended.wait()
            nursery.cancel_scope.cancel()
        traffic.note(f"the server {describe_exit(status)}")
        return status


def _signal(child: Child, number: int) -> None:
    if sys.platform == "win32":
        child.terminate()
    else:
        # Its group: Ctrl-C and a kill of the relay's group would have reached all of it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)


class _Cut(Exception):
    """A fault ends the direction."""


class _Pump:
    """One direction: bytes are written before the next ones are read, so a slow reader holds back its writer."""

    def __init__(
        self,
        source: FdReader,
        sink: FdWriter,
        seen: Direction,
        chaos: Chaos,
        child: Child,
        exited: trio.Event,
        traffic: Traffic,
    ) -> None:
        self._source = source
        self._sink = sink
        self._seen = seen
        self._child = child
        self._exited = exited
        self._traffic = traffic
        self._chaos = chaos
        self._name = "client" if sink is child.stdin else "server"
        self._number = 0
        self._in_line = self._drops = False

    async def run(self) -> None:
        """Pass bytes on until the source ends, or nothing reads them; then end both."""
        with contextlib.suppress(*GONE, _Cut):
            while data := await self._source.receive_some():
                if self._chaos.faults:
                    await self._disturb(data)
                    continue
                # Written before it is read by the log, but without a checkpoint between: its answer must not be
                # read first.
                sent = self._sink.send_nowait(data)
                self._seen.passed(data)
                if sent < len(data):
                    await self._sink.send_all(memoryview(data)[sent:])
        self._seen.ended()
        self._source.close()
        with contextlib.suppress(*GONE):
            self._sink.send_eof()

    async def _disturb(self, data: bytes) -> None:
        for piece in _lines(data):
            self._seen.passed(piece)
            if not self._in_line:
                self._number += 1
                self._drops = False
                await self._begin_message(piece)
            self._in_line = not piece.endswith(b"\n")
            if self._drops:
                continue
            split = self._hit("split")
            size = int(split.low) if split is not None else len(piece)
            for start in range(0, len(piece), size):
                await self._sink.send_all(piece[start : start + size])

    async def _begin_message(self, piece: bytes) -> None:
        if (slow := self._hit("slow")) is not None:
            seconds = self._chaos.delay(slow, self._name, self._number)
            self._inject(slow, f"delayed by {seconds * 1000:.0f} ms")
            await trio.sleep(seconds)
        if self._name == "client":
            return
        if (stall := self._hit("stall")) is not None:
            self._inject(stall, "held, with all after it")
            await self._exited.wait()
            raise _Cut
        if (kill := self._hit("kill")) is not None:
            self._inject(kill, "the server is killed")
            self._child.kill()
            raise _Cut
        if (cut := self._hit("cut")) is not None:
            self._inject(cut, "the connection ends within it")
            await self._sink.send_all(piece[: len(piece) // 2])
            self._child.stdin.close()
            raise _Cut
        if (drop := self._hit("drop")) is not None:
            self._inject(drop, "not passed on")
            self._drops = True

    def _hit(self, kind: str) -> Fault | None:
        return self._chaos.of(kind, self._name, self._number)

    def _inject(self, fault: Fault, what: str) -> None:
        self._traffic.note(f"chaos {fault.text}: message {self._number} of the {self._name}: {what}")


def _lines(data: bytes) -> list[bytes]:
    """Return the bytes cut after each newline."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])
