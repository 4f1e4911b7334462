"""Files below a directory, opened without following links, even if another process moves them meanwhile."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from mimetypes import MimeTypes
from typing import Final

__all__ = ["FileEntry", "Linked", "mime_type_of", "opened_entry"]


class Linked(Exception):
    """The path contains a symbolic link."""


class FileEntry(ABC):
    """A directory or a regular file."""

    is_directory: bool
    size: int
    """The size of a file when it was examined."""
    mark: tuple[int, ...]
    """Differs once a file was written again, as far as its file system tells."""

    def __init__(self, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode) or getattr(status, "st_file_attributes", 0) & _REPARSE_POINT:
            raise Linked
        self.is_directory = stat.S_ISDIR(status.st_mode)
        self.size = status.st_size
        self.mark = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        if not self.is_directory and not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError("neither a file nor a directory")

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names in a directory."""

    @abstractmethod
    def entry(self, name: str) -> AbstractContextManager[FileEntry]:
        """Open an entry of a directory for the length of a block."""

    @abstractmethod
    def read(self, limit: int) -> bytes | None:
        """Return the whole file, or ``None`` if it has more than ``limit`` bytes."""


_REPARSE_POINT: Final = 0x400
"""The file attribute of links and junctions on Windows."""


class _OpenEntry(FileEntry):
    """An open file or directory: renaming its path has no effect on it."""

    def __init__(self, fd: int) -> None:
        super().__init__(os.fstat(fd))
        self._fd = fd

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    @contextmanager
    def entry(self, name: str) -> Iterator[FileEntry]:
        # Examine before opening, since opening a device can have effects; then examine what was opened.
        wanted = _PathEntry(name, os.lstat(name, dir_fd=self._fd))
        with _descriptor(name, _FOR_DIRECTORIES if wanted.is_directory else _FOR_FILES, self._fd) as fd:
            yield _OpenEntry(fd)

    def read(self, limit: int) -> bytes | None:
        return _read(self._fd, limit)


class _PathEntry(FileEntry):
    """A file or directory known by its path, for systems that cannot open files relative to a directory."""

    def __init__(self, path: str, status: os.stat_result) -> None:
        super().__init__(status)
        self._path = path
        self._status = status

    def names(self) -> list[str]:
        return os.listdir(self._path)

    @contextmanager
    def entry(self, name: str) -> Iterator[FileEntry]:
        path = os.path.join(self._path, name)
        yield _PathEntry(path, os.lstat(path))

    def read(self, limit: int) -> bytes | None:
        with _descriptor(self._path, _FOR_FILES) as fd:
            if not os.path.samestat(os.fstat(fd), self._status):
                raise FileNotFoundError("the file was replaced")
            return _read(fd, limit)


_IS_RELATIVE: Final = os.open in os.supports_dir_fd and os.listdir in os.supports_fd
"""Whether this system opens files relative to open directories."""
# A file may be replaced between its examination and its opening. A link must fail then, a FIFO not wait for a writer,
# and a terminal not become that of this process.
_FOR_FILES: Final = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_FOR_DIRECTORIES: Final = _FOR_FILES | getattr(os, "O_DIRECTORY", 0)
_PIECE: Final = 1 << 20
"""Bytes per read."""


@contextmanager
def opened_entry(root: str, segments: tuple[str, ...]) -> Iterator[FileEntry]:
    """Open the file or directory at a path, one name at a time from the root."""
    with ExitStack() as stack:
        entry: FileEntry
        if _IS_RELATIVE:
            entry = _OpenEntry(stack.enter_context(_descriptor(root, _FOR_DIRECTORIES)))
        else:
            entry = _PathEntry(root, os.lstat(root))
        for segment in segments:
            entry = stack.enter_context(entry.entry(segment))
        yield entry


@contextmanager
def _descriptor(path: str, flags: int, directory: int | None = None) -> Iterator[int]:
    fd = os.open(path, flags, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, limit: int) -> bytes | None:
    # Not by the size of the status: the file may grow meanwhile. One byte over the limit tells that it is too long.
    parts = []
    left = limit + 1
    while left > 0 and (data := os.read(fd, min(left, _PIECE))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts) if left > 0 else None


def mime_type_of(name: str, otherwise: str) -> str:
    """Return the MIME type that the name of a file says."""
    type, encoding = _known_types().guess_type(name, strict=False)
    return _ENCODED.get(encoding, otherwise) if encoding else type or otherwise


@cache
def _known_types() -> MimeTypes:
    """Return Python's own MIME types, without those of the system, which differ between machines."""
    types = MimeTypes()
    types.add_type("text/markdown", ".md")  # Python has it since 3.13
    return types


_ENCODED: Final = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
