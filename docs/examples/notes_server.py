"""Notes as resources: whoever subscribed to one hears when it changes."""

from __future__ import annotations

import trio

from mcpio import Server, ToolError
from mcpio.app import best_matches
from mcpio.trio import serve_stdio

server = Server("notes", "1.0")
NOTES = {"groceries": "milk\n", "work": "call Ada\n"}


@server.resource("notes://all", mime_type="text/plain")
def names() -> str:
    """List the names of all notes, one a line."""
    return "\n".join(sorted(NOTES))


@server.resource("notes://all/{name}", mime_type="text/plain")
def note(name: str) -> str | None:
    """Read one note."""
    return NOTES.get(name)


@server.completion("name", resource="notes://all/{name}")
def known_names(text: str) -> list[str]:
    return best_matches(text, sorted(NOTES))


@server.tool
def write(name: str, line: str) -> str:
    """Add a line to a note, which need not exist."""
    if "/" in name or not name:
        raise ToolError("a name has no slash in it, and is not empty")
    NOTES[name] = NOTES.get(name, "") + f"{line}\n"
    clients = server.notify_resource_updated(f"notes://all/{name}", within="notes://all")
    return f"written; clients notified: {clients}"


if __name__ == "__main__":
    trio.run(serve_stdio, server)
