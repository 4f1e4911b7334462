"""Share a directory of files as resources; nothing outside of it can be read (RES-10).

Any server can be given one, whatever serves it: the files are read in threads.
"""

from __future__ import annotations

import base64
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from mimetypes import MimeTypes
from typing import Final
from urllib.parse import quote

import attrs

from mcpio.app.registry.base import PathClimbs, UnsafePath, path_segments
from mcpio.app.server import Server
from mcpio.errors import ErrorCode, Refusal, RequestError
from mcpio.refusals import RefusalCode
from mcpio.types.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)

__all__ = ["DIRECTORY", "MAX_FILE", "MOST_ENTRIES", "audio", "embedded", "image", "share_directory"]

DIRECTORY: Final = "inode/directory"
"""The MIME type of a directory (RES-11)."""
MOST_ENTRIES: Final = 1000
"""How many entries of a directory are listed, the first by name."""

MAX_FILE: Final = 20_000_000
"""The default of how many bytes a file for a result may have."""

Contents = TextResourceContents | BlobResourceContents


def share_directory(
    server: Server,
    uri: str,
    directory: str | os.PathLike[str],
    *,
    name: str | None = None,
    description: str | None = None,
    max_bytes: int = 1_000_000,
    hidden: bool = False,
    refusals: bool = False,
) -> None:
    """Share the files below ``directory``. Its URI is ``uri``, such as ``docs:///``, which ends with ``/``.

    UTF-8 files are served as text, others as blobs; the MIME type follows from the name. Reading a directory returns
    its listing, one name per line, and then as many of its files as fit. ``max_bytes`` limits what one request reads:
    a larger file is an error, -32603.

    Paths with ``..`` or a symbolic link, devices, sockets and pipes are not found (-32002), nor are names that begin
    with a dot unless ``hidden``. Where the system can open files relative to open directories, this holds even while
    files are being moved; elsewhere there is a moment between the check and the read. With ``refusals``, clients get
    codes that say why: 1036 for ``..``, 1037 for other invalid paths, 1038 for a symbolic link. ``name`` defaults to
    the directory's name.

    Raises ValueError if the URI is invalid or in use, and NotADirectoryError if ``directory`` is not a directory.
    """
    if not uri.endswith("/") or "{" in uri:
        raise ValueError(f"the URI of a directory ends with / and has no variables, unlike {uri!r:.100}")
    root = os.path.realpath(directory)
    if not os.path.isdir(root):
        raise NotADirectoryError(f"{os.fspath(directory)!r} is not a directory")
    shared = _Shared(uri, root, max_bytes, hidden, refusals)
    shown = name or os.path.basename(root) or root
    about = {"name": shown, "description": description}
    server.resource(uri, blocking=True, mime_type=DIRECTORY, **about)(lambda: shared.read(""))  # type: ignore[arg-type]  # the values of about are texts
    server.resource(f"{uri}{{+path}}", blocking=True, **about)(shared.read)  # type: ignore[arg-type]  # as above


def image(path: str | os.PathLike[str], mime_type: str | None = None, *, max_bytes: int = MAX_FILE) -> ImageContent:
    """Return the image in a file. Reads it at once, so use it in a blocking handler if the file is large or far away.

    Raises OSError if the file cannot be read, and ValueError if it is larger than ``max_bytes`` or no image. The path
    is the program's: use ``share_directory`` for paths that a client chooses.
    """
    return ImageContent.of(_content(path, max_bytes), mime_type)


def audio(path: str | os.PathLike[str], mime_type: str | None = None, *, max_bytes: int = MAX_FILE) -> AudioContent:
    """Return the sound in a file. See ``image``."""
    return AudioContent.of(_content(path, max_bytes), mime_type)


def embedded(
    path: str | os.PathLike[str], mime_type: str | None = None, *, uri: str | None = None, max_bytes: int = MAX_FILE
) -> EmbeddedResource:
    """Return a file as a resource inside of a message: UTF-8 as text, anything else as bytes. See ``image``.

    The type follows from the name; ``uri`` defaults to ``file:///`` and the file's name, without its folder.
    """
    data = _content(path, max_bytes)
    name = os.path.basename(os.fspath(path))
    place = uri or f"file:///{quote(name)}"
    contents = _as_contents(place, name, data)
    return EmbeddedResource(contents if mime_type is None else attrs.evolve(contents, mime_type=mime_type))


