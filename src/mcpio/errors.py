"""The exception tree: every failure that a caller can meet is one of these, never a bare group around one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpio.refusals import RefusalSeverity

__all__ = [
    "AuthorizationRequired",
    "CapabilityMissing",
    "ConnectFailed",
    "ConnectionLost",
    "ErrorCode",
    "InsufficientScope",
    "InvalidMessage",
    "LocalProtocolError",
    "McpError",
    "MessageTooLarge",
    "NoBackChannel",
    "OutputFull",
    "ProtocolError",
    "Refusal",
    "RemoteProtocolError",
    "RequestCancelled",
    "RequestError",
    "RequestTimeout",
    "SamplingRejected",
    "SkillChanged",
    "TooManyRounds",
    "ToolError",
    "URLElicitationRequired",
    "UnexpectedResponse",
    "WebSocketClosed",
]


class ErrorCode:
    """The JSON-RPC error codes that the protocol defines (RPC-15, RPC-20), as plain integers."""

    PARSE_ERROR: Final = -32700
    INVALID_REQUEST: Final = -32600
    METHOD_NOT_FOUND: Final = -32601
    INVALID_PARAMS: Final = -32602
    INTERNAL_ERROR: Final = -32603
    RESOURCE_NOT_FOUND: Final = -32002
    """Handshake revisions only; 2026-07-28 uses ``INVALID_PARAMS``."""
    URL_ELICITATION_REQUIRED: Final = -32042
    """2025-11-25 only."""
    HEADER_MISMATCH: Final = -32020
    """2026-07-28, over HTTP: a header is missing, or differs from the body (HDR-03)."""
    MISSING_CLIENT_CAPABILITY: Final = -32021
    """2026-07-28: the request did not declare a capability that it needs; ``data`` names it (ENV-05)."""
    UNSUPPORTED_VERSION: Final = -32022
    """2026-07-28: the revision that a request names is not spoken here; ``data`` names those that are (VER-01)."""
    USER_REJECTED: Final = -1
    """The user turned down a sampling request (SAMP-12)."""


class McpError(Exception):
    """The root of the tree. Every error can be pickled without losing an attribute."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the text alone.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[McpError], args: tuple[Any, ...], facts: dict[str, Any]) -> McpError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(facts)
    return error


class ProtocolError(McpError):
    """A rule of the protocol was broken, by this side or by the other. Abstract.

    ``code`` is the JSON-RPC error code of the fault on the wire, and ``http_status`` the status of an HTTP server's
    answer to it.
    """

    def __init__(self, message: str, *, code: int = ErrorCode.INVALID_REQUEST, http_status: int = 400) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: raise LocalProtocolError or RemoteProtocolError")
        super().__init__(message)
        self.code = code
        self.http_status = http_status


class LocalProtocolError(ProtocolError):
    """The state, the capabilities or the revision forbid a call of this program. Nothing changed."""


class CapabilityMissing(LocalProtocolError):
    """The client did not declare a capability that a question to it needs (ENV-05).

    ``required`` is what it should have declared, as the protocol writes it: ``{"elicitation": {"form": {}}}``. A
    stateless client is told so, by error -32021, if the handler lets this pass; to others the handler failed.
    """

    def __init__(self, message: str, path: Iterable[str]) -> None:
        super().__init__(message, code=ErrorCode.MISSING_CLIENT_CAPABILITY)
        self.required: dict[str, Any] = {}
        for step in reversed(tuple(path)):
            self.required = {step: self.required}

    def as_error(self) -> RequestError:
        """Return the error for a stateless client."""
        return RequestError(self.code, str(self), {"requiredCapabilities": self.required})


class MessageTooLarge(LocalProtocolError):
    """A message is longer than ``Limits.sent_message_bytes``. Nothing changed.

    ``size`` and ``limit`` are in bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the message has {size} bytes, and at most {limit} are sent (Limits.sent_message_bytes)")
        self.size = size
        self.limit = limit


class OutputFull(LocalProtocolError):
    """Too many requests wait to be written (half of ``Limits.queued_bytes``). Nothing changed: write some first.

    ``waiting`` and ``limit`` are in bytes. A ``Client`` waits for room instead of raising it.
    """

    def __init__(self, waiting: int, limit: int) -> None:
        super().__init__(
            f"{waiting} bytes of requests wait to be written, more than {limit} (half of Limits.queued_bytes)"
        )
        self.waiting = waiting
        self.limit = limit


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule. The engine reports it inside events; only drivers raise it."""


