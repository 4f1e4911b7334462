"""The envelope of a stateless request: revision, capabilities, identity and log level in its ``_meta`` (ENV-01)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from mcpio.codec import codec
from mcpio.engine.payloads import encode
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.revisions import Era, Revision
from mcpio.types.base import META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_PROTOCOL_VERSION
from mcpio.types.features import LOGGING_LEVELS, ClientCapabilities, Implementation, LoggingLevel

__all__ = [
    "UNKNOWN",
    "Envelope",
    "EnvelopeReader",
    "invalid_params",
    "progress_token",
    "read_envelope",
    "unsupported_version",
    "write_envelope",
]

UNKNOWN: Final = Implementation("unknown", "0")
"""The info of a peer that sends no name and version."""


@attrs.frozen
class Envelope:
    """The context that a stateless request carries. Earlier requests add nothing to it (ENV-04)."""

    revision: Revision
    capabilities: ClientCapabilities
    info: Implementation
    log_level: LoggingLevel | None


def read_envelope(
    params: Mapping[str, Any], revisions: tuple[Revision, ...], *, header: tuple[str, ...] | None = None
) -> Envelope:
    """Return the envelope of a request.

    ``revisions`` are those that this side speaks, of either era. ``header`` holds the values of the field
    ``MCP-Protocol-Version``, where the transport has one: it must be there once and name the same version.

    Raises RequestError with the answer to the first fault. Which members are required is a property of the revision,
    so the key that names the revision comes first, then all that concerns the revision, then the rest (ERA-13).
    """
    meta = params.get("_meta")
    if meta.__class__ is not dict:
        raise _invalid("_meta", "missing" if meta is None else f"expected an object, not {meta!r:.100}")
    name = meta.get(META_PROTOCOL_VERSION)
    if not isinstance(name, str):
        raise _invalid_member(META_PROTOCOL_VERSION, meta, "a string")
    if header is not None and header != (name,):
        versions = "missing" if not header else ", ".join(header)
        fault = f"Header mismatch: MCP-Protocol-Version is {versions:.100}, the body says {name:.100}"
        raise RequestError(ErrorCode.HEADER_MISMATCH, fault)
    revision = Revision.parse(name)
    if revision is None or revision.era is not Era.STATELESS or revision not in revisions:
        raise unsupported_version(name, revisions)
    capabilities = _read(meta, META_CLIENT_CAPABILITIES, ClientCapabilities, revision)
    info = _read(meta, META_CLIENT_INFO, Implementation, revision) if META_CLIENT_INFO in meta else UNKNOWN
    level = meta.get(META_LOG_LEVEL)
    if level is not None and level not in LOGGING_LEVELS:
        raise _invalid_member(META_LOG_LEVEL, meta, "a log level")
    progress_token(meta)
    return Envelope(revision, capabilities, info, level)


class EnvelopeReader:
    """Reads envelopes as ``read_envelope`` does, and the last one of each of a few clients again without decoding it.

    Most clients send the same one with each request. Nothing is inferred from an earlier request (ENV-04): what an
    envelope says depends on its raw form alone, and that is equal.
    """

    __slots__ = ("_cache", "_revisions", "revision")

    revision: Revision | None
    """The revision of the latest envelope; ``None`` before the first."""

    def __init__(self, revisions: tuple[Revision, ...]) -> None:
        self._revisions = revisions
        self.revision = None
        # By the name and version that clients give themselves: an envelope in its raw form, and decoded.
        self._cache: dict[Any, tuple[Any, Envelope]] = {}

    def read(self, params: Mapping[str, Any], *, header: tuple[str, ...] | None = None) -> Envelope:
        """Return the envelope of a request. Raises RequestError with the answer to a bad one."""
        meta: Any = params.get("_meta")
        raw = key = None
        if meta.__class__ is dict:
            get, info = meta.get, meta.get(META_CLIENT_INFO)
            if info.__class__ is dict:
                key = (info.get("name"), info.get("version"))
            if key is not None or META_CLIENT_INFO not in meta:
                raw = (get(META_PROTOCOL_VERSION), get(META_CLIENT_CAPABILITIES), info, get(META_LOG_LEVEL))
        try:
            cached = self._cache.get(key)
        except TypeError:
            cached = None  # a malformed name has no hash
        # The progress token differs between requests, so it is left out of the comparison.
        if cached is not None and cached[0] == raw and (header is None or header == (cached[1].revision.name,)):
            if "progressToken" in meta:
                progress_token(meta)
            return cached[1]
        envelope = read_envelope(params, self._revisions, header=header)
        self.revision = envelope.revision
        if raw is not None and _may_be_kept(raw):
            if len(self._cache) >= _MOST_KNOWN:
                self._cache.clear()
            self._cache[key] = (raw, envelope)
        return envelope


def _may_be_kept(raw: Any) -> bool:
    """Return whether a value is small, and an equal one is the same JSON.

    Numbers are equal across types, and ``True`` equals 1.
    """
    values = [raw]
    for value in values:  # which grows meanwhile
        if isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            values += value
        elif value is not None and not (isinstance(value, str) and len(value) <= _LONGEST_TEXT):
            return False
        if len(values) > _MOST_VALUES:
            return False
    return True


_MOST_KNOWN: Final = 32
"""Clients whose envelopes are remembered. Beyond, all are forgotten."""

_MOST_VALUES: Final = 100
_LONGEST_TEXT: Final = 1000


def write_envelope(
    revision: Revision,
    capabilities: ClientCapabilities,
    info: Implementation | None,
    log_level: str | None,
) -> dict[str, Any]:
    """Return the members of ``_meta`` that are an envelope (ENV-01, ENV-02)."""
    own = codec(revision)
    meta = {META_PROTOCOL_VERSION: revision.name, META_CLIENT_CAPABILITIES: encode(own, capabilities)}
    if info is not None:
        meta[META_CLIENT_INFO] = encode(own, info)
    if log_level is not None:
        meta[META_LOG_LEVEL] = log_level
    return meta


def progress_token(meta: Any) -> int | str | None:
    """Return the token that the peer wants progress under, of just the type it has on the wire (PROG-01, PROG-05).

    Raises RequestError if it is neither a string nor an integer.
    """
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if token is None or token.__class__ is int or token.__class__ is str:
        return token
    raise _invalid("_meta.progressToken", f"expected a string or an integer, not {token!r:.100}")


def unsupported_version(requested: Any, revisions: Iterable[Revision]) -> RequestError:
    """Return the error for a version that cannot be served, which names those that can, newest first (VER-01)."""
    newest_first = sorted(revisions, reverse=True)
    supported = [revision.name for revision in newest_first]
    message = f"Unsupported protocol version: {requested!s:.100} (supported: {', '.join(supported)})"
    if any(revision.name == requested and revision.era is Era.HANDSHAKE for revision in newest_first):
        message = f"Unsupported protocol version: {requested} is spoken only in a session, which initialize begins"
    return RequestError(ErrorCode.UNSUPPORTED_VERSION, message, {"supported": supported, "requested": requested})


def invalid_params(error: InvalidMessage) -> RequestError:
    """Return the error that answers params which cannot be read."""
    path = f"params.{error.path}" if error.path else "params"
    return RequestError(ErrorCode.INVALID_PARAMS, f"Invalid params: {path}: {error.reason}", {"path": path})


def _read(meta: Mapping[str, Any], key: str, cls: type[Any], revision: Revision) -> Any:
    if not isinstance(meta.get(key), dict):
        raise _invalid_member(key, meta, "an object")
    try:
        return codec(revision).decode(meta[key], cls)
    except InvalidMessage as error:
        raise _invalid(f"_meta.{key}.{error.path}", error.reason) from None


def _invalid_member(key: str, meta: Mapping[str, Any], expected: str) -> RequestError:
    return _invalid(f"_meta.{key}", f"expected {expected}, not {meta[key]!r:.100}" if key in meta else "missing")


def _invalid(path: str, reason: str) -> RequestError:
    return invalid_params(InvalidMessage(path, reason))
