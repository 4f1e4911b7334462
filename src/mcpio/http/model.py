"""HTTP by meaning: heads, bodies and ends, the options of both roles, and the header fields of MCP."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from mcpio._checks import checked, is_count, of_kind, required
from mcpio.engine.limits import is_time, without_limit
from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import jsonrpc
from mcpio.framing.headers import decode_field, encode_field
from mcpio.revisions import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, Era
from mcpio.types.base import META_PROTOCOL_VERSION

# -------------------------------------------------------------------------------------------------------------- options
# Options of a server over HTTP: paths, host and origin policy, CORS, and forms of response.

Answers: TypeAlias = Literal["auto", "json", "sse"]

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_PATH = re.compile(r"[!\"$->@-~]+")


def _names(names: Iterable[str]) -> frozenset[str]:
    # A bare str would match by substring, so require a collection.
    if isinstance(names, str):
        raise TypeError(f"names must be a collection, as in [{names!r:.100}], not a str")
    return frozenset(map(str.lower, names))


def _welcome(names: Iterable[str] | Literal["*"]) -> frozenset[str] | Literal["*"]:
    return "*" if names == "*" else _names(names)


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


def _pages(_: object, attribute: attrs.Attribute[Any], pages: object) -> None:
    for path, page in required(attribute.name, pages, dict).items():
        check_path(attribute.name, path)
        required(f"{attribute.name}[{path!r:.100}]", page, Page)


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
    sse_after: float | None = attrs.field(default=0.5, converter=without_limit, validator=is_time)
    """Seconds after which an answer that is not ready becomes a stream; ``None`` waits for it."""
    sessions: bool = True
    """Whether sessions exist. Without, each request stands alone, and the server cannot send requests to its client."""
    session_idle: float | None = attrs.field(default=1800.0, converter=without_limit, validator=is_time)
    """Seconds without an open request after which a session ends; ``None`` for never. A client that leaves during a
    request has none open: if it does not come back, its handler is cancelled then."""
    listening: bool = True
    """Whether clients of sessions may listen with GET."""
    resumable: bool = True
    """Whether streams have event ids, so that a client can resume one after its connection broke. Clients resume with
    GET, so ids need ``listening``."""
    resume_within: float | None = attrs.field(default=60.0, converter=without_limit, validator=is_time)
    """Seconds for which sent events, and broken streams, are kept for that; ``None`` as long as the session."""
    keep_alive: float | None = attrs.field(default=15.0, converter=without_limit, validator=is_time)
    """Seconds of silence after which a stream gets a comment, so that intermediaries keep it open."""
    cors: Cors | None = attrs.field(default=None, validator=of_kind(Cors, optional=True))
    """The permissions of web pages of other origins. ``None``: no permissions, and no preflight."""
    health: str | None = attrs.field(default=None, validator=attrs.validators.optional(_path))
    """A path that answers GET with ``{"status":"ok"}``, for monitoring."""
    pages: Mapping[str, Page] = attrs.field(factory=dict, validator=_pages, hash=False)
    """Files that are served to GET beside the endpoint, by path, such as a page that uses it. Anyone may read them:
    neither ``principal`` nor ``auth`` is asked, only the ``Host`` is checked."""
    legacy: tuple[str, str] | None = attrs.field(default=None, validator=attrs.validators.optional(_two_paths))
    """The two paths of the HTTP+SSE transport of 2024-11-05, ``("/sse", "/messages")``, to serve old clients too
    (FALL-05): the first to listen by GET, the second to POST to."""

    @property
    def resumes(self) -> bool:
        """Whether a client may resume a stream after its connection broke."""
        return self.resumable and self.listening and self.sessions


# ---------------------------------------------------------------------------------------------------------------- model
# The items of HTTP that pass between an adapter and a machine: heads, pieces of bodies, ends and resets.
# Each item names its exchange, which is one request and its response. The adapter chooses the name: a counter for
# HTTP/1.1, the stream for HTTP/2, anything that is unique for one call under ASGI.

if TYPE_CHECKING:
    from attrs import frozen as item

else:

    def item(cls: type) -> type:
        """Make a class of items: frozen to type checkers, and cheap to make at run time, as each request makes some."""
        return attrs.define(cls, unsafe_hash=True)


Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case, values without surrounding space."""

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE_END: Final = re.compile(rb"[\r\n\x00]")


def header_fields(fields: Sequence[tuple[str, str]]) -> Headers:
    """Return header fields that are text as bytes, as this module has them."""
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)


def names_of(headers: Headers) -> str:
    """Return the names of header fields, for a representation: the value of any field may be a credential."""
    return f"<{', '.join(name.decode('latin-1') for name, _ in headers)}>"


def _check_key(name: str, value: Hashable) -> None:
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{name} must be a value that can be a key, not {value!r:.100}") from None


def check_bytes(name: str, value: Any) -> None:
    """Raise TypeError for an argument that is not bytes of some kind."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{name} must be bytes, not {value!r:.100}")


def _checked_fields(headers: Headers) -> dict[bytes, bytes]:
    """Return header fields by name, the last of each name."""
    try:
        if headers.__class__ in (tuple, list) or isinstance(headers, Sequence):
            for name, value in headers:
                if name.__class__ is not bytes or value.__class__ is not bytes:
                    break
            else:
                return dict(headers)
    except (TypeError, ValueError):
        pass
    # Without the values, which may be credentials.
    raise TypeError("headers must be a sequence of header fields as (name, value), both bytes")


@item
class RequestHead:
    """The head of a request."""

    exchange: Hashable
    """The exchange that it begins."""
    method: str
    """The method, as it came."""
    target: str
    """The path with its query: ``/mcp?x=1``."""
    headers: Headers = attrs.field(repr=names_of)
    """The header fields."""
    principal: Hashable = None
    """The authenticated caller; ``None`` without authentication, ``Denied`` for one that was refused."""
    policy: HostPolicy | None = None
    """The ``Host`` and ``Origin`` values that are served where this came in; ``None`` for those of the options."""
    may_repeat: bool = False
    """For clients: whether to send it again, on another connection, if it is unknown whether it arrived."""
    fields: dict[bytes, bytes] = attrs.field(init=False, eq=False, repr=False)
    """The header fields by name, the last of each name."""

    def __attrs_post_init__(self) -> None:
        # Without a call where nothing is wrong: each request makes one.
        if self.method.__class__ is not str or self.target.__class__ is not str:
            required("method", self.method, str)
            required("target", self.target, str)
        try:
            hash(self.exchange)
            hash(self.principal)
        except TypeError:
            _check_key("exchange", self.exchange)
            _check_key("principal", self.principal)
        self.fields = _checked_fields(self.headers)  # type: ignore[misc]  # frozen to type checkers
        if self.policy is not None and self.policy.__class__ is not HostPolicy:
            required("policy", self.policy, HostPolicy)


def _check_status(_: Any, attribute: Any, value: Any) -> None:
    if not is_count(value, 400) or value > 599:
        raise ValueError(f"Denied must have a status from 400 to 599, not {value!r:.60}")


def _check_message(_: Any, attribute: Any, value: Any) -> None:
    required("message", value, str).encode()  # a lone surrogate has no form in JSON


def _check_fields(instance: Any, attribute: Any, value: Any) -> None:
    made = type(instance).__name__
    for field in value:
        name, text = field if isinstance(field, tuple) and len(field) == 2 else (None, None)
        if not isinstance(name, bytes) or not isinstance(text, bytes):
            raise TypeError(f"{made}: headers must be (name, value), both bytes, not {type(field).__name__}")
        if _NAME.fullmatch(name) is None or _LINE_END.search(text) is not None:
            # Without the value, which may be a credential.
            raise ValueError(f"{made}: the header field {name!r:.60} must have no line end, and a token for a name")


@attrs.frozen
class Denied:
    """The principal of a request that authentication refused.

    Raises ValueError and TypeError for what no response can have, so that the function which makes it is to blame.
    """

    status: int = attrs.field(default=401, validator=_check_status)
    """The status: 401 for an unknown caller, 403 for one without permission."""
    message: str = attrs.field(default="Unauthorized", validator=_check_message)
    """The message of the JSON-RPC error in the body."""
    headers: Headers = attrs.field(default=(), validator=_check_fields)
    """More header fields of the response: ``www-authenticate``, for instance."""


@attrs.frozen
class Page:
    """A file that a server has beside its endpoint. Raises ValueError and TypeError for what no response can have."""

    body: bytes = attrs.field(validator=of_kind(bytes), repr=False)
    """Its content."""
    headers: Headers = attrs.field(default=((b"content-type", b"text/html; charset=utf-8"),), validator=_check_fields)
    """The header fields of the response. Browsers are always told not to guess another type."""


@item
class ResponseHead:
    """The head of a response. It has no body when ``End`` follows at once."""

    exchange: Hashable
    """The exchange that it answers."""
    status: int
    """The status code."""
    headers: Headers
    """The header fields, with ``content-length`` if the length is known."""

    def __attrs_post_init__(self) -> None:
        if self.exchange.__class__ is not int:
            _check_key("exchange", self.exchange)
        is_number = self.status.__class__ is int or is_count(self.status)
        if not is_number or not 100 <= self.status <= 999:
            raise ValueError(f"status must be a number from 100 to 999, not {self.status!r:.60}")
        _checked_fields(self.headers)


@item
class Body:
    """A piece of a body."""

    exchange: Hashable
    """The exchange."""
    data: bytes
    """The bytes, any number of them."""

    def __attrs_post_init__(self) -> None:
        if self.data.__class__ is not bytes:
            check_bytes("data", self.data)
        if self.exchange.__class__ is not int:
            _check_key("exchange", self.exchange)


@item
class End:
    """The end of a request or of a response."""

    exchange: Hashable
    """The exchange."""

    def __attrs_post_init__(self) -> None:
        if self.exchange.__class__ is not int:
            _check_key("exchange", self.exchange)


@item
class Reset:
    """An exchange that broke off: the peer disconnected, or must be disconnected."""

    exchange: Hashable
    """The exchange."""
    cause: BaseException | None = None
    """The cause, if it is known."""

    def __attrs_post_init__(self) -> None:
        _check_key("exchange", self.exchange)
        checked("cause", self.cause, BaseException)


class Answer(NamedTuple):
    """A response in one piece."""

    status: int
    """The status code."""
    headers: Headers
    """The header fields, with ``content-length`` where the status has one."""
    body: bytes
    """The body."""


RequestItem: TypeAlias = RequestHead | Body | End | Reset
ResponseItem: TypeAlias = ResponseHead | Body | End | Reset


def whole_request(items: Sequence[RequestItem]) -> tuple[RequestHead, bytes] | None:
    """Return the head and the body of a request that came in one read, as most do; ``None`` for any other items."""
    if len(items) == 3 and items[0].__class__ is RequestHead and items[2].__class__ is End:
        head, body, _ = items
        return head, body.data  # type: ignore[return-value, union-attr]  # by the classes
    return None


# ------------------------------------------------------------------------------------------------------------ stateless
# Stateless requests over HTTP: how to distinguish them from those of sessions, and their header fields.
# Proxies that do not read bodies decide by these fields, so a server refuses a request whose fields say something else
# than its body (HDR-03).

HANDSHAKE_NAMES: Final = frozenset(revision.name for revision in HANDSHAKE_REVISIONS)
"""The values of ``MCP-Protocol-Version`` that name a revision with sessions."""
STATELESS_NAMES: Final = frozenset(revision.name for revision in STATELESS_REVISIONS)
"""Those that name one without."""

_NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""By method: the member of the params that ``Mcp-Name`` repeats (HDR-02)."""


