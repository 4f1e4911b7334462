"""Standard input and output for the protocol alone (STDIO-04)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ClaimedStdio", "claim_stdio"]


class ClaimedStdio:
    """Private copies of the descriptors 0 and 1, which ``claim_stdio`` yields. They are closed with the block."""

    __slots__ = ("input_fd", "output_fd")

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self.input_fd = input_fd
        self.output_fd = output_fd

    def release_output(self) -> None:
        """Close this process's last copy of its standard output, for good."""
        if self.output_fd != -1:
            os.close(self.output_fd)
            self.output_fd = -1


@contextmanager
def claim_stdio() -> Iterator[ClaimedStdio]:
    """Context manager that takes standard input and output away from everything else in the process.

    See ``stdio_stream``. Text that is buffered in ``sys.stdout`` goes to standard error. Raises RuntimeError inside
    another such block.
    """
    if _claims:
        raise RuntimeError("standard input and output are in use by another block")
    there = [fd for fd, file in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)) if _is_there(fd, file)]
    _fill_gaps()
    claimed = ClaimedStdio(_private_copy(0, there), _private_copy(1, there))
    _claims.append(claimed)
    text_output = sys.stdout
    if 0 in there:
        _point(0, os.open(os.devnull, os.O_RDONLY))
    if 1 in there:
        _point(1, _private_copy(2, there))
    # Only after 1 goes to standard error: the buffered text is no part of the protocol.
    _flush(text_output)
    sys.stdout = sys.stderr
    try:
        yield claimed
    finally:
        _flush(text_output)
        if sys.stdout is sys.stderr:
            sys.stdout = text_output
        _give_back(0, claimed.input_fd, there)
        _give_back(1, claimed.output_fd, there)
        _claims.clear()


_claims: list[ClaimedStdio] = []
"""The open block, or ``None``."""


def _is_there(fd: int, file: object) -> bool:
    """Return whether the process was started with this descriptor and still has it.

    If not, Python has no open file for it, and the number may belong to anything by now, such as the run's own epoll.
    """
    if file is None or getattr(file, "closed", False):
        return False
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _fill_gaps() -> None:
    """Open the null device for 0, 1 or 2 if they are closed, so that no private descriptor gets such a number."""
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        os.set_inheritable(fd, True)
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)


def _private_copy(fd: int, there: list[int]) -> int:
    return os.dup(fd) if fd in there else os.open(os.devnull, os.O_RDWR)


def _point(standard_fd: int, fd: int) -> None:
    """Make a standard descriptor refer to the file of ``fd``, and close ``fd``."""
    os.dup2(fd, standard_fd)
    os.close(fd)


def _give_back(standard_fd: int, fd: int, there: list[int]) -> None:
    if fd == -1:
        return  # Released: its replacement stays.
    if standard_fd in there:
        _point(standard_fd, fd)
    else:
        os.close(fd)


def _flush(file: object) -> None:
    flush = getattr(file, "flush", None)  # sys.stdout is None where a program has no console.
    if flush is not None:
        with contextlib.suppress(OSError, ValueError):
            flush()
