"""The Windows side of ``_platform``: descriptors, how a child is started, asked to end and ended, and the signals.

Written by the documentation of Trio and of Windows; it has not been run.
"""

from __future__ import annotations

import contextlib
import ctypes
import msvcrt
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from ctypes import wintypes
from typing import TYPE_CHECKING, Protocol, cast

import trio

from mcpio._drivers.stdio import Stderr
from mcpio.trio._descriptors import Child, ThreadReader, ThreadWriter

if TYPE_CHECKING:
    from mcpio.trio._descriptors import FdReader, FdWriter

assert not TYPE_CHECKING or sys.platform == "win32"


def open_input(fd: int) -> FdReader:
    """Return an input over ``fd``, which stays the caller's: blocking reads in a thread."""
    _make_binary(fd)
    return ThreadReader(os.dup(fd))


def open_output(fd: int) -> FdWriter:
    """Return an output over ``fd``, which stays the caller's: blocking writes in a thread."""
    _make_binary(fd)
    return ThreadWriter(os.dup(fd))


async def start_child(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, stderr: Stderr, die_with_parent: bool
) -> Child:
    """Start a child in a new process group and a new job, with pipes.

    Every child dies with its parent here: the job ends when its last handle is closed.
    """
    # A program with a console shares it, so that Ctrl-Break reaches the child; one without must not open a window.
    without_console = ctypes.windll.kernel32.GetConsoleWindow() == 0
    process = await trio.lowlevel.open_process(
        # CreateProcess looks for .exe only; npx and its like are .cmd files.
        [shutil.which(argv[0], path=env.get("PATH")) or argv[0], *argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr={Stderr.INHERIT: None, Stderr.DISCARD: subprocess.DEVNULL, Stderr.PIPE: subprocess.PIPE}[stderr],
        env=dict(env),
        cwd=cwd,
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP | (subprocess.CREATE_NO_WINDOW if without_console else 0),
    )
    return _WindowsChild(process)


def _make_binary(fd: int) -> None:
    """Stop the C library from translating line ends and from taking Ctrl-Z for an end."""
    msvcrt.setmode(fd, os.O_BINARY)


class _WindowsChild:
    def __init__(self, process: trio.Process) -> None:
        self.pid = process.pid
        self.stdin: FdWriter = _PipeOutput(cast("_ClosableSend", process.stdin))
        self.stdout = cast("FdReader", process.stdout)
        self.stderr = cast("FdReader | None", process.stderr)
        self._process = process
        self._job = _Job(process.pid)

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        # Raises where the child does not share the console: the kill is then the first thing it notices.
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.CTRL_BREAK_EVENT)

    def kill(self) -> None:
        self._job.terminate()
        with contextlib.suppress(OSError):
            self._process.kill()

    def group_left(self) -> bool:
        """Whether any process is left: never, because closing the job ends them all."""
        self._job.close()
        return False

    def take_stdout(self) -> FdReader | None:
        self.stdout.close()
        return None

    def end_stdout(self) -> None:
        """Do nothing: no process that could hold it open outlives the job."""


class _ClosableSend(Protocol):
    """``trio``'s pipe to a child, whose class is private."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...

    async def wait_send_all_might_not_block(self) -> None: ...

    def close(self) -> None: ...


class _PipeOutput:
    """Trio's pipe to a child as an output half."""

    ends_for_peer = True

    def __init__(self, stream: _ClosableSend) -> None:
        self.send_all = stream.send_all
        self.wait_send_all_might_not_block = stream.wait_send_all_might_not_block
        self.close = stream.close
        self.send_eof = stream.close

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        return 0


class _Job:
    """A job object that holds a child and its descendants, and ends them when it is closed.

    Where the system refuses one (a parent's job without nesting), only the child itself can be killed.
    """

    def __init__(self, pid: int) -> None:
        self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        self._kernel.CreateJobObjectW.restype = wintypes.HANDLE
        self._kernel.OpenProcess.restype = wintypes.HANDLE
        job = self._kernel.CreateJobObjectW(None, None)
        set_quota_and_terminate = 0x0100 | 0x0001
        process = self._kernel.OpenProcess(set_quota_and_terminate, False, pid)
        self._handle = wintypes.HANDLE(job)
        limits = _ExtendedLimits()
        limits.flags = 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
        extended_limit_information = 9
        self._kernel.SetInformationJobObject(
            self._handle, extended_limit_information, ctypes.byref(limits), ctypes.sizeof(limits)
        )
        self._kernel.AssignProcessToJobObject(self._handle, wintypes.HANDLE(process))
        self._kernel.CloseHandle(wintypes.HANDLE(process))

    def terminate(self) -> None:
        if self._handle.value:
            self._kernel.TerminateJobObject(self._handle, 1)

    def close(self) -> None:
        if self._handle.value:
            self._kernel.CloseHandle(self._handle)
            self._handle = wintypes.HANDLE(None)


class _ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION, of which only the flags are set."""

    _fields_ = (
        ("process_time", wintypes.LARGE_INTEGER),
        ("job_time", wintypes.LARGE_INTEGER),
        ("flags", wintypes.DWORD),
        ("minimum_working_set", ctypes.c_size_t),
        ("maximum_working_set", ctypes.c_size_t),
        ("active_processes", wintypes.DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority_class", wintypes.DWORD),
        ("scheduling_class", wintypes.DWORD),
        ("io_counters", ctypes.c_ulonglong * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )
