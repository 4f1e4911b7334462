"""Older and foreign forms of messages: dialects, and batches of 2025-03-26."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import jsonrpc
from mcpio.profiles import DIALECTS, Alias, Profile

if TYPE_CHECKING:
    from mcpio.engine.snapshot import BatchState


# -------------------------------------------------------------------------------------------------------------- dialect
# Translation of dialects to the protocol and back: see ``mcpio.profiles``.
# ``DialectDecoder`` reads what comes in, ``DialectEncoder`` writes what goes out. A connection has neither unless its
# options ask for it.

TasksHook: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Takes the params of ``tasks/create`` and returns those of ``tools/call``; ``None`` refuses the request."""

Step: TypeAlias = jsonrpc.Message | tuple[jsonrpc.Request, RequestError] | None
"""The meaning of a message: a message to act on, a request to refuse, or ``None``, which asks to close."""

NameOf: TypeAlias = Callable[[Any], str | None]
"""Returns the method of the outgoing request with that id on the wire."""


@attrs.frozen
class DialectDecoder:
    """Reads messages of some dialects. ``raw`` of a translated message is the original."""

    profiles: frozenset[Profile]
    to_server: bool
    """Whether the messages come to a server."""
    on_tasks_create: TasksHook | None
    most: int
    """How many messages one line may hold."""

    def read(self, message: jsonrpc.Message, text: bytes | str, name_of: NameOf) -> list[Step]:
        """Return the steps that a message translates to, which was parsed from ``text``."""
        is_unreadable = isinstance(message, jsonrpc.Malformed) and message.code == ErrorCode.PARSE_ERROR
        if is_unreadable and self._has("run_together"):
            pieces = _pieces(text, self.most)
            if pieces:
                return [step for piece in pieces for step in self.translate(jsonrpc.parse(piece), name_of)]
        return self.translate(message, name_of)

    def translate(self, message: jsonrpc.Message, name_of: NameOf) -> list[Step]:
        """Return the steps that a message translates to: the message itself, if it needs no translation."""
        match message:
            case jsonrpc.Notification():
                return [self._notification(message)]
            case jsonrpc.Request():
                return self._request(message)
            case jsonrpc.Result():
                return [self._result(message, name_of(message.id))]
        return [message]

    @property
    def takes_batches(self) -> bool:
        """Whether arrays are batches in every revision."""
        return self._has("batches")

    def code(self, reason: str) -> int:
        """Return the code of an error that the engine answers with."""
        return _first(DIALECTS[profile].codes.get(reason) for profile in self.profiles) or ErrorCode.INVALID_REQUEST

    def _has(self, what: str) -> bool:
        return any(getattr(DIALECTS[profile], what) for profile in self.profiles)

    def _holds(self, what: str, name: str) -> bool:
        return any(name in getattr(DIALECTS[profile], what) for profile in self.profiles)

    # Notifications

    def _notification(self, message: jsonrpc.Notification) -> jsonrpc.Notification:
        alias = self._alias(message.method)
        params = None if alias is None else _as_alias_says(alias, message.params)
        if alias is None or params is None:
            return message
        return jsonrpc.Notification(alias.method, params, message.raw)

    def _alias(self, name: str) -> Alias | None:
        alias: Alias | None = _first(DIALECTS[profile].notifications.get(name) for profile in self.profiles)
        return alias

    # Requests

    def _request(self, message: jsonrpc.Request) -> list[Step]:
        name, raw = message.method, message.raw
        done = jsonrpc.Request(message.id, "ping", {}, raw)
        if self._holds("cancelling", name):
            return [self._notification(jsonrpc.Notification(name, message.params, raw)), done]
        if self.to_server and self._holds("closing", name):
            return [done, None]
        if self.to_server and self._holds("tool_calls", name) and self.on_tasks_create is not None:
            return [_tool_call(message, self.on_tasks_create)]
        params = message.params
        if name == "initialize":
            params = self._with_capabilities(params)
        if self._has("loose_progress_token"):
            params = _with_token_in_place(params)
        return [message if params is message.params else jsonrpc.Request(message.id, name, params, raw)]

    # Results

    def _result(self, message: jsonrpc.Result, name: str | None) -> jsonrpc.Result:
        result = message.result
        if name == "initialize":
            result = self._with_capabilities(result)
        elif name in _WITH_CONTENT:
            types: dict[str, str] = {}
            for profile in self.profiles:
                types |= DIALECTS[profile].content_types
            result = _with_types(result, types)
        return message if result is message.result else jsonrpc.Result(message.id, result, message.raw)

    def _with_capabilities(self, members: dict[str, Any]) -> dict[str, Any]:
        declared = members.get("capabilities")
        if not isinstance(declared, dict):
            return members
        can_disable = self._has("can_disable")
        capabilities: dict[str, Any] = {}
        for name, value in declared.items():
            if not (can_disable and isinstance(value, dict) and value.get("enabled") is False):
                official = _first(DIALECTS[profile].capabilities.get(name) for profile in self.profiles)
                # The official name wins where a peer declares both.
                if official is None or official not in declared:
                    capabilities[official or name] = value
        return {**members, "capabilities": capabilities}


