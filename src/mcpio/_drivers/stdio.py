"""Standard input and output, and child processes."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypedDict, Unpack

import attrs

from mcpio._checks import called
from mcpio._drivers import report
from mcpio._drivers.actor import TransportAdapter
from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.setup import ConnectOptions
from mcpio._printable import printable
from mcpio.app.client import Client, ClientOptions
from mcpio.app.runtime import Driver
from mcpio.engine.client import ClientConnection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost
from mcpio.events import CloseReason, ConnectionClosed, Event, NoiseReceived

if TYPE_CHECKING:
    from mcpio.backoff import Backoff
    from mcpio.restarts import RestartPolicy


# ---------------------------------------------------------------------------------------------------------------- claim
# Standard input and output for the protocol alone (STDIO-04).


class ClaimedStdio:
    """Private copies of the descriptors 0 and 1, which ``claim_stdio`` yields. They are closed with the block."""

    __slots__ = ("input_fd", "output_fd")

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self.input_fd = input_fd
        self.output_fd = output_fd

    def release_input(self) -> None:
        """Close this process's last copy of its standard input, for good."""
        if self.input_fd != -1:
            os.close(self.input_fd)
            self.input_fd = -1

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


# ---------------------------------------------------------------------------------------------------------------- files
# Inherited descriptors, such as 0 and 1, without harm to the processes that share them.
# Non-blocking mode belongs to the open file, not to the descriptor: set it on an inherited one and every process that
# shares the file (the parent, the shell, a sibling) suddenly gets ``EAGAIN``, for as long as the file is open. So no
# flag of an inherited file is ever changed, not even for a while, and no kind of exit leaves one changed:
# ============================ =====================================================================================
# descriptor                   what is done
# ============================ =====================================================================================
# pipe (Linux)                 opened again through ``/proc/self/fd``: a separate open file over the same pipe
# terminal                     opened again, through ``/proc/self/fd`` or as the terminal's device
# socket                       used as it is, with ``MSG_DONTWAIT`` in every call
# regular file, ``/dev/null``  used as it is: it is always ready
# anything else                blocking calls in a thread
# ============================ =====================================================================================
# On Windows everything is "anything else". That includes a pipe or terminal that cannot be opened again: for want
# of ``/proc``, or because the file belongs to another user (after ``sudo -u``, say).


class Access(enum.Enum):
    """How to call the system for a file."""

    POLL = "poll"
    """Calls never block: they raise BlockingIOError, and the system's poller tells when to call again."""
    READY = "ready"
    """Calls never block, because such files are always readable and writable. Pollers reject them."""
    THREAD = "thread"
    """Calls may block, so they belong into a thread."""


@attrs.frozen
class InputFile:
    """The input and how to read it. The receiver owns the descriptor."""

    fd: int
    access: Access
    read: Callable[[int, int], bytes] = os.read
    """Reads from the descriptor at most that many bytes."""
    close: Callable[[int], None] = os.close


@attrs.frozen
class OutputFile:
    """The output and how to write it. The receiver owns the descriptor."""

    fd: int
    access: Access
    write: Callable[[int, Any], int] = os.write
    """Writes what finds room, and returns how many bytes that was."""
    shut_down: Callable[[int], None] | None = None
    """Ends the output where closing this copy of the descriptor does not."""
    close: Callable[[int], None] = os.close
    ends_for_peer: bool = True
    """Whether the peer can see the end of this output: true for pipes and sockets, not for terminals and files."""


def inherited_input(fd: int) -> InputFile:
    """Return how to read ``fd``. Closing the result does not close ``fd``, which stays the caller's."""
    kind = _kind(fd)
    read = _read_terminal if kind is _Kind.TERMINAL else os.read
    if kind is _Kind.FILE:
        return InputFile(os.dup(fd), Access.READY)
    if kind is _Kind.SOCKET:
        return _socket_input(fd)
    if kind in (_Kind.PIPE, _Kind.TERMINAL) and (own := _reopen(fd, os.O_RDONLY, kind)) is not None:
        return InputFile(own, Access.POLL, read)
    return InputFile(os.dup(fd), Access.THREAD, read)


