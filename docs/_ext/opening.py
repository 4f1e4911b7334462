"""What a client does after ``server/discover``: the table of how it opens, judged by the engine itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from mcpio.engine.client import Initialize, ProbeAgain, Refuse, SettleStateless, Verdict, judge
from mcpio.errors import (
    AuthorizationRequired,
    InvalidMessage,
    McpError,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.revisions import REVISIONS
from mcpio.types.features import DiscoverResult, ServerCapabilities

__all__ = ["opening_rows"]

Outcome: TypeAlias = DiscoverResult | McpError

_STATELESS, _HANDSHAKE = REVISIONS[-1].name, REVISIONS[0].name
_NEXT: dict[type[Verdict], str] = {
    SettleStateless: "stateless, in the newest revision in common",
    Initialize: "`initialize`",
    ProbeAgain: "`server/discover` again, in a revision of the list",
    Refuse: "`ConnectFailed`",
}


def opening_rows() -> Iterator[list[str]]:
    """Yield a row for each kind of outcome: what it is, and what follows on a channel and over HTTP."""
    both, http = (False, True), (True,)
    for said, outcome, where, again in (
        ("a result with a stateless revision of ours", _discovered(_STATELESS), both, False),
        ("a result with revisions of the handshake only", _discovered(_HANDSHAKE), both, False),
        ("a result with stateless revisions, none of them ours", _discovered("2999-01-01"), both, False),
        ("-32022, with a stateless revision of ours", _unsupported(_STATELESS), both, False),
        ("the same for the second time", _unsupported(_STATELESS), both, True),
        ("-32022, with revisions of the handshake only", _unsupported(_HANDSHAKE), both, False),
        ("-32022, with stateless revisions, none of them ours", _unsupported("2999-01-01"), both, False),
        ("-32021 that names a capability", RequestError(-32021, "", {"requiredCapabilities": {}}), both, False),
        ("-32020", RequestError(-32020, ""), both, False),
        ("any other error, -32601 among them", RequestError(-32601, ""), both, False),
        ("a result of another shape", InvalidMessage("", ""), both, False),
        ("no answer in time", RequestTimeout("server/discover", 10.0, "total"), both, False),
        ("status 404, or another from 400, without an answer", UnexpectedResponse(404, ""), http, False),
        ("status 401 or 403", AuthorizationRequired("", status=401, challenges=()), http, False),
        ("status 429, or one from 500", UnexpectedResponse(500, ""), http, False),
    ):
        yield [said, *(_next(outcome, again, over_http=over) if over in where else "" for over in both)]
    yield ["the end of the connection", "another connection, and `initialize`", "`ConnectFailed`"]


def _next(outcome: Outcome, again: bool, *, over_http: bool) -> str:
    return _NEXT[type(judge(outcome, REVISIONS, again=again, over_http=over_http))]


def _discovered(version: str) -> Outcome:
    return DiscoverResult((version,), ServerCapabilities())


def _unsupported(version: str) -> Outcome:
    return RequestError(-32022, "", {"supported": [version], "requested": "x"})
