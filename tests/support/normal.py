"""Messages as they go out again."""

from __future__ import annotations

from typing import Any


def normal(raw: Any) -> Any:
    """Return a message as it goes out again: an array of one block becomes the block.

    A question in it keeps its method and its params only.
    """
    if isinstance(raw, list):
        return [normal(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    made = {name: normal(value) for name, value in raw.items()}
    if "inputRequests" in made and isinstance(made["inputRequests"], dict):
        asked = made["inputRequests"].items()
        made["inputRequests"] = {
            key: {name: each[name] for name in ("method", "params") if each.get(name)} for key, each in asked
        }
    if "role" in made and isinstance(made.get("content"), list) and len(made["content"]) == 1:
        made["content"] = made["content"][0]
    return made
