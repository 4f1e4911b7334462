"""The rows of the table: the messages to send, and the answers to them."""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import attrs

from mcpio.framing.json import JsonError, dumps, loads
from mcpio.revisions import REV_2024_11_05, REV_2025_06_18, REV_2026_07_28, Era, Revision

Carrier: TypeAlias = Literal["stream", "http"]

Level: TypeAlias = Literal["must", "should"]

META: Final = "io.modelcontextprotocol/"
"""The prefix of the protocol's keys in ``_meta``."""


class _NextId(enum.Enum):
    NEXT_ID = "the next id"


NEXT_ID: Final = _NextId.NEXT_ID
"""Stands for an id that was not used in the conversation."""

CLIENT: Final = {"name": "mcpio-check", "version": "1"}


class Violated(Exception):
    """The answers break the rule. The message names the actual value, as in ``the code is -32603, not -32601``."""


# ------------------------------------------------------------------------------------------------------------ to send


@attrs.frozen
class Send:
    """A message to send, or an HTTP request.

    A message that is an object is completed for the revision: requests of 2026-07-28 get their ``_meta``, and HTTP
    requests their header fields. Bytes are sent as they are.
    """

    body: Mapping[str, Any] | Sequence[Any] | bytes | None
    meta: Mapping[str, Any] | None = attrs.Factory(dict)
    """Changes of the ``_meta`` of 2026-07-28, by names without the prefix; a value of ``None`` leaves a key out, and
    ``None`` for all leaves out ``_meta``."""
    headers: Mapping[str, str | None] = attrs.Factory(dict)
    """Changes of the header fields; ``None`` leaves a field out."""
    verb: str = "POST"
    until: Literal["answer", "message"] = "answer"
    """What ends the wait for it: its answer, or the first message."""


def request(method: Any, /, params: Any = None, *, id: Any = NEXT_ID, **changes: Any) -> Send:
    """Return a request. ``changes`` are those of ``Send``."""
    return Send({"id": id, "method": method} | ({} if params is None else {"params": params}), **changes)


def notification(method: str, params: Any = None, **changes: Any) -> Send:
    """Return a notification."""
    return Send({"method": method} | ({} if params is None else {"params": params}), **changes)


