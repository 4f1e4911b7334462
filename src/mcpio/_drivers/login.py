"""Logins: credential files, redirects, and the driver of an authorizer."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import socket
import ssl
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator
from hashlib import sha256
from inspect import isawaitable
from pathlib import Path
from typing import IO, Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar
from urllib.parse import urlsplit

import attrs
import h11

from mcpio._checks import called, check_options, chosen
from mcpio._drivers import report
from mcpio._drivers.event_loop import EventLoop, Flag
from mcpio._drivers.fetch import fetch
from mcpio._extras import extra
from mcpio.app.runtime import Runtime
from mcpio.auth.authorizer import Authorized, Authorizer, CredentialsNotSaved, Verdict
from mcpio.auth.effects import (
    ApiKey,
    AskUser,
    BearerToken,
    BindRedirect,
    CloseRedirect,
    Credentials,
    CredentialStore,
    Effect,
    Fetch,
    Flow,
    FlowContext,
    Headers,
    LoadCredentials,
    LockCredentials,
    MemoryCredentials,
    NeedAssertion,
    RestoreCredentials,
    SaveCredentials,
    ShowCode,
    Stored,
    UnlockCredentials,
)
from mcpio.auth.grants import (
    ClientCredentials,
    Device,
    EnterpriseManaged,
    OAuth,
    WorkloadIdentity,
    load_credentials,
    restore_credentials,
    save_credentials,
)
from mcpio.auth.keys import Secret
from mcpio.auth.payloads import AuthorizationOptions, PendingAuthorization
from mcpio.auth.urls import AuthorizationError, EffectFailed, Reach, host_of
from mcpio.errors import AuthorizationRequired, ConnectFailed
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.http.client import HttpClientOptions
from mcpio.types import ClientCapabilities

# ----------------------------------------------------------------------------------------------------- credential files
# Credentials in files that only their owner can read, shared by processes (AUTH-39).


def state_directory() -> Path:
    """Return where mcpio keeps what outlives a program: ``$MCPIO_HOME``, or the place that the system has for it."""
    if directory := os.environ.get("MCPIO_HOME"):
        return Path(directory)
    if sys.platform == "win32":  # pragma: no cover - tests run on Linux
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "mcpio"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "mcpio"


class FileCredentials:
    """One file for each key, of mode 0600 in a directory of mode 0700. Any number of processes may share it.

    ``path`` is the directory; by default ``credentials`` in `state_directory`. Calls raise PermissionError where others
    can read a file or own it, and OSError as files do.
    """

    blocking: bool = True

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path: Path = Path(path) if path is not None else state_directory() / "credentials"
        """The directory."""
        self._locks: dict[str, IO[bytes]] = {}
        self._mutex = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def load(self, key: str) -> Stored | None:
        """Return the record of a key and its version, or ``None``. Raises ValueError for a file that cannot be read."""
        record = self._read(self._file(key))
        return None if record is None else record[1]

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        """Replace the record of that version. Returns the new version, or ``None`` where another one is stored."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._mutex, self._alone():
            stored = self.load(key)
            if (None if stored is None else stored.version) != version:
                return None
            # A first version is random: a record that was forgotten and stored again is another one, and a process
            # that read the earlier one must not replace it.
            changed = secrets.randbits(48) if version is None else version + 1
            sealed = b64encode(self._seal(record.reveal().encode(), key)).decode()
            self._write(self._file(key), dumps({"key": key, "version": changed, "record": sealed}))
            return changed

    def forget(self, key: str) -> None:
        """Remove the record of a key."""
        if not self.path.is_dir():
            return
        file = self._file(key)
        with self._mutex, self._alone():
            _remove_temporaries(file)
            file.unlink(missing_ok=True)

    def keys(self) -> list[str]:
        """Return the keys of all records, in order. Files that cannot be read are left out."""
        names = []
        for file in self.path.glob("*.json"):
            with contextlib.suppress(ValueError, OSError):
                # Unsealing is not needed for the names, and a keyring may ask the user for its password.
                read = self._read(file, seal=False)
                if read is not None:
                    names.append(read[0])
        return sorted(names)

    def try_lock(self, key: str) -> bool:
        """Acquire the lock of a key among processes, without waiting. Returns whether it was free."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._mutex:
            if key in self._locks:
                return False
            file = _open_lock(self._file(key).with_suffix(".lock"))
            try:
                is_locked = _lock(file, wait=False)
            except BaseException:
                file.close()
                raise
            if not is_locked:
                file.close()
                return False
            self._locks[key] = file
            return True

    def unlock(self, key: str) -> None:
        """Release the lock of a key. Does nothing if it is not held."""
        with self._mutex:
            file = self._locks.pop(key, None)
        if file is not None:
            # Closing releases the lock. The file stays: without it, two processes could lock two files of one name.
            file.close()

    # Encryption is for subclasses.

    def _seal(self, data: bytes, key: str) -> bytes:
        return data

    def _unseal(self, data: bytes, key: str) -> bytes:
        return data

    # Files.

    def _file(self, key: str) -> Path:
        # The host is for the person who looks into the directory; the digest tells the keys of one host apart.
        host = re.sub(r"[^a-z0-9.-]", "-", (urlsplit(key.partition(" ")[0]).hostname or "server").lower())[:60]
        return self.path / f"{host}-{sha256(key.encode()).hexdigest()[:16]}.json"

    def _read(self, file: Path, *, seal: bool = True) -> tuple[str, Stored] | None:
        try:
            # Opened first, and judged then: between a look at the name and its opening the file could be replaced.
            descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as opened:
            _check_owner(os.fstat(descriptor), file)
            text = opened.read()
        try:
            members = loads(text)
            key, version, record = (
                str(members["key"]),
                int(members["version"]),
                b64decode(members["record"], validate=True),
            )
            plain = self._unseal(record, key).decode() if seal else ""
        except (JsonError, KeyError, TypeError, ValueError):
            raise ValueError(f"{file} holds no credentials that can be read: remove it and log in again") from None
        return key, Stored(Secret(plain), version)

    def _write(self, file: Path, data: bytes) -> None:
        _remove_temporaries(file)
        temporary = file.with_suffix(f".{secrets.token_hex(8)}")
        # Tokens are credentials: the file is never readable for others, not even for a moment.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            with open(descriptor, "wb") as opened:
                opened.write(data)
                opened.flush()
                # Otherwise a crash could leave an empty file under the name, and the refresh token would be lost.
                os.fsync(descriptor)
            os.replace(temporary, file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock out other processes, so that reading a version and replacing it are one step."""
        with _open_lock(self.path / "write.lock") as file:
            _lock(file, wait=True)
            yield