def era_of(message: jsonrpc.Message, version: str | None, served: Collection[Era]) -> Era:
    """Return the era of a POST, by the first rule that decides (ERA-12).

    ``version`` is the value of ``MCP-Protocol-Version``, and ``served`` are the eras that the server speaks.

    1. A server of one era takes everything for that.
    2. ``_meta`` names a revision: stateless.
    3. ``initialize``: handshake, whatever the header field says.
    4. The header field names no revision of the handshake era: stateless.
    5. Anything else: handshake.
    """
    if len(served) == 1:
        (era,) = served
        return era
    if isinstance(message, jsonrpc.Request | jsonrpc.Notification):
        meta = message.params.get("_meta")
        if isinstance(meta, dict) and META_PROTOCOL_VERSION in meta:
            return Era.STATELESS
        if message.method == "initialize":
            return Era.HANDSHAKE
    return Era.HANDSHAKE if version is None or version in HANDSHAKE_NAMES else Era.STATELESS


def mirrored_name(method: str, params: Mapping[str, Any]) -> str | None:
    """Return the value of ``Mcp-Name`` for a request, ``None`` for requests without it (HDR-02)."""
    member = _NAMED_BY.get(method)
    name = None if member is None else params.get(member)
    return name if isinstance(name, str) else None


def check_mirrors(request: jsonrpc.Request, fields: Headers) -> None:
    """Raise RequestError if ``Mcp-Method`` or ``Mcp-Name`` does not repeat the body (HDR-03).

    Names of ``fields`` are in lower case.
    """
    method, values = request.method, dict(fields)
    member = _NAMED_BY.get(method)
    name = None if member is None else request.params.get(member)
    # Nearly every client repeats both as it should, each once. Anything else needs a closer look.
    is_single = len(values) == len(fields)
    if not is_single or values.get(b"mcp-method") != method.encode():
        check_field(fields, "Mcp-Method", method, encoded=False)
    if name.__class__ is str and not (
        is_single and _NEVER_ENCODED.fullmatch(name) and values.get(b"mcp-name") == name.encode()
    ):
        check_field(fields, "Mcp-Name", name)


