"""The host's side of a view, as a machine without I/O: messages of the view in, events and messages out (APP-10 to 13).

The rules of a view's life are a table, as the engine's are. Whatever a view sends, it only ever causes events and
answers: ``LocalProtocolError`` is for this program's own mistakes, and changes nothing.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from mcpio._checks import required
from mcpio.apps.policy import view_uri_of, visibility_of
from mcpio.codec import codec
from mcpio.engine.channel import Timers
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.pending import OutgoingRequest, OutgoingRequests
from mcpio.engine.table import RequestInput
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError
from mcpio.events import IncomingId, OutgoingId
from mcpio.framing import jsonrpc
from mcpio.revisions import REV_2025_11_25
from mcpio.types.features import CallToolResult, Implementation, Tool

REVISION: Final = "2026-01-26"
"""The revision of MCP Apps that is spoken."""
REFUSED: Final = -32000
"""The code of an error for what the host does not allow (APP-12)."""
MAX_MESSAGE: Final = 4 << 20
"""Characters of the longest message that a view may send."""
MAX_BUFFERED: Final = 8 << 20
"""How many characters of a view's messages, and how many bytes for it, wait before its input is held back."""
MAX_REQUESTS: Final = 64
"""How many requests of a view may wait for their answers."""
MAX_SIZE: Final = 16_384
"""The most pixels that a view is reported to ask for, in either direction."""
_LONGEST: Final = 8192
"""Characters of the longest URL that a view may have opened."""


# ---------------------------------------------------------------------------------------------------------------- table


class ViewPhase(enum.Enum):
    """How far a view is."""

    CREATED = "created"
    INITIALIZING = "initializing"
    """It has the answer to its ``ui/initialize``, and has not said that it is ready."""
    INITIALIZED = "initialized"
    INPUT_GIVEN = "input given"
    """It has the arguments of the tool's call."""
    DONE = "done"
    """It has the result, or knows that the call was cancelled."""
    TEARING_DOWN = "tearing down"
    """It was asked whether it can be removed."""
    ENDED = "ended"


class ViewInput(enum.Enum):
    """An event in the life of a view: ``SEND_…`` is caused by this program, ``RECV_…`` by the view."""

    SEND_PARTIAL_INPUT = "send a part of the input"
    SEND_INPUT = "send the input"
    SEND_RESULT = "send the result"
    SEND_CANCELLED = "send the cancellation"
    SEND_CONTEXT = "send a change of the host's context"
    SEND_TEARDOWN = "tear the view down"
    RECV_INITIALIZE = "ui/initialize"
    RECV_INITIALIZED = "ui/notifications/initialized"
    RECV_CALL = "another request or notification"
    RECV_TORN_DOWN = "the answer to ui/resource-teardown, or none in time"
    RECV_LOSS = "the end"


_P, _I = ViewPhase, ViewInput
_LIVE: Final = (_P.INITIALIZED, _P.INPUT_GIVEN, _P.DONE)
LEGAL: Final[dict[tuple[ViewPhase, ViewInput], ViewPhase]] = {
    (_P.CREATED, _I.RECV_INITIALIZE): _P.INITIALIZING,
    (_P.INITIALIZING, _I.RECV_INITIALIZED): _P.INITIALIZED,
    (_P.INITIALIZED, _I.SEND_PARTIAL_INPUT): _P.INITIALIZED,
    (_P.INITIALIZED, _I.SEND_INPUT): _P.INPUT_GIVEN,
    (_P.INITIALIZED, _I.SEND_CANCELLED): _P.DONE,
    (_P.INPUT_GIVEN, _I.SEND_CANCELLED): _P.DONE,
    (_P.INPUT_GIVEN, _I.SEND_RESULT): _P.DONE,
    # A view that was never ready is not asked.
    (_P.CREATED, _I.SEND_TEARDOWN): _P.ENDED,
    (_P.INITIALIZING, _I.SEND_TEARDOWN): _P.ENDED,
    **{(phase, _I.SEND_TEARDOWN): _P.TEARING_DOWN for phase in _LIVE},
    **{(phase, _I.SEND_CONTEXT): phase for phase in _LIVE},
    # While it is torn down it may still save what it has.
    **{(phase, _I.RECV_CALL): phase for phase in (*_LIVE, _P.TEARING_DOWN)},
    (_P.TEARING_DOWN, _I.RECV_TORN_DOWN): _P.ENDED,
    **{(phase, _I.RECV_LOSS): _P.ENDED for phase in _P if phase is not _P.ENDED},
}
"""(phase, input) -> the next phase. What is not here is a ``LocalProtocolError``, or a fault of the view."""


