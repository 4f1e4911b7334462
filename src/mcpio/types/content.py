"""Content: texts, images, audio, resources, icons and annotations."""

from __future__ import annotations

import io
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import attrs
from attrs import field

from mcpio.revisions import REV_2025_03_26, REV_2025_06_18, REV_2025_11_25
from mcpio.types._fields import Choice, Description, Payload, Unknown, payload, tagged, wire, wired
from mcpio.types.base import ObjectPayload

__all__ = [
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "ContentBlock",
    "EmbeddedResource",
    "Icon",
    "IconTheme",
    "ImageContent",
    "ResourceContents",
    "ResourceLink",
    "Role",
    "TextContent",
    "TextResourceContents",
    "UnknownContent",
    "annotations_of",
]


# ---------------------------------------------------------------------------------------------------------------- media
# Images, sounds and files as content: their bytes, and media types detected from the first bytes.

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
            raise TypeError(f"{what} content must be made of bytes{draws}, not of type {type(source).__name__}{hint}")
        data = bytes(source)
    detected = media_type(data)
    if detected is None and mime_type is None:
        raise ValueError(
            f"the {len(data)} bytes are no {what} of a known kind. Raw pixels or samples have to be encoded first, as "
            "a PNG or WAV file; for another kind of file give its mime_type"
        )
    chosen = mime_type or str(detected)
    if not chosen.startswith(f"{what}/"):
        raise ValueError(
            f"mime_type must begin with {what}/, not {chosen!r:.100}: other files are EmbeddedResource.of(data, uri)"
        )
    if (
        mime_type is not None
        and detected is not None
        and detected.partition("/")[0] == what
        and not _agree(detected, mime_type)
    ):
        raise ValueError(f"mime_type must be {detected}, as the bytes are, not {mime_type:.100}")
    return data, chosen


def _agree(detected: str, declared: str) -> bool:
    """Whether two media types may name the same kind: most sounds have several names."""
    return (
        detected == declared.partition(";")[0].strip().lower()
        or detected.startswith("audio/")
        or declared.startswith("image/x-")
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


# -------------------------------------------------------------------------------------------------------------- content
# Content blocks, resource contents, and the annotations and icons that decorate them.

Role = Literal["user", "assistant"]
IconTheme = Literal["light", "dark"]


def _fault_in_base64(text: str) -> str | None:
    try:
        a2b_base64(text, strict_mode=True)
    except ValueError:
        return "must be base64 of the standard alphabet, with padding"
    return None


def _fault_in_mime_type(text: str) -> str | None:
    return None if _MIME_TYPE.fullmatch(text) else "must be a MIME type, such as image/png"


def _fault_in_time(text: str | None) -> str | None:
    return None if text is None or _TIME.fullmatch(text) else "must be an ISO 8601 time, such as 2025-01-12T15:00:58Z"


def _fault_in_icon_address(text: str) -> str | None:
    is_known_scheme = text[:8].lower().startswith(("https://", "http://", "data:"))
    return None if is_known_scheme else "must begin with https://, http:// or data:"


_MIME_TYPE: Final = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9][\w!#$&^.+-]*(?:\s*;.*)?", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII | re.IGNORECASE
)


@payload
class Annotations(Description):
    """The audience and the importance of an item (CONT-04)."""

    audience: tuple[Role, ...] | None = None
    priority: float | None = wire(default=None, limits=(0, 1))
    """From 0, entirely optional, to 1, effectively required."""
    last_modified: str | None = wire(default=None, since=REV_2025_06_18, check=_fault_in_time)
    """An ISO 8601 time."""


@payload
class Icon(Description, since=REV_2025_11_25):
    """An icon. The peer chose its address: show it only after the checks of ICON-03."""

    src: str = field(metadata=wired(check=_fault_in_icon_address))
    """An ``http(s)`` or ``data`` URI."""
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = None
    """Sizes such as ``"48x48"``, or ``"any"``."""
    theme: IconTheme | None = None
    """The background that the icon is made for; ``None`` means any."""


@payload
class TextContent(ObjectPayload):
    """Text."""

    type: ClassVar[Literal["text"]] = "text"

    text: str
    annotations: Annotations | None = None


@payload
class ImageContent(ObjectPayload):
    """An image: ``data`` is base64 with padding (CONT-03). ``ImageContent.of`` makes it of bytes."""

    type: ClassVar[Literal["image"]] = "image"

    data: str = field(metadata=wired(check=_fault_in_base64))
    mime_type: str = field(metadata=wired(check=_fault_in_mime_type))
    annotations: Annotations | None = None

    @classmethod
    def of(cls, image: Any, mime_type: str | None = None, *, annotations: Annotations | None = None) -> ImageContent:
        """Return an image made of the bytes of an image file, of a Pillow image or of a matplotlib figure.

        The type is told by the first bytes; give ``mime_type`` for a kind that is not known. What can save itself is
        saved as PNG, or as ``mime_type`` says. Raises TypeError or ValueError, with advice, for anything else, such as
        raw pixels or a path.
        """
        data, kind = bytes_of(image, "image", mime_type)
        return cls(base64_of(data), kind, annotations)


