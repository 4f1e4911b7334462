"""Images, sounds and files as content: their bytes, and media types detected from the first bytes."""

from __future__ import annotations

import io
import re
from binascii import b2a_base64
from typing import Any, Final

__all__ = ["base64_of", "bytes_of", "media_type"]

# The first bytes of each kind; the first that matches counts. RIFF and ISO containers say further on what they hold.
_BEGINNINGS: Final[tuple[tuple[str, re.Pattern[bytes]], ...]] = tuple(
    (kind, re.compile(pattern, re.DOTALL))
    for kind, pattern in (
        ("image/png", rb"\x89PNG\r\n\x1a\n"),
        ("image/jpeg", rb"\xff\xd8\xff"),
        ("image/gif", rb"GIF8[79]a"),
        ("image/webp", rb"RIFF....WEBP"),
        ("image/bmp", rb"BM.{12}[\x0c\x28\x38\x40\x6c\x7c]\0\0\0"),
        ("image/tiff", rb"II\*\0|MM\0\*"),
        ("image/avif", rb"....ftypavi[fs]"),
        ("image/heic", rb"....ftyphei[cx]"),
        (
            "image/svg+xml",
            rb"(?:\xef\xbb\xbf)?\s{0,64}(?:<\?xml[^>]{0,256}>\s{0,64})?(?:<!--.{0,512}?-->\s{0,64})?<svg[\s>]",
        ),
        ("audio/wav", rb"RIFF....WAVE"),
        ("audio/flac", rb"fLaC"),
        ("audio/ogg", rb"OggS"),
        ("audio/mpeg", rb"ID3[\x02-\x04]|\xff[\xe2-\xe7\xf2-\xf7\xfa-\xff]"),
        ("audio/aac", rb"\xff[\xf0\xf1\xf8\xf9]"),
        ("audio/mp4", rb"....ftypM4[AB] "),
        ("audio/aiff", rb"FORM....AIF[FC]"),
        ("application/pdf", rb"%PDF-"),
        ("application/zip", rb"PK\x03\x04"),
        ("application/gzip", rb"\x1f\x8b\x08"),
    )
)


def media_type(data: bytes) -> str | None:
    """Return the media type that data is recognized as by its first bytes, or ``None``."""
    for kind, beginning in _BEGINNINGS:
        if beginning.match(data):
            return kind
    return None


def base64_of(data: bytes) -> str:
    """Return data in base64 with padding (CONT-03)."""
    return b2a_base64(data, newline=False).decode("ascii")


def bytes_of(source: Any, what: str, mime_type: str | None) -> tuple[bytes, str]:
    """Return the bytes of an ``image`` or a sound (``audio``), and their media type.

    Raises TypeError if the source is neither bytes nor draws itself, and ValueError if its bytes are something else.
    """
    data = _drawn(source, mime_type) if what == "image" else None
    if data is None:
        if not isinstance(source, bytes | bytearray | memoryview):
            draws = ", a Pillow image or a matplotlib figure" if what == "image" else ""
            is_path = isinstance(source, str) or hasattr(source, "__fspath__")
            hint = f": for a file use mcpio.files.{what}(path)" if is_path else ""
            raise TypeError(f"{what} content is made of bytes{draws}, not of type {type(source).__name__}{hint}")
        data = bytes(source)
    found = media_type(data)
    if found is None and mime_type is None:
        raise ValueError(
            f"the {len(data)} bytes are no {what} of a known kind. Raw pixels or samples have to be encoded first, as "
            "a PNG or WAV file; for another kind of file give its mime_type"
        )
    chosen = mime_type or str(found)
    if not chosen.startswith(f"{what}/"):
        raise ValueError(f"{chosen} is no {what} type: use EmbeddedResource.of(data, uri) for other files")
    if mime_type is not None and found is not None and found.partition("/")[0] == what and not _agree(found, mime_type):
        raise ValueError(f"the bytes are {found}, not {mime_type}")
    return data, chosen


def _agree(found: str, given: str) -> bool:
    """Whether two media types may name the same kind: most sounds have several names."""
    return (
        found == given.partition(";")[0].strip().lower() or found.startswith("audio/") or given.startswith("image/x-")
    )


def _drawn(source: Any, mime_type: str | None) -> bytes | None:
    """Return the bytes that an object writes of itself, as Pillow's images and matplotlib's figures do, or ``None``."""
    save = getattr(source, "savefig", None) or getattr(source, "save", None)
    if not callable(save) or isinstance(source, type):
        return None
    kind = (mime_type or "image/png").partition("/")[2]
    file = io.BytesIO()
    save(file, format="svg" if kind == "svg+xml" else kind)
    return file.getvalue()