class InvalidMessage(McpError):
    """A value does not fit its type in a revision of the protocol.

    ``path`` is the place of the fault (``params.items[0].size``), ``revision`` is the revision's name, and ``reason``
    names the expected and the given value.
    """

    def __init__(self, path: str, reason: str, revision: str | None = None) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason
        self.revision = revision


def escape_surrogates(text: str) -> str:
    """Return a text as JSON can express it: Python has bytes that are no UTF-8, as in names of files, as surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


class RequestError(McpError):
    """The peer answered a request with an error.

    ``code``, ``message`` and ``data`` are the members of the JSON-RPC error object; ``data`` is ``None`` when absent.
    A handler may raise it to answer with exactly this error.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data

    def is_refusal(self) -> bool:
        """Return whether the peer's application refused, with a code from 1001 to 1089 (E7)."""
        return 1001 <= self.code <= 1089

    def is_closing(self) -> bool:
        """Return whether the peer is closing the connection: it did not run the request, and takes no other there.

        Servers of this library say so, by ``data.reason``.
        """
        return self.code == ErrorCode.INVALID_REQUEST and self._in_data("reason") == "closing"

    def is_retryable(self) -> bool:
        """Return whether the same request may succeed later: ``data.retryable``, or else the meaning of the code.

        Without either, as with every error of the protocol itself, the answer is ``False``; except for ``is_closing``.
        """
        stated = self._in_data("retryable")
        if isinstance(stated, bool):
            return stated
        if self.is_closing():
            return True
        if not self.is_refusal():
            return False
        from mcpio.refusals import find_refusal

        refusal = find_refusal(self.code)
        return refusal is not None and refusal.retryable

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait before another attempt, from ``data.retry_after`` or ``retryAfter``.

        ``None`` if neither is a number of 0 or more.
        """
        for member in ("retry_after", "retryAfter"):
            stated = self._in_data(member)
            if isinstance(stated, int | float) and not isinstance(stated, bool) and stated >= 0:
                return stated
        return None

    def _in_data(self, member: str) -> Any:
        return self.data.get(member) if isinstance(self.data, Mapping) else None


class SamplingRejected(RequestError):
    """The user turned down a sampling request (SAMP-12).

    Raised by a client's sampling handler, and then at the server by ``Context.sample``.
    """

    def __init__(self, message: str = "User rejected sampling request", data: Any = None) -> None:
        super().__init__(ErrorCode.USER_REJECTED, message, data)


class URLElicitationRequired(RequestError):
    """The user must visit URLs before the request can succeed (ELIC-17, 2025-11-25 only).

    A server's handler raises it with the URLs. A client whose call raises it shows them to its user and calls again.
    Raising it for a client that did not declare ``elicitation.url`` is a fault of the handler.

    ``elicitations`` are the URLs, each in an ``ElicitURLRequest`` with an id. Raises ValueError if there are none, or
    if one has no id.
    """

    elicitations: tuple[Any, ...]

    def __init__(
        self,
        elicitations: Iterable[Any],
        message: str = "This request needs the user to visit a web address first",
        data: Any = None,
    ) -> None:
        self.elicitations = tuple(elicitations)
        if not self.elicitations or any(each.elicitation_id is None for each in self.elicitations):
            raise ValueError("elicitations must hold at least one request, and each must have an elicitation_id")
        if data is None:
            data = {
                "elicitations": [
                    {"mode": each.mode, "message": each.message, "url": each.url, "elicitationId": each.elicitation_id}
                    for each in self.elicitations
                ]
            }
        super().__init__(ErrorCode.URL_ELICITATION_REQUIRED, message, data)


class RequestTimeout(McpError):
    """No answer came in time. ``seconds`` is the limit that passed; ``kind`` is ``"total"`` or ``"idle"``."""

    def __init__(self, method: str, seconds: float, kind: str = "total") -> None:
        waited = "" if kind == "total" else " without progress"
        super().__init__(f"{method}: no answer within {seconds:g} s{waited}")
        self.method = method
        self.seconds = seconds
        self.kind = kind


class RequestCancelled(McpError):
    """The request was cancelled. ``reason`` is the text given with the cancellation, if any."""

    def __init__(self, method: str, reason: str | None = None) -> None:
        super().__init__(f"{method}: cancelled" + (f" ({reason})" if reason else ""))
        self.method = method
        self.reason = reason


class TooManyRounds(McpError):
    """A server answered the same request by asking for input again and again (MRTR-05).

    ``method`` is the method of the request, and ``rounds`` how often it was sent again with answers.
    """

    def __init__(self, method: str, rounds: int) -> None:
        super().__init__(f"{method}: the server asks for more input after {rounds} rounds")
        self.method = method
        self.rounds = rounds


class SkillChanged(McpError):
    """A skill is not what its entry says: the content must not be used. Get the entry again, by ``Client.skill``."""

    uri: str
    """The skill, or the file of it."""
    what: str
    """What differs: ``"size"``, ``"digest"``, ``"frontmatter"``, ``"content"``, or ``"file"`` for one that the entry
    does not have."""

    def __init__(self, uri: str, what: str, detail: str) -> None:
        super().__init__(f"{uri:.200} is not what the entry of the skill says: {detail}")
        self.uri = uri
        self.what = what


class ConnectionLost(McpError):
    """The connection ended. ``reason`` says how; ``__cause__`` is the exception that caused it, if any.

    ``unprocessed`` tells that the server has certainly not acted on the request, which may be sent again.
    """

    def __init__(self, reason: str, *, unprocessed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unprocessed = unprocessed


class WebSocketClosed(ConnectionLost):
    """The other side closed a WebSocket abnormally, or it broke without a close frame (code 1006).

    ``code`` is the code of the close frame, and ``text`` its text. It is the cause of a ``ConnectionLost``.
    """

    def __init__(self, code: int, text: str = "") -> None:
        ending = "without a close frame" if code == 1006 else f"with code {int(code)}" + (f": {text}" if text else "")
        super().__init__(f"the WebSocket was closed {ending}")
        self.code: int = int(code)
        self.text: str = text


class ConnectFailed(McpError):
    """No connection was made: the program did not start, the port refused, or the handshake failed.

    ``era_probe`` says that the connection ended while the client found out the era of the server: some servers of the
    handshake era end on the first message that they do not know, and answer ``initialize`` on another connection.
    """

    def __init__(self, message: str, *, era_probe: bool = False) -> None:
        super().__init__(message)
        self.era_probe = era_probe


class UnexpectedResponse(McpError):
    """An HTTP server's answer is not MCP.

    ``status`` is the status code, ``reason`` describes the answer, and ``text`` quotes its beginning.
    """

    def __init__(self, status: int, reason: str, text: str = "") -> None:
        super().__init__(f"status {status}: {reason}" + (f": {text!r:.200}" if text else ""))
        self.status = status
        self.reason = reason
        self.text = text


class AuthorizationRequired(McpError):
    """The server wants credentials that this client does not have.

    ``status`` is the status code of the answer, 401 or 403, and ``challenges`` are its ``WWW-Authenticate`` fields,
    which name the credentials and where to get them. ``nonce`` is its ``DPoP-Nonce``, for the next proof (RFC 9449),
    and ``date`` its ``Date``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 401,
        challenges: Iterable[str] = (),
        nonce: str | None = None,
        date: str | None = None,
        is_without_auth: bool = False,
    ) -> None:
        """``is_without_auth`` says that the client has neither ``auth=`` nor a token in its header fields."""
        self.nonce = nonce
        self.date = date
        self.status = status
        self.challenges: tuple[str, ...] = tuple(challenges)
        """Values of the ``WWW-Authenticate`` fields of the response."""
        schemes = {challenge.partition(" ")[0].lower() for challenge in self.challenges}
        wants_token = status == 401 and (not schemes or not schemes.isdisjoint(("bearer", "dpop")))
        self.hint: str = _HOW_TO_AUTHORIZE if is_without_auth and wants_token else ""
        """The end of the message: how to give a token, where none was given. Empty otherwise."""
        super().__init__(f"{message}{self.hint}")


