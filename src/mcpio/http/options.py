"""Options of a server over HTTP: paths, host and origin policy, CORS, and forms of response."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import attrs

from mcpio._checks import is_count, of_kind
from mcpio.engine.limits import seconds

__all__ = ["Answers", "Cors", "HostPolicy", "HttpOptions", "check_path"]

Answers: TypeAlias = Literal["auto", "json", "sse"]

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_PATH = re.compile(r"[!\"$->@-~]+")


def _names(given: Iterable[str]) -> frozenset[str]:
    # A bare str would match by substring, so require a collection.
    if isinstance(given, str):
        raise TypeError(f"expected a collection of names, as in [{given!r:.100}], not a str")
    return frozenset(map(str.lower, given))


def _welcome(given: Iterable[str] | Literal["*"]) -> frozenset[str] | Literal["*"]:
    return "*" if given == "*" else _names(given)


def check_path(name: str, path: object) -> None:
    """Raise ValueError if ``path`` cannot be the path of a request; ``name`` is the option that it is from."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError(f"{name} must begin with a slash, not {path!r:.100}")
    if _PATH.fullmatch(path) is None:
        raise ValueError(f"{name} must be printable ASCII without ? and #, not {path!r:.100}")


def _path(_: object, attribute: attrs.Attribute[str], path: object) -> None:
    check_path(attribute.name, path)


def _check_answers(_: object, attribute: attrs.Attribute[str], answers: str) -> None:
    if answers not in ("auto", "json", "sse"):
        raise ValueError(f"{attribute.name} must be 'auto', 'json' or 'sse', not {answers!r:.100}")


def _check_max_age(_: object, attribute: attrs.Attribute[int], value: object) -> None:
    if not is_count(value):
        raise ValueError(f"{attribute.name} must be a whole number of seconds, 0 or more, not {value!r:.60}")


def _two_paths(_: object, attribute: attrs.Attribute[Any], paths: object) -> None:
    if not isinstance(paths, tuple) or len(paths) != 2:
        raise TypeError(f"{attribute.name} must be two paths, as in ('/sse', '/messages'), not {paths!r:.100}")
    for path in paths:
        check_path(attribute.name, path)


@attrs.frozen
class HostPolicy:
    """The ``Host`` and ``Origin`` values that are served, against requests from web pages (HTTP-02, HTTP-04).

    A request without ``Origin`` does not come from a web page, and is served.
    """

    hosts: frozenset[str] | None = attrs.field(converter=attrs.converters.optional(_names))
    """The ``Host`` values that are served, in lower case with their port; ``None`` for all."""
    origins: frozenset[str] | None = attrs.field(converter=attrs.converters.optional(_names))
    """The ``Origin`` values that are served, in lower case; ``None`` for the origin of the address that the request was
    sent to. If ``hosts`` is ``None`` too, DNS rebinding is not prevented."""

    @classmethod
    def for_address(cls, host: str, port: int, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> HostPolicy:
        """Return the policy for a bound address; ``hosts`` and ``origins`` are served as well.

        Bound to loopback, only the names of this machine are served, since DNS rebinding uses a foreign name that
        resolves to loopback. Bound to another address, every ``Host`` is served unless ``hosts`` are given. Web pages
        are served if their origin is one of ``origins``, one of ``hosts``, the bound address or a name of loopback.
        """
        name = f"[{host}]" if ":" in host else host
        own = frozenset(f"{each}{suffix}" for each in {name, *_LOOPBACK} - {""} for suffix in ("", f":{port}"))
        named = _names(hosts)
        pages = frozenset(f"{scheme}://{each}" for each in own | named for scheme in ("http", "https"))
        is_local = name in _LOOPBACK or host.startswith("127.") or not host
        return cls(own | named if is_local else named or None, pages | _names(origins))

    @classmethod
    def for_unix_socket(cls, *, origins: Iterable[str] = ()) -> HostPolicy:
        """Return the policy for a Unix socket: every ``Host``, and only web pages of ``origins``.

        Browsers cannot connect to a Unix socket. Requests of pages come through a proxy, which checks the ``Host``.
        """
        return cls(None, _names(origins))


@attrs.frozen(kw_only=True)
class Cors:
    """The permissions of web pages of other origins, for servers that browsers call."""

    origins: frozenset[str] | Literal["*"] = attrs.field(default="*", converter=_welcome)
    """The allowed origins; ``"*"`` for all."""
    max_age: int = attrs.field(default=600, validator=_check_max_age)
    """Seconds that a browser may cache the answer to a preflight request."""


@attrs.frozen(kw_only=True)
class HttpOptions:
    """Choices of a server. The defaults serve any client of any handshake revision."""

    path: str = attrs.field(default="/mcp", validator=_path)
    """The one endpoint (HTTP-01)."""
    policy: HostPolicy = attrs.field(default=HostPolicy(None, None), validator=of_kind(HostPolicy))
    """Which ``Host`` and ``Origin`` are served. Drivers that know the bound address derive it from that."""
    answers: Answers = attrs.field(default="auto", validator=_check_answers)
    """``"auto"`` answers with JSON unless something comes before the answer, or it takes longer than ``sse_after``;
    ``"json"`` never streams: what handlers tell before their answer is left out; ``"sse"`` always streams."""
    strict_accept: bool = True
    """Whether a POST must accept both JSON and streams, as the protocol asks of clients (HTTP-07). Without this, a
    client that accepts one of them gets just that, and one that does not say gets what ``answers`` says."""
    sse_after: float | None = attrs.field(default=0.5, converter=seconds)
    """Seconds after which an answer that is not ready becomes a stream; ``None`` waits for it."""
    sessions: bool = True
    """Whether sessions exist. Without, each request stands alone, and the server cannot send requests to its client."""
    session_idle: float | None = attrs.field(default=1800.0, converter=seconds)
    """Seconds without an open request after which a session ends; ``None`` for never. A client that leaves during a
    request has none open: if it does not come back, its handler is cancelled then."""
    listening: bool = True
    """Whether clients of sessions may listen with GET."""
    resumable: bool = True
    """Whether streams have event ids, so that a client can resume one after its connection broke. Clients resume with
    GET, so ids need ``listening``."""
    resume_within: float | None = attrs.field(default=60.0, converter=seconds)
    """Seconds for which sent events, and broken streams, are kept for that; ``None`` as long as the session."""
    keep_alive: float | None = attrs.field(default=15.0, converter=seconds)
    """Seconds of silence after which a stream gets a comment, so that intermediaries keep it open."""
    cors: Cors | None = attrs.field(default=None, validator=of_kind(Cors, optional=True))
    """The permissions of web pages of other origins. ``None``: no permissions, and no preflight."""
    health: str | None = attrs.field(default=None, validator=attrs.validators.optional(_path))
    """A path that answers GET with ``{"status":"ok"}``, for monitoring."""
    legacy: tuple[str, str] | None = attrs.field(default=None, validator=attrs.validators.optional(_two_paths))
    """The two paths of the HTTP+SSE transport of 2024-11-05, ``("/sse", "/messages")``, to serve old clients too
    (FALL-05): the first to listen by GET, the second to POST to."""

    @property
    def resumes(self) -> bool:
        """Whether a client may resume a stream after its connection broke."""
        return self.resumable and self.listening and self.sessions
