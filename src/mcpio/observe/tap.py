"""Taps: passive observers of a connection's traffic, and what they leave out."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from mcpio.engine.connection import Connection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.events import ConnectionClosed, Event
from mcpio.framing.json import JsonError, dumps, has_more_values, loads

# ------------------------------------------------------------------------------------------------------------------ tap
# Taps: passive observers of a connection's traffic (P15).

Reporter: TypeAlias = Callable[[str, BaseException | None], None]
"""Reports a problem to the operator, with its exception."""


class Tap:
    """Observer of a connection. Override the methods you need; the ones here do nothing.

    A tap must not call the connection, and must not change its arguments. Its methods are plain functions that the
    connection calls in the middle of its verbs. A tap that raises is removed, and the connection goes on without it.
    ``now`` is the latest time that was given to the connection.
    """

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Handle being added to a connection, or to the engine of the stateless requests of an HTTP server.

        An exception goes to the caller of ``add_tap``.
        """

    def received(self, data: bytes | None, now: float) -> None:
        """Handle bytes that were fed, in the pieces in which they came; ``None`` is the end of file.

        Never called on message channels.
        """

    def sent(self, data: bytes | None, now: float) -> None:
        """Handle a chunk of bytes that was pulled to be written; ``None`` is the half-close."""

    def message_received(self, text: bytes, via: Hashable, now: float) -> None:
        """Handle a message before the connection acts on it: its bytes, valid or not; if too long, their beginning."""

    def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
        """Handle a message that was pulled to be written."""

    def event(self, event: Event, now: float) -> None:
        """Handle an event that the program pulled."""

    def called(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        """Handle a call of a verb that changes the connection, once it has succeeded. Payloads are in their wire form.

        ``next_event`` is reported here only when it returned ``None``. The verbs that answer are reported as
        ``respond``, with the whole message, and only if the answer was still wanted.
        """


class Observation:
    """One tap on one connection. Returned by ``add_tap``."""

    tap: Tap
    """The tap."""
    error: Exception | None
    """The exception for which the tap was removed."""

    def __init__(self, connection: Connection | StatelessEngine, tap: Tap, report: Reporter | None) -> None:
        self.tap = tap
        self.error = None
        self._connection = connection
        self._report = report

    def stop(self) -> None:
        """Remove the tap. Repeated calls do nothing."""
        self._connection.remove_observer(self)

    def tell(self, what: str, *arguments: Any) -> None:
        """Call a method of the tap. An exception removes the tap, and is reported once."""
        try:
            _check_nothing_waits(getattr(self.tap, what)(*arguments))
        except Exception as error:  # in the middle of a verb, which must neither fail nor stop half-way
            self.error = error
            self.stop()
            if self._report is not None:
                with suppress(Exception):
                    self._report(f"a tap failed in {what}, and is switched off", error)


def add_tap(
    connection: Connection | StatelessEngine, tap: Tap, now: float = 0.0, *, report: Reporter | None = None
) -> Observation:
    """Add a tap to a connection. A connection may have any number of them.

    ``now`` is the time on the connection's clock: a recording begins there. ``report`` is called once if the tap fails,
    and ``Observation.error`` has the exception. If ``tap.opened`` raises, the tap is not added.
    """
    tap.opened(connection, now)
    observation = Observation(connection, tap, report)
    connection.add_observer(observation)
    return observation


def _check_nothing_waits(result: Any) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("a tap's methods are plain functions: their results are not awaited")


# ------------------------------------------------------------------------------------------------------------ redaction
# Redaction of secrets in messages: by member name, by path, and by the form of a text.
# The result is JSON of the same shape: a text becomes ``[redacted]``, a number 0, a boolean ``false``, and objects
# and arrays keep their members, redacted. No policy finds every secret.

MARK: Final = "[redacted]"
"""Replaces a secret text."""

SECRET_NAMES: Final = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "api key",
    "apikey",
    "access key",
    "private key",
    "signing key",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "set cookie",
    "session id",
    "assertion",
    "authorization code",
    "code verifier",
    "device code",
    "dpop",
)
"""Words of secret members: those whose names end in these, or in their plurals, in any spelling."""

_PARAMETERS: Final = (
    *("token", "password", "passwd", "pwd", "secret", "credential", "signature", r"\bsig", "sessionid"),
    *("session[-_]id", "apikey", "api[-_]key", "accesskey", "access[-_]key", "private[-_]key", "signing[-_]key"),
    # The code of a login, but neither "exit code=1" nor "status_code=200".
    *("assertion", "code_verifier", "device_code", "^code", "[?&#]code"),
)
"""Endings of the names of secret parameters, each a pattern of fixed width."""

_PARAMETER: Final = "|".join(
    f"(?<={last}=)(?:{'|'.join(f'(?<={name}=)' for name in _PARAMETERS if name.endswith(last))})"
    for last in sorted({"key" if name.endswith("key") else name[-1] for name in _PARAMETERS})
)
"""Matches behind the ``=`` of such a parameter. Its last letters decide which of the names are tried."""

