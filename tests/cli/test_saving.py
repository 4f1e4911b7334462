"""``--save``: what a server sends becomes files under names of ours."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from mcpio.cli import lock
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.use import Saver
from mcpio.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
)
from tests.cli.conftest import Command, Speaking

DATA = base64.b64encode(b"\x89PNG").decode()


def test_images_of_a_tool_saved(command: Command, speaking: Speaking, tmp_path: Path) -> None:
    content = [
        {"type": "text", "text": "two dots:"},
        {"type": "image", "data": DATA, "mimeType": "image/png"},
        {"type": "audio", "data": DATA, "mimeType": "audio/../../etc/passwd"},
    ]
    tool = {"name": "../draw", "inputSchema": {"type": "object"}}
    peer = speaking({"tools/list": {"tools": [tool]}, "tools/call": {"content": content}})
    folder = tmp_path / "new" / "folder"
    ran = command("call", "../draw", "--save", str(folder), server=peer)
    assert ran.status is Exit.DONE
    assert ran.out == (
        "two dots:\n"
        f"[saved: {folder}/draw-1.png, image/png, 4 bytes]\n"
        f"[saved: {folder}/draw-2.bin, audio/../../etc/passwd, 4 bytes]\n"
    )
    assert sorted(each.name for each in folder.iterdir()) == ["draw-1.png", "draw-2.bin"]
    assert (folder / "draw-1.png").read_bytes() == b"\x89PNG"


def test_existing_file_kept(tmp_path: Path) -> None:
    (tmp_path / "draw-1.png").write_text("mine")
    (tmp_path / "draw-2.png").symlink_to(tmp_path / "elsewhere")
    assert "draw-3.png" in Saver(str(tmp_path), "draw").save(b"new", "image/png")
    assert (tmp_path / "draw-1.png").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("block", "name", "data"),
    [
        (AudioContent(DATA, "audio/wav"), "a-b-1.wav", b"\x89PNG"),
        (
            EmbeddedResource(TextResourceContents("file:///x", "words", "text/markdown; a=b")),
            "a-b-1.md",
            b"words",
        ),
        (EmbeddedResource(BlobResourceContents("file:///x", DATA)), "a-b-1.bin", b"\x89PNG"),
    ],
)
def test_kinds_of_content_saved(block: Any, name: str, data: bytes, tmp_path: Path) -> None:
    assert name in Saver(str(tmp_path), "a/b").show(block)
    assert (tmp_path / name).read_bytes() == data


def test_text_shown(tmp_path: Path) -> None:
    assert Saver(str(tmp_path / "none"), "///").show(TextContent("words")) == "words"
    assert not (tmp_path / "none").exists()


def test_resource_and_prompt_saved(command: Command, server: Any, tmp_path: Path) -> None:
    ran = command("read", "bench://blob", "--save", str(tmp_path), server=server)
    assert ran.out == f"[saved: {tmp_path}/bench-blob-1.bin, of unknown type, 2 bytes]\n"
    assert (tmp_path / "bench-blob-1.bin").read_bytes() == b"\x00\x01"
    assert command("prompt", "repair", "thing=a", "--save", str(tmp_path), server=server).out.startswith("user: Repair")


def test_unwritable_directory_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"cannot save into .*/file': ") as caught:
        Saver(str(tmp_path / "file"), "x").save(b"", "")
    assert caught.value.status is Exit.UNWRITABLE


def test_malformed_data_explained(command: Command, speaking: Speaking, tmp_path: Path) -> None:
    peer = speaking({"resources/read": {"contents": [{"uri": "file:///x", "blob": "!"}]}})
    ran = command("read", "file:///x", "--save", str(tmp_path), server=peer)
    assert ran.status is Exit.PROTOCOL
    assert "base64" in ran.err


def test_json_and_save_exclude_each_other(command: Command, server: Any) -> None:
    ran = command("call", "--json", "--save", "x", "add", server=server)
    assert ran.status is Exit.USAGE
    assert "--json cannot be combined with --save" in ran.err


def test_file_that_cannot_be_replaced_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "lock.json").mkdir()
    with pytest.raises(Failure, match="cannot write"):
        lock.write(str(tmp_path / "lock.json"), "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["lock.json"]
