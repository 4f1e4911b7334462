from __future__ import annotations

import base64

import pytest

from mcpio.app.icons import MAX_DATA_ICON, icon_fault, icon_redirect_fault, icon_type_of
from mcpio.types import Icon

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 100
SERVER = "https://tools.example.com/mcp"


def data(mime_type: str, content: bytes) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(content).decode()}"


@pytest.mark.req("ICON-03", "ICON-05", "ICON-02")
@pytest.mark.parametrize(
    "src",
    [
        "https://tools.example.com/icon.png",
        "https://tools.example.com:443/icon.png",
        "HTTPS://Tools.Example.COM/icon.png",
        "https://tools.example.com./icon.png",
        "https://icons.example.net:8443/a.png",
        data("image/png", PNG),
        data("IMAGE/PNG", PNG),
        data("image/jpg", b"\xff\xd8\xff" + b"x" * 50),
        data("image/jpeg", b"\xff\xd8\xff" + b"x" * 50),
        data("image/webp", b"RIFF\n\0\0\0WEBPVP8 "),
        data("image/gif", b"GIF89a"),
    ],
)
def test_acceptable_icons_pass(src: str) -> None:
    assert icon_fault(Icon(src), SERVER, trusted=["https://icons.example.net:8443"]) is None


@pytest.mark.req("ICON-03", "ICON-05")
@pytest.mark.parametrize(
    ("src", "fault"),
    [
        ("http://tools.example.com/icon.png", "its address begins with 'http', not https: or data:"),
        ("javascript:alert(1)", "begins with 'javascript'"),
        ("file:///etc/passwd", "begins with 'file'"),
        ("ftp://tools.example.com/i.png", "begins with 'ftp'"),
        ("ws://tools.example.com/", "begins with 'ws'"),
        ("ms-settings:display", "begins with 'ms-settings'"),
        ("//tools.example.com/i.png", "begins with"),
        ("", "begins with ''"),
        ("https://evil.example/i.png", "it comes from evil.example, which is not where the server is"),
        ("https://tools.example.com:444/i.png", "comes from tools.example.com"),
        ("https://tools.example.com.evil.example/i.png", "comes from tools.example.com.evil.example"),
        ("https://tools.example.com@evil.example/i.png", "makes no sense"),
        ("https://tools.example.com\\@evil.example/i.png", "makes no sense"),
        ("https://tools.example.com:port/", "makes no sense"),
        ("https://[::1/", "makes no sense"),
        ("https:///i.png", "makes no sense"),
        (data("image/svg+xml", b"<svg onload='x'/>"), "it is of the type 'image/svg+xml'"),
        (data("text/html", b"<script>"), "it is not an image in base64"),
        ("data:image/png,raw", "it is not an image in base64"),
        ("data:image/png;base64,AAA=A", "it is not an image in base64"),
        ("data:image/png;base64,A", "it is not an image in base64"),
        (data("image/png", b"<script>alert(1)</script>"), "it says image/png and is something else"),
        (data("image/png", b"GIF87a"), "it says image/png and is image/gif"),
        (data("image/png", PNG * MAX_DATA_ICON), "it is longer than 262144 characters"),
    ],
)
def test_unacceptable_icons_have_a_reason(src: str, fault: str) -> None:
    found = icon_fault(Icon(src), SERVER)
    assert found is not None
    assert fault in found


@pytest.mark.req("ICON-03")
def test_server_without_an_origin_may_have_only_data_uris() -> None:
    assert icon_fault(Icon("https://tools.example.com/icon.png")) is not None
    assert icon_fault(Icon(data("image/png", PNG))) is None


@pytest.mark.req("ICON-03")
@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("https://a.example/other.png", True),
        ("https://a.example:443/", True),
        ("http://a.example/i.png", False),
        ("https://b.example/i.png", False),
        ("data:image/png;base64,", False),
        ("file:///etc/passwd", False),
    ],
)
def test_redirect_is_allowed_only_within_the_origin(target: str, allowed: bool) -> None:
    assert (icon_redirect_fault("https://a.example/i.png", target) is None) == allowed


def test_redirect_from_an_invalid_url_is_refused() -> None:
    assert icon_redirect_fault("nonsense", "nonsense") is not None


@pytest.mark.req("ICON-03")
@pytest.mark.parametrize(("content", "type"), [(PNG, "image/png"), (b"<svg/>", None), (b"", None), (b"RIFFxx", None)])
def test_image_type_is_detected_from_the_content(content: bytes, type: str | None) -> None:
    assert icon_type_of(content) == type