SECRET_PATTERNS: Final = (
    # Most begin with what is found fast, and look back from there.
    r"[bBdD](?<!\w.)(?i:(?<=b)earer|(?<=b)asic|(?<=d)pop)\s+[A-Za-z0-9._~+/=-]{8,}",
    # Only the first "eyJ" of a run counts: one attempt for each would take quadratic time.
    r"(?<![\w-])(?>[\w-]*?\beyJ)[\w-]{8,}+\.[\w-]++\.[\w-]+",
    r"[spr](?<!\w.)k[-_][A-Za-z0-9_-]{16,}",
    r"g(?<!\w.)(?:h[pousr]|ithub_pat)_\w{20,}",
    r"xox(?<!\w...)[abeoprs]-[\w-]{10,}",
    r"A(?<!\w.)[KS]IA[A-Z0-9]{16}\b",
    # To the end of the text where the last line is missing. The header of an encrypted key has single hyphens.
    # No possessive group: Python 3.11.2 ends it too early. Nothing is tried twice, since what follows may be empty.
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[^-]*(?:-(?!----)[^-]*)*(?:-----END [A-Z0-9 ]*-----)?",
    r"(?<=://)[^/\s:@]*+:[^/\s@]++(?=@)",
    rf"(?i)(?P<kept>=(?<=[a-z]=)(?:{_PARAMETER})[\"']?)[^\s&;#\"'<>]+",
)
"""Patterns of secrets in texts: well-known tokens, private keys, passwords and parameters of URLs."""

_NOT_SECRET: Final = ("progress token",)
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_TEXTS_WITHIN: Final = 3
"""How deeply JSON inside of texts is searched: servers send structured results as text, too."""
_MOST_SEARCHED: Final = 2 * 1024 * 1024
"""Characters of one message that are searched, which takes less than half a second, whatever they are."""
_ITEM_COST, _MEMBER_COST, _TEXT_COST = 8, 20, 40
"""How many of those an item, a member and a text count for, beside their characters."""
_LONGEST_NAME: Final = 200
"""Characters at the end of a member's name in which words are looked for."""