_HOW_TO_AUTHORIZE: Final = (
    ". To log in, give auth=OAuth(), or for a token that you have auth=BearerToken(...): both are in mcpio.auth "
    "(on the command line: mcpio login URL)"
)


class NoBackChannel(McpError):
    """The message has no route to the peer, and none can come."""


class Refusal(McpError):
    """An application's refusal, with a code from 1001 to 1089 (E7). Raised by a handler.

    Arguments that are not given come from the table of ``mcpio.refusals``.

    Args:
        code: such as a ``RefusalCode``.
        message: the text for people.
        retryable: whether the same request may succeed later.
        retry_after: in how many seconds.
        hint: what the caller can do.
        data: a mapping of more members for the error's ``data``, or a value for its member ``data``.

    Raises:
        ValueError: ``code`` is outside the range, or has no meaning in the table and there is no ``message``;
            ``retry_after`` is not a number of 0 or more.
    """

    def __init__(
        self,
        code: int,
        message: str | None = None,
        *,
        retryable: bool | None = None,
        retry_after: float | None = None,
        hint: str | None = None,
        data: Any = None,
    ) -> None:
        from mcpio._checks import is_amount
        from mcpio.refusals import category_of, find_refusal

        self.category = category_of(code)
        refusal = find_refusal(code)
        if message is None:
            if refusal is None:
                raise ValueError(f"message must be given for the code {code}, which no table explains")
            message = refusal.meaning
        if retry_after is not None and not is_amount(retry_after):
            raise ValueError(f"retry_after must be a number of seconds, 0 or more, not {retry_after!r}")
        super().__init__(f"{message} ({int(code)})")
        self.code: int = int(code)
        """The code, from 1001 to 1089."""
        self.message = message
        self.http_status: int | None = refusal.http_status if refusal is not None else None
        """The HTTP status that says most nearly the same."""
        self.severity: RefusalSeverity = refusal.severity if refusal is not None else "error"
        """How bad it is."""
        self.retryable: bool = retryable if retryable is not None else refusal is not None and refusal.retryable
        """Whether the same request may succeed later."""
        self.retry_after = retry_after
        self.hint = hint
        self.data = data

    def as_error(self) -> RequestError:
        """Return the error to answer with, which has every attribute in ``data``."""
        facts: dict[str, Any] = {
            "category": self.category,
            "http_status": self.http_status,
            "severity": self.severity,
            "retryable": self.retryable,
            "retry_after": self.retry_after,
            "hint": self.hint,
        }
        data = self.data if isinstance(self.data, Mapping) else {} if self.data is None else {"data": self.data}
        members = {name: fact for name, fact in facts.items() if fact is not None}
        return RequestError(self.code, self.message, {**data, **members})


class InsufficientScope(Refusal):
    """The token of a request lacks scopes that the request needs (AUTH-34).

    Raised for tools, resources and prompts with ``scopes=``, and by ``Context.require_scopes``. The answer is a
    JSON-RPC error of code 1014, with the scopes in ``data.scope``; over HTTP also status 403 and a challenge, as long
    as nothing of it was sent. ``scopes`` are all that the request needs. No token has
    a text that cannot be a scope, such as one with a space: the message shows it escaped, and there is no challenge.
    """

    def __init__(self, scopes: Iterable[str]) -> None:
        from mcpio._checks import is_scope
        from mcpio.refusals import RefusalCode

        self.scopes: frozenset[str] = frozenset(scopes)
        """All scopes that the request needs."""
        shown = " ".join(scope if is_scope(scope) else ascii(scope[:200]) for scope in sorted(self.scopes))
        text = " ".join(filter(is_scope, sorted(self.scopes)))
        message = f"The token has too few scopes: this needs {shown}"
        super().__init__(RefusalCode.AUTHZ_FORBIDDEN, message, data={"scope": text})


class ToolError(McpError):
    """A failure of a tool's work. The text goes to the model, in a result with ``is_error`` (TOOL-10)."""