def inherited_output(fd: int) -> OutputFile:
    """Return how to write to ``fd``, which stays the caller's.

    The other end of a pipe sees the end only when ``fd`` itself and its other copies are closed.
    """
    kind = _kind(fd)
    if kind is _Kind.FILE:
        return OutputFile(os.dup(fd), Access.READY, ends_for_peer=False)
    if kind is _Kind.SOCKET:
        return _socket_output(fd)
    if kind in (_Kind.PIPE, _Kind.TERMINAL) and (own := _reopen(fd, os.O_WRONLY, kind)) is not None:
        return OutputFile(own, Access.POLL, ends_for_peer=kind is _Kind.PIPE)
    return OutputFile(os.dup(fd), Access.THREAD)


class _Kind(enum.Enum):
    FILE = "file"
    """Always ready: a regular file or the null device."""
    PIPE = "pipe"
    TERMINAL = "terminal"
    SOCKET = "socket"
    OTHER = "other"


def _kind(fd: int) -> _Kind:
    if sys.platform == "win32":
        return _Kind.OTHER
    status = os.fstat(fd)
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return _Kind.FILE
    if stat.S_ISFIFO(mode):
        return _Kind.PIPE
    if stat.S_ISSOCK(mode):
        return _Kind.SOCKET if _is_plain_stream(fd) else _Kind.OTHER
    if stat.S_ISCHR(mode):
        if status.st_rdev == os.stat(os.devnull).st_rdev:
            return _Kind.FILE
        if os.isatty(fd):
            return _Kind.TERMINAL
    return _Kind.OTHER


