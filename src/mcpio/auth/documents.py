"""JSON documents of a peer: bounded in size and depth, read member by member with their types checked, and cached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcpio.auth.errors import AuthorizationError
from mcpio.framing.json import JsonError, check_nesting, loads

__all__ = ["MAX_DOCUMENT", "DocumentCache", "flag", "max_age", "read_document", "text", "texts"]

MAX_DOCUMENT: Final = 256 * 1024
"""The most bytes of a metadata document, a token answer or a key set."""
_MAX_DEPTH: Final = 16
_KEPT_SECONDS: Final = (300.0, 86400.0)
_KEPT_DOCUMENTS: Final = 16
_MAX_AGE: Final = re.compile(r"(?:^|[ ,])max-age=([0-9]{1,10})(?![0-9])", re.IGNORECASE)


class DocumentCache:
    """Metadata documents by URL, for as long as their ``Cache-Control`` says: 5 minutes to a day.

    Those with ``no-store`` are not kept. Holds 16 documents, the latest ones. Times are Unix seconds.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, float]] = {}

    def keep(self, url: str, body: bytes, headers: Iterable[tuple[str, str]], now: float) -> None:
        """Keep a document, in place of the earlier one of its URL."""
        self._kept.pop(url, None)
        fields = list(headers)
        if any(name.lower() == "cache-control" and "no-store" in value.lower() for name, value in fields):
            return
        shortest, longest = _KEPT_SECONDS
        self._kept[url] = body, now + min(max(max_age(fields) or 0.0, shortest), longest)
        if len(self._kept) > _KEPT_DOCUMENTS:
            del self._kept[next(iter(self._kept))]

    def find(self, url: str, now: float) -> bytes | None:
        """Return the document of a URL, or ``None``."""
        body, until = self._kept.get(url, (None, 0.0))
        return body if now < until else None

    def clear(self) -> None:
        """Forget all documents."""
        self._kept.clear()


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


def max_age(headers: Iterable[tuple[str, str]]) -> float | None:
    """Return the seconds of ``max-age`` in ``Cache-Control``, or ``None`` where it has none (RFC 9111 §5.2.2.1)."""
    for name, value in headers:
        if name.lower() == "cache-control" and (found := _MAX_AGE.search(value)):
            return float(found[1])
    return None


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