def check_field(
    fields: Headers, name: str, expected: str | None, *, encoded: bool = True, number: bool = False
) -> None:
    """Raise RequestError unless a field is there once with the expected value; ``None`` expects no field.

    ``encoded`` says whether the value may be Base64, ``number`` whether it is an integer, which may be written with
    zeros behind a point (HDR-09).
    """
    key = name.lower().encode()
    values = [value for each, value in fields if each == key]
    if expected is None:
        if values:
            raise _mismatch(f"{name} is there, the body has no such value")
        return
    if len(values) != 1:
        raise _mismatch(f"{name} is {'there more than once' if values else 'missing'}, the body says {expected!r:.100}")
    text = values[0].decode("latin-1")
    try:
        text = decode_field(text) if encoded else text
    except ValueError as error:
        raise _mismatch(f"{name} is malformed, {text!r:.100}: {error}") from None
    if number and _INTEGER.fullmatch(text):
        text = str(int(text.partition(".")[0]))
    if text != expected:
        raise _mismatch(f"{name} is {text!r:.100}, the body says {expected!r:.100}")


_NEVER_ENCODED: Final = re.compile(r"[A-Za-z0-9._:/-]+")
"""The usual names and URIs, which a header field has as they are."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,16}(\.0+)?")
"""Up to 2^53 - 1, which has sixteen digits (HDR-05)."""


def _mismatch(reason: str) -> RequestError:
    return RequestError(ErrorCode.HEADER_MISMATCH, f"Header mismatch: {reason}")


# -------------------------------------------------------------------------------------------------------- param headers
# ``Mcp-Param-*``: arguments of tools that HTTP header fields repeat, for proxies that do not read bodies (HDR-05).

ANNOTATION: Final = "x-mcp-header"
"""The member of a property's schema that names the header."""

