"""JSON documents of a peer: bounded in size and depth, and read member by member with their types checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpio.auth.errors import AuthorizationError
from mcpio.framing.json import JsonError, check_nesting, loads

__all__ = ["MAX_DOCUMENT", "flag", "read_document", "text", "texts"]

MAX_DOCUMENT: Final = 256 * 1024
"""The most bytes of a metadata document, a token answer or a key set."""
_MAX_DEPTH: Final = 16


def read_document(body: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object of a body. Raises AuthorizationError, which names ``what`` it is, for anything else."""
    if len(body) > MAX_DOCUMENT:
        raise AuthorizationError(f"{what} has more than {MAX_DOCUMENT} bytes")
    try:
        check_nesting(body, _MAX_DEPTH)
        document = loads(body)
    except JsonError as error:
        raise AuthorizationError(f"{what} is not JSON: {error.reason}") from None
    if not isinstance(document, dict):
        raise AuthorizationError(f"{what} is not a JSON object")
    return document


def text(document: Mapping[str, Any], name: str, what: str) -> str | None:
    """Return a member that is a text, ``None`` where it is absent or null. Raises AuthorizationError."""
    value = document.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise AuthorizationError(f"{what}: {name} is not a text")


def texts(document: Mapping[str, Any], name: str, what: str) -> tuple[str, ...] | None:
    """Return a member that is a list of texts, ``None`` where it is absent or null. Raises AuthorizationError."""
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise AuthorizationError(f"{what}: {name} is not a list of texts")


def flag(document: Mapping[str, Any], name: str, what: str) -> bool:
    """Return a member that is a boolean, false where it is absent or null. Raises AuthorizationError."""
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise AuthorizationError(f"{what}: {name} is not a boolean")