# --------------------------------------------------------------------------------------------------------------- events


@attrs.frozen
class ViewInitialized:
    """The view is ready: send it the input of the tool's call."""

    info: Mapping[str, Any]
    """Its name and version, as it says."""
    capabilities: Mapping[str, Any]
    """What it declared, such as ``availableDisplayModes``."""


@attrs.frozen
class ViewRequested:
    """The view asks for something that it may ask for: answer by ``send_result`` or ``send_error``, once."""

    id: IncomingId
    method: str
    """``tools/call``, ``resources/read``, or one of ``ui/open-link``, ``ui/message``, ``ui/update-model-context``,
    ``ui/request-display-mode`` and ``ui/download-file``."""
    params: Mapping[str, Any]
    """The members that it must have are there, and of their types. Untrusted: ask the user before acting on them."""


@attrs.frozen
class ViewCancelled:
    """The view does not want the answer to a request any more, and gets none."""

    id: IncomingId


@attrs.frozen
class ViewLogged:
    """The view logs something."""

    level: str
    data: Any
    logger: str | None


@attrs.frozen
class ViewResized:
    """The view asks for another size, in pixels of 0 to 16,384."""

    width: float | None
    """``None`` if it stays as it is."""
    height: float | None
    """``None`` if it stays as it is."""


@attrs.frozen
class TeardownRequested:
    """The view asks to be removed: call ``tear_down``, or go on."""


@attrs.frozen
class ViewFaulted:
    """The view broke a rule. It was answered, where it can be; nothing else changed."""

    reason: str


@attrs.frozen
class ViewEnded:
    """The view is at its end: remove it. The last event."""

    reason: str
    """``"torn down"``, ``"no answer"`` to the teardown in time, or ``"lost"``."""


ViewEvent: TypeAlias = (
    ViewInitialized
    | ViewRequested
    | ViewCancelled
    | ViewLogged
    | ViewResized
    | TeardownRequested
    | ViewFaulted
    | ViewEnded
)


# ----------------------------------------------------------------------------------------------------------- parameters


