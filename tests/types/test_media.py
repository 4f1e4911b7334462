"""Images, sounds and files made of bytes: told by their beginnings, and refused early when they are something else."""

from __future__ import annotations

import base64
import pathlib
import zlib
from typing import Any

import pytest

from mcpio.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextResourceContents,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
WAV = b"RIFF\x24\0\0\0WAVEfmt "


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x1a\0\0\0WEBPVP8L", "image/webp"),
        (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "image/bmp"),
        (b"II*\0\x08\0\0\0", "image/tiff"),
        (b"MM\0*\0\0\0\x08", "image/tiff"),
        (b"\0\0\0\x1cftypavif", "image/avif"),
        (b"\0\0\0\x18ftypheic", "image/heic"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- by hand -->\n<svg >", "image/svg+xml"),
    ],
)
def test_image_type_is_detected_from_the_first_bytes(data: bytes, kind: str) -> None:
    for source in (data, bytearray(data), memoryview(data)):
        image = ImageContent.of(source)
        assert (image.mime_type, base64.b64decode(image.data)) == (kind, data)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (WAV, "audio/wav"),
        (b"fLaC\0\0\0\x22", "audio/flac"),
        (b"OggS\0\x02", "audio/ogg"),
        (b"ID3\x04\0", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"FORM\0\0\0\0AIFF", "audio/aiff"),
    ],
)
def test_sound_type_is_detected_from_the_first_bytes(data: bytes, kind: str) -> None:
    sound = AudioContent.of(data, annotations=Annotations(priority=1))
    assert (sound.mime_type, base64.b64decode(sound.data), sound.annotations) == (kind, data, Annotations(priority=1))
    assert AudioContent.of(data, "audio/x-other").mime_type == "audio/x-other"  # sounds have several names


def test_type_of_an_unknown_kind_given() -> None:
    image = ImageContent.of(b"farbfeld", "image/x-farbfeld", annotations=Annotations(priority=0.5))
    assert (image.mime_type, image.annotations) == ("image/x-farbfeld", Annotations(priority=0.5))
    assert ImageContent.of(PNG, "image/png; a=b").mime_type == "image/png; a=b"
    assert ImageContent.of(PNG, "image/x-png").mime_type == "image/x-png"


@pytest.mark.parametrize(
    ("source", "mime_type", "error", "said"),
    [
        (
            b"\x10\x20\x30" * 9,
            None,
            ValueError,
            "the 27 bytes are no image of a known kind. Raw pixels .* a PNG or WAV",
        ),
        (b"", None, ValueError, "the 0 bytes are no image"),
        (
            WAV,
            None,
            ValueError,
            r"mime_type must begin with image/, not 'audio/wav': other files are EmbeddedResource\.of\(data, uri\)",
        ),
        (PNG, "application/pdf", ValueError, "mime_type must begin with image/, not 'application/pdf'"),
        (PNG, "image/webp", ValueError, "mime_type must be image/png, as the bytes are, not image/webp"),
        (
            "cat.png",
            None,
            TypeError,
            r"a matplotlib figure, not of type str: for a file use mcpio\.files\.image\(path\)",
        ),
        (pathlib.PurePosixPath("cat.png"), None, TypeError, "of type PurePosixPath: for a file use"),
        (
            None,
            None,
            TypeError,
            "image content must be made of bytes, a Pillow image or a matplotlib figure, not of type NoneT",
        ),
    ],
)
def test_unknown_image_data_raises(source: Any, mime_type: str | None, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ImageContent.of(source, mime_type)


def test_unknown_sound_data_raises() -> None:
    with pytest.raises(ValueError, match="mime_type must begin with audio/, not 'image/png'"):
        AudioContent.of(PNG)
    words: Any = "a.wav"
    with pytest.raises(TypeError, match=r"made of bytes, not of type str: for a file use mcpio\.files\.audio\(path\)"):
        AudioContent.of(words)


class _Pillow:
    """Saves itself as Pillow's images do."""

    def save(self, file: Any, format: str) -> None:  # noqa: A002  Pillow's name
        file.write(b"\xff\xd8\xff" if format == "jpeg" else PNG)


class _Figure:
    """Saves itself as matplotlib's figures do."""

    def savefig(self, file: Any, format: str) -> None:  # noqa: A002  matplotlib's name
        file.write(b"<svg >" if format == "svg" else PNG)


def test_object_that_saves_itself_drawn() -> None:
    assert ImageContent.of(_Pillow()).mime_type == "image/png"
    assert ImageContent.of(_Pillow(), "image/jpeg").mime_type == "image/jpeg"
    assert ImageContent.of(_Figure()).mime_type == "image/png"
    assert ImageContent.of(_Figure(), "image/svg+xml").mime_type == "image/svg+xml"
    with pytest.raises(ValueError, match="mime_type must be image/png, as the bytes are, not image/webp"):
        ImageContent.of(_Pillow(), "image/webp")  # it did not do as it was told
    with pytest.raises(TypeError, match="not of type type"):
        ImageContent.of(_Pillow)


def test_file_embedded_as_text_or_bytes() -> None:
    text = EmbeddedResource.of("words", "file:///a.md", "text/markdown")
    assert text.resource == TextResourceContents("file:///a.md", "words", "text/markdown")
    blob = EmbeddedResource.of(b"%PDF-1.7", "file:///a.pdf", annotations=Annotations(priority=1))
    assert blob.resource == BlobResourceContents("file:///a.pdf", "JVBERi0xLjc=", "application/pdf")
    assert blob.annotations == Annotations(priority=1)
    packed = EmbeddedResource.of(zlib.compress(b"x"), "file:///a.z").resource
    assert packed.mime_type is None
    number: Any = 3
    with pytest.raises(TypeError, match="an embedded resource must be made of bytes or text, not of type int"):
        EmbeddedResource.of(number, "file:///a")
