"""Folders of skills, and a client of a server that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linked import Link

from mcpio.app.server import Server

__all__ = ["head", "linked_to", "skill"]


def head(name: str, **members: str) -> str:
    """Return the beginning of a ``SKILL.md``."""
    told = {"name": name, "description": f"About {name}", **members}
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in told.items()) + "---\n"


def skill(folder: Path, path: str, text: str | None = None, **files: str | bytes) -> Path:
    """Write a skill, and return its directory. A file's name is a keyword with ``_`` for the dot."""
    directory = folder / path
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "SKILL.md").write_text(text or head(directory.name) + f"# {directory.name}\n")
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (directory / ".".join(name.rsplit("_", 1))).write_bytes(data)
    return directory


def linked_to(folder: Path, prefix: str | None = None, **options: Any) -> Link:
    """Return a client of a server that serves a folder."""
    import mcpio._drivers  # noqa: F401  it can read files

    server = Server("skilled", page_size=options.pop("page_size", None))
    server.skills.add_folder(folder, prefix)
    return Link(server, **options)
