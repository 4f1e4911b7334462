"""The era of a server, as a client determines it from the outcome of ``server/discover`` (ERA-02 to ERA-09).

Nothing here has a state, so the same table serves channels and HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import attrs

from mcpio._printable import printable
from mcpio.errors import (
    ConnectFailed,
    ErrorCode,
    InvalidMessage,
    McpError,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.revisions import Era, Revision
from mcpio.types.discovery import DiscoverResult

__all__ = ["Initialize", "ProbeAgain", "Refuse", "SettleStateless", "Verdict", "judge", "revision_to_probe"]


@attrs.frozen
class SettleStateless:
    """The server is stateless, and speaks a revision that the client speaks too."""

    revision: Revision
    """The newest in common."""


@attrs.frozen
class Initialize:
    """The server is one of the handshake era: send ``initialize``."""


@attrs.frozen
class ProbeAgain:
    """The server is stateless, and speaks another revision: send ``server/discover`` once more."""

    revision: Revision
    """The revision to name."""


@attrs.frozen
class Refuse:
    """The client cannot use the server: the opening fails."""

    error: McpError
    """The reason."""
    supported: tuple[str, ...] | None = None
    """The revisions that the server speaks, if none of them is shared."""


Verdict: TypeAlias = SettleStateless | Initialize | ProbeAgain | Refuse


def judge(
    outcome: DiscoverResult | McpError, revisions: Iterable[Revision], *, again: bool = False, over_http: bool = False
) -> Verdict:
    """Return what to do after a ``server/discover`` at the opening.

    Args:
        outcome: The result, or the error of the request.
        revisions: The revisions that the client speaks, of either era. Without one of the handshake era, ``Initialize``
            becomes ``Refuse``.
        again: Whether the server refused a version before: a second time is final.
        over_http: Whether there are header fields, and silence means that something on the way is broken.

    """
    spoken = tuple(revisions)
    verdict = _judge(outcome, spoken, again=again, over_http=over_http)
    if isinstance(verdict, Initialize) and not any(each.era is Era.HANDSHAKE for each in spoken):
        said = f"the server does not speak {_names(spoken)}"
        cause = outcome if isinstance(outcome, McpError) else None
        return Refuse(_failed(said if cause is None else f"{said}: {cause}", cause))
    return verdict


def revision_to_probe(error: RequestError, revisions: Iterable[Revision]) -> Revision | None:
    """Return the revision to probe with after a refused ``initialize``, or ``None`` if the refusal is final.

    A server that settles on the era of its first message may have taken a late probe for that (ERA-03).
    """
    supported = _supported(error)
    return None if supported is None else _newest(revisions, supported, Era.STATELESS)


def _judge(outcome: Any, spoken: tuple[Revision, ...], *, again: bool, over_http: bool) -> Verdict:
    if isinstance(outcome, DiscoverResult):
        revision = _newest(spoken, outcome.supported_versions, Era.STATELESS)
        if revision is not None:
            return SettleStateless(revision)
        return _without_stateless(outcome.supported_versions, spoken, None)
    if isinstance(outcome, RequestError):
        return _judge_error(outcome, spoken, again=again, over_http=over_http)
    if isinstance(outcome, InvalidMessage):
        return Initialize()  # a result of another shape: the server answers whatever it is asked
    if isinstance(outcome, RequestTimeout) and not over_http:
        return Initialize()  # some servers are silent before initialize
    # Servers of the handshake era refuse a request without a session with various codes; 429 says nothing of the era.
    if isinstance(outcome, UnexpectedResponse) and 400 <= outcome.status < 500 and outcome.status != 429:
        return Initialize()
    return Refuse(outcome)


def _judge_error(error: RequestError, spoken: tuple[Revision, ...], *, again: bool, over_http: bool) -> Verdict:
    """Judge an error. Codes alone decide nothing: servers of the handshake era use them for other faults (ERA-09)."""
    supported = _supported(error)
    if supported is not None:
        revision = _newest(spoken, supported, Era.STATELESS)
        if revision is None:
            return _without_stateless(supported, spoken, error)
        if again:
            said = f"the server refuses {revision.name}, and says that it speaks {_quoted(supported)}"
            return Refuse(_failed(said, error), supported)
        return ProbeAgain(revision)
    if error.code in _MISSING_CAPABILITY and isinstance(_member(error, "requiredCapabilities"), dict):
        return Refuse(error)
    if error.code == ErrorCode.HEADER_MISMATCH and over_http:
        return Refuse(_failed(f"something between client and server drops or changes Mcp-… headers: {error}", error))
    # -32601 too: every stateless server has server/discover.
    return Initialize()


def _without_stateless(supported: tuple[str, ...], spoken: tuple[Revision, ...], cause: McpError | None) -> Verdict:
    """Judge a server that shares no stateless revision with this client (ERA-04, ERA-16)."""
    if _newest(spoken, supported, Era.HANDSHAKE) is not None and not any(map(_is_stateless, supported)):
        return Initialize()
    said = f"the server speaks {_quoted(supported) or 'no revision'}, this client {_names(spoken)}"
    return Refuse(_failed(said, cause), supported)


def _supported(error: RequestError) -> tuple[str, ...] | None:
    """Return the revisions that a refusal names; ``None`` for another error (VER-01)."""
    if error.code not in _UNSUPPORTED_VERSION or not isinstance(_member(error, "requested"), str):
        return None
    supported = _member(error, "supported")
    if not isinstance(supported, list | tuple) or not all(isinstance(each, str) for each in supported):
        return None
    return tuple(supported) or None


_UNSUPPORTED_VERSION: Final = (ErrorCode.UNSUPPORTED_VERSION, -32004)
_MISSING_CAPABILITY: Final = (ErrorCode.MISSING_CLIENT_CAPABILITY, -32003)
"""With the numbers that drafts of 2026-07-28 had: data of the right shape tell them from other errors (XERR-07)."""


def _member(error: RequestError, name: str) -> Any:
    return error.data.get(name) if isinstance(error.data, dict) else None


def _newest(ours: Iterable[Revision], theirs: Iterable[str], era: Era) -> Revision | None:
    names = set(theirs)
    return max((each for each in ours if each.era is era and each.name in names), default=None)


def _is_stateless(name: str) -> bool:
    """Whether a revision is stateless: those that are unknown here are newer than this library."""
    revision = Revision.parse(name)
    return revision is None or revision.era is Era.STATELESS


def _quoted(names: tuple[str, ...]) -> str:
    """Return what a server calls its revisions, cut and safe to show: it may say anything."""
    text = printable(", ".join(names[:_MOST_NAMES])[:_MOST_TEXT]).replace("\n", " ").replace("\t", " ")
    return f"{text}, ..." if len(names) > _MOST_NAMES else text


_MOST_NAMES: Final = 10
_MOST_TEXT: Final = 200


def _names(revisions: Iterable[Revision]) -> str:
    return ", ".join(each.name for each in sorted(revisions, reverse=True))


def _failed(said: str, cause: McpError | None) -> ConnectFailed:
    error = ConnectFailed(said)
    error.__cause__ = cause
    return error
