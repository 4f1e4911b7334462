"""Process groups on POSIX, and children that die with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

assert not TYPE_CHECKING or sys.platform != "win32"


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if it exists."""
    # Refused for a program that changed its user: the end of its input is the only request that reaches it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def group_lives(group: int) -> bool:
    """Whether a process of the group is alive."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _has_living_member(group) if sys.platform == "linux" else True


def _has_living_member(group: int) -> bool:
    """Distinguish members from zombies, which stay for ever where process 1 reaps none, as in many containers."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return True  # It cannot be known.
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # "pid (command) state parent group ...", and the command may hold anything.
                state, _, member_of = file.read().rpartition(b")")[2].split()[:3]
                if int(member_of) == group and state not in (b"Z", b"X"):
                    return True
    return False


def tie_to(parent: int) -> Callable[[], None]:
    """Return the function that the child runs between fork and exec.

    Python code is safe there as long as it waits for no lock that another thread of the parent held at the fork: all
    names are looked up before, and ``PyDLL`` keeps the interpreter lock during the call.
    """
    import ctypes

    prctl = ctypes.PyDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)
    set_parent_death_signal, kill = 1, int(signal.SIGKILL)
    parent_of_caller, leave = os.getppid, os._exit

    def tie() -> None:
        prctl(set_parent_death_signal, kill)
        if parent_of_caller() != parent:
            leave(1)  # The parent died before the call, so no signal will come.

    return tie
