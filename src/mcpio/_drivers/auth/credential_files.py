"""Credentials in files that only their owner can read, shared by processes (AUTH-39)."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

from mcpio._extras import extra
from mcpio.auth.effects import Stored
from mcpio.auth.secret import Secret
from mcpio.framing.json import JsonError, dumps, loads

__all__ = ["CredentialStore", "FileCredentials", "KeyringCredentials", "state_directory"]


class CredentialStore(Protocol):
    """Keeps credentials by key. `mcpio.auth.MemoryCredentials` is one, and so are the classes of this module."""

    def load(self, key: str) -> Stored | None:
        """Return the record of a key and its version, or ``None``."""

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        """Replace the record of that version. Returns the new version, or ``None`` where another one is stored."""

    def forget(self, key: str) -> None:
        """Remove the record of a key."""

    def keys(self) -> list[str]:
        """Return the keys of all records."""

    def try_lock(self, key: str) -> bool:
        """Acquire the lock of a key, without waiting. Returns whether it was free."""

    def unlock(self, key: str) -> None:
        """Release the lock of a key. Does nothing if it is not held."""

    @property
    def blocking(self) -> bool:
        """Whether its calls may take long, and belong into a thread."""


def state_directory() -> Path:
    """Return where mcpio keeps what outlives a program: ``$MCPIO_HOME``, or the place that the system has for it."""
    if found := os.environ.get("MCPIO_HOME"):
        return Path(found)
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
        found = self._read(self._file(key))
        return None if found is None else found[1]

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        """Replace the record of that version. Returns the new version, or ``None`` where another one is stored."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._mutex, self._alone():
            found = self.load(key)
            if (None if found is None else found.version) != version:
                return None
            # A first version is random: a record that was forgotten and stored again is another one, and a process
            # that read the earlier one must not replace it.
            changed = secrets.randbits(48) if version is None else version + 1
            sealed = b64encode(self._seal(record.reveal().encode(), key)).decode()
            self._write(self._file(key), dumps({"key": key, "version": changed, "record": sealed}))
            return changed

    def forget(self, key: str) -> None:
        """Remove the record of a key."""
        self._file(key).unlink(missing_ok=True)

    def keys(self) -> list[str]:
        """Return the keys of all records, in order. Files that cannot be read are left out."""
        found = []
        for file in self.path.glob("*.json"):
            with contextlib.suppress(ValueError, OSError):
                read = self._read(file, seal=False)
                if read is not None:
                    found.append(read[0])
        return sorted(found)

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
            file.close()

    # Encryption is for subclasses.

    def _seal(self, data: bytes, key: str) -> bytes:
        return data

    def _unseal(self, data: bytes, key: str) -> bytes:
        return data

    # Files.

    def _file(self, key: str) -> Path:
        host = re.sub(r"[^a-z0-9.-]", "-", (urlsplit(key.partition(" ")[0]).hostname or "server").lower())[:60]
        return self.path / f"{host}-{sha256(key.encode()).hexdigest()[:16]}.json"

    def _read(self, file: Path, *, seal: bool = True) -> tuple[str, Stored] | None:
        try:
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
        temporary = file.with_suffix(f".{secrets.token_hex(8)}")
        # Tokens are credentials: the file is never readable for others, not even for a moment.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            with open(descriptor, "wb") as opened:
                opened.write(data)
                opened.flush()
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
            found = self._keyring.get_password("mcpio", "credentials")
            if found is None:
                found = b64encode(os.urandom(32)).decode()
                self._keyring.set_password("mcpio", "credentials", found)
            self._key = b64decode(found)
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