def unreadable_files(store: FileCredentials) -> list[str]:
    """Return, for each file of a store that ``keys`` leaves out, its path and why."""
    reasons = []
    for file in sorted(store.path.glob("*.json")):
        try:
            store._read(file, seal=False)  # noqa: SLF001  # a part of the class that is no interface
        except OSError as error:
            # Without strerror it is the store's own text.
            reasons.append(f"cannot read {file}: {error.strerror}" if error.strerror else str(error))
        except ValueError as error:
            reasons.append(str(error))
    return reasons


def _remove_temporaries(file: Path) -> None:
    """Remove what processes that were killed have left of a file: tokens. Nothing else may write it meanwhile."""
    for each in file.parent.glob(f"{file.stem}.{'[0-9a-f]' * 16}"):
        each.unlink(missing_ok=True)


class KeyringCredentials(FileCredentials):
    """As `FileCredentials`, but the files are encrypted, and the system's keyring holds the key.

    A keyring cannot hold the records themselves: on Windows an entry has at most 2,560 bytes. Needs the extra
    ``keyring``; raises ImportError without it.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(state_directory() / "keyring" if path is None else path)
        with extra("keyring", "KeyringCredentials"):
            import keyring  # type: ignore[import-not-found, unused-ignore]  # not in the test environment
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._keyring: Any = keyring
        self._cipher: Any = AESGCM
        self._key: bytes | None = None

    def _seal(self, data: bytes, key: str) -> bytes:
        # The key is authenticated too: a file that is moved to another server's name cannot be decrypted.
        nonce = os.urandom(12)
        return nonce + bytes(self._cipher(self._secret_key()).encrypt(nonce, data, key.encode()))

    def _unseal(self, data: bytes, key: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._cipher(self._secret_key()).decrypt(data[:12], data[12:], key.encode()))
        except InvalidTag:
            raise ValueError("encrypted with another key") from None

    def _secret_key(self) -> bytes:
        if self._key is None:
            encoded = self._keyring.get_password("mcpio", "credentials")
            if encoded is None:
                encoded = b64encode(os.urandom(32)).decode()
                self._keyring.set_password("mcpio", "credentials", encoded)
            self._key = b64decode(encoded)
        return self._key


def _check_owner(status: os.stat_result, file: Path) -> None:
    """Raise PermissionError where others can read the file, or own it, as ssh does."""
    if sys.platform == "win32":  # pragma: no cover - there the directory's access list is that of the profile
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{file} belongs to another user")
    if status.st_mode & 0o077:
        raise PermissionError(f"{file} can be read by others: chmod 600 it, or remove it and log in again")


def _open_lock(file: Path) -> IO[bytes]:
    return open(os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600), "r+b")


if sys.platform == "win32":  # pragma: no cover - tests run on Linux

    def _lock(file: IO[bytes], *, wait: bool) -> bool:
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _lock(file: IO[bytes], *, wait: bool) -> bool:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# ------------------------------------------------------------------------------------------------------------- redirect
# Receives the redirect of a browser on a loopback address, in a thread (RFC 8252 §7.3).

_HEAD_BYTES: Final = 16384
"""Bytes of a request. Browsers send some KiB, and a code may be long."""
_CONNECTIONS: Final = 32
"""The most concurrent connections. Browsers open some in advance and send nothing on them."""
_PATIENCE: Final = 30.0
"""Seconds that a connection may take for its request."""

_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>mcpio</title><p style='font:1.2em sans-serif;margin:3em'>{}</p>"
)
_DONE: Final = "The login is complete. You can close this window."
_FAILED: Final = "The login failed. The program that began it says why."
_OTHER: Final = "This is not the login that is waited for."

_FIELDS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
    ("connection", "close"),
)


class _Wait:
    """A wait in a thread, which ``close`` ends from another one."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._is_waiting = self._is_closed = False
        self._wake, self._woken = socket.socketpair()

    def close(self) -> None:
        """Stop. A wait in another thread returns ``None``. May be called at any time, and twice."""
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            # The waiting thread selects on the sockets, so only that thread may close them.
            if self._is_waiting:
                self._wake.send(b"x")
            else:
                self._free()

    def _begin(self) -> bool:
        """Return whether the wait can begin: not once closed."""
        with self._mutex:
            self._is_waiting = not self._is_closed
            return self._is_waiting

    def _end(self) -> None:
        with self._mutex:
            self._is_waiting = False
            if self._is_closed:
                self._free()

    def _free(self) -> None:
        self._wake.close()
        self._woken.close()


