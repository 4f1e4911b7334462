"""The ladder: the messages of a conversation in both directions, as entries that a page shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from mcpio.engine.connection import Connection
from mcpio.engine.limits import Default, Timeout
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Role
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.framing.jsonrpc import answered_id
from mcpio.observe.tap import Redactor, Tap

Sender: TypeAlias = Literal["client", "server"]
"""The side that sent a message."""

Key: TypeAlias = "tuple[str, int | str | float]"
"""The side that asked, with the scope of its ids, and an id or a token."""

NOTES: Final = ("note", "stderr")
"""The kinds of entries that are not messages."""
MAX_ENTRIES: Final = 20_000
MAX_BYTES: Final = 32 << 20
"""Bytes of text that a ladder keeps."""
TEXT_BYTES: Final = 256 << 10
"""Bytes that are kept of one message."""
HEAD: Final = 200
"""Characters of the summary in an entry."""
NAME: Final = 200
"""Characters that are kept of a name."""


class Ladder:
    """The newest entries of a conversation, within bounds, and the requests that have no answer yet.

    An entry is a mapping that can be sent as JSON:

    ==========  ======================================================================================================
    ``n``       its number: 1, 2, 3 and so on, without gaps
    ``at``      seconds on the ladder's clock, from its begin
    ``from``    ``client`` or ``server``
    ``kind``    ``request``, ``result``, ``error``, ``notification``, ``batch``, ``malformed``, ``long`` (too long to
                read); or a kind of ``NOTES``, which are no messages: ``stderr`` (a line that the server wrote) and
                ``note`` (what the program says, such as an end)
    ``bytes``   how long the message is
    ``head``    the begin of its params, result or error, or the line of a note
    ``method``  of a message; an answer has that of its request
    ``name``    the tool, prompt, URI or task that the params name
    ``id``      the id of the request, as it is in the message
    ``of``      the number of the entry that this one answers, reports progress of, or cancels
    ``took``    of an answer: seconds since the request
    ``failed``  true for an error, and for a result that says so (``isError``)
    ``due``     of a request: when its time is over; ``idle``: seconds without progress after which it is
    ``phase``   of the observed side, after the message; ``revision`` likewise
    ``via``     the stream that carried it, over HTTP
    ``cut``     true if less than the whole text is kept
    ==========  ======================================================================================================

    Only the first six are always there. The text of an entry is separate: see ``text``.
    """

    dropped: int
    """How many entries were dropped to stay within the bounds: numbers 1 to ``dropped``."""
    open: dict[Key, dict[str, Any]]
    """The requests that have no answer yet, by the side that waits and the id: ``n``, ``from``, ``method``, ``name``,
    ``at``, ``heard`` (when it last progressed), ``due``, ``idle``, ``via``."""
    given_up: deque[dict[str, Any]]
    """The requests that were cancelled last, by a timeout or a caller: as in ``open``, with the time as ``until``."""
    heard: dict[str, float]
    """When each side last sent anything, bytes of an unfinished message included."""
    changed: Callable[[], object]
    """Called after each entry."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        """``clock`` returns seconds, for entries that are added without a time."""
        self.dropped = 0
        self.open = {}
        self.given_up = deque(maxlen=20)
        self.heard = {}
        self.changed = lambda: None
        self._clock = clock
        self._began: float | None = None
        self._max_entries, self._max_bytes, self._text_bytes = max_entries, max_bytes, text_bytes
        self._entries: deque[tuple[dict[str, Any], str]] = deque()
        self._tokens: dict[Key, Key] = {}
        self._token_of: dict[Key, Key] = {}
        self.held_bytes = 0

    # What a source calls

    def now(self, at: float | None = None) -> float:
        """Return a time of the clock, by default the present one, in seconds from the begin."""
        moment = self._clock() if at is None else at
        if self._began is None:
            self._began = moment
        return moment - self._began

    def message(
        self,
        sender: Sender,
        data: bytes | str,
        at: float | None = None,
        *,
        phase: str | None = None,
        revision: str | None = None,
        via: Hashable = None,
        scope: str = "",
        timeout_of: Callable[[str], Timeout | None] = lambda method: None,
    ) -> dict[str, Any]:
        """Add a message, valid or not, and return its entry. ``at`` is on the clock.

        Ids are told apart by ``scope``, where several conversations are mixed. ``timeout_of`` is called for a request
        with its method, and returns how long its sender waits.
        """
        moment = self.now(at)
        self.heard[sender] = moment
        text = data if isinstance(data, str) else data.decode(errors="replace")
        entry = self._new(sender, "malformed", moment, len(data), text)
        try:
            value = loads(data)
        except JsonError as error:
            entry["head"] = f"{error.reason}: {text[:HEAD]}"
            # Of a message that is too long for the engine only the beginning comes, and it ends its request.
            if isinstance(data, bytes) and (id := answered_id(data)) is not None:
                entry |= {"id": id, "failed": True}
                self._end(entry, (("server" if sender == "client" else "client") + scope, id))
        else:
            if isinstance(value, list):
                entry |= {"kind": "batch", "head": f"{len(value)} messages"}
                for item in value:
                    if isinstance(item, dict):
                        self._describe(dict(entry), sender, item, timeout_of, via, scope)
            elif isinstance(value, dict):
                self._describe(entry, sender, value, timeout_of, via, scope)
        entry |= {key: member for key, member in (("phase", phase), ("revision", revision)) if member is not None}
        if via is not None:
            entry["via"] = f"{via}"[:NAME]
        self._put(entry, text)
        return entry

    def note(self, text: str, at: float | None = None, *, sender: Sender = "server", kind: str = "note") -> None:
        """Add a line that is not a message that was read: an end, a failure, or what another ``kind`` says."""
        text = text.encode(errors="replace").decode()
        self._put(self._new(sender, kind, self.now(at), len(text.encode()), text), text)

    def fail(self, sender: Sender, id: float | str, reason: str, at: float | None = None) -> None:
        """Add a line that ends a request of a side, to which no answer can come."""
        other: Sender = "server" if sender == "client" else "client"
        entry = self._new(other, "note", self.now(at), len(reason.encode(errors="replace")), reason)
        entry |= {"id": id, "failed": True}
        self._end(entry, (sender, id))
        self._put(entry, reason)

    def touch(self, sender: Sender, at: float | None = None) -> None:
        """Record that a side sent bytes, which may be a part of a message."""
        self.heard[sender] = self.now(at)

    def forget_open(self, scope: str = "") -> None:
        """Forget the requests without an answer, of one scope or of all, once no answer can come."""
        for key in [key for key in self.open if key[0].endswith(scope)]:
            self._forget(key)

    # What a page reads

    @property
    def last(self) -> int:
        """The number of the newest entry; 0 without one."""
        return self.dropped + len(self._entries)

    def after(self, number: int, most: int = 500) -> list[dict[str, Any]]:
        """Return the oldest entries after a number, at most so many."""
        start = max(0, number - self.dropped)
        return [self._entries[at][0] for at in range(start, min(len(self._entries), start + most))]

    def entry(self, number: int) -> dict[str, Any]:
        """Return an entry. Raises LookupError if it was dropped, or is not there yet."""
        return self._at(number)[0]

    def text(self, number: int) -> str:
        """Return the text that is kept of an entry. Raises LookupError as ``entry`` does."""
        return self._at(number)[1]

    def exchange(self, number: int) -> list[tuple[str, str]]:
        """Return the senders and texts of a request, its answer, and what the server said and asked between them.

        Raises LookupError if the request is not there any more, or is none.
        """
        questions: set[Any] = set()
        messages: list[tuple[str, str]] = []
        for entry, text in self._entries:
            if entry["n"] < number:
                continue
            if entry["n"] == number and entry["kind"] == "request":
                messages.append((entry["from"], text))
            elif not messages:
                break
            elif entry.get("of") == number and entry["kind"] in ("result", "error"):
                return [*messages, (entry["from"], text)]
            elif entry["kind"] == "request" and entry["from"] == "server":
                questions.add(entry["n"])
                messages.append(("server", text))
            elif entry["kind"] != "note" and (entry.get("of") in questions or entry.get("of") == number):
                messages.append((entry["from"], text))
        if not messages:
            raise LookupError(f"{number} is not a request of the ladder")
        return messages

    def call(self, number: int) -> list[tuple[str, str]]:
        """Return ``exchange``, and with it the further rounds of a stateless request whose result asks for input.

        Raises LookupError as ``exchange`` does, and JsonError if a text was cut.
        """
        messages = self.exchange(number)
        first, answer = loads(messages[0][1]), loads(messages[-1][1])
        for entry, text in self._entries:
            if not _asks_for_input(answer):
                break
            is_later = entry["n"] > number and entry["kind"] == "request" and entry["from"] == "client"
            if is_later and "cut" not in entry and _is_next_round(first, loads(text)):
                messages += self.exchange(entry["n"])
                answer = loads(messages[-1][1])
        return messages

    def find(self, wanted: str) -> Iterator[int]:
        """Yield the numbers of the entries whose text contains some words, in any case."""
        folded = wanted.casefold()
        for entry, text in self._entries:
            if folded in text.casefold():
                yield entry["n"]

    def _at(self, number: int) -> tuple[dict[str, Any], str]:
        at = number - self.dropped - 1
        if not 0 <= at < len(self._entries):
            raise LookupError(f"there is no entry {number}: the ladder has {self.dropped + 1} to {self.last}")
        return self._entries[at]

    # Entries

    def _new(self, sender: Sender, kind: str, moment: float, size: int, text: str) -> dict[str, Any]:
        head = text[:HEAD]
        return {"n": self.last + 1, "at": moment, "from": sender, "kind": kind, "bytes": size, "head": head}

    def _put(self, entry: dict[str, Any], text: str) -> None:
        if len(text) > self._text_bytes:
            text, entry["cut"] = text[: self._text_bytes], True
        self._entries.append((entry, text))
        self.held_bytes += len(text)
        while len(self._entries) > self._max_entries or (self.held_bytes > self._max_bytes and len(self._entries) > 1):
            _, old = self._entries.popleft()
            self.held_bytes -= len(old)
            self.dropped += 1
        self.changed()

    def _describe(
        self,
        entry: dict[str, Any],
        sender: Sender,
        value: Mapping[str, Any],
        timeout_of: Callable[[str], Timeout | None],
        via: Hashable,
        scope: str,
    ) -> None:
        """Add what a message says to its entry, and keep the requests that are open."""
        own, other = sender + scope, ("server" if sender == "client" else "client") + scope
        method, id = value.get("method"), value.get("id")
        id = _short(id) if isinstance(id, int | str) else None
        params = value.get("params")
        if id is not None:
            entry["id"] = id
        if isinstance(method, str):
            entry |= {"kind": "notification" if id is None else "request", "method": _short(method)}
            entry["head"] = _head(params)
            if isinstance(params, Mapping):
                self._describe_params(entry, own, other, params)
            if id is not None:
                self._begin(entry, (own, id), params, timeout_of(method), via)
            return
        for kind in ("result", "error"):
            if kind in value:
                entry |= {"kind": kind, "head": _head(value[kind])}
                payload = value[kind]
                if kind == "error" or (isinstance(payload, Mapping) and payload.get("isError") is True):
                    entry["failed"] = True
        if id is not None:
            self._end(entry, (other, id))

    def _describe_params(self, entry: dict[str, Any], own: str, other: str, params: Mapping[str, Any]) -> None:
        for member in ("name", "uri", "taskId", "level", "message", "elicitationId"):
            if isinstance(params.get(member), str):
                entry["name"] = _short(params[member])
                break
        token, cancelled = params.get("progressToken"), params.get("requestId")
        if isinstance(token, int | str) and (waiting := self._tokens.get((other, _short(token)))) in self.open:
            record = self.open[waiting]
            record["heard"], entry["of"] = entry["at"], record["n"]
            members = {each: params[each] for each in ("progress", "total", "message") if each in params}
            record["progress"] = {each: _short(value) for each, value in members.items() if _is_scalar(value)}
        if entry["method"] == "notifications/cancelled" and isinstance(cancelled, int | str):
            self._end(entry, (own, _short(cancelled)))

    def _begin(self, entry: dict[str, Any], key: Key, params: Any, timeout: Timeout | None, via: Hashable) -> None:
        if timeout is not None and timeout.total is not None:
            entry["due"] = entry["at"] + timeout.total
        if timeout is not None and timeout.idle is not None:
            entry["idle"] = timeout.idle
        self._forget(key)  # of an id that is used again, which may have another token
        if len(self.open) >= self._max_entries:
            self._forget(next(iter(self.open)))
        copied = ("n", "from", "method", "name", "at", "due", "idle", "id")
        record = self.open[key] = {each: entry[each] for each in copied if each in entry} | {"heard": entry["at"]}
        if via is not None:
            record["via"] = f"{via}"[:NAME]
        meta = params.get("_meta") if isinstance(params, Mapping) else None
        token = meta.get("progressToken") if isinstance(meta, Mapping) else None
        if isinstance(token, int | str):
            self._token_of[key] = token_key = (key[0], _short(token))
            self._tokens[token_key] = key

    def _forget(self, key: Key) -> dict[str, Any] | None:
        token = self._token_of.pop(key, None)
        if token is not None and self._tokens.get(token) == key:  # another request may have the token by now
            del self._tokens[token]
        return self.open.pop(key, None)

    def _end(self, entry: dict[str, Any], key: Key) -> None:
        record = self._forget(key)
        if record is None:
            return
        entry["of"] = record["n"]
        if "id" in entry:
            entry["took"] = entry["at"] - record["at"]
            entry |= {each: record[each] for each in ("method", "name") if each in record}
        else:
            self.given_up.append({**record, "until": entry["at"]})


class LadderTap(Tap):
    """Feeds a ladder with what passes a connection. One serves any number of connections, one after the other."""

    connection: Connection | StatelessEngine | None
    """The newest connection."""

    def __init__(
        self,
        ladder: Ladder,
        *,
        also: Callable[[Any, float], object] = lambda *_: None,
        redactor: Redactor | None = None,
    ) -> None:
        """``also`` is called with each connection, to add further taps. ``redactor`` removes secrets."""
        self._also = also
        self._redactor = redactor
        self._ladder = ladder
        self._side: Sender = "client"
        self._other: Sender = "server"
        self.connection = None
        self._timeouts: dict[str, deque[Timeout]] = {}

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Begin with a connection."""
        self.connection = connection
        self._side, self._other = ("client", "server") if connection.role is Role.CLIENT else ("server", "client")
        self._timeouts.clear()
        self._ladder.forget_open()
        self._also(connection, now)

    def received(self, data: bytes | None, now: float) -> None:
        """Record that bytes came, or the end."""
        if data is None:
            self._ladder.note("end of input", now, sender=self._other)
        else:
            self._ladder.touch(self._other, now)

    def message_received(self, text: bytes, via: Hashable, now: float) -> None:
        """Add a message of the other side."""
        self._add(self._other, text, via, now, lambda method: None)

    def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
        """Add a message of this side."""
        self._add(self._side, text, via, now, self._timeout_of)

    def called(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        """Keep the timeout of a request until it is sent, and end one that its transport failed."""
        if verb == "send_request":
            timeout = arguments["timeout"]
            if isinstance(timeout, Default):
                timeout = self.connection.options.request_timeout if self.connection is not None else None
            limit = timeout if isinstance(timeout, Timeout) else Timeout(timeout)
            self._timeouts.setdefault(arguments["method"], deque()).append(limit)
        elif verb == "fail_request":
            reason = f"{arguments['error']}"
            shown = reason if self._redactor is None else self._redactor.text(reason)
            self._ladder.fail(self._side, arguments["id"], shown, now)

    def _timeout_of(self, method: str) -> Timeout | None:
        # Requests of one method leave in the order of the calls that made them.
        waiting = self._timeouts.get(method)
        if waiting:
            return waiting.popleft()
        if method == "initialize" and self.connection is not None:
            return Timeout(self.connection.options.initialize_timeout)
        return None

    def _add(
        self,
        sender: Sender,
        text: bytes,
        via: Hashable,
        now: float,
        timeout_of: Callable[[str], Timeout | None],
    ) -> None:
        connection = self.connection
        text = text if self._redactor is None else self._redactor.data(text)
        phase = revision = None
        if isinstance(connection, Connection):
            phase = connection.phase.value
            revision = None if connection.revision is None else connection.revision.name
        self._ladder.message(sender, text, now, phase=phase, revision=revision, via=via, timeout_of=timeout_of)


def _short(value: str | float) -> int | str | float:
    """Return a value of a peer without what would be too long to show."""
    if isinstance(value, str):
        return value if len(value) <= NAME else f"{value[:NAME]}…"
    return value if abs(value) < 1 << 53 else f"{value}"[:NAME]


def _asks_for_input(answer: dict[str, Any]) -> bool:
    result = answer.get("result")
    return isinstance(result, dict) and result.get("resultType") == "input_required"


def _is_next_round(first: dict[str, Any], request: dict[str, Any]) -> bool:
    """Whether a request makes another one again, with what its result asked for."""
    before, params = first.get("params"), request.get("params")
    if not isinstance(before, dict) or not isinstance(params, dict) or first["method"] != request["method"]:
        return False
    rounds = {"inputResponses", "requestState"}
    is_same = all(before.get(name) == params.get(name) for name in {*before, *params} - rounds - {"_meta"})
    return is_same and not rounds.isdisjoint(params)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float | str)


def _head(value: Any) -> str:
    """Return the begin of a value, as JSON."""
    if isinstance(value, Mapping):
        # Only the begin of each member, so that the work does not grow with the message.
        shown = {key[:NAME]: _begin_of(each) for key, each in list(value.items())[:20] if key != "_meta"}
        return "" if not shown else dumps(shown).decode()[:HEAD]
    return "" if value is None else dumps(_begin_of(value)).decode()[:HEAD]


def _begin_of(value: Any, depth: int = 3) -> Any:
    if isinstance(value, str):
        return value[:HEAD]
    if isinstance(value, Mapping):
        return {key[:NAME]: _begin_of(each, depth - 1) for key, each in list(value.items())[:20]} if depth else {}
    if isinstance(value, list):
        return [_begin_of(each, depth - 1) for each in value[:20]] if depth else []
    return value
