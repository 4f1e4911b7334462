from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from linked import Link

from mcpio import files
from mcpio._drivers import file_entries
from mcpio.app.server import Server
from mcpio.errors import RequestError
from mcpio.files import share_directory
from mcpio.types import BlobResourceContents, TextResourceContents

OUTSIDE = "nobody may read this"


@pytest.fixture(params=["relative to open directories", "by path"])
def docs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a directory to share, with something to hide beside it, on a system of either kind."""
    if request.param == "by path":
        monkeypatch.setattr(file_entries, "_IS_RELATIVE", False)
    (tmp_path / "secret.txt").write_text(OUTSIDE)
    shared = tmp_path / "docs"
    (shared / "sub").mkdir(parents=True)
    (shared / "a.md").write_text("# A\n")
    (shared / "b c.txt").write_text("é")
    (shared / "pixel.png").write_bytes(b"\x89PNG\xff")
    (shared / "sub" / "deep.json").write_text("{}")
    (shared / ".env").write_text(OUTSIDE)
    return shared


def linked(directory: Path, **options: Any) -> Link:
    server = Server("s")
    share_directory(server, "docs:///", directory, **options)
    return Link(server, era="handshake")


def read(link: Link, path: str) -> list[tuple[str, str, str | None]]:
    """Return what is at a path: URI, text or decoded blob, and MIME type."""
    found = []
    for contents in link.do(link.client.read_resource(f"docs:///{path}")).contents:
        if isinstance(contents, BlobResourceContents):
            text = repr(base64.b64decode(contents.blob))
        else:
            assert isinstance(contents, TextResourceContents)
            text = contents.text
        found.append((contents.uri, text, contents.mime_type))
    return found


def refused(link: Link, path: str) -> int:
    """Return the code of the error that there is instead."""
    with pytest.raises(RequestError) as caught:
        read(link, path)
    assert OUTSIDE not in str(caught.value)
    return caught.value.code


@pytest.mark.req("RES-03", "RES-10", "CONT-07")
@pytest.mark.parametrize(
    ("path", "contents"),
    [
        ("a.md", ("docs:///a.md", "# A\n", "text/markdown")),
        ("b%20c.txt", ("docs:///b%20c.txt", "é", "text/plain")),
        ("pixel.png", ("docs:///pixel.png", repr(b"\x89PNG\xff"), "image/png")),
        ("sub/deep.json", ("docs:///sub/deep.json", "{}", "application/json")),
        ("sub%2Fdeep.json", ("docs:///sub/deep.json", "{}", "application/json")),
    ],
)
def test_file_is_read(docs: Path, path: str, contents: tuple[str, str, str]) -> None:
    assert read(linked(docs), path) == [contents]


@pytest.mark.req("RES-03", "RES-11")
def test_directory_is_a_listing_with_its_files(docs: Path) -> None:
    link = linked(docs)
    assert read(link, "") == [
        ("docs:///", "a.md\nb c.txt\npixel.png\nsub/\n", "inode/directory"),
        ("docs:///a.md", "# A\n", "text/markdown"),
        ("docs:///b%20c.txt", "é", "text/plain"),
        ("docs:///pixel.png", repr(b"\x89PNG\xff"), "image/png"),
    ]
    assert (
        read(link, "sub")
        == read(link, "sub/")
        == [
            ("docs:///sub/", "deep.json\n", "inode/directory"),
            ("docs:///sub/deep.json", "{}", "application/json"),
        ]
    )


def test_directory_is_a_resource_and_files_are_a_template(docs: Path) -> None:
    link = linked(docs, description="What there is to read.")
    (resource,) = link.do(link.client.list_resources()).resources
    (template,) = link.do(link.client.list_resource_templates()).resource_templates
    assert (resource.uri, resource.name, resource.mime_type) == ("docs:///", "docs", "inode/directory")
    assert (template.uri_template, template.name, template.mime_type) == ("docs:///{+path}", "docs", None)
    assert resource.description == template.description == "What there is to read."


@pytest.mark.req("RES-10", "SEC-10")
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "sub/../../secret.txt",
        "%2e%2e/secret.txt",
        "..%2fsecret.txt",
        "%2e%2e%2fsecret.txt",
        "..%5csecret.txt",
        "..\\secret.txt",
        "%252e%252e/secret.txt",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "//etc/passwd",
        "a.md%00.png",
        "sub//deep.json",
        "./a.md",
        "a.md/",
        "a.md/x",
        "sub/deep.json/../../a.md",
        "nothing",
        "x" * 300,
        ".env",
        "%2Eenv",
        "sub/.hidden/x",
    ],
)
def test_path_outside_the_directory_is_refused(docs: Path, path: str) -> None:
    if path != "a.md/":
        assert refused(linked(docs), path) == -32002
    else:
        assert read(linked(docs), path)[0][1] == "# A\n"


@pytest.mark.req("RES-10")
def test_symbolic_link_is_not_followed(docs: Path) -> None:
    (docs / "file").symlink_to(docs.parent / "secret.txt")
    (docs / "up").symlink_to(docs.parent)
    (docs / "inside").symlink_to("a.md")
    link = linked(docs)
    for path in ("file", "up", "up/secret.txt", "up/docs/a.md", "inside"):
        assert refused(link, path) == -32002
    assert [uri for uri, _, _ in read(link, "")[1:]] == ["docs:///a.md", "docs:///b%20c.txt", "docs:///pixel.png"]
    assert read(link, "")[0][1] == "a.md\nb c.txt\npixel.png\nsub/\n"


def test_directory_may_itself_be_a_link(docs: Path) -> None:
    (docs.parent / "alias").symlink_to(docs)
    assert read(linked(docs.parent / "alias"), "a.md")[0][1] == "# A\n"


@pytest.mark.req("RES-10")
@pytest.mark.parametrize(
    ("path", "code"), [("../secret.txt", 1036), ("a//b", 1037), ("a%00", 1037), ("file", 1038), ("nothing", -32002)]
)
def test_refusals_option_sends_the_reason_to_clients(docs: Path, path: str, code: int) -> None:
    (docs / "file").symlink_to(docs.parent / "secret.txt")
    assert refused(linked(docs, refusals=True), path) == code


def test_special_file_is_not_opened(docs: Path) -> None:
    os.mkfifo(docs / "pipe")
    link = linked(docs)
    assert refused(link, "pipe") == -32002
    assert "pipe" not in read(link, "")[0][1]


@pytest.fixture
def swapped(docs: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Path], None]], None]:
    """Return what has a file replaced just after it was looked at."""

    def prepare(put: Callable[[Path], None]) -> None:
        look: Callable[..., os.stat_result] = os.lstat

        def look_and_swap(path: Any, **options: Any) -> os.stat_result:
            found = look(path, **options)
            if str(path).endswith("a.md"):
                (docs / "a.md").unlink()
                put(docs / "a.md")
            return found

        monkeypatch.setattr(os, "lstat", look_and_swap)

    return prepare


@pytest.mark.req("RES-10")
def test_file_replaced_by_a_link_is_refused(docs: Path, swapped: Any) -> None:
    link = linked(docs)
    swapped(lambda path: path.symlink_to(docs.parent / "secret.txt"))
    assert refused(link, "a.md") == -32002


def test_file_replaced_after_its_check_is_refused(docs: Path, swapped: Any) -> None:
    link = linked(docs)
    (docs.parent / "other").write_text("other")
    swapped((docs.parent / "other").rename)
    if file_entries._IS_RELATIVE:
        assert read(link, "a.md")[0][1] == "other"
    else:
        assert refused(link, "a.md") == -32002


def test_oversized_file_is_an_error_and_not_listed(docs: Path) -> None:
    link = linked(docs, max_bytes=5)
    (docs / "a.md").write_text("12345")
    assert read(link, "a.md")[0][1] == "12345"
    (docs / "a.md").write_text("123456")
    with pytest.raises(RequestError, match="too large to be read") as caught:
        read(link, "a.md")
    assert (caught.value.code, caught.value.data) == (-32603, {"uri": "docs:///a.md", "limit": 5})
    listing, *others = read(link, "")
    assert listing[1] == "a.md\nb c.txt\npixel.png\nsub/\n"
    assert [uri for uri, _, _ in others] == ["docs:///b%20c.txt"]


def test_listing_is_limited_in_bytes(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        (docs / f"{number}.txt").write_bytes(b"x" * (900 if number % 2 else 1100))
    amount = 0

    def counted(fd: int, size: int) -> bytes:
        nonlocal amount
        data = os_read(fd, size)
        amount += len(data)
        return data

    os_read = os.read
    monkeypatch.setattr(os, "read", counted)
    names = [uri for uri, _, _ in read(linked(docs, max_bytes=1000), "")[1:]]
    assert "docs:///1.txt" in names
    assert amount <= 1000
    assert refused(linked(docs, max_bytes=1000), "0.txt") == -32603
    assert amount <= 1000


def test_file_growing_while_listed_is_left_out(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (docs / "a.md").write_bytes(b"1234")
    os_read = os.read
    monkeypatch.setattr(os, "read", lambda fd, size: os_read(fd, size) or b"5")
    listing, *others = read(linked(docs, max_bytes=1000), "")
    assert listing[1].startswith("a.md\n")
    assert others == []


def test_hidden_files_are_shared_on_request(docs: Path) -> None:
    link = linked(docs, hidden=True, name="all of it")
    assert read(link, ".env")[0][1] == OUTSIDE
    assert read(link, "")[0][1].startswith(".env\n")


def test_long_listing_is_truncated(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ENTRIES", 2)
    assert read(linked(docs), "")[0][1] == "a.md\nb c.txt\n"


def test_names_without_a_uri_are_left_out(docs: Path) -> None:
    for name in (b"\xff", b"line\nbreak", b"back\\slash"):
        Path(os.fsdecode(os.fsencode(docs) + b"/" + name)).write_text("x")
    assert read(linked(docs), "")[0][1] == "a.md\nb c.txt\npixel.png\nsub/\n"


@pytest.mark.parametrize(
    ("name", "data", "mime_type"),
    [
        ("noext", b"text", "text/plain"),
        ("noext", b"\xff", "application/octet-stream"),
        ("nul.txt", b"a\0b", "text/plain"),
        ("x.tar.gz", b"\x1f\x8b\xff", "application/gzip"),
        ("x.txt.Z", b"\xff", "application/octet-stream"),
    ],
)
def test_mime_type_follows_from_the_name(docs: Path, name: str, data: bytes, mime_type: str) -> None:
    (docs / name).write_bytes(data)
    ((_, _, found),) = read(linked(docs), name)
    assert found == mime_type


def test_unreadable_file_is_not_found(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> int:
        raise PermissionError("not for you")

    link = linked(docs)
    monkeypatch.setattr(os, "open", refuse)
    assert refused(link, "a.md") == -32002


@pytest.mark.parametrize("uri", ["docs:", "docs://{x}/", "docs"])
def test_uri_must_end_with_a_slash(docs: Path, uri: str) -> None:
    with pytest.raises(ValueError, match="uri must end with / and have no variables"):
        share_directory(Server("s"), uri, docs)


def test_sharing_a_file_as_a_directory_raises(docs: Path) -> None:
    with pytest.raises(NotADirectoryError, match="is not a directory"):
        share_directory(Server("s"), "docs:///", docs / "a.md")


# Files for results


def test_image_and_sound_of_files_read(tmp_path: Path) -> None:
    (tmp_path / "dot").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "beep.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    assert files.image(tmp_path / "dot").mime_type == "image/png"
    assert files.audio(str(tmp_path / "beep.wav")).mime_type == "audio/wav"
    with pytest.raises(ValueError, match="mime_type must begin with image/, not 'audio/wav'"):
        files.image(tmp_path / "beep.wav")
    with pytest.raises(ValueError, match=r"'.*dot' has more than 4 bytes; max_bytes= allows more"):
        files.image(tmp_path / "dot", max_bytes=4)
    with pytest.raises(FileNotFoundError):
        files.image(tmp_path / "none")


def test_file_embedded_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "my plan.md").write_text("a plan")
    (tmp_path / "plan.pdf").write_bytes(b"%PDF\0")
    text = files.embedded(tmp_path / "my plan.md").resource
    assert text == TextResourceContents("file:///my%20plan.md", "a plan", "text/markdown")
    blob = files.embedded(tmp_path / "plan.pdf", uri="plan:///x").resource
    assert (blob.uri, blob.mime_type) == ("plan:///x", "application/pdf")
    assert files.embedded(tmp_path / "plan.pdf", "application/x-plan").resource.mime_type == "application/x-plan"
