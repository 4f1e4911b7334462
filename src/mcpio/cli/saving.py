"""``--save DIRECTORY``: write images, sounds and files of a result, instead of describing them.

The names are ours, made of the word on the command line and a number: nothing that a server sends becomes a path.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
from collections.abc import Callable
from typing import Any, Final

from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import block_text
from mcpio.types.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)

__all__ = ["Saver", "add_option", "shower"]

ENDINGS: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/zip": ".zip",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/html": ".html",
    "text/csv": ".csv",
}
"""The endings of files by media type. Others are ``.bin``: the type is the server's, and names no ending freely."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--save``."""
    parser.add_argument(
        "--save", metavar="DIRECTORY", help="write images, sounds and files there, under names such as draw-1.png"
    )


def shower(options: argparse.Namespace, word: str) -> Callable[[Any], str]:
    """Return what shows a content block as text: described, or saved first with ``--save``."""
    return block_text if options.save is None else Saver(options.save, word).show


class Saver:
    """Writes files into a directory, which it makes if necessary. It overwrites nothing."""

    def __init__(self, directory: str, word: str) -> None:
        """``word`` is the tool, prompt or resource as the user named it."""
        self._directory = directory
        self._stem = re.sub(r"[^A-Za-z0-9_-]+", "-", word).strip("-")[:60] or "result"
        self._number = 0

    def show(self, block: Any) -> str:
        """Save the data of a content block, and return a line about it; text blocks are returned unchanged."""
        match block:
            case ImageContent() | AudioContent():
                return self.save(_decoded(block.data, block.type), block.mime_type)
            case EmbeddedResource():
                return self.contents(block.resource)
        return block_text(block)

    def contents(self, contents: TextResourceContents | BlobResourceContents) -> str:
        """Save the contents of a resource, and return a line about it."""
        if isinstance(contents, TextResourceContents):
            return self.save(contents.text.encode("utf-8", "surrogatepass"), contents.mime_type or "text/plain")
        return self.save(_decoded(contents.blob, contents.uri), contents.mime_type or "")

    def save(self, data: bytes, mime_type: str) -> str:
        """Write data to the next free name. Raises Failure if that fails."""
        ending = ENDINGS.get(mime_type.partition(";")[0].strip().lower(), ".bin")
        try:
            os.makedirs(self._directory, exist_ok=True)
            while True:
                self._number += 1
                path = os.path.join(self._directory, f"{self._stem}-{self._number}{ending}")
                try:
                    with open(path, "xb") as file:
                        file.write(data)
                except FileExistsError:
                    continue
                return f"[saved: {path}, {mime_type or 'of unknown type'}, {len(data)} bytes]"
        except OSError as error:
            raise Failure(
                Exit.UNWRITABLE, f"cannot save into {self._directory!r}: {error.strerror or error}"
            ) from error


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Failure(Exit.PROTOCOL, f"the data of {what} is not base64: {error}") from error