class Redactor:
    """Redaction policy. The same message always gives the same result.

    ``names`` are those of secret members: ``api key`` means ``apiKey``, ``api_key``, ``X-API-Key``, ``openai_api_key``
    and their plurals. A number under a plural stays, since it is a count: ``maxTokens``.
    ``paths`` lead from the message to secret values, in steps joined by dots, ``*`` for any one step:
    ``params.arguments.pin``, ``result.structuredContent.accounts.*.iban``.
    ``patterns`` are regular expressions of secrets in texts; of a match, a group named ``kept`` stays. They run over
    all input, so each must take linear time. Raises ValueError if a pattern does not compile.
    Of one message, two MiB are searched: a text that is longer than what is left of them is redacted as a whole, and a
    longer list or object is emptied.
    """

    __slots__ = ("_names", "_paths", "_patterns")

    def __init__(
        self,
        *,
        names: Iterable[str] = SECRET_NAMES,
        paths: Iterable[str] = (),
        patterns: Iterable[str] = SECRET_PATTERNS,
    ) -> None:
        self._names = frozenset(_words(name) for name in names)
        self._paths = tuple(tuple(path.split(".")) for path in paths)
        self._patterns = tuple(_compiled(pattern) for pattern in patterns)

    def message(self, message: Any) -> Any:
        """Return a parsed message without its secrets: the same object if it has none."""
        return self._search().within(message, self._paths, _TEXTS_WITHIN)

    def text(self, text: str) -> str:
        """Return the JSON text of a message without its secrets; other text has only its patterns removed."""
        if has_more_values(text, _MOST_SEARCHED // _ITEM_COST):
            return MARK
        try:
            value = loads(text)
        except JsonError:
            return self._search().in_text(text, 0)
        return _unless_changed(text, value, self.message(value))

    def data(self, data: bytes) -> bytes:
        """Return a message as ``text`` does; bytes that are not UTF-8 become a mark."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return MARK.encode()
        redacted = self.text(text)
        return data if redacted is text else redacted.encode()

    def _search(self) -> _Search:
        return _Search(self._names, self._patterns)


class _Search:
    """The search for secrets in one message, and how much is left of it."""

    __slots__ = ("_left", "_names", "_patterns")

    def __init__(self, names: frozenset[str], patterns: tuple[tuple[re.Pattern[str], str], ...]) -> None:
        self._names = names
        self._patterns = patterns
        self._left = _MOST_SEARCHED

    def _may_search(self, cost: int) -> bool:
        """Return whether something can still be searched, and count it if so."""
        if cost > self._left:
            return False
        self._left -= cost
        return True

    def within(self, value: Any, paths: tuple[tuple[str, ...], ...], texts: int, in_schema: bool = False) -> Any:
        if isinstance(value, str):
            return self.in_text(value, texts)
        if isinstance(value, Mapping):
            if not self._may_search(_MEMBER_COST * len(value)):
                return {}
            members = {name: self._member(name, each, paths, texts, in_schema) for name, each in value.items()}
            return value if all(members[name] is each for name, each in value.items()) else members
        if isinstance(value, list | tuple):
            if not self._may_search(_ITEM_COST * len(value)):
                return []
            items = [self._step(str(index), each, paths, texts) for index, each in enumerate(value)]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        return value

    def _member(self, name: str, value: Any, paths: tuple[tuple[str, ...], ...], texts: int, in_schema: bool) -> Any:
        # The schema of a secret is not secret.
        if self._holds_secret(name, value) and not (in_schema and isinstance(value, Mapping)):
            return _blank(value)
        return self._step(name, value, paths, texts)

    def _step(self, name: str, value: Any, paths: tuple[tuple[str, ...], ...], texts: int) -> Any:
        further = tuple(path[1:] for path in paths if path[0] in (name, "*"))
        if () in further:
            return _blank(value)
        return self.within(value, further, texts, name == "properties")

    def _holds_secret(self, name: str, value: Any) -> bool:
        words = _words(name[-_LONGEST_NAME:])
        if words in _NOT_SECRET:
            return False
        if self._ends_in_name(words):
            return True
        return words.endswith("s") and not isinstance(value, int | float) and self._ends_in_name(words[:-1])

    def _ends_in_name(self, words: str) -> bool:
        parts = words.rsplit(" ", 3)
        return any(" ".join(parts[-count:]) in self._names for count in (1, 2, 3))

    def in_text(self, text: str, texts: int) -> str:
        if not self._may_search(_TEXT_COST + len(text)):
            return MARK
        if texts and text[:1] in ("{", "["):
            try:
                value = loads(text)
            except JsonError:
                return self._cut(text)
            return _unless_changed(text, value, self.within(value, (), texts - 1))
        return self._cut(text)

    def _cut(self, text: str) -> str:
        for pattern, replacement in self._patterns:
            cut, count = pattern.subn(replacement, text)
            text = cut if count else text
        return text


def _unless_changed(text: str, value: Any, redacted: Any) -> str:
    """Return a JSON text if redaction left its value as it was, or else the text of the redacted value.

    A text that repeats a name says more than its value, which has the last member of that name only.
    """
    return text if redacted is value and not _repeats_a_name(text) else dumps(redacted).decode()


def _repeats_a_name(text: str) -> bool:
    """Return whether an object in a JSON text has two members of one name, or that cannot be told."""
    try:
        json.loads(text, object_pairs_hook=_refuse_repeats)
    except (ValueError, RecursionError):
        return True
    return False


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is repeated")


class Redacting(Tap):
    """Passes messages on to another tap, without their secrets.

    The other tap hears of whole messages and of the ends. It hears neither of bytes, which come in any pieces, nor of
    calls and other events than ``ConnectionClosed``, which contain typed payloads. ``Recorder(…, redactor=…)`` makes a
    recording without secrets.
    """

    def __init__(self, tap: Tap, redactor: Redactor | None = None) -> None:
        self._tap = tap
        self._redactor = redactor or Redactor()

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Start."""
        self._tap.opened(connection, now)

    def received(self, data: bytes | None, now: float) -> None:
        """Pass on the end of file."""
        if data is None:
            self._tap.received(None, now)

    def sent(self, data: bytes | None, now: float) -> None:
        """Pass on the half-close."""
        if data is None:
            self._tap.sent(None, now)

    def message_received(self, text: bytes, via: Hashable, now: float) -> None:
        """Pass on a message without its secrets."""
        self._tap.message_received(self._redactor.data(text), via, now)

    def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
        """Pass on a message without its secrets."""
        self._tap.message_sent(self._redactor.data(text), via, now)

    def event(self, event: Event, now: float) -> None:
        """Pass on the end."""
        if isinstance(event, ConnectionClosed):
            self._tap.event(event, now)


def _words(name: str) -> str:
    """Return a name as its words in lower case: ``X-API-Key`` and ``xApiKey`` are both ``x api key``."""
    return " ".join(_WORDS.findall(name)).lower()


def _compiled(pattern: str) -> tuple[re.Pattern[str], str]:
    """Return a pattern and what replaces its matches."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"a pattern must be a regular expression, not {pattern!r:.100}: {error}") from None
    return compiled, rf"\g<kept>{MARK}" if "kept" in compiled.groupindex else MARK


def _blank(value: Any) -> Any:
    """Return the placeholder of a secret: of the same type, so that the message can be read in the same way."""
    if isinstance(value, Mapping):
        return {name: _blank(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_blank(each) for each in value]
    if isinstance(value, str):
        return MARK
    return None if value is None else type(value)()