def _is_web_address(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.lower().startswith(("https://", "http://"))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


CHECKS: Final[Mapping[str, Mapping[str, tuple[bool, Callable[[Any], bool]]]]] = {
    "tools/call": {"name": (True, _is_text), "arguments": (False, _is_object)},
    "resources/read": {"uri": (True, _is_text)},
    "ui/open-link": {"url": (True, _is_web_address)},
    "ui/message": {"role": (True, lambda value: value == "user"), "content": (True, _is_list)},
    "ui/update-model-context": {"content": (False, _is_list), "structuredContent": (False, _is_object)},
    "ui/request-display-mode": {"mode": (True, _is_text)},
    "ui/download-file": {"contents": (True, _is_list)},
}
"""The requests of a view, and the members that are checked: whether one must be there, and what it must be."""

CAPABILITY_OF: Final = {
    "tools/call": "serverTools",
    "resources/read": "serverResources",
    "ui/open-link": "openLinks",
    "ui/message": "message",
    "ui/update-model-context": "updateModelContext",
    "ui/download-file": "downloadFile",
}
"""The capability of the host without which a request is refused."""


def _fault_in(method: str, params: Mapping[str, Any]) -> str | None:
    for name, (is_required, check) in CHECKS[method].items():
        if name not in params:
            if is_required:
                return f"{name} is missing"
        elif not check(params[name]):
            return f"{name} is not what it should be"
    return None


# -------------------------------------------------------------------------------------------------------------- machine


class ViewConnection:
    """One view of a tool, from its creation to its end.

    Feed it by ``receive_message``, and after each call drain ``events()`` and ``next_message()``, and look at
    ``next_deadline()``: a driver, such as ``pump``, does that. ``now`` is seconds on one monotonic clock.
    """

    tool: Tool
    """The tool that the view is shown for."""
    phase: ViewPhase
    """How far the view is."""
    on_output: Callable[[], None] | None
    """Called when a call of this program made events or output, for drivers. It must not call back."""

    def __init__(
        self,
        tool: Tool,
        tools: Iterable[Tool] = (),
        *,
        host: Implementation | None = None,
        capabilities: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe the host.

        Args:
            tool: The tool that the view is shown for. The view is told of it.
            tools: The server's tools. The view may call those that are visible to apps (APP-13).
            host: The name and version of the host.
            capabilities: What the host can do, as MCP Apps write it: ``serverTools``, ``serverResources``, ``logging``,
                ``openLinks``, ``message``, ``updateModelContext``, ``downloadFile``. By default the first three.
            context: The host's context: ``theme``, ``locale``, ``displayMode``, ``availableDisplayModes`` and others.

        Raises TypeError for arguments of other types, and LocalProtocolError for what JSON cannot express.
        """
        self.phase = ViewPhase.CREATED
        self.on_output = None
        self.tool = required("tool", tool, Tool)
        self.set_tools(tools)
        self._info = Implementation("mcpio", "0") if host is None else required("host", host, Implementation)
        declared = _DEFAULT_CAPABILITIES if capabilities is None else capabilities
        self._capabilities: dict[str, Any] = dict(required("capabilities", declared, Mapping))  # type: ignore[type-abstract]  # any mapping
        context = {} if context is None else required("context", context, Mapping)  # type: ignore[type-abstract]  # any mapping
        self._context: dict[str, Any] = {"toolInfo": {"tool": _plain(tool)}, **context}
        self._mode = self._context.get("displayMode", "inline")
        _encoded(lambda: jsonrpc.encode_result(0, self._introduction()))
        self._timers: Timers[int] = Timers()
        self._asked = OutgoingRequests(self._timers, Limits())
        self._requests: dict[IncomingId, int | str] = {}
        self._next_request = 1
        self._inbox: deque[str | bytes] = deque()
        self._unread = 0
        self._outbox: deque[bytes] = deque()
        self._unsent = 0
        self._events: deque[ViewEvent] = deque()
        self._app: tuple[Mapping[str, Any], Mapping[str, Any]] = {}, {}

    @property
    def view(self) -> str | None:
        """The URI of the view."""
        return view_uri_of(self.tool)

    @property
    def closed(self) -> bool:
        """Whether the view is at its end, and the last event was taken."""
        return self.phase is ViewPhase.ENDED and not self._events

    @property
    def wants_read(self) -> bool:
        """Whether more messages should be fed: not while many wait, or many answers were not taken."""
        is_full = self._unread > MAX_BUFFERED or self._unsent > MAX_BUFFERED
        return self.phase is not ViewPhase.ENDED and not is_full

    @property
    def display_mode(self) -> str:
        """How the view is shown."""
        return str(self._mode)

    # Input

    def receive_message(self, text: str | bytes, now: float) -> None:
        """Store a message of the view; ``events`` reads it. Never raises for what is in it; ignored after the end."""
        if self.phase is not ViewPhase.ENDED:
            self._inbox.append(text)
            self._unread += len(text)

    def connection_lost(self) -> None:
        """Record that the view is gone."""
        if self.phase is not ViewPhase.ENDED:
            self._end(_I.RECV_LOSS, "lost")
            self._announce()

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due; ``None`` for never."""
        return self._timers.next()

    def handle_timeout(self, now: float) -> None:
        """End a view that did not answer its teardown in time."""
        if self._timers.pop_expired(now):
            self._end(_I.RECV_TORN_DOWN, "no answer")

    def events(self) -> Iterator[ViewEvent]:
        """Yield the events that are there, reading a message at a time."""
        while (event := self.next_event()) is not None:
            yield event

    def next_event(self) -> ViewEvent | None:
        """Return the next event; ``None`` if there is none until more is fed, or output was taken."""
        # What a view makes this side answer is bounded: its further messages wait until it has read.
        while not self._events and self._inbox and self._unsent <= MAX_BUFFERED:
            text = self._inbox.popleft()
            self._unread -= len(text)
            self._read(text)
        return self._events.popleft() if self._events else None

    def next_message(self) -> str | None:
        """Return the next message for the view, or ``None``."""
        if not self._outbox:
            return None
        message = self._outbox.popleft()
        self._unsent -= len(message)
        return message.decode()

    # Actions

    def set_tools(self, tools: Iterable[Tool]) -> None:
        """Replace the server's tools. Raises TypeError for what is not a Tool."""
        by_name = {required("tools", tool, Tool).name: tool for tool in tools}
        self._callable = frozenset(name for name, tool in by_name.items() if "app" in visibility_of(tool))

    def send_tool_input_partial(self, arguments: Mapping[str, Any]) -> None:
        """Send the arguments as far as the model has written them. Not after ``send_tool_input`` (APP-11)."""
        self._notify(_I.SEND_PARTIAL_INPUT, "tool-input-partial", {"arguments": arguments})

    def send_tool_input(self, arguments: Mapping[str, Any]) -> None:
        """Send the arguments of the tool's call: once, before the result (APP-11)."""
        self._notify(_I.SEND_INPUT, "tool-input", {"arguments": arguments})

    def send_tool_result(self, result: CallToolResult) -> None:
        """Send the result of the tool's call, once (APP-11)."""
        self._notify(_I.SEND_RESULT, "tool-result", _plain(required("result", result, CallToolResult)))

    def send_tool_cancelled(self, reason: str | None = None) -> None:
        """Say that the call has no result, instead of ``send_tool_result`` (APP-11)."""
        self._notify(_I.SEND_CANCELLED, "tool-cancelled", {} if reason is None else {"reason": reason})

    def send_context(self, changes: Mapping[str, Any]) -> None:
        """Send what has changed of the host's context, such as its ``theme``."""
        self._notify(_I.SEND_CONTEXT, "host-context-changed", changes)
        self._context |= changes
        self._mode = self._context.get("displayMode", self._mode)

    def send_result(self, id: IncomingId, result: Mapping[str, Any]) -> None:
        """Answer a request of the view.

        The result of ``ui/request-display-mode`` is ``{"mode": …}``, the mode that holds now. Raises LocalProtocolError
        if the request is not waiting for an answer, as each of the actions does where it is not allowed.
        """
        wire_id = self._waiting(id)
        text = _encoded(lambda: jsonrpc.encode_result(wire_id, result))
        del self._requests[id]
        self._put(text)
        self._announce()

    def send_error(self, id: IncomingId, message: str, code: int = REFUSED) -> None:
        """Refuse a request of the view, or say that it failed."""
        wire_id = self._waiting(id)
        text = _encoded(lambda: jsonrpc.encode_error(wire_id, code, message))
        del self._requests[id]
        self._put(text)
        self._announce()

    def tear_down(self, now: float, timeout: float | None = 5.0) -> None:
        """Ask the view to save what it has; ``ViewEnded`` follows, after ``timeout`` seconds at the latest (APP-12).

        A view that is torn down already, or is at its end, is not asked again.
        """
        if self.phase in (ViewPhase.TEARING_DOWN, ViewPhase.ENDED):
            return
        limit = Timeout(timeout)
        if self._step(_I.SEND_TEARDOWN) is ViewPhase.ENDED:
            self._end(_I.SEND_TEARDOWN, "torn down")
        else:
            id = OutgoingId(self._asked.next)
            self._asked.add(OutgoingRequest(id, _TEARDOWN, None, None, _NO_DIALOGUE), limit, now)
            self._put(jsonrpc.encode_request(int(id), _TEARDOWN, {}))
            self.phase = ViewPhase.TEARING_DOWN
        self._announce()

    # Reading

    def _read(self, text: str | bytes) -> None:
        if len(text) > MAX_MESSAGE:
            self._fault(f"a message of {len(text)} characters, {MAX_MESSAGE} at most")
            return
        match jsonrpc.parse(text):
            case jsonrpc.Request(id=id, method=method, params=params):
                self._receive_request(id, method, params)
            case jsonrpc.Notification(method=method, params=params):
                self._receive_notification(method, params)
            case jsonrpc.Result(id=id) | jsonrpc.Error(id=id):
                self._receive_answer(id)
            case jsonrpc.Malformed(code=code, reason=reason, id=id):
                self._refuse(id, code, reason)
            case _:
                self._refuse(None, ErrorCode.INVALID_REQUEST, "a batch")

    def _receive_request(self, id: int | str, method: str, params: dict[str, Any]) -> None:
        if method == "ping":
            self._put(jsonrpc.encode_result(id, {}))
        elif method == "ui/initialize":
            self._initialize(id, params)
        elif method not in CHECKS:
            self._refuse(id, ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method:.100}")
        elif (self.phase, _I.RECV_CALL) not in LEGAL:
            self._refuse(id, ErrorCode.INVALID_REQUEST, f"{method} before the view is initialized")
        elif id in self._requests.values():
            self._refuse(id, ErrorCode.INVALID_REQUEST, "the id of a request that waits for its answer")
        elif len(self._requests) >= MAX_REQUESTS:
            self._refuse(id, REFUSED, f"more than {MAX_REQUESTS} requests at once")
        elif (fault := _fault_in(method, params)) is not None:
            self._refuse(id, ErrorCode.INVALID_PARAMS, f"{method}: {fault}")
        elif method in CAPABILITY_OF and CAPABILITY_OF[method] not in self._capabilities:
            self._refuse(id, REFUSED, f"this host has no {method}")
        elif method == "tools/call" and params["name"] not in self._callable:
            self._refuse(id, REFUSED, f"views may not call the tool {params['name']:.100}")
        elif method == "ui/request-display-mode" and not self._has_mode(params["mode"]):
            self._put(jsonrpc.encode_result(id, {"mode": self.display_mode}))
        else:
            key = IncomingId(self._next_request)
            self._next_request += 1
            self._requests[key] = id
            self._events.append(ViewRequested(key, method, params))

    def _initialize(self, id: int | str, params: dict[str, Any]) -> None:
        info, capabilities = params.get("appInfo"), params.get("appCapabilities", {})
        if (self.phase, _I.RECV_INITIALIZE) not in LEGAL:
            self._refuse(id, ErrorCode.INVALID_REQUEST, "ui/initialize comes once")
        elif not isinstance(info, dict) or not isinstance(capabilities, dict):
            self._refuse(id, ErrorCode.INVALID_PARAMS, "ui/initialize takes the objects appInfo and appCapabilities")
        else:
            self._app = info, capabilities
            self.phase = LEGAL[self.phase, _I.RECV_INITIALIZE]
            self._put(jsonrpc.encode_result(id, self._introduction()))

    def _introduction(self) -> dict[str, Any]:
        return {
            "protocolVersion": REVISION,
            "hostInfo": _plain(self._info),
            "hostCapabilities": self._capabilities,
            "hostContext": self._context,
        }

    def _has_mode(self, mode: str) -> bool:
        """Whether both sides can have a display mode (APP-13)."""
        declared, offered = self._app[1].get("availableDisplayModes"), self._context.get("availableDisplayModes")
        return isinstance(declared, list) and isinstance(offered, list | tuple) and mode in declared and mode in offered

    def _receive_notification(self, method: str, params: dict[str, Any]) -> None:
        if method == "ui/notifications/initialized":
            if (self.phase, _I.RECV_INITIALIZED) in LEGAL:
                self.phase = LEGAL[self.phase, _I.RECV_INITIALIZED]
                self._events.append(ViewInitialized(*self._app))
            else:
                self._fault("ui/notifications/initialized out of turn")
        elif method == "notifications/cancelled":
            self._receive_cancellation(params.get("requestId"))
        elif (self.phase, _I.RECV_CALL) not in LEGAL:
            self._fault(f"{method:.100} before the view is initialized")
        elif method == "notifications/message":
            level, logger = params.get("level"), params.get("logger")
            if isinstance(level, str) and "data" in params and isinstance(logger, str | None):
                self._events.append(ViewLogged(level, params["data"], logger))
            else:
                self._fault("a log message without a level and data")
        elif method == "ui/notifications/size-changed":
            self._events.append(ViewResized(_pixels(params.get("width")), _pixels(params.get("height"))))
        elif method == "ui/notifications/request-teardown":
            self._events.append(TeardownRequested())
        else:
            self._fault(f"the notification {method:.100}")

    def _receive_cancellation(self, wire_id: Any) -> None:
        for key, id in self._requests.items():
            if id.__class__ is wire_id.__class__ and id == wire_id:
                del self._requests[key]
                self._events.append(ViewCancelled(key))
                return
        # Its answer was under way: that is no fault.

    def _receive_answer(self, id: int | str | None) -> None:
        request = self._asked.get(id) if isinstance(id, int) else None
        if request is None:
            self._fault("an answer to nothing that it was asked")
            return
        self._asked.finish(request, RequestInput.RECV_RESULT)
        self._end(_I.RECV_TORN_DOWN, "torn down")  # an error is an answer too

    def _refuse(self, id: int | str | None, code: int, reason: str) -> None:
        if id is not None:
            self._put(jsonrpc.encode_error(id, code, reason))
        self._fault(reason)

    def _fault(self, reason: str) -> None:
        self._events.append(ViewFaulted(reason))

    # Shared

    def _step(self, what: ViewInput) -> ViewPhase:
        """Return the next phase. Raises LocalProtocolError if there is none."""
        row = LEGAL.get((self.phase, what))
        if row is None:
            raise LocalProtocolError(f"cannot {what.value}: the view is {self.phase.value}")
        return row

    def _notify(self, what: ViewInput, name: str, params: Mapping[str, Any]) -> None:
        phase = self._step(what)
        self._put(_encoded(lambda: jsonrpc.encode_notification(f"ui/notifications/{name}", params)))
        self.phase = phase
        self._announce()

    def _waiting(self, id: IncomingId) -> int | str:
        request = self._requests.get(id)
        if request is None:
            raise LocalProtocolError(f"no request {id!r:.60} of the view waits for an answer")
        return request

    def _put(self, message: bytes) -> None:
        self._outbox.append(message)
        self._unsent += len(message)

    def _end(self, what: ViewInput, reason: str) -> None:
        self.phase = self._step(what)
        self._timers.clear_all()
        self._inbox.clear()
        self._outbox.clear()
        self._unread = self._unsent = 0
        self._requests.clear()
        self._events.append(ViewEnded(reason))

    def _announce(self) -> None:
        if self.on_output is not None:
            self.on_output()


_TEARDOWN: Final = "ui/resource-teardown"
_DEFAULT_CAPABILITIES: Final[Mapping[str, Any]] = {"serverTools": {}, "serverResources": {}, "logging": {}}
_NO_DIALOGUE: Any = None
"""Its answer has no type."""


def _pixels(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return min(max(0, value), MAX_SIZE)


def _plain(payload: Any) -> dict[str, Any]:
    """Return a payload as JSON. Raises LocalProtocolError if that is impossible."""
    try:
        return codec(REV_2025_11_25).encode(payload)
    except InvalidMessage as error:
        raise LocalProtocolError(f"a view cannot be told of it: {error}") from error


def _encoded(encode: Callable[[], bytes]) -> bytes:
    try:
        return encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(f"a view cannot be told of it: {error}") from error
