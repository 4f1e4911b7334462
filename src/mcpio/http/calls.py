"""One request of a client's on its way, and what has come of it."""

from __future__ import annotations

import enum

from mcpio.events import OutgoingId
from mcpio.framing.sse import SseParser
from mcpio.http.model import Headers, ResponseHead

__all__ = ["Call", "Purpose", "header", "media_type"]


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


class Call:
    """One request, and the response to it so far."""

    __slots__ = (
        "asked",
        "body",
        "head",
        "is_handshake",
        "number",
        "parser",
        "purpose",
        "redirects",
        "resumes",
        "retry",
        "session_id",
        "size",
        "target",
        "text",
        "tries",
    )

    asked: tuple[OutgoingId, ...]
    """The requests of the engine's whose answers it is to bring."""
    resumes: str | None
    """The id of the last event that was seen of the stream that it takes up."""
    is_handshake: bool
    """Whether nothing else may go out before it is done."""
    session_id: str | None
    """The session that it names."""
    tries: int
    """How often in a row the stream was taken up without anything coming of it."""
    retry: float | None
    """Seconds to wait before it is taken up, as the server said."""

    def __init__(
        self,
        number: int,
        purpose: Purpose,
        target: str,
        *,
        text: bytes,
        asked: tuple[OutgoingId, ...],
        resumes: str | None,
    ) -> None:
        self.number = number
        self.purpose = purpose
        self.target = target
        self.text = text
        self.asked = asked
        self.resumes = resumes
        self.is_handshake = False
        self.session_id = None
        self.redirects = self.tries = 0
        self.retry = None
        self.begin(None)

    def begin(self, session_id: str | None) -> None:
        """Forget what came of an earlier attempt: it goes out now, in that session."""
        self.session_id = session_id
        self.head: ResponseHead | None = None
        self.parser: SseParser | None = None
        self.body: list[bytes] = []
        self.size = 0

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
        """The id of the last event that was seen of the stream, here or before."""
        found = None if self.parser is None else self.parser.last_id
        return self.resumes if found is None else found


def header(head: ResponseHead, name: bytes) -> str | None:
    """Return the value of a header field, ``None`` without it."""
    for each, value in head.headers:
        if each == name:
            return value.decode("latin-1")
    return None


def media_type(head: ResponseHead) -> str:
    """Return the media type of a response, in lower case and without parameters."""
    return (header(head, b"content-type") or "").partition(";")[0].strip().lower()
