"""Secrets taken out of messages before anybody looks on: by the names of members, by path, by what a text looks like.

What comes out is JSON of the same shape: a text becomes ``[redacted]``, a number 0, a boolean ``false``, and objects
and arrays keep their members, redacted. What a policy does not know stays: no policy finds every secret.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from mcpio.engine.connection import Connection
from mcpio.engine.tap import Tap
from mcpio.events import ConnectionClosed, Event
from mcpio.framing.json import JsonError, dumps, loads

__all__ = ["MARK", "SECRET_NAMES", "SECRET_PATTERNS", "Redacting", "Redactor"]

MARK: Final = "[redacted]"
"""What stands in place of a secret text."""

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
)
"""Members that hold a secret: those whose names end in these words, however they are written and joined."""

SECRET_PATTERNS: Final = (
    r"(?i)\b(?:bearer|basic)\s+[a-z0-9._~+/=-]{8,}",
    r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+",
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
    r"\b(?:gh[pousr]|github_pat)_\w{20,}",
    r"\bxox[abeoprs]-[\w-]{10,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
    r"(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)",
)
"""What a secret in a text looks like: tokens of well-known kinds, private keys, passwords in addresses."""

_NOT_SECRET: Final = ("progress token",)
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_TEXTS_WITHIN: Final = 3
"""How many times JSON in a text in JSON in a text is looked into: servers send structured results as text, too."""


class Redactor:
    """What is secret. It is a value: the same message always comes out the same.

    ``names`` are those of members: ``api key`` means ``apiKey``, ``api_key``, ``X-API-Key`` and ``openai_api_key``.
    ``paths`` lead from the message to what is secret as a whole, in steps joined by dots, ``*`` for any one of them:
    ``params.arguments.pin``, ``result.structuredContent.accounts.*.iban``. ``patterns`` are regular expressions for
    what is cut out of texts. ``ValueError`` for a pattern that is none.
    """

    __slots__ = ("_names", "_paths", "_pattern")

    def __init__(
        self,
        *,
        names: Iterable[str] = SECRET_NAMES,
        paths: Iterable[str] = (),
        patterns: Iterable[str] = SECRET_PATTERNS,
    ) -> None:
        self._names = frozenset(_words(name) for name in names)
        self._paths = tuple(tuple(path.split(".")) for path in paths)
        alternatives = [_compiled(pattern) for pattern in patterns]
        self._pattern = tuple(alternatives)

    def message(self, message: Any) -> Any:
        """Return a parsed message without its secrets: a new value, or the same where there are none."""
        return self._within(message, self._paths, _TEXTS_WITHIN)

    def text(self, text: str) -> str:
        """Return a message as JSON without its secrets; what is no JSON has only its patterns taken out."""
        try:
            value = loads(text)
        except JsonError:
            return self._cut(text)
        redacted = self.message(value)
        return text if redacted is value else dumps(redacted).decode()

    def data(self, data: bytes) -> bytes:
        """Return a message as ``text`` does; bytes that are no text become a mark."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return MARK.encode()
        redacted = self.text(text)
        return data if redacted is text else redacted.encode()

    def _within(self, value: Any, paths: tuple[tuple[str, ...], ...], texts: int, in_schema: bool = False) -> Any:
        if isinstance(value, str):
            return self._in_text(value, texts)
        if isinstance(value, Mapping):
            members = {name: self._member(name, each, paths, texts, in_schema) for name, each in value.items()}
            return value if all(members[name] is each for name, each in value.items()) else members
        if isinstance(value, list | tuple):
            items = [self._step(str(index), each, paths, texts) for index, each in enumerate(value)]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        return value

    def _member(self, name: str, value: Any, paths: tuple[tuple[str, ...], ...], texts: int, in_schema: bool) -> Any:
        # What a schema says of a secret is none.
        if self._names_secret(name) and not (in_schema and isinstance(value, Mapping)):
            return _blank(value)
        return self._step(name, value, paths, texts)

    def _step(self, name: str, value: Any, paths: tuple[tuple[str, ...], ...], texts: int) -> Any:
        further = tuple(path[1:] for path in paths if path[0] in (name, "*"))
        if () in further:
            return _blank(value)
        return self._within(value, further, texts, name == "properties")

    def _names_secret(self, name: str) -> bool:
        words = _words(name)
        if words in _NOT_SECRET:
            return False
        parts = words.split(" ")
        return any(" ".join(parts[-count:]) in self._names for count in (1, 2, 3))

    def _in_text(self, text: str, texts: int) -> str:
        if texts and text[:1] in ("{", "["):
            try:
                value = loads(text)
            except JsonError:
                return self._cut(text)
            redacted = self._within(value, (), texts - 1)
            return text if redacted is value else dumps(redacted).decode()
        return self._cut(text)

    def _cut(self, text: str) -> str:
        for pattern in self._pattern:
            text = pattern.sub(MARK, text) if pattern.search(text) else text
        return text


class Redacting(Tap):
    """Lets another tap hear of messages without their secrets.

    It hears of whole messages and of the ends. Of bytes it does not hear, since they come in any pieces, nor of calls
    and of events but ``ConnectionClosed``, since they hold typed payloads. A recording without secrets is made by
    ``Recorder(…, redactor=…)``.
    """

    def __init__(self, tap: Tap, redactor: Redactor | None = None) -> None:
        self._tap = tap
        self._redactor = redactor or Redactor()

    def opened(self, connection: Connection, now: float) -> None:
        """Begin."""
        self._tap.opened(connection, now)

    def received(self, data: bytes | None, now: float) -> None:
        """Pass on the end of file."""
        if data is None:
            self._tap.received(None, now)

    def sent(self, data: bytes | None, now: float) -> None:
        """Pass on the half-close."""
        if data is None:
            self._tap.sent(None, now)

    def message_received(self, text: bytes | str, via: Hashable, now: float) -> None:
        """Pass on a message without its secrets."""
        redacted = self._redactor.text(text) if isinstance(text, str) else self._redactor.data(text)
        self._tap.message_received(redacted, via, now)

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


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r:.100} is no regular expression: {error}") from None


def _blank(value: Any) -> Any:
    """Return a secret's place-holder: of its type, so that whoever reads the message reads it in the same way."""
    if isinstance(value, Mapping):
        return {name: _blank(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_blank(each) for each in value]
    if isinstance(value, str):
        return MARK
    return None if value is None else type(value)()