class DialectEncoder:
    """Writes messages in a dialect."""

    __slots__ = ("_names", "_types")

    def __init__(self, profile: Profile) -> None:
        dialect = DIALECTS[profile]
        self._names = dialect.spoken()
        self._types = {official: name for name, official in dialect.content_types.items()}

    def name(self, method: str) -> str:
        """Return the dialect's name of a notification."""
        return self._names.get(method, method)

    def result(self, method: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a result with its content in the types of the dialect."""
        return _with_types(result, self._types) if method in _WITH_CONTENT else result


_WITH_CONTENT = ("tools/call", "prompts/get", "tasks/result")
"""Requests whose results may contain links to resources."""


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _as_alias_says(alias: Alias, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the params of the official notification, or ``None`` if one is missing."""
    if not alias.members:
        return params
    members = {name: value for name, path in alias.members.items() if (value := _at(params, path)) is not None}
    if not all(name in members for name in alias.needed):
        return None
    return {**members, **alias.constants}


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _tool_call(message: jsonrpc.Request, hook: TasksHook) -> Step:
    try:
        params = hook(message.params)
        if params is None:
            return message
        return jsonrpc.Request(message.id, "tools/call", dict(params), message.raw)
    except Exception as error:
        # The hook belongs to this side: the peer learns nothing of its faults.
        failure = RequestError(ErrorCode.INTERNAL_ERROR, "Internal error")
        failure.__cause__ = error
        return message, failure


def _with_token_in_place(params: dict[str, Any]) -> dict[str, Any]:
    token, meta = params.get("progressToken"), params.get("_meta", {})
    if token.__class__ not in (int, str) or not isinstance(meta, dict) or "progressToken" in meta:
        return params
    rest = {name: value for name, value in params.items() if name != "progressToken"}
    return {**rest, "_meta": {**meta, "progressToken": token}}


def _with_types(members: Mapping[str, Any], types: Mapping[str, str]) -> Any:
    """Return a result with the types of its blocks renamed: itself, if none is."""
    changed = {}
    for name in ("content", "messages"):
        value = members.get(name)
        renamed = _renamed(value, types)
        if renamed is not value:
            changed[name] = renamed
    return {**members, **changed} if changed else members


def _renamed(value: Any, types: Mapping[str, str]) -> Any:
    """Return a block, a message with one, or a list of either, with types renamed."""
    if isinstance(value, list):
        items = [_renamed(item, types) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if isinstance(kind, str) and kind in types:
        return {**value, "type": types[kind]}
    if "role" in value:
        content = value.get("content")
        renamed = _renamed(content, types)
        return value if renamed is content else {**value, "content": renamed}
    return value


# An unterminated string matches to the end of the text: a new attempt from each quote would take quadratic time.
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def _pieces(text: bytes | str, most: int) -> list[bytes]:
    """Return the objects of a text that consists of two or more of them; otherwise an empty list."""
    data = text if isinstance(text, bytes) else text.encode(errors="replace")
    pieces: list[bytes] = []
    depth = start = 0
    for mark in _MARKS.finditer(data):
        sign = mark[0]
        if sign in b"[{":
            depth += 1
        elif sign in b"]}":
            depth -= 1
            if depth == 0:
                pieces.append(data[start : mark.end()].strip())
                start = mark.end()
        if depth < 0 or len(pieces) > most:
            return []  # one line must not become more messages than a batch may
    # Anything else stays the one malformed message that it was, so that its fault is reported as the parser found it.
    whole = not depth and not data[start:].strip() and all(piece.startswith(b"{") for piece in pieces)
    return pieces if whole and len(pieces) > 1 else []


# -------------------------------------------------------------------------------------------------------------- batches
# Batches (2025-03-26): the items of an outgoing one, and the joined answers to incoming ones.


@attrs.frozen
class BatchItem:
    """One request of a batch with options; a bare payload has the defaults."""

    payload: Any
    """The request, or a notification, to which the options do not apply."""
    timeout: Timeout | float | Default | None = DEFAULT
    """Seconds, a ``Timeout``, or ``None`` for no limit."""
    cookie: Any = None
    """Comes back in the events of this request."""
    progress: bool = False
    """Whether to ask for ``ProgressReceived``."""


def as_item(item: Any) -> BatchItem:
    """Return an item for a bare payload."""
    return item if isinstance(item, BatchItem) else BatchItem(item)


@attrs.frozen
class JoinedAnswers:
    """All answers to one batch."""

    text: bytes
    """One JSON array."""
    via: Hashable
    """The exchange that brought the batch."""
    ids: tuple[int, ...]
    """Our keys of its requests."""


class _Open:
    """A received batch without all of its answers."""

    __slots__ = ("answers", "ids", "running", "via")

    def __init__(self, via: Hashable) -> None:
        self.via: Hashable = via
        self.ids: list[int] = []
        self.running: set[int] = set()
        self.answers: list[bytes] = []


class Batches:
    """The received batches whose answers wait for each other."""

    __slots__ = ("_by_request", "_receiving", "size")

    size: int
    """Bytes of the answers that wait."""

    def __init__(self) -> None:
        self._by_request: dict[int, _Open] = {}
        self._receiving: _Open | None = None
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._by_request) or self._receiving is not None

    def begin(self, via: Hashable) -> None:
        """Start to receive a batch."""
        self._receiving = _Open(via)

    def admit(self, ids: Iterable[int]) -> None:
        """Add requests of the batch that is being received."""
        batch = self._receiving
        if batch is not None:
            for id in ids:
                self._by_request[id] = batch
                batch.ids.append(id)
                batch.running.add(id)

    def collect(self, text: bytes) -> bool:
        """Keep an automatic answer if a batch is being received; return whether one is being received."""
        if self._receiving is None:
            return False
        self._keep(self._receiving, text)
        return True

    def end(self) -> JoinedAnswers | None:
        """Finish receiving the batch. Returns its answers if they are complete."""
        batch, self._receiving = self._receiving, None
        return None if batch is None else self._finished(batch)

    def __contains__(self, id: int) -> bool:
        return id in self._by_request

    def settle(self, id: int, text: bytes | None) -> JoinedAnswers | None:
        """Record the answer to a request, ``None`` if it gets none. Returns the answers if they are complete."""
        batch = self._by_request.pop(id)
        batch.running.discard(id)
        if text is not None:
            self._keep(batch, text)
        return None if batch is self._receiving else self._finished(batch)

    def save(self) -> list[BatchState]:
        """Return the batches that wait for answers."""
        from mcpio.engine.snapshot import BatchState  # few connections are ever written out

        open_batches = {id(batch): batch for batch in self._by_request.values()}.values()
        return [
            BatchState(
                via=batch.via,  # type: ignore[arg-type]  # that of its requests, which the connection has checked
                ids=list(batch.ids),
                running=sorted(batch.running),
                answers=[text.decode() for text in batch.answers],
            )
            for batch in open_batches
        ]

    def load(self, states: list[BatchState]) -> None:
        """Restore the result of ``save``."""
        for state in states:
            batch = _Open(state.via)
            batch.ids += state.ids
            batch.running |= set(state.running)
            self._by_request |= dict.fromkeys(state.running, batch)
            for text in state.answers:
                self._keep(batch, text.encode())

    def _keep(self, batch: _Open, text: bytes) -> None:
        batch.answers.append(text)
        self.size += len(text)

    def _finished(self, batch: _Open) -> JoinedAnswers | None:
        if batch.running or not batch.answers:
            return None  # a batch of notifications gets no reply (BATCH-05)
        self.size -= sum(map(len, batch.answers))
        return JoinedAnswers(b"[" + b",".join(batch.answers) + b"]", batch.via, tuple(batch.ids))
