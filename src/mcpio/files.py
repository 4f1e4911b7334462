"""Share a directory of files as resources; nothing outside of it can be read (RES-10).

Any server can be given one, whatever serves it: the files are read in threads.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import attrs

from mcpio._drivers.file_entries import FileEntry, Linked, mime_type_of, opened_entry
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
        raise ValueError(f"uri must end with / and have no variables, not {uri!r:.100}")
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
    address = uri or f"file:///{quote(name)}"
    contents = _as_contents(address, name, data)
    return EmbeddedResource(contents if mime_type is None else attrs.evolve(contents, mime_type=mime_type))


def _content(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    with open(path, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{os.fspath(path)!r} has more than {max_bytes} bytes; max_bytes= allows more")
    return data


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
            with opened_entry(self.root, segments) as opened:
                return self._contents(opened, segments)
        except PathClimbs:
            return self._refused(RefusalCode.PATH_TRAVERSAL_DETECTED)
        except UnsafePath:
            return self._refused(RefusalCode.PATH_INVALID)
        except Linked:
            return self._refused(RefusalCode.SYMLINK_TRAVERSAL_DETECTED)
        except OSError:
            # Missing, unreadable, or not a directory: clients must not learn which.
            return None

    def _refused(self, code: RefusalCode) -> list[Contents] | None:
        if not self.refusals:
            return None
        raise Refusal(code, code.meaning)

    def _contents(self, opened: FileEntry, segments: tuple[str, ...]) -> list[Contents] | None:
        if opened.is_directory:
            return list(self._listing(opened, segments))
        data = opened.read(self.max_bytes) if opened.size <= self.max_bytes else None
        if data is None:
            size = {"uri": self._uri(segments), "limit": self.max_bytes}
            raise RequestError(ErrorCode.INTERNAL_ERROR, "The file is too large to be read as a resource", size)
        return [_as_contents(self._uri(segments), segments[-1], data)]

    def _listing(self, opened: FileEntry, segments: tuple[str, ...]) -> Iterator[Contents]:
        """Yield the listing of a directory, and the contents of its files while they fit."""
        names = sorted(name for name in opened.names() if self._is_sayable(name))[:MOST_ENTRIES]
        contents = []
        lines = ""
        left = self.max_bytes
        for name in names:
            try:
                with opened.entry(name) as entry:
                    lines += f"{name}/\n" if entry.is_directory else f"{name}\n"
                    if entry.is_directory or entry.size > left:
                        continue
                    # The size counts even if the file has grown since and is left out: its bytes were read.
                    left -= entry.size
                    data = entry.read(entry.size)
            except (OSError, Linked):
                continue
            if data is not None:
                contents.append(_as_contents(self._uri((*segments, name)), name, data))
        at = self._uri(segments)
        yield TextResourceContents(at if not segments else f"{at}/", lines, DIRECTORY)
        yield from contents

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
        return BlobResourceContents(
            uri, base64.b64encode(data).decode(), mime_type_of(name, "application/octet-stream")
        )
    return TextResourceContents(uri, text, mime_type_of(name, "text/plain"))