MAX_HEADERS: Final = 100
"""How many properties of one tool may be annotated."""

_TYPES: Final = ("string", "integer", "boolean")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DATA: Final = ("const", "default", "enum", "examples")
"""Keywords whose values are not schemas."""
_MAPS: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties")
"""Keywords whose values are schemas by names."""


@attrs.frozen
class ParamHeader:
    """An annotated property of a tool's input schema."""

    name: str
    """The name of the header after ``Mcp-Param-``."""
    path: tuple[str, ...]
    """The keys that lead to the argument, from the root."""
    type: str
    """``"string"``, ``"integer"`` or ``"boolean"``."""


def param_headers(input_schema: Mapping[str, Any]) -> tuple[ParamHeader, ...]:
    """Return the annotated properties of a tool's input schema.

    Raises ValueError for an annotation that breaks a rule (HDR-05): clients over HTTP leave such a tool out (HDR-06).
    """
    headers: list[ParamHeader] = []
    names: set[str] = set()
    for path, schema in _annotated(input_schema, ()):
        header = _header(path, schema)
        if header.name.lower() in names:
            raise ValueError(f"{_where(path)}: the header {header.name!r:.60} is named twice")
        if len(headers) == MAX_HEADERS:
            raise ValueError(f"more than {MAX_HEADERS} properties have {ANNOTATION}")
        names.add(header.name.lower())
        headers.append(header)
    return tuple(headers)


def param_fields(headers: tuple[ParamHeader, ...], arguments: Mapping[str, Any] | None) -> list[tuple[bytes, bytes]]:
    """Return the header fields for a call: none for an argument that is absent or null (HDR-07)."""
    fields = []
    for header in headers:
        text = _text_of(_value_of(header, arguments))
        if text is not None:
            fields.append((f"mcp-param-{header.name.lower()}".encode(), encode_field(text).encode()))
    return fields


def check_param_fields(headers: tuple[ParamHeader, ...], arguments: Any, fields: Headers) -> None:
    """Raise RequestError if the fields of a call do not repeat its arguments (HDR-09, HDR-12).

    Names of ``fields`` are in lower case; those that no property is annotated with are ignored.
    """
    for header in headers:
        value = _value_of(header, arguments)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        check_field(fields, f"Mcp-Param-{header.name}", _text_of(value), number=is_number)


def _value_of(header: ParamHeader, arguments: Any) -> Any:
    value = arguments
    for key in header.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _text_of(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int) else None


def _annotated(schema: Any, path: tuple[str, ...] | None) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Yield each annotated schema, with its path if only ``properties`` lead to it."""
    if isinstance(schema, list | tuple):
        for each in schema:
            yield from _annotated(each, None)
    if not isinstance(schema, Mapping):
        return
    if ANNOTATION in schema:
        yield path, schema
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, Mapping):
            for name, each in value.items():
                yield from _annotated(each, None if path is None else (*path, name))
        elif keyword in _MAPS and isinstance(value, Mapping):
            yield from _annotated(list(value.values()), None)
        elif keyword not in _DATA:
            yield from _annotated(value, None)


def _header(path: tuple[str, ...] | None, schema: Mapping[str, Any]) -> ParamHeader:
    name, type = schema[ANNOTATION], schema.get("type")
    if not path:
        raise ValueError(f"{ANNOTATION} {name!r:.60} is not on a property that only `properties` lead to")
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
        raise ValueError(f"{_where(path)}: {ANNOTATION} {name!r:.60} is not a name of a header")
    if isinstance(type, list) and "null" in type:
        type = next((each for each in type if each != "null"), None) if len(type) == 2 else type
    if type not in _TYPES:
        raise ValueError(f"{_where(path)}: {ANNOTATION} is for {', '.join(_TYPES)}, not for type {type!r:.60}")
    return ParamHeader(name, path, type)


def _where(path: tuple[str, ...] | None) -> str:
    return f"the property {'.'.join(path or ())!r:.100}"