def _reopen(fd: int, access: int, kind: _Kind) -> int | None:
    """Open the file of ``fd`` again, as a separate open file; ``None`` if that is refused."""
    # Not /dev/fd: outside Linux, opening it duplicates the descriptor, with shared flags.
    if sys.platform == "linux":
        path = f"/proc/self/fd/{fd}"
    elif kind is _Kind.TERMINAL:
        path = os.ttyname(fd)
    else:
        return None
    try:
        # Without O_NOCTTY, a session leader that has no terminal would acquire this one.
        return os.open(path, access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _read_terminal(fd: int, size: int) -> bytes:
    try:
        return os.read(fd, size)
    except OSError as exc:
        # EIO comes from a terminal that was hung up, or of which this process can never be in the foreground again.
        if exc.errno == errno.EIO:
            return b""
        raise


def _is_plain_stream(fd: int) -> bool:
    if not hasattr(socket, "MSG_DONTWAIT"):
        return False
    own = _socket(fd)
    try:
        return own.type == socket.SOCK_STREAM
    finally:
        own.close()


def _socket_input(fd: int) -> InputFile:
    own = _socket(fd)
    return InputFile(
        own.fileno(), Access.POLL, lambda _, size: own.recv(size, socket.MSG_DONTWAIT), close=lambda _: own.close()
    )


def _socket_output(fd: int) -> OutputFile:
    own = _socket(fd)
    return OutputFile(
        own.fileno(),
        Access.POLL,
        lambda _, data: own.send(data, socket.MSG_DONTWAIT),
        shut_down=lambda _: own.shutdown(socket.SHUT_WR),
        close=lambda _: own.close(),
    )


def _socket(fd: int) -> socket.socket:
    """Return a socket over a copy of ``fd``, in Python's blocking mode, with the shared flag unchanged."""
    blocking = os.get_blocking(fd)
    own = socket.socket(fileno=os.dup(fd))
    if own.gettimeout() is not None:
        # socket.setdefaulttimeout is in force: the new object came with a timeout, and set the flag.
        own.settimeout(None)
        os.set_blocking(fd, blocking)
    return own


# -------------------------------------------------------------------------------------------------------------- process
# Child processes: options, environment, and errors in words (STDIO-07, -08, -11).

StderrSink = Literal["inherit", "discard", "capture"] | Callable[[str], object]
"""Destination of a child's standard error: this process's own, nowhere, only ``stderr_tail``, or that and a function,
line by line."""


class ProcessOptions(TypedDict, total=False):
    """The keyword arguments of ``start_process``, for functions that pass them on."""

    env: Mapping[str, str] | None
    """Environment variables, in addition to those that every child process gets."""
    inherit_env: bool
    """Whether the child gets the whole environment of this process."""
    cwd: str | os.PathLike[str] | None
    """The working directory; ``None`` for that of this process."""
    stderr: StderrSink
    """Where its standard error goes."""
    close_grace: float
    """Seconds that it has to exit after its input was closed."""
    terminate_grace: float
    """Seconds that it has to exit after it was asked to terminate; then it is killed."""
    die_with_parent: bool
    """Whether it is killed when this process dies, where the system can do that."""


EXIT_TIMEOUT: Final = 0.5
"""Seconds for which an error message waits for the child's exit and the rest of its standard error."""

STDERR_TIMEOUT: Final = 0.2
"""Seconds to wait, after the child's end, for the end of its standard error, which another process may hold open."""


INHERITED_VARIABLES: Final = (
    (
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "USERNAME",
        "USERPROFILE",
    )
    if sys.platform == "win32"
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)
"""The environment variables that a child gets by default: none that is likely to be a secret."""


class Stderr(enum.Enum):
    """Destination of a child's standard error."""

    INHERIT = "inherit"
    DISCARD = "discard"
    PIPE = "pipe"


def default_environment() -> dict[str, str]:
    """Return the part of this process's environment that a child gets by default (STDIO-11).

    These are HOME, LOGNAME, PATH, SHELL, TERM and USER; on Windows, what programs there need to start. Values that are
    exported shell functions are left out.
    """
    variables = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    return {name: value for name, value in variables.items() if not value.startswith("()")}


@contextlib.contextmanager
def starting(argv: Any, cwd: str | None) -> Iterator[None]:
    """Context manager in which a program starts. Raises ConnectFailed in place of the system's errors.

    Raises TypeError if ``argv`` is not a list of strings.
    """
    if isinstance(argv, str | bytes) or not isinstance(argv, Sequence) or not argv:
        raise TypeError(f"argv must be a list of strings, the program first, not {argv!r}")
    try:
        yield
    except OSError as exc:
        raise ConnectFailed(f"cannot start {argv[0]!r}: {_reason(exc, argv[0], cwd)}") from exc
    except (ValueError, subprocess.SubprocessError) as exc:  # A null character in an argument, say.
        raise ConnectFailed(f"cannot start {argv[0]!r}: {exc}") from exc


def _reason(exc: OSError, program: str, cwd: str | None) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"the working directory {cwd!r} does not exist"
    if isinstance(exc, FileNotFoundError):
        if os.path.dirname(program) and os.path.exists(program):
            return "the interpreter that its first line names is not found"
        return "no such program"
    if isinstance(exc, PermissionError):
        return "it is not an executable file, or this user may not run it"
    return exc.strerror or str(exc)


def environment(env: Mapping[str, str] | None, inherit_env: bool) -> dict[str, str]:
    """Return the environment of a child. Raises TypeError for a value that is not a str."""
    base = dict(os.environ) if inherit_env else default_environment()
    variables = dict(env or {})
    for name, value in variables.items():
        if not isinstance(value, str | bytes | os.PathLike):
            raise TypeError(f"env: the value of {name!r} must be text, not of type {type(value).__name__}")
    return base | variables


def stderr_mode(sink: StderrSink) -> Stderr:
    """Return where a child's standard error goes. Raises ValueError for a value of another kind."""
    match sink:
        case "inherit":
            return Stderr.INHERIT
        case "discard":
            return Stderr.DISCARD
        case "capture":
            return Stderr.PIPE
        case _ if callable(sink):
            called("stderr", sink, "(line)")
            return Stderr.PIPE
    raise ValueError(f"stderr must be 'inherit', 'discard', 'capture' or a function, not {sink!r}")


def describe_end(program: str, returncode: int | None, stderr_tail: str) -> str:
    """Return how a program ended, with the tail of its standard error, for an error message."""
    text = f"{program!r} {describe_exit(returncode)}"
    tail = printable(stderr_tail.strip())
    return f"{text}; the end of its standard error:\n{tail}" if tail else text


def describe_exit(returncode: int | None) -> str:
    """Return how a process ended, in words."""
    if returncode is None:
        return "has not exited"
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


# --------------------------------------------------------------------------------------------------------------- stderr
# A child's standard error: its tail kept, its lines passed to a sink (STDIO-07).

TAIL_SIZE: Final = 8192
"""Bytes kept for error messages."""

MAX_LINE: Final = 65536
"""Bytes after which a line without an end is passed on as it is."""


class StderrLines:
    """Collects a child's standard error.

    ``sink`` is called with each line. If it raises an Exception, that is logged, the sink is not called again, and
    reading continues. Any other BaseException propagates.
    """

    def __init__(self, sink: Callable[[str], object] | None) -> None:
        self._sink = sink
        self._tail = bytearray()
        self._cut = False
        self._line = bytearray()

    @property
    def tail(self) -> str:
        """The last ``TAIL_SIZE`` bytes, from the beginning of a line; undecodable bytes are replaced."""
        tail = bytes(self._tail[-TAIL_SIZE:])
        if self._cut or len(self._tail) > TAIL_SIZE:
            tail = tail.partition(b"\n")[2] or tail
        return tail.decode("utf-8", "replace")

    def take(self, data: bytes) -> None:
        """Process the next bytes."""
        self._tail += data
        if len(self._tail) > 2 * TAIL_SIZE:
            del self._tail[:-TAIL_SIZE]
            self._cut = True
        if self._sink is None:
            return
        first, *others = data.split(b"\n")
        self._line += first
        for other in others:
            self._give(bytes(self._line))
            self._line[:] = other
        if len(self._line) >= MAX_LINE:
            self._give(bytes(self._line))
            self._line.clear()

    def finish(self) -> None:
        """Pass on a last line that has no end."""
        if self._line:
            self._give(bytes(self._line))
            self._line.clear()

    def _give(self, line: bytes) -> None:
        sink, self._sink = self._sink, None
        if sink is None:
            return
        try:
            sink(line.removesuffix(b"\r").decode("utf-8", "replace"))
            self._sink = sink
        except Exception as error:
            report("the function for a server's standard error failed", error)


# --------------------------------------------------------------------------------------------------------------- client
# The client of a server that is a child process, and its options, for the drivers of all event loops.

END_TIMEOUT: Final = 10.0
"""The default of ``end_timeout`` for a server, in seconds."""


class Child(Protocol):
    """A child process."""

    @property
    def stderr_tail(self) -> str:
        """The last lines of its standard error, if that is captured."""

    async def last_words(self) -> str:
        """Return how it ended, with the tail of its standard error, for an error message."""

    def close(self) -> None:
        """Start its end and return. Further calls do nothing."""

    async def aclose(self) -> None:
        """End it, and wait for its end. If cancelled, the child still ends, but is not waited for."""


class Children:
    """Starts the child processes of one client, one after another."""

    child: Any
    """The newest child, once there was one."""

    def __init__(
        self, start: Callable[[], Awaitable[Child]], make_adapter: Callable[..., TransportAdapter], loop: EventLoop
    ) -> None:
        """``start`` raises ConnectFailed. ``make_adapter`` takes a child; with ``end_is_loss``, its end is an error."""
        self._start = start
        self._make_adapter = make_adapter
        self._loop = loop
        self._has_child = False

    async def client(self, options: dict[str, Any]) -> tuple[TransportAdapter, Callable[..., StdioClient]]:
        """Start a child, and return the adapter to it and what makes its client.

        ``options`` are the arguments of the client, from which those on restarting are taken out: with ``restart`` the
        client outlives its children. Raises ConnectFailed.
        """
        policy = options.pop("restart", None)
        make = partial(StdioClient, children=self, loop=self._loop)
        if policy is None:
            options.pop("on_session_lost", None)
            return await self.connect(end_is_loss=False), make
        from mcpio._drivers.reconnecting import lasting_client

        return await lasting_client(self, policy, options, make, self._loop)

    async def connect(self, *, end_is_loss: bool = True) -> TransportAdapter:
        """Start another child, and return the adapter to it. Raises ConnectFailed."""
        self.child = await self._start()
        self._has_child = True
        return self._make_adapter(self.child, end_is_loss=end_is_loss)

    async def disconnect(self, adapter: TransportAdapter) -> str:
        """End the child, and return how it ended. If cancelled, the child still ends, but is not waited for."""
        self.child.close()
        words: str = await self.child.last_words()
        await self.child.aclose()
        return words

    def close(self) -> None:
        """Start ending the child, if there is one."""
        if self._has_child:
            self.child.close()


class StdioOptions(ProcessOptions, ConnectOptions, total=False):
    """The keyword arguments of ``open_stdio`` and ``connect_stdio``: of the process, and of all clients."""

    restart: Backoff | RestartPolicy | None
    """The policy for starting the program again after it died; ``None`` does not. See the guide."""
    on_session_lost: Callable[[], None] | None
    """With ``restart``, a plain function that is called for each lost child, after its end and before the start of the
    next one. Without it, lost children are logged."""


class StdioClient(Client):
    """A client of a server that is a child process. If the child dies, errors tell how."""

    def __init__(
        self,
        connection: ClientConnection,
        driver: Driver,
        *,
        children: Children,
        loop: EventLoop,
        **options: Unpack[ClientOptions],
    ) -> None:
        """For ``open_stdio`` and ``connect_stdio``."""
        super().__init__(connection, driver, **options)
        self._children = children
        self._loop = loop
        self._explain = self._explain_startup
        self._noise: tuple[Child | None, str] = (None, "")
        self._end_known = loop.event()

    @property
    def child(self) -> Any:
        """The child: its ``pid``, ``returncode`` and ``stderr_tail``. With ``restart``, the newest."""
        return self._children.child

    async def _explain_startup(self, error: Exception) -> Exception:
        """Return an error that describes the child's end: its exit status, and its last standard error output.

        Standard error is known where it is captured.
        """
        child = self.child
        if isinstance(error, ConnectFailed):
            explained: Exception = ConnectFailed(
                f"{error}{await self._words_on_failure(error, child)}", era_probe=error.era_probe
            )
        elif isinstance(error, ConnectionLost):
            if self.connection.phase in (Phase.CLOSING, Phase.CLOSED):
                # The end of the connection is its last event, after the failures of the requests that it ended.
                with self._loop.scope(EXIT_TIMEOUT):
                    await self._end_known.wait()
                if not self._left_by_server:
                    return error
            explained = ConnectionLost(f"{error.reason}: {await child.last_words()}")
        else:
            return error
        explained.__cause__ = error.__cause__
        return explained

    def _handle(self, event: Event) -> bool:
        if event.__class__ is NoiseReceived and self._noise[0] is not self.child:
            self._noise = (self.child, event.text)
        may_block = super()._handle(event)
        if event.__class__ is ConnectionClosed:
            self._end_known.set()
        return may_block

    async def end_process(self) -> None:
        """End the child, after the connection was closed."""
        if self._left_by_server:
            self._closed_because = await self.child.last_words()
        await self.child.aclose()

    @property
    def _left_by_server(self) -> bool:
        return self.ended is not None and self.ended.reason in (CloseReason.END_OF_FILE, CloseReason.LOST)

    async def _words_on_failure(self, error: ConnectFailed, child: Child) -> str:
        noise = f"; its output is not a message, and begins with {self._noise[1]!r}" if self._noise[0] is child else ""
        cause = error.__cause__
        if isinstance(cause, ConnectFailed):  # it ended when it was asked for its era
            cause = cause.__cause__
        if isinstance(cause, ConnectionLost):
            return f"{noise}: {await child.last_words()}"
        # The child is alive, or was ended by us: its exit status tells nothing, but its output may.
        tail = printable(child.stderr_tail.strip())
        return f"{noise}; the end of the server's standard error:\n{tail}" if tail else noise
