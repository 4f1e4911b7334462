"""The client's connection, and how it finds out which revision its server speaks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import attrs

from mcpio._printable import printable
from mcpio.codec import codec
from mcpio.engine.channel import KEEP_ALIVE_TIMER, QUOTE, Kind
from mcpio.engine.connection import Connection
from mcpio.engine.gates import Capabilities, check_question, decoded_error, in_handshake
from mcpio.engine.handshake import Handshake
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.engine.options import Options
from mcpio.engine.payloads import encode, payload_of
from mcpio.engine.pending import OutgoingRequest
from mcpio.engine.table import Input, Phase, RequestInput, Role
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    MessageTooLarge,
    RequestCancelled,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.events import (
    CancelReceived,
    CloseReason,
    IgnoreReason,
    Negotiated,
    OutgoingId,
    RequestContext,
    RequestFailed,
    SubscriptionAcknowledged,
    SubscriptionNotified,
    VersionMismatched,
)
from mcpio.framing import jsonrpc
from mcpio.methods import METHODS, declares
from mcpio.revisions import Era, Revision
from mcpio.types.base import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    META_SERVER_INFO,
    META_SUBSCRIPTION_ID,
    TASKS_EXTENSION,
    InputRequiredResult,
)
from mcpio.types.features import (
    LOGGING_LEVELS,
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializeRequest,
    InitializeResult,
    ServerCapabilities,
    SubscriptionsAcknowledgedNotification,
)

if TYPE_CHECKING:
    from mcpio.engine.snapshot import SessionState


# -------------------------------------------------------------------------------------------------------------- opening
# The era of a server, as a client determines it from the outcome of ``server/discover`` (ERA-02 to ERA-09).
# Nothing here has a state, so the same table serves channels and HTTP.


@attrs.frozen
class SettleStateless:
    """The server is stateless, and speaks a revision that the client speaks too."""

    revision: Revision
    """The newest in common."""


@attrs.frozen
class Initialize:
    """The server is one of the handshake era: send ``initialize``."""


@attrs.frozen
class ProbeAgain:
    """The server is stateless, and speaks another revision: send ``server/discover`` once more."""

    revision: Revision
    """The revision to name."""


@attrs.frozen
class Refuse:
    """The client cannot use the server: the opening fails."""

    error: McpError
    """The reason."""
    supported: tuple[str, ...] | None = None
    """The revisions that the server speaks, if none of them is shared."""


Verdict: TypeAlias = SettleStateless | Initialize | ProbeAgain | Refuse


def judge(
    outcome: DiscoverResult | McpError, revisions: Iterable[Revision], *, again: bool = False, over_http: bool = False
) -> Verdict:
    """Return what to do after a ``server/discover`` at the opening.

    Args:
        outcome: The result, or the error of the request.
        revisions: The revisions that the client speaks, of either era. Without one of the handshake era, ``Initialize``
            becomes ``Refuse``.
        again: Whether the server refused a version before: a second time is final.
        over_http: Whether there are header fields, and silence means that something on the way is broken.

    """
    offered = tuple(revisions)
    verdict = _judge(outcome, offered, again=again, over_http=over_http)
    if isinstance(verdict, Initialize) and not any(each.era is Era.HANDSHAKE for each in offered):
        reason = f"the server does not speak {_names(offered)}"
        cause = outcome if isinstance(outcome, McpError) else None
        return Refuse(_failed(reason if cause is None else f"{reason}: {cause}", cause))
    return verdict


def revision_to_probe(error: RequestError, revisions: Iterable[Revision]) -> Revision | None:
    """Return the revision to probe with after a refused ``initialize``, or ``None`` if the refusal is final.

    A server that settles on the era of its first message may have taken a late probe for that (ERA-03).
    """
    supported = _supported(error)
    return None if supported is None else _newest(revisions, supported, Era.STATELESS)


def _judge(outcome: Any, offered: tuple[Revision, ...], *, again: bool, over_http: bool) -> Verdict:
    """Return what follows from the outcome of a probe: the stateless era, the handshake, or an error."""
    if isinstance(outcome, DiscoverResult):
        revision = _newest(offered, outcome.supported_versions, Era.STATELESS)
        if revision is not None:
            return SettleStateless(revision)
        return _without_stateless(outcome.supported_versions, offered, None)
    if isinstance(outcome, RequestError):
        return _judge_error(outcome, offered, again=again, over_http=over_http)
    if isinstance(outcome, InvalidMessage):
        return Initialize()  # a result of another shape: the server answers whatever it is asked
    if isinstance(outcome, RequestTimeout) and not over_http:
        return Initialize()  # some servers are silent before initialize
    # Servers of the handshake era refuse a request without a session with various codes; 429 says nothing of the era.
    if isinstance(outcome, UnexpectedResponse) and 400 <= outcome.status < 500 and outcome.status != 429:
        return Initialize()
    return Refuse(outcome)


def _judge_error(error: RequestError, offered: tuple[Revision, ...], *, again: bool, over_http: bool) -> Verdict:
    """Judge an error. Codes alone decide nothing: servers of the handshake era use them for other faults (ERA-09)."""
    supported = _supported(error)
    if supported is not None:
        revision = _newest(offered, supported, Era.STATELESS)
        if revision is None:
            return _without_stateless(supported, offered, error)
        if again:
            reason = f"the server refuses {revision.name}, and says that it speaks {_quoted(supported)}"
            return Refuse(_failed(reason, error), supported)
        return ProbeAgain(revision)
    if error.code in _MISSING_CAPABILITY and isinstance(_member(error, "requiredCapabilities"), dict):
        return Refuse(error)
    if error.code == ErrorCode.HEADER_MISMATCH and over_http:
        return Refuse(_failed(f"something between client and server drops or changes Mcp-… headers: {error}", error))
    # -32601 too: every stateless server has server/discover.
    return Initialize()


def _without_stateless(supported: tuple[str, ...], offered: tuple[Revision, ...], cause: McpError | None) -> Verdict:
    """Judge a server that shares no stateless revision with this client (ERA-04, ERA-16)."""
    if _newest(offered, supported, Era.HANDSHAKE) is not None and not any(map(_is_stateless, supported)):
        return Initialize()
    reason = f"the server speaks {_quoted(supported) or 'no revision'}, this client {_names(offered)}"
    return Refuse(_failed(reason, cause), supported)


def _supported(error: RequestError) -> tuple[str, ...] | None:
    """Return the revisions that a refusal names; ``None`` for another error (VER-01)."""
    if error.code not in _UNSUPPORTED_VERSION or not isinstance(_member(error, "requested"), str):
        return None
    supported = _member(error, "supported")
    if not isinstance(supported, list | tuple) or not all(isinstance(each, str) for each in supported):
        return None
    return tuple(supported) or None


_UNSUPPORTED_VERSION: Final = (ErrorCode.UNSUPPORTED_VERSION, -32004)
_MISSING_CAPABILITY: Final = (ErrorCode.MISSING_CLIENT_CAPABILITY, -32003)
"""With the numbers that drafts of 2026-07-28 had: data of the right shape tell them from other errors (XERR-07)."""


def _member(error: RequestError, name: str) -> Any:
    return error.data.get(name) if isinstance(error.data, dict) else None


def _newest(ours: Iterable[Revision], theirs: Iterable[str], era: Era) -> Revision | None:
    names = set(theirs)
    return max((each for each in ours if each.era is era and each.name in names), default=None)


def _is_stateless(name: str) -> bool:
    """Whether a revision is stateless: those that are unknown here are newer than this library."""
    revision = Revision.parse(name)
    return revision is None or revision.era is Era.STATELESS


def _quoted(names: tuple[str, ...]) -> str:
    """Return what a server calls its revisions, cut and safe to show: it may say anything."""
    text = printable(", ".join(names[:_MOST_NAMES])[:_MOST_TEXT]).replace("\n", " ").replace("\t", " ")
    return f"{text}, ..." if len(names) > _MOST_NAMES else text


_MOST_NAMES: Final = 10
_MOST_TEXT: Final = 200


def _names(revisions: Iterable[Revision]) -> str:
    return ", ".join(each.name for each in sorted(revisions, reverse=True))


def _failed(reason: str, cause: McpError | None) -> ConnectFailed:
    error = ConnectFailed(reason)
    error.__cause__ = cause
    return error


# ----------------------------------------------------------------------------------------------------- stateless client
# A client's side of the stateless era: every request carries its context, and every result names its type.

UNKNOWN_SERVER: Final = Implementation("unknown", "0")
"""The info of a server that sends no name and version."""

_COMPLETE: Final = "complete"
_INPUT_REQUIRED: Final = "input_required"
_TASK: Final = "task"


class StatelessClient(Handshake):
    """A client's knowledge of a stateless server, in place of a handshake session.

    Its phase is ``OPERATING`` as soon as the era is settled; the server never asks, so there is nothing to admit.
    """

    __slots__ = ("_envelope", "_identity", "_own", "log_level", "takes_tasks")

    log_level: str | None
    """The least severe log messages to request with each request; ``None`` for none (GONE-04)."""
    takes_tasks: bool
    """Whether a call may be answered by a task (XTASK-03). Set by ``declare``, before any call."""

    def __init__(self, info: Implementation, revision: Revision, *, identify: bool) -> None:
        super().__init__(Role.CLIENT, None)
        self.codec = codec(revision)
        self.log_level = None
        self._own: Capabilities = ClientCapabilities()
        self._identity: dict[str, Any] | None = encode(self.codec, info) if identify else None
        # The envelope of every request, made by the first one that needs it.
        self._envelope: dict[str, Any] | None = None

    def revision_of(self, name: str) -> Revision:
        """Return the revision of a snapshot: the one that is spoken."""
        return {self.codec.revision.name: self.codec.revision}[name]

    def discovered(self, result: DiscoverResult, own: ClientCapabilities) -> None:
        """Start operating, with the server's description; ``own`` are the capabilities of this side."""
        revision, info = self.codec.revision, server_info(result.meta, self.codec.revision)
        self.settle(RequestContext(revision.era, revision, result.capabilities, info, None, None, None), own)
        self.instructions = result.instructions

    def declare(self, own: Capabilities) -> None:
        """Set the capabilities of this side."""
        super().declare(own)
        self._own, self._envelope = own, None
        self.takes_tasks = declares(own, ("extensions", TASKS_EXTENSION))

    def stamped(self, params: dict[str, Any], own: Capabilities) -> dict[str, Any]:
        """Return params with the envelope (ENV-01, ENV-02, ENV-08)."""
        envelope = self._envelope
        if envelope is None:
            envelope = {
                META_PROTOCOL_VERSION: self.codec.revision.name,
                META_CLIENT_CAPABILITIES: encode(self.codec, own),
            }
            if self._identity is not None:
                envelope[META_CLIENT_INFO] = self._identity
            self._envelope = envelope
        meta = {**(params.get("_meta") or {}), **envelope}
        if self.log_level is not None:
            meta[META_LOG_LEVEL] = self.log_level
        return {**params, "_meta": meta}

    def read_result(self, request: OutgoingRequest, result: dict[str, Any], odd: list[str]) -> Any:
        """Return the typed result of a request. Raises and adds to ``odd`` as ``Codec.decode``.

        Raises RemoteProtocolError for a question that must not be asked of this side (MRTR-04).
        """
        method = request.method
        kind = result.get("resultType", _COMPLETE)  # earlier servers leave it out (ENV-11)
        if kind == _INPUT_REQUIRED and method is not None and method.may_ask:
            questions = self.codec.decode(result, InputRequiredResult, odd)
            if not questions.input_requests and questions.request_state is None:
                fault = "'input_required' needs inputRequests or requestState"
                raise InvalidMessage("", fault, self.codec.revision.name)
            for question in (questions.input_requests or {}).values():
                check_question(question, self._own, self.codec)
            return questions
        if kind == _TASK and request.name == "tools/call" and self.takes_tasks:
            from mcpio.types.tasks import CreatedTask  # few servers have tasks

            return self.codec.decode(result, CreatedTask, odd)
        if kind != _COMPLETE:
            raise InvalidMessage(
                "resultType", f"{kind!r:.100} does not answer {request.name}", self.codec.revision.name
            )
        return result if method is None else self.codec.decode(result, method.result_type, odd)

    def read_error(self, request: OutgoingRequest, message: jsonrpc.Error) -> RequestError:
        """Return the error that answers a request."""
        return decoded_error(message.code, message.message, message.data, request.name, self.codec)


