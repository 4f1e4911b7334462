"""One request of a client's on its way, and what has come of it."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from mcpio.errors import (
    AuthorizationRequired,
    ConnectionLost,
    InvalidMessage,
    McpError,
    RequestError,
    UnexpectedResponse,
)
from mcpio.events import OutgoingId
from mcpio.framing import jsonrpc
from mcpio.framing.sse import SseParser
from mcpio.http.location import Location
from mcpio.http.model import Headers, ResponseHead

if TYPE_CHECKING:
    from mcpio.profiles import Profile

__all__ = ["REDIRECTS", "ClientExchange", "Purpose", "header", "headers_named", "media_type", "takes_any_event_type"]


REDIRECTS: Final = (301, 302, 303, 307, 308)
"""The statuses that name another place to ask."""


class Purpose(enum.Enum):
    """What a request is for."""

    ASK = "a request"
    """A POST whose answer is to come."""
    TELL = "a notification or a response"
    """A POST that is only taken note of."""
    RESUME = "the rest of an answer"
    """A GET for what a broken stream still owes."""
    LISTEN = "what belongs to no request"
    """A GET for the server's own messages."""
    LEGACY = "everything"
    """A GET for all that a server of 2024-11-05 has to say."""
    END = "the end of the session"
    """A DELETE."""

    @property
    def method(self) -> str:
        """The method of its request."""
        if self in (Purpose.ASK, Purpose.TELL):
            return "POST"
        return "DELETE" if self is Purpose.END else "GET"


