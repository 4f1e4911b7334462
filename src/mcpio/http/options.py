"""What whoever serves over HTTP may choose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import attrs

from mcpio.engine.limits import seconds

__all__ = ["Answers", "Cors", "HostPolicy", "HttpOptions"]

Answers: TypeAlias = Literal["auto", "json", "sse"]

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@attrs.frozen
class HostPolicy:
    """Which ``Host`` and ``Origin`` are served: what keeps a page in somebody's browser away (HTTP-02, HTTP-04).

    A request without ``Origin`` does not come from a page, and is served.
    """

    hosts: frozenset[str] | None
    """The ``Host`` values that are served, in lower case with their port; ``None`` for any."""
    origins: frozenset[str] | None
    """The ``Origin`` values that are served; ``None`` for the origin that the request itself is addressed to."""

    @classmethod
    def for_address(cls, host: str, port: int, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> HostPolicy:
        """Return the policy for a bound address; ``hosts`` and ``origins`` are served as well.

        Bound to loopback, only the names of this machine are served: a name that somebody else made to point here is
        how DNS rebinding works. Bound to anything else, any ``Host`` is served unless ``hosts`` are given.
        """
        names = [f"[{host}]" if ":" in host else host]
        is_local = names[0] in _LOOPBACK or host.startswith("127.") or not host
        more_hosts, more_origins = frozenset(map(str.lower, hosts)), frozenset(map(str.lower, origins))
        if not is_local:
            return cls(more_hosts or None, more_origins or None)
        local = [f"{name}{suffix}" for name in {*names, *_LOOPBACK} - {""} for suffix in ("", f":{port}")]
        return cls(
            frozenset(local) | more_hosts,
            frozenset(f"{scheme}://{name}" for name in local for scheme in ("http", "https")) | more_origins,
        )


@attrs.frozen(kw_only=True)
class Cors:
    """What pages of other origins may do, for servers that are meant to be called from browsers."""

    origins: frozenset[str] | Literal["*"] = attrs.field(default="*")
    """The origins; ``"*"`` for every one."""
    max_age: int = 600
    """For how many seconds a browser may remember the answer to its question."""


@attrs.frozen(kw_only=True)
class HttpOptions:
    """Choices of a server. The defaults serve any client of any handshake revision."""

    path: str = "/mcp"
    """The one endpoint (HTTP-01)."""
    policy: HostPolicy = HostPolicy(None, None)
    """Which ``Host`` and ``Origin`` are served. Drivers that know the bound address derive it from that."""
    answers: Answers = "auto"
    """``"auto"`` answers with JSON unless something comes before the answer, or it takes longer than ``sse_after``;
    ``"json"`` never streams: what handlers tell before their answer is left out; ``"sse"`` always streams."""
    sse_after: float | None = attrs.field(default=0.5, converter=seconds)
    """Seconds after which an answer that is not ready becomes a stream; ``None`` waits for it."""
    sessions: bool = True
    """Whether there are sessions. Without, each request stands alone, and a server can ask its client nothing."""
    session_idle: float | None = attrs.field(default=1800.0, converter=seconds)
    """Seconds without a request after which a session ends; ``None`` for never."""
    listening: bool = True
    """Whether clients may listen with GET."""
    resumable: bool = True
    """Whether streams have event ids, so that a client whose connection broke can go on where it was."""
    resume_within: float | None = attrs.field(default=60.0, converter=seconds)
    """Seconds for which sent events are kept for that."""
    keep_alive: float | None = attrs.field(default=15.0, converter=seconds)
    """Seconds after which a quiet stream gets a comment, so that nothing between takes it for dead."""
    cors: Cors | None = None
    """What pages of other origins may do. ``None``: nothing, not even ask."""
    health: str | None = None
    """A path that answers GET with ``{"status":"ok"}``, for whoever watches over servers."""
    legacy: tuple[str, str] | None = None
    """The two paths of the HTTP+SSE transport of 2024-11-05, ``("/sse", "/messages")``, to serve old clients too."""