def _content(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    with open(path, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{os.fspath(path)!r} has more than {max_bytes} bytes; max_bytes= allows more")
    return data


class _Linked(Exception):
    """The path contains a symbolic link."""


@attrs.frozen
class _Shared:
    uri: str
    root: str
    max_bytes: int
    hidden: bool
    refusals: bool

    def read(self, path: str) -> list[Contents] | None:
        """Return the contents at a path, or ``None`` if the client may not see anything there."""
        try:
            segments = _segments(path)
            if not self.hidden and any(segment.startswith(".") for segment in segments):
                return None
            with _opened(self.root, segments) as place:
                return self._contents(place, segments)
        except PathClimbs:
            return self._refused(RefusalCode.PATH_TRAVERSAL_DETECTED)
        except UnsafePath:
            return self._refused(RefusalCode.PATH_INVALID)
        except _Linked:
            return self._refused(RefusalCode.SYMLINK_TRAVERSAL_DETECTED)
        except OSError:
            # Missing, unreadable, or not a directory: clients must not learn which.
            return None

    def _refused(self, code: RefusalCode) -> list[Contents] | None:
        if not self.refusals:
            return None
        raise Refusal(code, code.meaning)

    def _contents(self, place: _Place, segments: tuple[str, ...]) -> list[Contents] | None:
        if place.is_directory:
            return list(self._listing(place, segments))
        data = place.read(self.max_bytes) if place.size <= self.max_bytes else None
        if data is None:
            size = {"uri": self._uri(segments), "limit": self.max_bytes}
            raise RequestError(ErrorCode.INTERNAL_ERROR, "The file is too large to be read as a resource", size)
        return [_as_contents(self._uri(segments), segments[-1], data)]

    def _listing(self, place: _Place, segments: tuple[str, ...]) -> Iterator[Contents]:
        """Yield the listing of a directory, and the contents of its files while they fit."""
        names = sorted(name for name in place.names() if self._is_sayable(name))[:MOST_ENTRIES]
        found = []
        lines = ""
        left = self.max_bytes
        for name in names:
            try:
                with place.entry(name) as entry:
                    lines += f"{name}/\n" if entry.is_directory else f"{name}\n"
                    if entry.is_directory or entry.size > left:
                        continue
                    # The size counts even if the file has grown since and is left out: its bytes were read.
                    left -= entry.size
                    data = entry.read(entry.size)
            except (OSError, _Linked):
                continue
            if data is not None:
                found.append(_as_contents(self._uri((*segments, name)), name, data))
        at = self._uri(segments)
        yield TextResourceContents(at if not segments else f"{at}/", lines, DIRECTORY)
        yield from found

    def _is_sayable(self, name: str) -> bool:
        try:
            return bool(_segments(name) and name.encode()) and (self.hidden or not name.startswith("."))
        except (UnicodeEncodeError, UnsafePath):
            return False

    def _uri(self, segments: tuple[str, ...]) -> str:
        return self.uri + "/".join(quote(segment, safe="") for segment in segments)


def _segments(path: str) -> tuple[str, ...]:
    return path_segments(path, windows=os.name == "nt")


def _as_contents(uri: str, name: str, data: bytes) -> Contents:
    """Return UTF-8 data as text, and anything else as a blob."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return BlobResourceContents(uri, base64.b64encode(data).decode(), _mime_type(name, "application/octet-stream"))
    return TextResourceContents(uri, text, _mime_type(name, "text/plain"))


def _mime_type(name: str, otherwise: str) -> str:
    found, encoding = _known_types().guess_type(name, strict=False)
    return _ENCODED.get(encoding, otherwise) if encoding else found or otherwise


@cache
def _known_types() -> MimeTypes:
    """Return Python's own MIME types, without those of the system, which differ between machines."""
    types = MimeTypes()
    types.add_type("text/markdown", ".md")  # Python has it since 3.13
    return types


_ENCODED: Final = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


# Opening a file without following links.


class _Place(ABC):
    """A directory or a regular file."""

    is_directory: bool
    size: int
    """The size of a file when it was examined."""

    def __init__(self, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode) or getattr(found, "st_file_attributes", 0) & _REPARSE_POINT:
            raise _Linked
        self.is_directory = stat.S_ISDIR(found.st_mode)
        self.size = found.st_size
        if not self.is_directory and not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError("neither a file nor a directory")

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names in a directory."""

    @abstractmethod
    def entry(self, name: str) -> AbstractContextManager[_Place]:
        """Open an entry of a directory for the length of a block."""

    @abstractmethod
    def read(self, most: int) -> bytes | None:
        """Return the whole file, or ``None`` if it has more than ``most`` bytes."""


_REPARSE_POINT: Final = 0x400
"""The file attribute of links and junctions on Windows."""


class _OpenPlace(_Place):
    """An open file or directory: renaming its path has no effect on it."""

    def __init__(self, fd: int) -> None:
        super().__init__(os.fstat(fd))
        self._fd = fd

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    @contextmanager
    def entry(self, name: str) -> Iterator[_Place]:
        # Examine before opening, since opening a device can have effects; then examine what was opened.
        wanted = _PathPlace(name, os.lstat(name, dir_fd=self._fd))
        with _descriptor(name, _FOR_DIRECTORIES if wanted.is_directory else _FOR_FILES, self._fd) as fd:
            yield _OpenPlace(fd)

    def read(self, most: int) -> bytes | None:
        return _read(self._fd, most)


class _PathPlace(_Place):
    """A file or directory known by its path, for systems that cannot open files relative to a directory."""

    def __init__(self, path: str, found: os.stat_result) -> None:
        super().__init__(found)
        self._path = path
        self._found = found

    def names(self) -> list[str]:
        return os.listdir(self._path)

    @contextmanager
    def entry(self, name: str) -> Iterator[_Place]:
        path = os.path.join(self._path, name)
        yield _PathPlace(path, os.lstat(path))

    def read(self, most: int) -> bytes | None:
        with _descriptor(self._path, _FOR_FILES) as fd:
            if not os.path.samestat(os.fstat(fd), self._found):
                raise FileNotFoundError("the file was replaced")
            return _read(fd, most)


_IS_RELATIVE: Final = os.open in os.supports_dir_fd and os.listdir in os.supports_fd
"""Whether this system opens files relative to open directories."""
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
def _opened(root: str, segments: tuple[str, ...]) -> Iterator[_Place]:
    """Open the file or directory at a path, one name at a time from the root."""
    with ExitStack() as stack:
        place: _Place
        if _IS_RELATIVE:
            place = _OpenPlace(stack.enter_context(_descriptor(root, _FOR_DIRECTORIES)))
        else:
            place = _PathPlace(root, os.lstat(root))
        for segment in segments:
            place = stack.enter_context(place.entry(segment))
        yield place


@contextmanager
def _descriptor(path: str, flags: int, directory: int | None = None) -> Iterator[int]:
    fd = os.open(path, flags, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, most: int) -> bytes | None:
    parts = []
    left = most + 1
    while left > 0 and (data := os.read(fd, min(left, _PIECE))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts) if left > 0 else None