class ClientExchange:
    """One request, and the response to it so far."""

    __slots__ = (
        "asked",
        "began",
        "body",
        "head",
        "is_handshake",
        "number",
        "owed",
        "parser",
        "purpose",
        "redirects",
        "resumes",
        "retry",
        "session_id",
        "target",
        "text",
        "tries",
        "was_open",
    )

    asked: tuple[OutgoingId, ...]
    """The requests of the engine's whose answers it is to bring."""
    owed: int
    """How many of them have no outcome yet."""
    resumes: str | None
    """The id of the last event that was seen of the stream that it takes up."""
    is_handshake: bool
    """Whether it is ``initialize``: nothing else may go out before that is done."""
    session_id: str | None
    """The session that it names."""
    began: float
    """When it went out."""
    tries: int
    """How often in a row the stream was taken up without anything coming of it."""
    retry: float | None
    """Seconds to wait before it is taken up, as the server said."""
    was_open: bool
    """Whether the stream was open before."""

    def __init__(
        self,
        number: int,
        purpose: Purpose,
        target: str,
        *,
        text: bytes = b"",
        asked: tuple[OutgoingId, ...] = (),
        resumes: str | None = None,
    ) -> None:
        self.number: int = number
        self.purpose: Purpose = purpose
        self.target: str = target
        self.text: bytes = text
        self.asked = asked
        self.owed = len(asked)
        self.resumes = resumes
        self.is_handshake = self.was_open = False
        self.redirects: int = 0
        self.tries = 0
        self.retry = None
        self.begin(None, 0.0)

    def begin(self, session_id: str | None, now: float) -> None:
        """Forget what came of an earlier attempt: it goes out now, in that session."""
        self.session_id = session_id
        self.began = now
        self.head: ResponseHead | None = None
        self.parser: SseParser | None = None
        self.body: bytearray = bytearray()

    def headers(self) -> Headers:
        """Return its header fields (HTTP-07, HTTP-26, HTTP-39)."""
        fields: list[tuple[bytes, bytes]] = []
        if self.purpose.method == "POST":
            fields.append((b"content-type", b"application/json"))
            fields.append((b"content-length", b"%d" % len(self.text)))
            fields.append((b"accept", b"application/json, text/event-stream"))
        elif self.purpose.method == "GET":
            fields.append((b"accept", b"text/event-stream"))
            fields.append((b"cache-control", b"no-store"))
        if self.session_id is not None:
            fields.append((b"mcp-session-id", self.session_id.encode()))
        if self.resumes is not None:
            fields.append((b"last-event-id", self.resumes.encode()))
        return fields

    @property
    def last_id(self) -> str | None:
        """The id of the last event that was seen of the stream, here or before; ``None`` for what is no use as one.

        An empty one takes back the others, and what no header field can hold cannot be asked for.
        """
        found = None if self.parser is None else self.parser.last_id
        if found is None:
            return self.resumes
        return found if _USABLE_ID.fullmatch(found) else None

    # What came of it

    @property
    def collected_bytes(self) -> int:
        """The memory that the body, or the unfinished event of the stream, takes."""
        return sys.getsizeof(self.body) + (0 if self.parser is None else self.parser.held_bytes)

    @property
    def text_received(self) -> bytes:
        """The body of the response."""
        return bytes(self.body)

    def holds_answer(self, head: ResponseHead) -> bool:
        """Whether the body is the answer to one of its requests."""
        message = self._message(head)
        return isinstance(message, jsonrpc.Error | jsonrpc.Result) and message.id in self.asked

    def refusal(self, head: ResponseHead) -> McpError:
        """Return what a status that says no amounts to: the server's own error, if it gave one."""
        message = self._message(head)
        if isinstance(message, jsonrpc.Error):
            error = RequestError(message.code, message.message, message.data)
            error.__cause__ = self.unexpected(head)
            return error
        return self.unexpected(head)

    def unauthorized(self, head: ResponseHead) -> AuthorizationRequired:
        """Return what 401 and 403 amount to."""
        challenges = headers_named(head, b"www-authenticate")
        said = "; ".join(challenges) or self._quote() or "it does not say what it wants"
        text = f"the server refuses {self.purpose.value} with status {head.status}: {said}"
        return AuthorizationRequired(text, status=head.status, challenges=challenges)

    def unexpected(self, head: ResponseHead, reason: str | None = None) -> UnexpectedResponse:
        """Return the error that such a response is."""
        what = reason or f"{media_type(head) or 'nothing'} in answer to {self.purpose.value}"
        return UnexpectedResponse(head.status, what, self._quote())

    def lost(self, cause: BaseException | None) -> McpError:
        """Return the error that it broke off, or never began."""
        if isinstance(cause, McpError) and self.purpose in (Purpose.ASK, Purpose.TELL):
            # The driver knows better: nothing was sent, for instance.
            return cause
        detail = "" if cause is None else f": {cause}"
        error = ConnectionLost(f"the exchange for {self.purpose.value} broke off{detail}")
        error.__cause__ = cause
        return error

    def without_answer(self) -> McpError:
        """Return the error that the response is over, and did not bring what it should have."""
        message = None if self.head is None else self._message(self.head)
        if isinstance(message, jsonrpc.Malformed):
            error: McpError = InvalidMessage("", f"the answer is malformed: {message.reason}")
        else:
            error = ConnectionLost("the response ended without the answer")
        error.__cause__ = None if self.head is None else self.unexpected(self.head)
        return error

    def leads_to(self, head: ResponseHead, origin: Location) -> Location | None:
        """Return where a redirect leads, ``None`` for another origin, and where the message would be lost (HTTP-38)."""
        keeps_method = head.status in (307, 308) or self.purpose.method == "GET"
        return origin.at(self.target).join(header(head, b"location") or "") if keeps_method else None

    def _message(self, head: ResponseHead) -> object:
        return jsonrpc.parse(self.text_received) if media_type(head) == "application/json" else None

    def _quote(self) -> str:
        return self.text_received[:_QUOTE].decode(errors="replace")


def headers_named(head: ResponseHead, name: bytes) -> list[str]:
    """Return the values of all header fields of a name."""
    return [value.decode("latin-1") for each, value in head.headers if each == name]


def header(head: ResponseHead, name: bytes) -> str | None:
    """Return the value of a header field, ``None`` without it."""
    values = headers_named(head, name)
    return values[0] if values else None


def media_type(head: ResponseHead) -> str:
    """Return the media type of a response, in lower case and without parameters."""
    return (header(head, b"content-type") or "").partition(";")[0].strip().lower()


def takes_any_event_type(profiles: Collection[Profile]) -> bool:
    """Whether a dialect is understood whose messages come as server-sent events of any type (D12)."""
    if not profiles:
        return False
    from mcpio.profiles import DIALECTS

    return any(DIALECTS[profile].any_event_type for profile in profiles)


_QUOTE: Final = 200
_USABLE_ID = re.compile(r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]{0,1022}[^\x00-\x20\x7f])?")
"""What can stand in a header field as it is, and is short enough for one."""