class RedirectReceiver(_Wait):
    """Binds one loopback port, and listens there. Raises OSError if the port is taken.

    ``host`` is a loopback address, or ``localhost`` for both 127.0.0.1 and ::1, since browsers choose one of them.
    ``port`` is ``None`` for any port; ``path`` may have a query. Requests for another path, host or login get a page of
    fixed text, and the wait goes on: no other page can end a login (AUTH-27). Nothing of a request is echoed.
    """

    def __init__(self, host: str, port: int | None, path: str) -> None:
        super().__init__()
        self._path = path
        self._listeners: list[socket.socket] = []
        try:
            self._port = self._bind("127.0.0.1" if host == "localhost" else host, port or 0)
            if host == "localhost" and _has_ipv6():
                self._bind("::1", self._port)
        except BaseException:
            self.close()
            raise
        self._origin = f"http://{f'[{host}]' if ':' in host else host}:{self._port}"

    @property
    def uri(self) -> str:
        """The redirect URI, with the port that is bound."""
        return self._origin + self._path

    def listen(self) -> None:
        """Start to listen; connections that arrive before ``wait`` are queued for it."""
        for each in self._listeners:
            _allow_reuse(each, True)
            each.listen(_CONNECTIONS)
            each.setblocking(False)

    def _bind(self, address: str, port: int) -> int:
        """Bind a port of an address, and return which one it is."""
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self._listeners.append(listener)
        if sys.platform == "win32":  # pragma: no cover - without it another process could bind the port as well
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        # The port of a login a minute ago is free, though its connection is in TIME_WAIT.
        _allow_reuse(listener, True)
        listener.bind((address, port))
        # Until this socket listens, no other process may bind the port.
        _allow_reuse(listener, False)
        return int(listener.getsockname()[1])

    def wait(self, pending: PendingAuthorization) -> str | None:
        """Wait, after ``listen``, for the redirect of a login, in a thread; return its URL, or ``None`` once closed.

        The page that the person sees is written after the checks of the state and the issuer.
        """
        connections: dict[socket.socket, tuple[h11.Connection, float]] = {}
        if not self._begin():
            return None
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            stack.callback(self.close)
            stack.callback(self._end)
            stack.callback(_close_all, connections)
            for each in (*self._listeners, self._woken):
                selector.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(_PATIENCE):
                    connection: socket.socket = key.fileobj  # type: ignore[assignment]  # only sockets are registered
                    if connection is self._woken:
                        return None
                    if connection in self._listeners:
                        with contextlib.suppress(OSError):
                            self._accept(connection, selector, connections)
                        continue
                    if connection not in connections:
                        continue  # dropped for a newer one in this round
                    target, is_over = self._read(connection, connections[connection][0])
                    if target is not None:
                        url = self._origin + target
                        if self._answer(connection, url, pending):
                            return url
                    if is_over:
                        self._drop(selector, connections, connection)
                late = [each for each, (_, since) in connections.items() if since + _PATIENCE < time.monotonic()]
                for connection in late:
                    self._drop(selector, connections, connection)

    def _accept(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        connections: dict[socket.socket, tuple[h11.Connection, float]],
    ) -> None:
        connection, _ = listener.accept()
        if len(connections) >= _CONNECTIONS:
            # The oldest: the redirect comes last, after the connections that the browser opened in advance.
            self._drop(selector, connections, next(iter(connections)))
        connection.setblocking(False)
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        connections[connection] = http, time.monotonic()
        selector.register(connection, selectors.EVENT_READ)

    def _drop(
        self,
        selector: selectors.BaseSelector,
        connections: dict[socket.socket, tuple[h11.Connection, float]],
        connection: socket.socket,
    ) -> None:
        del connections[connection]
        selector.unregister(connection)
        connection.close()

    def _read(self, connection: socket.socket, http: h11.Connection) -> tuple[str | None, bool]:
        """Return the target of a request to the redirect URI, and whether the connection has ended."""
        try:
            data = connection.recv(_HEAD_BYTES)
            http.receive_data(data)
            event = http.next_event()
        except BlockingIOError:
            return None, False
        except (OSError, h11.RemoteProtocolError):
            return None, True
        if event is h11.NEED_DATA:
            return None, False
        if not isinstance(event, h11.Request):
            return None, True
        hosts = [value for name, value in event.headers if name == b"host"]
        target = event.target.decode("latin-1")
        # The host is compared because of DNS rebinding: a page whose name resolves to this address sends its own name.
        # Browsers leave port 80 out.
        own = self._origin.removeprefix("http://").removesuffix(":80").encode()
        path = self._path.partition("?")[0] or "/"
        if event.method == b"GET" and hosts == [own] and target.partition("?")[0] == path:
            return target, True
        _send(connection, "404 Not Found", _OTHER)
        return None, True

    def _answer(self, connection: socket.socket, url: str, pending: PendingAuthorization) -> bool:
        """Write the page for a URL; return whether the URL belongs to the login."""
        if not pending.matches(url):
            _send(connection, "400 Bad Request", _OTHER)
            return False
        try:
            pending.code(url)
        except AuthorizationError:
            _send(connection, "200 OK", _FAILED)
        else:
            _send(connection, "200 OK", _DONE)
        connection.close()
        return True

    def _free(self) -> None:
        super()._free()
        for each in self._listeners:
            each.close()