def server_info(meta: Mapping[str, Any], revision: Revision) -> Implementation:
    """Return the name and version that a result has in its ``_meta``: self-reported, and never a reason to fail."""
    raw_info = meta.get(META_SERVER_INFO)
    try:
        return codec(revision).decode(raw_info, Implementation) if isinstance(raw_info, dict) else UNKNOWN_SERVER
    except InvalidMessage:
        return UNKNOWN_SERVER


# --------------------------------------------------------------------------------------------------------------- client
# The client's end of a conversation.


class ClientConnection(Connection):
    """A client: it opens with ``negotiate``, and may send requests once ``Negotiated`` was reported.

    ``send_initialize`` opens with a handshake, without finding out the era of the server.
    Bytes go in by ``receive_data``, events come out of ``events()``, bytes to write out of ``data_to_send()``; time
    goes in with every call and comes out of ``next_deadline()``. It reads no clock and waits for nothing.
    """

    __slots__ = ("_opening", "over_http")

    over_http: bool
    """Whether header fields repeat what messages say, and the end of a stream cancels its request: set by the transport
    before the opening."""

    role = Role.CLIENT
    _capabilities_type = ClientCapabilities
    _peer_capabilities_type = ServerCapabilities

    def __init__(
        self,
        info: Implementation,
        capabilities: ClientCapabilities | None = None,
        *,
        options: Options | None = None,
        can_reach: Callable[[Hashable], bool] | None = None,
    ) -> None:
        """``capabilities`` declare the features of this client: only those that the program handles."""
        declared = ClientCapabilities() if capabilities is None else capabilities
        super().__init__(info, declared, options=options, can_reach=can_reach)
        self._opening: _Opening | None = None
        self.over_http = False

    @property
    def era(self) -> Era | None:
        """The era that the opening settled, ``None`` before that."""
        revision = self.revision
        return None if revision is None else revision.era

    @property
    def is_stateless(self) -> bool:
        """Whether a stateless revision is spoken, or being tried; it keeps its value when the connection ends."""
        return isinstance(self._handshake, StatelessClient)

    @property
    def log_level(self) -> str | None:
        """The least severe log messages to request with each stateless request; ``None`` requests none (GONE-04)."""
        return self._handshake.log_level if isinstance(self._handshake, StatelessClient) else None

    @log_level.setter
    def log_level(self, level: str | None) -> None:
        if not isinstance(self._handshake, StatelessClient):
            raise LocalProtocolError("log_level is for stateless servers: send logging/setLevel")
        if level is not None and level not in LOGGING_LEVELS:
            raise LocalProtocolError(f"a log level must be one of {', '.join(LOGGING_LEVELS)}, not {level!r:.60}")
        self._handshake.log_level = level
        if self._observers:
            self._tell_call("log_level", level=level)

    def negotiate(self, now: float, *, timeout: Timeout | float | Default | None = DEFAULT, cookie: Any = None) -> None:
        """Open the conversation as ``Options.era`` says: find out whether the server needs a handshake, and settle it.

        After a lost session, a server that needed a handshake is not asked again, but opened with one.
        One ``Negotiated`` with ``cookie`` follows, or a ``RequestFailed`` and the end of the connection. Raises as
        ``send_initialize``. Drain the events, write the chunks, re-arm the deadline.
        """
        options = self._options
        revisions = options.stateless_revisions
        if options.era == "handshake" or not revisions:
            self.send_initialize(now, timeout=timeout, cookie=cookie)
            return
        is_known = self.era is Era.HANDSHAKE and self._may_initialize
        self._check_phase(Input.SEND_INITIALIZE if is_known else Input.SEND_DISCOVER)
        limit = self._timeout(options.initialize_timeout if isinstance(timeout, Default) else timeout)
        opening = _Opening(cookie, limit)
        if is_known:
            self._send_initialize(now, limit, cookie)
            # Should it have become a stateless one, its refusal of ``initialize`` says so.
            self._opening = opening
        else:
            self._channel.advance(now)
            self._probe(revisions[0], opening)
        if self._observers:
            self._tell_call("negotiate", timeout=timeout, cookie=cookie, over_http=self.over_http)

    def adopt(self, revision: Revision, discovered: DiscoverResult | None = None) -> None:
        """Speak a stateless revision without asking the server first (VER-04).

        ``discovered`` is what the server said earlier; without it, its capabilities count as all there are not. Raises
        LocalProtocolError for a revision that this client does not speak statelessly, and after the opening.
        """
        if revision not in self._options.stateless_revisions:
            raise LocalProtocolError(f"not a stateless revision of this client: {revision!r:.60}")
        self._check_phase(Input.SEND_ADOPT)
        self._handshake = session = self._stateless_session(revision)
        session.discovered(discovered or DiscoverResult((revision.name,), ServerCapabilities()), self.capabilities)
        self._step(Input.SEND_ADOPT)
        self._watch_silence()
        if self._observers:
            handshake = None if discovered is None else encode(codec(revision), discovered)
            self._tell_call("adopt", revision=revision.name, discovered=handshake)

    def _stateless_session(self, revision: Revision) -> StatelessClient:
        return StatelessClient(self.info, revision, identify=self._options.identify)

    def _probe(self, revision: Revision, opening: _Opening) -> None:
        """Send ``server/discover`` to find out the era."""
        session = self._stateless_session(revision)
        request, params, text = self._first_request(session, "server/discover", {}, opening.cookie)
        self._step(Input.SEND_DISCOVER)
        self._opening, opening.id = opening, request.id
        # Over HTTP silence says nothing of the era (ERA-07).
        falls_back = self._may_initialize and not self.over_http
        limit = _shorter(self._options.probe_timeout, opening.timeout) if falls_back else opening.timeout
        self._send_request(request, params, text, limit, self._channel.now)

    @property
    def _may_initialize(self) -> bool:
        return self._options.era == "auto" and bool(self._options.handshake_revisions)

    def send_initialize(
        self, now: float, *, timeout: Timeout | float | Default | None = DEFAULT, cookie: Any = None
    ) -> OutgoingId:
        """Open the conversation (LIFE-02).

        One ``Negotiated`` follows, with the id that is returned and ``cookie``, or a ``RequestFailed`` and the end of
        the connection. No ``ResponseReceived`` comes for it. ``now`` is in seconds on the caller's monotonic clock.
        Raises ``LocalProtocolError``, and changes nothing, when called twice, and ``NoBackChannel`` on a connection
        that is closing or closed.
        Drain the events, write the chunks, re-arm the deadline.
        """
        options = self._options
        self._check_phase(Input.SEND_INITIALIZE)
        if not options.handshake_revisions:
            raise LocalProtocolError("this client speaks no revision with a handshake: negotiate, or adopt a revision")
        limit = self._timeout(options.initialize_timeout if isinstance(timeout, Default) else timeout)
        id = self._send_initialize(now, limit, cookie)
        if self._observers:
            self._tell_call("send_initialize", timeout=timeout, cookie=cookie)
        return id

    def _send_initialize(self, now: float, limit: Timeout, cookie: Any) -> OutgoingId:
        options = self._options
        latest = options.latest
        hello = payload_of(InitializeRequest, latest.name, in_handshake(self.capabilities), self.info)
        params = encode(codec(latest), hello)
        # A probe leaves a stateless session, and so does a lost stateless server: ``initialize`` begins another.
        session = None if isinstance(self._handshake, StatelessClient) else self._handshake
        request, params, text = self._first_request(session, "initialize", params, cookie)
        self._send_request(request, params, text, limit, now)
        if self._allows(Input.SEND_INITIALIZE):
            # It did not fill the output over its limit, which would have been the end.
            self._step(Input.SEND_INITIALIZE)
        return request.id

    def _first_request(
        self, session: Handshake | None, name: str, params: dict[str, Any], cookie: Any
    ) -> tuple[OutgoingRequest, dict[str, Any], bytes]:
        """Switch to ``session``; return its first request as ``_new_request`` does.

        Raises, and changes nothing, as ``_json``.
        """
        id, handshake, self._handshake = OutgoingId(self._outgoing.next), self._handshake, session
        try:
            return self._new_request(id, name, METHODS[name], params, cookie, None, progress=False)
        except LocalProtocolError:
            self._handshake = handshake
            raise

    def reset_session(self, now: float) -> None:
        """Forget the session: the server does not know it any more (SESS-06). ``send_initialize`` may follow.

        For transports whose sessions can end before their channel. Outgoing requests fail as lost. Incoming ones end,
        each with a ``CancelReceived``; answers to them and waiting output are dropped quietly. Ids go on counting.
        Until the next handshake ``revision`` and ``peer`` are those of the last one. Does nothing before
        ``send_initialize``, and once the connection is closing. Drain the events, re-arm the deadline.
        """
        self._channel.advance(now)
        self._receive_all()
        self._lose_session(None)
        if self._observers:
            self._tell_call("reset_session")

    def hold(self, now: float) -> None:
        """Stop the timeouts of all requests, and keep-alive, while a person is asked to log in. Twice is as once.

        Requests that are sent before ``release`` have their whole time after it. The grace of ``close`` goes on.
        Re-arm the deadline.
        """
        self._channel.advance(now)
        self._outgoing.hold(self._channel.now)
        if self._observers:
            self._tell_call("hold")

    def release(self, now: float) -> None:
        """Resume the timeouts of requests with the time that was left at ``hold``. Re-arm the deadline."""
        self._channel.advance(now)
        if self._silence is not None and self._outgoing.are_held:
            self._silence.restart()  # a ping that was under way at ``hold`` had less than its time
        self._outgoing.release(self._channel.now)
        if self._observers:
            self._tell_call("release")

    # Snapshots

    def _save(self, now: float) -> SessionState:
        state, opening = super()._save(now), self._opening
        if isinstance(self._handshake, StatelessClient):
            state = attrs.evolve(state, log_level=self._handshake.log_level)
        if opening is None or self.phase not in (Phase.DISCOVERING, Phase.INITIALIZING):
            return state
        from mcpio.engine.snapshot import OpeningState

        probed = None if opening.id is None else self._dialogue.codec.revision.name
        id = next(each.id for each in self._outgoing if each.name in ("initialize", "server/discover"))
        total, idle = opening.timeout.total, opening.timeout.idle
        saved = OpeningState(probed=probed, id=int(id), again=opening.again, total=total, idle=idle)
        return attrs.evolve(state, opening=saved)

    def _load(self, state: SessionState, now: float, principal: Hashable) -> None:
        """Restore a client's state: first the stateless session, to which requests in the snapshot belong."""
        opening = state.opening
        if state.is_stateless:
            name = state.revision if opening is None else opening.probed
            by_name = {revision.name: revision for revision in self._options.stateless_revisions}
            if name not in by_name:
                raise LocalProtocolError(f"the snapshot is of {name}: options must have that revision")
            session = self._handshake = self._stateless_session(by_name[name])
            session.log_level = state.log_level
            state = attrs.evolve(state, log_level=None)
        super()._load(state, now, principal)
        if opening is not None:
            cookie = next(each.cookie for each in state.outgoing if each.id == opening.id)
            self._opening = _Opening(cookie, Timeout(opening.total, opening.idle))
            self._opening.again = opening.again
            if opening.probed is not None:
                self._opening.id = OutgoingId(opening.id)

    # With Options.reopens the end of a channel, or of a silent peer, is the end of the session only

    def _lose_channel(self, cause: BaseException | None) -> None:
        if not self._options.reopens or not self._lose_session(cause):
            super()._lose_channel(cause)

    def _give_up(self, reason: CloseReason, cause: RequestTimeout) -> None:
        if not self._options.reopens or not self._lose_session(cause):
            super()._give_up(reason, cause)

    def _lose_session(self, cause: BaseException | None) -> bool:
        """Return to the phase before the handshake; return False if no session exists."""
        if not self._allows(Input.RECV_SESSION_LOSS):
            return False
        channel = self._channel
        self._step(Input.RECV_SESSION_LOSS)
        self._lose_outgoing(CloseReason.LOST, cause)
        self._opening = None  # it failed with its request
        for request in self._incoming:
            self._events.append(CancelReceived(request.id, "the session ended", {}))
        self._drop_incoming()
        channel.outbox.clear()
        channel.inbox.restart()
        channel.timers.clear(KEEP_ALIVE_TIMER)
        return True

    # The outcome of a probe

    def _fail(self, request: OutgoingRequest, what: RequestInput, error: McpError, raw: Any = None) -> None:
        opening = self._opening
        if opening is None or request.id != opening.id:
            super()._fail(request, what, error, raw)
            return
        self._outgoing.finish(request, what)
        if what is RequestInput.RECV_LOSS and isinstance(error, ConnectionLost):
            self._opening = None
            if not self.over_http:
                reason = f"the connection ended while the server was asked for its era: {error}"
                error = _because(ConnectFailed(reason, era_probe=self._may_initialize), error)
            self._events.append(RequestFailed(request.id, error, request.cookie, raw))
            return
        self._judge(error, request, opening, raw)

    def _cancellation(self, request: OutgoingRequest, reason: str | None) -> bytes | None:
        # A server of the handshake era is told nothing that it would not expect before initialize.
        return (
            None
            if request.name == "server/discover" and self.phase is not Phase.OPERATING
            else super()._cancellation(request, reason)
        )

    def _judge(self, outcome: Any, request: OutgoingRequest, opening: _Opening, raw: Any) -> None:
        """Handle the outcome of a probe."""
        options = self._options
        revisions = options.revisions if self._may_initialize else options.stateless_revisions
        verdict = judge(outcome, revisions, again=opening.again, over_http=self.over_http)
        match verdict:
            case SettleStateless():
                self._opening = None
                session: Any = self._handshake
                session.discovered(outcome, self.capabilities)
                self._step(Input.RECV_DISCOVERED)
                self._watch_silence()
                context: RequestContext = session.context
                info, capabilities, hint = context.info, context.capabilities, outcome.instructions
                negotiated = Negotiated(verdict.revision, info, capabilities, hint, raw, request.id, request.cookie)
                self._events.append(negotiated)
            case ProbeAgain():
                self._open_again(request, opening, verdict.revision, raw)
            case Initialize():
                self._open_again(request, opening, None, raw)
            case Refuse():
                self._opening = None
                self._events.append(RequestFailed(request.id, verdict.error, request.cookie, raw))
                reason = CloseReason.HANDSHAKE_FAILED
                if verdict.supported is not None:
                    reason = CloseReason.VERSION_MISMATCH
                    requested = options.stateless_revisions[0].name
                    self._events.append(VersionMismatched(requested, ", ".join(verdict.supported)[:QUOTE]))
                self._finish(Input.SEND_ABORT, reason, verdict.error)
            case _:
                assert_never(verdict)

    def _open_again(self, request: OutgoingRequest, opening: _Opening, revision: Revision | None, raw: Any) -> None:
        """Send the next request of an opening: a probe with ``revision``, or ``initialize`` where it is ``None``."""
        self._step(Input.RECV_OTHER_ERA)
        try:
            if revision is None:
                opening.id = None
                self._send_initialize(self._channel.now, opening.timeout, opening.cookie)
            else:
                opening.again = True
                self._probe(revision, opening)
        except MessageTooLarge as error:
            # The answer of a peer led here, so there is no call to raise it from (P2).
            self._opening = None
            self._events.append(RequestFailed(request.id, error, request.cookie, raw))
            self._finish(Input.SEND_ABORT, CloseReason.HANDSHAKE_FAILED, error)

    # Messages of the stateless era

    def _receive_request(self, message: jsonrpc.Request, text: bytes | str, via: Hashable) -> None:
        if isinstance(self._handshake, StatelessClient):
            fault = f"{message.method:.100} came as a request: stateless servers do not send any"
            self._violate(ErrorCode.INVALID_REQUEST, fault, message.raw, via)
        else:
            super()._receive_request(message, text, via)

    def _rebuke(self, code: int, fault: str, raw: Any, via: Hashable, *, to: int | str | None = None) -> None:
        if isinstance(self._handshake, StatelessClient):
            self._violate(code, fault, raw, via)  # stateless servers are sent no responses (PAT-01)
        else:
            super()._rebuke(code, fault, raw, via, to=to)

    def _receive_notification(self, message: jsonrpc.Notification, via: Hashable) -> None:
        """Take a notification: in the stateless era most belong to a subscription, by the id of its request."""
        session = self._handshake
        if not isinstance(session, StatelessClient):
            super()._receive_notification(message, via)
            return
        meta = message.params.get("_meta")
        id = meta.get(META_SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if message.method == "notifications/cancelled":
            id = message.params.get("requestId")
        request = self._request_of(id)
        # Progress and log messages belong to a request even if they name a subscription: it has a progress token too.
        if id is None or message.method in ("notifications/progress", "notifications/message"):
            super()._receive_notification(message, via)
        elif request is None or request.name != "subscriptions/listen":
            self._ignore(IgnoreReason.UNKNOWN_REQUEST, message, via)
        elif message.method == "notifications/cancelled":
            reason = message.params.get("reason")
            error = RequestCancelled(request.name, reason if isinstance(reason, str) else "by the server")
            self._fail(request, RequestInput.RECV_ERROR, error, message.raw)
        else:
            notification = self._decode_notification(message, METHODS.get(message.method), via)
            if isinstance(notification, SubscriptionsAcknowledgedNotification):
                honoured = notification.notifications
                self._events.append(SubscriptionAcknowledged(request.id, honoured, request.cookie, message.raw))
            elif notification is not None:
                self._events.append(SubscriptionNotified(request.id, notification, request.cookie, message.raw))

    # The answers to a probe and to ``initialize``

    def _receive_result(self, message: jsonrpc.Result, via: Hashable) -> None:
        opening = self._opening
        if opening is not None and (probe := self._request_of(message.id)) is not None and probe.id == opening.id:
            self._receive_discovery(probe, message, opening, via)
        elif (request := self._initialize_of(message.id)) is not None:
            self._receive_initialize_result(request, message, via)
        else:
            super()._receive_result(message, via)

    def _receive_discovery(
        self, request: OutgoingRequest, message: jsonrpc.Result, opening: _Opening, via: Hashable
    ) -> None:
        odd = self._oddities()
        try:
            result = request.dialogue.read_result(request, message.result, odd)
        except InvalidMessage as error:
            self._fail(request, RequestInput.RECV_ERROR, error, message.raw)
            return
        self._outgoing.finish(request, RequestInput.RECV_RESULT)
        if odd:
            self._report_odd("the result of server/discover", odd, message.raw, via)
        self._judge(result, request, opening, message.raw)

    def _receive_initialize_result(self, request: OutgoingRequest, message: jsonrpc.Result, via: Hashable) -> None:
        """Take the result of ``initialize``: agree on its revision, or refuse it."""
        offered = message.result.get("protocolVersion")
        # One that is not a string has no codec; any codec finds the fault.
        revision = Revision.parse(offered) if isinstance(offered, str) else self._options.latest
        if revision is None or revision not in self._options.handshake_revisions:
            self._refuse_version(request, message, str(offered))
            return
        odd = self._oddities()
        try:
            result = codec(revision).decode(message.result, InitializeResult, odd)
        except InvalidMessage as error:
            self._fail_unreadable(request, error, message.raw)
            return
        if odd:
            self._report_odd("the result of initialize", odd, message.raw, via)
        self._agree(request, message, revision, result)

    def _receive_error(self, message: jsonrpc.Error, via: Hashable) -> None:
        """Take an error. If it answers ``initialize``, it names a revision to probe for or ends the connection."""
        request = self._initialize_of(message.id)
        if request is None:
            super()._receive_error(message, via)
            return
        error = RequestError(message.code, message.message, message.data)
        opening = self._opening
        again = None if opening is None or opening.again else revision_to_probe(error, self._options.revisions)
        if opening is not None and again is not None:
            self._outgoing.finish(request, RequestInput.RECV_ERROR)
            self._open_again(request, opening, again, message.raw)
            return
        self._fail(request, RequestInput.RECV_ERROR, error, message.raw)
        supported = message.data.get("supported") if isinstance(message.data, dict) else None
        if message.code == ErrorCode.INVALID_PARAMS and isinstance(supported, list):
            # The other way to say that there is no revision in common (LIFE-05).
            offered = ", ".join(str(each)[:QUOTE] for each in supported[:QUOTE] if not isinstance(each, dict | list))[
                :QUOTE
            ]
            self._events.append(VersionMismatched(self._options.latest.name, offered))
            self._finish(Input.SEND_ABORT, CloseReason.VERSION_MISMATCH, error)
        else:
            self._finish(Input.SEND_ABORT, CloseReason.HANDSHAKE_FAILED, error)

    def _fail_unreadable(self, request: OutgoingRequest, error: InvalidMessage, raw: Any) -> None:
        super()._fail_unreadable(request, error, raw)
        if request.name == "initialize":
            self._finish(Input.SEND_ABORT, CloseReason.HANDSHAKE_FAILED, error)

    def _initialize_of(self, id: int | str | None) -> OutgoingRequest | None:
        """Return our ``initialize`` if ``id`` names it."""
        if not isinstance(id, int) or self._handshake is None or self._handshake.phase is not Phase.INITIALIZING:
            return None
        request = self._outgoing.get(id)
        return request if request is not None and request.name == "initialize" else None

    def _agree(
        self, request: OutgoingRequest, message: jsonrpc.Result, revision: Revision, result: InitializeResult
    ) -> None:
        info, capabilities, hint = result.server_info, result.capabilities, result.instructions
        self._opening = None
        self._step(Input.RECV_INITIALIZE_RESULT)
        self._dialogue.instructions = hint
        self._settle(RequestContext(revision.era, revision, capabilities, info, None, None, None))
        self._outgoing.finish(request, RequestInput.RECV_RESULT)
        self._events.append(Negotiated(revision, info, capabilities, hint, message.raw, request.id, request.cookie))
        text = jsonrpc.encode_notification("notifications/initialized", None)
        self._channel.outbox.put(text, Kind.NOTIFICATION)
        self._check_outbox()

    def _refuse_version(self, request: OutgoingRequest, message: jsonrpc.Result, offered: str) -> None:
        """Disconnect from a server whose revision this client does not speak (LIFE-06, LIFE-23)."""
        requested = self._options.latest.name
        versions = ", ".join(revision.name for revision in self._options.handshake_revisions)
        error = ConnectFailed(f"the server speaks revision {offered!r:.100}, this client {versions}")
        self._fail(request, RequestInput.RECV_ERROR, error, message.raw)
        self._events.append(VersionMismatched(requested, offered))
        self._finish(Input.SEND_ABORT, CloseReason.VERSION_MISMATCH, error)


def _because(error: ConnectFailed, cause: McpError) -> ConnectFailed:
    error.__cause__ = cause
    return error


def _shorter(probe: float | None, opening: Timeout) -> Timeout:
    """Return the timeout of a probe: its own, but no more than that of the opening."""
    total = min((each for each in (probe, opening.total) if each is not None), default=None)
    return Timeout(total, opening.idle)


class _Opening:
    """An opening under way."""

    __slots__ = ("again", "cookie", "id", "timeout")

    def __init__(self, cookie: Any, timeout: Timeout) -> None:
        self.cookie: Any = cookie
        self.timeout: Timeout = timeout
        self.id: OutgoingId | None = None  # that of the probe under way
        self.again: bool = False