@payload
class AudioContent(ObjectPayload, since=REV_2025_03_26):
    """Sound: ``data`` is base64 with padding (CONT-03). ``AudioContent.of`` makes it of bytes."""

    type: ClassVar[Literal["audio"]] = "audio"

    data: str = field(metadata=wired(check=_fault_in_base64))
    mime_type: str = field(metadata=wired(check=_fault_in_mime_type))
    annotations: Annotations | None = None

    @classmethod
    def of(cls, sound: bytes, mime_type: str | None = None, *, annotations: Annotations | None = None) -> AudioContent:
        """Return sound from the bytes of a sound file; the type is detected as with ``ImageContent.of``.

        Raises TypeError or ValueError, with advice, for anything else.
        """
        data, kind = bytes_of(sound, "audio", mime_type)
        return cls(base64_of(data), kind, annotations)


@payload
class TextResourceContents(ObjectPayload):
    """A resource, or a part of one, that is text."""

    uri: str
    text: str
    mime_type: str | None = None


@payload
class BlobResourceContents(ObjectPayload):
    """A resource, or a part of one, that is binary: ``blob`` is base64 with padding."""

    uri: str
    blob: str = field(metadata=wired(check=_fault_in_base64))
    mime_type: str | None = None


def _contents_class(raw: Mapping[str, Any]) -> type[Payload] | None:
    if "text" in raw:
        return TextResourceContents
    return BlobResourceContents if "blob" in raw else None


ResourceContents: TypeAlias = Annotated[TextResourceContents | BlobResourceContents, Choice(_contents_class)]
"""One of the two kinds, distinguished by ``text`` and ``blob`` (CONT-07)."""


@payload
class EmbeddedResource(ObjectPayload):
    """A resource inside a message."""

    type: ClassVar[Literal["resource"]] = "resource"

    resource: ResourceContents
    annotations: Annotations | None = None

    @classmethod
    def of(
        cls, data: bytes | str, uri: str, mime_type: str | None = None, *, annotations: Annotations | None = None
    ) -> EmbeddedResource:
        """Return a file inside a message, of any kind: text, or bytes, whose type may be detected from the first.

        Raises TypeError for data of another type.
        """
        if isinstance(data, str):
            return cls(TextResourceContents(uri, data, mime_type), annotations)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"an embedded resource must be made of bytes or text, not of type {type(data).__name__}")

        plain = bytes(data)
        return cls(BlobResourceContents(uri, base64_of(plain), mime_type or media_type(plain)), annotations)


@payload
class ResourceLink(ObjectPayload, since=REV_2025_06_18):
    """A reference to a resource, which need not be listed (TOOL-21)."""

    type: ClassVar[Literal["resource_link"]] = "resource_link"

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """In bytes, of the raw content."""
    annotations: Annotations | None = None
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)


@attrs.frozen
class UnknownContent(Unknown):
    """A content block of a type that this library or the revision does not know (CONT-06)."""

    type: str
    raw: Mapping[str, Any]
    """The whole block as received; it is sent again unchanged."""


def text_of(blocks: Iterable[Any]) -> str:
    """Return the text blocks, with a line break between them."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent))


def unknown_content(raw: Mapping[str, Any]) -> UnknownContent | None:
    """Return the block as a value, or ``None`` if it has no type."""
    kind = raw.get("type")
    return UnknownContent(kind, raw) if isinstance(kind, str) else None


ContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent,
    tagged(TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, unknown=unknown_content),
]
"""A block of a tool's result or of a prompt's message."""


def annotations_of(block: Any) -> Annotations | None:
    """Return the annotations of a content block or of the contents of a resource, or ``None``.

    The annotations of the block itself count first. An embedded resource may have them inside ``resource`` instead,
    where the specification's examples put them though its schema does not (CONT-05); malformed members there are
    dropped.
    """
    value = getattr(block, "annotations", None)
    if value is not None:
        annotations: Annotations = value
        return annotations
    contents = block.resource if isinstance(block, EmbeddedResource) else block
    inside = contents.extra.get("annotations") if isinstance(contents, ObjectPayload) else None
    return _tolerant(inside) if isinstance(inside, Mapping) else None


def _tolerant(raw: Mapping[str, Any]) -> Annotations:
    audience, priority, modified = raw.get("audience"), raw.get("priority"), raw.get("lastModified")
    roles = [role for role in ("user", "assistant") if role in audience] if isinstance(audience, list) else None
    is_number = isinstance(priority, int | float) and not isinstance(priority, bool)
    return Annotations(
        None if roles is None else tuple(roles),  # type: ignore[arg-type]  # they are the two roles
        priority if is_number else None,
        modified if isinstance(modified, str) else None,
    )