def _allow_reuse(listener: socket.socket, allow: bool) -> None:
    if sys.platform != "win32":  # pragma: no branch - there, it would let another process share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, allow)


def _has_ipv6() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


def _close_all(connections: Iterable[socket.socket]) -> None:
    for each in connections:
        each.close()


def _send(connection: socket.socket, status: str, text: str) -> None:
    body = _PAGE.format(text).encode()
    fields = [*_FIELDS, ("content-length", str(len(body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    with contextlib.suppress(OSError):
        connection.sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
        connection.shutdown(socket.SHUT_WR)


# ------------------------------------------------------------------------------------------------------------- terminal
# Lines of standard input, read in a thread while a question is open.

_CONSOLE_POLL = 0.05
"""Seconds between two looks at the console of Windows, which cannot be waited for together with a socket."""


class LineReader(_Wait):
    """Reads lines of standard input until it is closed, so that no later line is taken from the program.

    It waits until a line can be read: a thread in ``readline`` could not be stopped.
    """

    def read(self) -> str | None:
        """Return the next line, in a thread; ``""`` at the end of the input, and ``None`` once closed."""
        if not self._begin():
            return None
        try:
            return sys.stdin.readline() if self._wait() else None
        finally:
            self._end()

    def _wait(self) -> bool:
        """Wait until a line can be read, and return true, or until the reader is closed."""
        try:
            stdin = sys.stdin.fileno()
        except (OSError, ValueError):
            return True  # a program has put something in its place that has no descriptor
        if sys.platform == "win32":  # pragma: no cover - tests run on Linux
            return _wait_for_console(lambda: self._is_closed)
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            try:
                selector.register(stdin, selectors.EVENT_READ)
            except PermissionError:
                return True  # a file on a disk is always ready
            ready = [key.fileobj for key, _ in selector.select()]
        return self._woken not in ready


async def read_line(to_thread: Callable[[Callable[[], str | None]], Awaitable[str | None]]) -> str | None:
    """Return the next line of standard input, ``""`` at its end. A cancelled call takes no line.

    ``to_thread`` runs a function in a thread, which a cancellation abandons.
    """
    reader = LineReader()
    try:
        return await to_thread(reader.read)
    finally:
        reader.close()


def _wait_for_console(is_closed: Callable[[], bool]) -> bool:  # pragma: no cover - tests run on Linux
    import msvcrt

    if not sys.stdin.isatty():
        return True
    while not is_closed():
        if msvcrt.kbhit():  # type: ignore[attr-defined, unused-ignore]  # on Windows
            return True
        time.sleep(_CONSOLE_POLL)  # in the thread of ``read``: on Windows no selector takes a console
    return False


# ---------------------------------------------------------------------------------------------------------------- login
# A driver's part of a client's authorization: fetches, the credential store, the redirect URI, and the user.

T = TypeVar("T")

Auth: TypeAlias = OAuth | Device | ClientCredentials | WorkloadIdentity | EnterpriseManaged | BearerToken | ApiKey
"""How a client is authorized: the values of ``auth=``."""

_LOCK_POLL: Final = 0.05
"""Seconds between two tries for a lock that another process holds."""
_RESTORE_SECONDS: Final = 5.0
"""Seconds that a cancelled renewal may take to release its lock in the store."""


class LoginOptions(TypedDict, total=False):
    """Options of authorization."""

    auth: Auth | None
    """How the client is authorized: ``OAuth()`` for a login by a person, or another value of ``mcpio.auth``."""
    credentials: CredentialStore | None
    """The credential store. By default a ``FileCredentials()`` for logins by a person, and none for other methods,
    which can get a new token without one."""
    interaction: Literal["allow", "never"]
    """Whether a person may be asked. With ``"never"``, a LoginRequired has the URL, and the login as ``pending``.
    Reconnections never ask."""
    ask_user: Callable[[AskUser | ShowCode], object] | None
    """Asks a person in place of the browser and the terminal. May return, or be awaited for, the URL that the browser
    was sent to afterwards; ``None`` leaves that to the listener on the loopback address."""


@attrs.frozen
class LoginSetup:
    """The checked options for one server."""

    url: str
    """The URL of the server, with ``http`` or ``https``."""
    method: Any
    store: CredentialStore
    interaction: Literal["allow", "never"]
    ask_user: Callable[[AskUser | ShowCode], object]
    ssl_context: ssl.SSLContext | None
    proxy: str | None
    trust_env: bool

    @classmethod
    def check(
        cls, url: str, options: Any, *, ssl_context: Any = None, proxy: Any = None, trust_env: bool = False
    ) -> Any:
        """Return the setup, or ``None`` without ``auth=``. Raises TypeError and ValueError for invalid options."""
        check_options(options, LoginOptions.__annotations__)
        method = options.get("auth")
        interaction = options.get("interaction", "allow")
        if interaction not in ("allow", "never"):
            raise ValueError(f"interaction must be 'allow' or 'never', not {interaction!r:.60}")
        # An API key is a fixed header field (``with_key``): no token is obtained or renewed.
        if method is None or isinstance(method, ApiKey):
            return None
        if not isinstance(method, AuthorizationOptions):
            raise TypeError(f"auth must be OAuth(), BearerToken(…) or another way of mcpio.auth, not {method!r:.60}")
        store = options.get("credentials")
        if store is None:
            store = FileCredentials() if isinstance(method, OAuth | Device) else MemoryCredentials()
        ask_user = options.get("ask_user")
        ask_user = ask_at_terminal if ask_user is None else called("ask_user", ask_user, "(question)")
        return cls(url, method, store, interaction, ask_user, ssl_context, proxy, trust_env)

    def authorizer(self, runtime: Runtime, now: float, *, interaction: Literal["allow", "never"]) -> Authorizer:
        """Create the machine."""
        return Authorizer(
            self.url,
            self.method,
            entropy=runtime.entropy,
            epoch=runtime.wall_clock() - now,
            interaction=interaction,
        )


def clock_of(authorizer: Authorizer, loop: EventLoop, runtime: Runtime) -> Callable[[], float]:
    """Return the clock of the loop, for calls of an authorizer. Each reading corrects its epoch.

    The clock of a loop may stand still while the machine sleeps: by a fixed epoch, all proofs would be too old from
    then on, and expired tokens would seem to be good.
    """

    def now() -> float:
        moment = loop.now()
        authorizer.epoch = runtime.wall_clock() - moment
        return moment

    return now


def with_key(options: HttpClientOptions, key: ApiKey) -> HttpClientOptions:
    """Return the options with the key among the header fields. Raises ValueError where that field is given already."""
    if any(name.lower() == key.header.lower() for name in options.headers):
        raise ValueError(f"headers must not have {key.header} beside auth=: only one of them can be sent")
    return attrs.evolve(options, headers={**options.headers, key.header: key.key.reveal()})


def declare_extension(of_client: dict[str, Any], auth: Any) -> None:
    """Add the extension that a way to be authorized is, if it is one, to a client's ``capabilities=`` (AUTH-42)."""
    if isinstance(auth, AuthorizationOptions) and auth.extension is not None:
        declared = chosen("capabilities", of_client.get("capabilities"), ClientCapabilities)
        extensions = {auth.extension: {}, **(declared.extensions or {})}
        of_client["capabilities"] = attrs.evolve(declared, extensions=extensions)


class EffectRunner:
    """Carries out the effects of a flow that need neither a person nor a lock: fetches, the store and assertions."""

    def __init__(self, setup: LoginSetup, loop: EventLoop, runtime: Runtime) -> None:
        self._setup = setup
        self._loop = loop
        self._runtime = runtime
        self._reach: Reach | None = None

    async def reach(self) -> Reach:
        """Return how far fetches may reach, asked once: to private addresses, if those of the server are private.

        A name never gives loopback addresses. Who owns a name could make it resolve to a private address, but then
        fetches are https to hosts with valid certificates.
        """
        if self._reach is None:
            self._reach = await _reach_of_server(self._setup, self._loop)
        return self._reach

    async def outcome(self, effect: Effect) -> Any:
        """Do an effect and return its answer. Raises EffectFailed, and the exceptions of the store."""
        setup, store = self._setup, self._setup.store
        match effect:
            case Fetch():
                return await fetch(
                    effect,
                    self._loop,
                    ssl_context=setup.ssl_context,
                    proxy=setup.proxy,
                    trust_env=setup.trust_env,
                    reach=await self.reach(),
                )
            case LoadCredentials(key=key):
                return await self._in_thread(lambda: store.load(key))
            case SaveCredentials(key=key, record=record, version=version):
                return await self._in_thread(lambda: store.swap(key, record, version))
            case NeedAssertion():
                return await _assertion_of(setup.method, effect)
        return None

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return function()


class SingleFlow(EffectRunner):
    """Runs one flow of ``mcpio.auth`` outside of a client: a login that is finished elsewhere, or a revocation."""

    def __init__(self, setup: LoginSetup, loop: EventLoop, runtime: Runtime) -> None:
        super().__init__(setup, loop, runtime)
        self._context: FlowContext | None = None
        self.key: str = setup.authorizer(runtime, loop.now(), interaction="never").key
        """The key of the credentials."""

    async def context(self) -> FlowContext:
        """Return the inputs of a flow that begins now; ``run`` keeps their time."""
        self._context = FlowContext(
            server_url=self._setup.url,
            entropy=self._runtime.entropy,
            now=self._runtime.wall_clock(),
            reach=await self.reach(),
        )
        return self._context

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow and return its result. Raises AuthorizationError, and the exceptions of the store."""
        try:
            effect = next(flow)
            while True:
                try:
                    answer = await self.outcome(effect)
                except EffectFailed as error:
                    effect = flow.throw(error)
                    continue
                now = self._runtime.wall_clock()
                if self._context is not None:
                    self._context.now = now
                if isinstance(effect, Fetch):
                    answer = attrs.evolve(answer, at=now)
                effect = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def finish(self, pending: PendingAuthorization, callback_url: str) -> Credentials:
        """Finish a login that waits for a person, store the credentials and return them."""
        stored, _ = await self.run(load_credentials(self.key))
        flow = self._setup.method.finish(await self.context(), pending, callback_url, stored)
        credentials: Credentials = await self.run(flow)
        await self.run(save_credentials(self.key, credentials))
        return credentials


async def _reach_of_server(setup: LoginSetup, loop: EventLoop) -> Reach:
    reach, host = Reach.of_url(setup.url), host_of(setup.url)
    if reach is not Reach.PUBLIC or setup.proxy is not None:
        return reach
    try:
        addresses = await loop.resolve(host, 443)
    except OSError:
        return reach
    kinds = {Reach.of_address(address) for address in addresses}
    return Reach.PRIVATE if kinds == {Reach.PRIVATE} else Reach.PUBLIC


async def _assertion_of(method: Any, effect: NeedAssertion) -> Secret:
    """Return the assertion that a method has, or that its function gives. Raises EffectFailed without any."""
    source = method.assertion
    if source is None:
        raise EffectFailed(f"{type(method).__name__} has no assertion= to get a JWT from")
    assertion = await _await_value(source(effect) if callable(source) else source)
    if isinstance(assertion, str):
        return Secret(assertion)
    if not isinstance(assertion, Secret):
        raise TypeError(f"assertion must return a str or a Secret, not {type(assertion).__name__}")
    return assertion


class LoginDriver(EffectRunner):
    """Does the effects of one `Authorizer`, each in a task."""

    def __init__(
        self,
        authorizer: Authorizer,
        setup: LoginSetup,
        loop: EventLoop,
        runtime: Runtime,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        on_answer: Callable[[], object],
    ) -> None:
        """``start`` starts a task, and ``on_answer`` is called after each answer."""
        super().__init__(setup, loop, runtime)
        self._authorizer = authorizer
        self._now = clock_of(authorizer, loop, runtime)
        self._start = start
        self._on_answer = on_answer
        self._receiver: RedirectReceiver | None = None
        self._terminal: LineReader | None = None
        self._store_mutex = threading.Lock()
        self._calls: set[_ThreadedCall[Any]] = set()
        self._is_over = False
        self._to_restore: RestoreCredentials | None = None
        self._is_locked = False

    def perform(self, effect: Effect) -> None:
        """Perform an effect, now or in a task."""
        if isinstance(effect, CloseRedirect):
            self._stop_asking()
        elif isinstance(effect, RestoreCredentials):
            self._to_restore = effect  # the unlocking that follows does it first
        elif isinstance(effect, UnlockCredentials):
            if self._to_restore is None:
                self._unlock()
            else:
                self._start(self._restore_and_unlock)
        else:
            self._start(lambda: self._perform(effect))

    def tell(self) -> bool:
        """Report that tokens were not stored, and return whether there was a login, which may be that of another user.

        Failures of authorization are those of the calls that wait.
        """
        has_obtained = False
        while (event := self._authorizer.next_event()) is not None:
            if isinstance(event, CredentialsNotSaved):
                report("the credential store failed: tokens are lost with the process", event.error)
            has_obtained = has_obtained or (isinstance(event, Authorized) and event.kind == "obtained")
        return has_obtained

    async def aclose(self) -> None:
        """Abandon what is under way, and release locks and listeners: cancelled or not, in bounded time.

        The tasks that perform effects are cancelled before or after: what they still call has no effect.
        """
        self._is_over = True
        for call in self._calls:
            call.leave()
        self._authorizer.interrupt()
        # An interrupted flow needs no effects any more, except one: to put back the refresh token that it took.
        while (effect := self._authorizer.next_effect()) is not None:
            if isinstance(effect, RestoreCredentials):
                self._to_restore = effect
        self._stop_asking()
        try:
            if self._to_restore is not None:
                async with self._loop.last_moment(_RESTORE_SECONDS):
                    await self._restore()
        finally:
            self._unlock()

    async def _perform(self, effect: Effect) -> None:
        try:
            if isinstance(effect, AskUser):
                await self._ask(effect)
            elif isinstance(effect, ShowCode):
                await _await_value(self._setup.ask_user(effect))
            else:
                outcome = await self.outcome(effect)
                self._authorizer.answer(effect.token, outcome, self._now())
        except AuthorizationError as error:
            self._authorizer.failed(effect.token, str(error), self._now())
        except Exception as error:
            # A store, a browser or a function of the program failed: that fails this login, and nothing else.
            self._authorizer.failed(effect.token, f"{type(error).__name__}: {error}", self._now())
        self._on_answer()

    async def outcome(self, effect: Effect) -> Any:
        """Do an effect and return its answer."""
        store = self._setup.store
        match effect:
            case BindRedirect():
                return self._bind(effect)
            case LockCredentials(key=key):
                while not await self._in_thread(lambda: store.try_lock(key), lambda: store.unlock(key)):
                    await self._runtime.sleep(_LOCK_POLL)
                self._is_locked = True
                return None
        return await super().outcome(effect)

    async def _in_thread(self, function: Callable[[], T], give_back: Callable[[], object] | None = None) -> T:
        """Call the store, in a thread if it blocks. ``give_back`` undoes a call with a true result.

        If this task is cancelled, the call may be made all the same, but none follows it that was made later: a record
        that is restored is the last one. What it acquires is given back, by the thread or here. The same holds where
        this driver is closed first. Raises EffectFailed if it is already.
        """
        if self._is_over:
            raise EffectFailed("it was cancelled")
        if not self._setup.store.blocking:
            return function()
        call = _ThreadedCall(function, give_back, self._store_mutex)
        self._calls.add(call)
        try:
            return await self._runtime.to_thread(call.run)
        except BaseException:
            call.leave()
            raise
        finally:
            self._calls.discard(call)

    async def _restore_and_unlock(self) -> None:
        await self._restore()
        self._unlock()

    async def _restore(self) -> None:
        """Give back the refresh token of a renewal that has ended without an answer."""
        effect, store = self._to_restore, self._setup.store
        if effect is None:
            return
        try:
            if store.blocking:
                restoring = _ThreadedCall(lambda: restore_credentials(store, effect), None, self._store_mutex)
                await self._runtime.to_thread(restoring.run)
            else:
                restore_credentials(store, effect)
        except Exception as error:
            report("the credentials of a renewal without an answer were not restored", error)
        self._to_restore = None

    def _bind(self, effect: BindRedirect) -> str:
        """Bind the requested port, or another one unless it is fixed: then the client is registered again."""
        self._stop_asking()
        try:
            self._receiver = RedirectReceiver(effect.host, effect.port, effect.path)
        except OSError as error:
            if effect.port is None or effect.is_fixed:
                raise EffectFailed(f"cannot listen at port {effect.port} of {effect.host}: {error.strerror}") from None
            self._receiver = RedirectReceiver(effect.host, None, effect.path)
        return self._receiver.uri

    def _unlock(self) -> None:
        if self._is_locked:
            self._is_locked = False
            self._setup.store.unlock(self._authorizer.key)

    def _stop_asking(self) -> None:
        """Stop listening for the redirect, and reading from the terminal."""
        open_ones = self._receiver, self._terminal
        self._receiver = self._terminal = None
        for each in open_ones:
            if each is not None:
                each.close()

    async def _ask(self, effect: AskUser) -> None:
        """Ask a person; the redirect of the browser or the URL that the person pastes is the answer."""
        receiver = self._receiver
        if receiver is not None:
            receiver.listen()
            self._start(lambda: self._receive(receiver, effect))
        url = await _await_value(self._setup.ask_user(effect))
        if self._setup.ask_user in (ask_at_terminal, ask_without_browser):
            has_no_browser = self._setup.ask_user is ask_without_browser or is_headless()
            if (has_no_browser or receiver is None) and sys.stdin.isatty():
                # The browser may be on another machine, where the redirect leads nowhere.
                terminal = self._terminal = LineReader()
                url = await self._runtime.to_thread(lambda: _read_pasted(terminal, effect))
            elif receiver is None:
                uri = effect.pending.redirect_uri
                raise EffectFailed(
                    f"nothing listens at the redirect URI {uri}: free its port, or give ask_user= and return the URL "
                    "at which the browser ends"
                )
        if url is not None:
            if not isinstance(url, str):
                raise TypeError(f"ask_user must return a URL or None, not {type(url).__name__}")
            if not self._authorizer.answer(effect.token, url, self._now()):
                report("the URL that was given does not belong to the login that is waited for", None)

    async def _receive(self, receiver: RedirectReceiver, effect: AskUser) -> None:
        url = await self._runtime.to_thread(lambda: receiver.wait(effect.pending))
        if url is not None:
            self._authorizer.answer(effect.token, url, self._now())
            self._on_answer()


class AuthorizedOpening:
    """Authorizes the opening requests of one client, one at a time: a session over WebSocket has no other request.

    Only the first session may ask a person to log in: a session that replaces a lost one starts unattended.
    """

    def __init__(self, setup: LoginSetup, loop: EventLoop, runtime: Runtime) -> None:
        self._setup = setup
        self._loop = loop
        self._runtime = runtime
        self._authorizer = setup.authorizer(runtime, loop.now(), interaction=setup.interaction)
        self._now = clock_of(self._authorizer, loop, runtime)
        self._openings = 0
        self._was_open = False

    async def open(
        self,
        attempt: Callable[[Headers], Awaitable[tuple[T, str | None]]],
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> T:
        """Call ``attempt`` with the header fields of a token until none is refused, and return its result.

        ``attempt`` also returns the nonce for the next proof. It raises ConnectFailed, caused by an
        AuthorizationRequired where a token is refused. ``start`` starts a task; those that still run when this method
        returns are to be cancelled.

        Raises ConnectFailed, caused by the AuthorizationError if there is no token to be had.
        """
        self._openings += 1
        call = self._openings
        answered = self._loop.signal()
        driver = LoginDriver(self._authorizer, self._setup, self._loop, self._runtime, start, answered.set)
        try:
            while True:
                headers = await self._headers(call, driver, answered)
                try:
                    opened, nonce = await attempt(headers)
                except ConnectFailed as error:
                    refusal = error.__cause__
                    if not isinstance(refusal, AuthorizationRequired):
                        raise
                    await self._on_refusal(call, refusal, driver, answered)
                else:
                    self._authorizer.succeeded(call, nonce=nonce)
                    self._was_open = True
                    return opened
        finally:
            self._authorizer.drop(call)
            await driver.aclose()

    async def _headers(self, call: int, driver: LoginDriver, answered: Flag) -> Headers:
        """Wait for a token and return its header fields."""
        while True:
            headers = self._authorizer.authorize(call, "open", self._now(), method="GET", background=self._was_open)
            if headers is not None:
                return headers
            await self._wait(driver, answered)

    async def _on_refusal(self, call: int, refusal: AuthorizationRequired, driver: LoginDriver, answered: Flag) -> None:
        """Wait until another token is available. Raises ConnectFailed if none can be obtained."""
        status, now = refusal.status, self._now()
        nonce, date = refusal.nonce, refusal.date
        verdict = self._authorizer.refused(call, status, refusal.challenges, now, nonce=nonce, date=date)
        if isinstance(verdict, AuthorizationError):
            raise _no_opening(verdict) from verdict
        if verdict is Verdict.WAIT:
            await self._wait(driver, answered)

    async def _wait(self, driver: LoginDriver, answered: Flag) -> None:
        """Perform effects until the waiting opening is ready. Raises ConnectFailed if it cannot be authorized."""
        while True:
            while (effect := self._authorizer.next_effect()) is not None:
                driver.perform(effect)
            driver.tell()
            if (ready := self._authorizer.next_ready()) is not None:
                break
            deadline = self._authorizer.next_deadline()
            with self._loop.scope(None if deadline is None else deadline - self._now()):
                await answered.wait()
            self._authorizer.handle_timeout(self._now())
        if ready.error is not None:
            raise _no_opening(ready.error) from ready.error


class _ThreadedCall(Generic[T]):
    """A call of a store in a thread, whose task may be cancelled meanwhile."""

    def __init__(
        self, function: Callable[[], T], give_back: Callable[[], object] | None, in_turn: threading.Lock
    ) -> None:
        self._function = function
        self._give_back = give_back
        self._in_turn = in_turn
        self._mutex = threading.Lock()
        self._left = threading.Event()
        self._must_give_back = False

    def run(self) -> T:
        """Make the call, in a thread. Raises EffectFailed if its task was cancelled before."""
        with self._in_turn:
            if self._left.is_set():
                raise EffectFailed("it was cancelled")
            value = self._function()
            with self._mutex:
                self._must_give_back = bool(value) and self._give_back is not None
            # The task may have left before it was known that there is something to give back.
            if self._left.is_set():
                self.leave()
        return value

    def leave(self) -> None:
        """Record that the task was cancelled, and release the resource that the call acquired."""
        with self._mutex:
            self._left.set()
            gives_back, self._must_give_back = self._must_give_back, False
        if gives_back and self._give_back is not None:
            self._give_back()


def _no_opening(error: AuthorizationError) -> ConnectFailed:
    return ConnectFailed(f"the connection is not authorized: {error}")


async def _await_value(value: Any) -> Any:
    return await value if isawaitable(value) else value


def ask_without_browser(effect: AskUser | ShowCode) -> None:
    """Print the URL, or the code for another device, on standard error."""
    if isinstance(effect, ShowCode):
        _print(f"To log in, open {effect.verification_uri} on any device and enter the code {effect.user_code}")
    else:
        _print(f"To log in at {effect.issuer}, open this URL in a browser:\n\n  {effect.url}\n")


def ask_at_terminal(effect: AskUser | ShowCode) -> None:
    """Open the browser, or print the URL if no browser can be opened."""
    if isinstance(effect, ShowCode) or is_headless():
        ask_without_browser(effect)
    else:
        _print(f"Opening a browser to log in at {effect.issuer} …")
        threading.Thread(target=_open_browser, args=[effect.url], daemon=True).start()


def is_headless() -> bool:
    """Whether a browser would be of no use: without a display, over SSH, or in CI."""
    environment = os.environ
    if any(name in environment for name in ("SSH_CONNECTION", "SSH_TTY", "CI")):
        return True
    has_display = "DISPLAY" in environment or "WAYLAND_DISPLAY" in environment
    return sys.platform not in ("win32", "darwin") and not has_display


def _open_browser(url: str) -> None:
    import webbrowser

    with contextlib.suppress(Exception):
        if webbrowser.open(url):
            return
    _print(f"To log in, open this URL in a browser:\n\n  {url}\n")


def _read_pasted(terminal: LineReader, effect: AskUser) -> str | None:
    """Return the URL that a person pastes, if it belongs to the login; ``None`` at the end of the input or question."""
    _print("Then paste the address at which the browser ends, if it shows an error there:")
    while line := terminal.read():
        if effect.pending.matches(line.strip()):
            return line.strip()
        _print("This address does not belong to the login that is waited for; paste the whole address:")
    return None


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