def initialize(version: str, **changes: Any) -> Send:
    """Return the request that asks for a revision. A change of ``None`` leaves out a parameter."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT} | changes
    return request("initialize", {name: value for name, value in params.items() if value is not None}, meta=None)


def get(**headers: str | None) -> Send:
    """Return the HTTP request for a stream of messages."""
    return Send(None, verb="GET", headers={"accept": "text/event-stream", "content-type": None, **headers})


@attrs.frozen
class Sent:
    """A message as it was sent."""

    data: bytes
    headers: Mapping[str, str]
    verb: str
    until: Literal["answer", "message"]
    ids: tuple[Any, ...]
    """The ids of the requests in it that have to be answered: those of well-formed requests."""
    secrets: frozenset[str] = frozenset()
    """The names of header fields that no report shows."""

    def __str__(self) -> str:
        text = self.data.decode(errors="backslashreplace")
        if not self.headers:
            return text
        fields = (f"{name}: {'...' if name in self.secrets else value}" for name, value in self.headers.items())
        return "\n".join([f"{self.verb} {', '.join(fields)}", *([text] if text else [])])


# --------------------------------------------------------------------------------------------------------------- came


@attrs.frozen(slots=False)
class Reply:
    """The answer to a message: the messages, as bytes, and over HTTP the head of the response."""

    raw: tuple[bytes, ...] = ()
    status: int | None = None
    headers: Mapping[str, str] = attrs.Factory(dict)
    """Header fields, with names in lower case."""
    ended: str = ""
    """Why nothing more can come: the connection ended. Empty while it is open."""

    @cached_property
    def messages(self) -> tuple[Any, ...]:
        """The JSON values that came, with those in batches one by one."""
        return tuple(self._values())

    def _values(self) -> Iterator[Any]:
        for each in self.raw:
            try:
                value = loads(each)
            except JsonError:
                continue
            yield from value if isinstance(value, list) else [value]

    def answer(self, id: Any) -> Any:
        """Return the response to a request, or ``None``."""
        return next((each for each in self.messages if _is_response(each) and same_id(each.get("id"), id)), None)

    def __str__(self) -> str:
        lines = [each.decode(errors="backslashreplace") for each in self.raw]
        if self.status is not None:
            kind = self.headers.get("content-type", "")
            lines.insert(0, f"HTTP {self.status}{f' {kind}' if kind else ''}")
        return "\n".join([*lines, *([f"({self.ended})"] if self.ended else [])]) or "(nothing)"


def _is_response(message: Any) -> bool:
    return isinstance(message, dict) and "method" not in message and "id" in message


def same_id(one: Any, other: Any) -> bool:
    """Whether two ids are equal and of the same JSON type (RPC-08)."""
    return type(one) is type(other) and bool(one == other)


@attrs.frozen
class Tried:
    """The messages of a row, and the answer to each."""

    conversation: Conversation
    sent: tuple[Sent, ...]
    replies: tuple[Reply, ...]

    @property
    def reply(self) -> Reply:
        """The answer to the last message."""
        return self.replies[-1]

    @property
    def messages(self) -> Iterator[Any]:
        """All messages that came."""
        return (message for reply in self.replies for message in reply.messages)


Judge: TypeAlias = Callable[[Tried], None]
"""Raises Violated if the answers break the rule."""

Step: TypeAlias = Send | Callable[[Tried], Send | None]
"""A message, or what makes it of those before and their replies; ``None`` if the row does not apply."""


# ---------------------------------------------------------------------------------------------------------------- rows


@attrs.frozen(eq=False)
class Row:
    """One thing to try on a server."""

    name: str
    """Its name in reports: what is sent, or looked at."""
    rules: str
    """The ids of the rules, as ``docs/conformance`` lists them, separated by blanks."""
    demand: str
    """The demand: the required behaviour of the server."""
    judge: Judge
    send: tuple[Step, ...] = ()
    """The messages. Without any, the judge looks at what opened the conversation; see also ``watches``."""
    level: Level = "must"
    since: Revision = REV_2024_11_05
    until: Revision = REV_2026_07_28
    carrier: Literal["any", "stream", "http"] = "any"
    needs: str = ""
    """The capability that the server must declare for the row to apply, such as ``resources.subscribe``."""
    lacks: str = ""
    """The capability that it must not declare."""
    place: Literal["shared", "own", "first"] = "shared"
    """The conversation: one that all rows share, one of its own, or one of its own before anything was said. Rows of
    the last kind are tried once in each era."""
    watches: bool = False
    """Whether the judge looks at everything that other rows bring."""
    page: str = "basic"
    """The page of the specification, below its revision."""

    def applies(self, conversation: Conversation) -> bool:
        """Whether the row can be tried there."""
        declared = conversation.capabilities
        return (
            self.since <= conversation.revision <= self.until
            and self.carrier in ("any", conversation.carrier)
            and (not self.needs or has_capability(declared, self.needs))
            and (not self.lacks or not has_capability(declared, self.lacks))
        )

    def url(self, revision: Revision) -> str:
        """Return the URL of the page of the specification that has the rule."""
        return f"https://modelcontextprotocol.io/specification/{revision}/{self.page}"


def has_capability(declared: Any, path: str) -> bool:
    """Whether plain capabilities declare the one at a path: not absent, null or false."""
    # The ids of extensions have dots of their own.
    for step in path.split(".", 1 if path.startswith("extensions.") else -1):
        declared = declared.get(step) if isinstance(declared, dict) else None
    return declared is not None and declared is not False


@attrs.define
class Conversation:
    """A conversation with a server in one revision: completes messages for it, and knows the ids that were used."""

    revision: Revision
    carrier: Carrier
    server: Mapping[str, Any] = attrs.Factory(dict)
    """The result of ``initialize`` or ``server/discover``; empty before."""
    session: str | None = None
    """The id of the HTTP session."""
    extra_headers: Mapping[str, str] = attrs.Factory(dict)
    """Header fields that the user gave."""
    ids: list[Any] = attrs.Factory(list)
    """The ids that were sent."""
    _count: int = 0

    @property
    def capabilities(self) -> Any:
        """The capabilities of the server, as it sent them."""
        return self.server.get("capabilities", {})

    @property
    def is_stateless(self) -> bool:
        """Whether messages carry their context."""
        return self.revision.era is Era.STATELESS

    def opening(self) -> Send:
        """Return the request that opens the conversation."""
        return request("server/discover") if self.is_stateless else initialize(self.revision.name)

    def fence(self) -> Sent:
        """Return a harmless request, whose answer shows that all earlier messages were read."""
        return self.dress(request("server/discover" if self.is_stateless else "ping"))

    def dress(self, send: Send) -> Sent:
        """Complete a message for the revision and the carrier."""
        body = send.body
        if isinstance(body, Mapping):
            value: Any = self._complete(body, send.meta)
        elif body is None or isinstance(body, bytes):
            value = None
        else:
            value = [self._complete(each, send.meta) if isinstance(each, Mapping) else each for each in body]
        data = body if isinstance(body, bytes) else b"" if body is None else dumps(value)
        several = value if isinstance(value, list) else [value]
        is_read = not isinstance(value, list) or self.revision.has_batches
        ids = tuple(each["id"] for each in several if is_read and _is_request(each))
        self.ids += ids
        headers = self._headers(value, send) if self.carrier == "http" else {}
        secrets = frozenset({*self.extra_headers, "mcp-session-id"} - send.headers.keys())
        return Sent(data, headers, send.verb, send.until, ids, secrets)

    def _complete(self, body: Mapping[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
        whole: dict[str, Any] = {"jsonrpc": "2.0", **body}
        if whole["jsonrpc"] is None:
            del whole["jsonrpc"]
        if whole.get("id") is NEXT_ID:
            self._count += 1
            whole["id"] = self._count
        params = whole.get("params", {})
        if self.is_stateless and meta is not None and "id" in whole and "method" in whole and isinstance(params, dict):
            usual = {"protocolVersion": self.revision.name, "clientCapabilities": {}, "clientInfo": CLIENT, **meta}
            envelope = {f"{META}{name}": value for name, value in usual.items() if value is not None}
            whole["params"] = {**params, "_meta": envelope | params.get("_meta", {})}
        return whole

    def _headers(self, value: Any, send: Send) -> dict[str, str]:
        usual: dict[str, str | None] = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **self.extra_headers,
        }
        if self.session is not None:
            usual["mcp-session-id"] = self.session
        if self.is_stateless and send.meta is not None:
            usual["mcp-protocol-version"] = self.revision.name
            if isinstance(value, dict) and isinstance(method := value.get("method"), str):
                usual["mcp-method"] = method
                params = value.get("params")
                name = params.get(_NAMED[method]) if method in _NAMED and isinstance(params, dict) else None
                if isinstance(name, str):
                    usual["mcp-name"] = _field(name)
        elif self.server and self.revision >= REV_2025_06_18 and not self.is_stateless:
            usual["mcp-protocol-version"] = self.revision.name
        return {name: text for name, text in (usual | {**send.headers}).items() if text is not None}


_NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that ``Mcp-Name`` repeats, by method (HDR-02)."""


def _field(text: str) -> str:
    """Return a text as the value of a header field (HDR-08)."""
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _is_request(message: Any) -> bool:
    """Whether a message is a well-formed request, which has to be answered."""
    return (
        isinstance(message, dict)
        and message.get("jsonrpc") == "2.0"
        and type(message.get("id")) in (int, str)
        and isinstance(message.get("method"), str)
        and isinstance(message.get("params", {}), dict)
    )
