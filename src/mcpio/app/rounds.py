# ruff: noqa: SLF001 - the library uses scopes from inside
"""Questions of a handler in rounds, and the state that a request carries between them."""

from __future__ import annotations

import hashlib
import hmac
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, get_type_hints

from mcpio._checks import is_amount, is_count
from mcpio.app.contracts import InputRequired
from mcpio.app.runtime import BroadcastEvent, is_awaitable, is_fault, without_partial
from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.values import read_value, to_json
from mcpio.auth.grant import Grant
from mcpio.codec import codec
from mcpio.engine.gates import why_not_asked
from mcpio.errors import (
    CapabilityMissing,
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    RequestCancelled,
    RequestError,
    URLElicitationRequired,
)
from mcpio.framing import json
from mcpio.methods import declares, method_of
from mcpio.revisions import REV_2026_07_28
from mcpio.types.base import InputRequiredResult

if TYPE_CHECKING:
    from mcpio.app.contracts import Handler
    from mcpio.app.runtime import Runtime
    from mcpio.events import RequestReceived
    from mcpio.types.features import ClientCapabilities


# -------------------------------------------------------------------------------------------------------- request state
# Request state: what a stateless server carries through its client, bound to one call (MRTR-09, MRTR-10).
# The client is not trusted: it returns a state when it likes, as often as it likes, with any other request, or altered.
# So a state is sealed, says when it expires, and names the call that it belongs to. It is not a single-use token:
# whatever must happen once is recorded in a store of the server's own.


class Sealer(Protocol):
    """Turns bytes into a text for the client, and back."""

    @property
    def conceals(self) -> bool:
        """Whether the content is hidden from the client."""

    def seal(self, payload: bytes) -> str:
        """Return the text for the client: ASCII, without spaces."""

    def open(self, text: str) -> bytes:
        """Return what ``seal`` was given. Raises ValueError, with the reason for the operator, for any other text."""


class StateRejected(ValueError):
    """A request state is invalid. The message is for the operator; the client only learns that it is invalid."""


class HmacSealer:
    """Seals with HMAC-SHA256: only holders of the keys can make or alter a state, but **the client can read it**.

    ``keys`` are at least one, each of 32 bytes or more, and secret. The first one seals, all of them open: to change
    the key, put the new one first, and remove the old one when its states have expired.
    """

    __slots__ = ("_first", "_keys")

    conceals: bool = False
    """False: the client can read the content."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        ring = check_keys(keys)
        # A key of the program's may serve other purposes as well, so what signs is derived from it.
        self._keys = {key_id(key): _derived(key, b"seal") for key in ring}
        self._first = key_id(ring[0])

    def seal(self, payload: bytes) -> str:
        """Return ``v1.<key>.<payload>.<signature>``."""
        signed = f"v1.{self._first}.{encode64(payload)}"
        return f"{signed}.{self._signature(self._first, signed)}"

    def open(self, text: str) -> bytes:
        """Return the payload. Raises StateRejected."""
        signed, _, signature = text.rpartition(".")
        version, name, body = [*signed.split("."), "", ""][:3]
        if version != "v1" or name not in self._keys:
            raise StateRejected("it was sealed with an unknown key, or is not a state")
        # Compared as texts, so that no bit can change: the last digits of base64 have some that decode to nothing.
        if not hmac.compare_digest(self._signature(name, signed).encode(), signature.encode()):
            raise StateRejected("its signature is wrong")
        return decode64(body)

    def _signature(self, name: str, signed: str) -> str:
        return encode64(hmac.digest(self._keys[name], signed.encode(), "sha256"))


def check_keys(keys: Any) -> tuple[bytes, ...]:
    """Return the keys of a ring. Raises TypeError or ValueError for an empty ring, or a key under 32 bytes."""
    if isinstance(keys, bytes | str):
        raise TypeError("keys must be a list of keys, not one key: [key]")
    ring = tuple(keys)
    if not ring:
        raise ValueError("keys must have at least one key: secrets.token_bytes(32) makes one")
    for number, key in enumerate(ring):
        if not isinstance(key, bytes):
            raise TypeError(
                f"keys[{number}] must be bytes, not {type(key).__name__}: bytes.fromhex reads a key from text"
            )
        if len(key) < 32:
            raise ValueError(f"keys[{number}] must have at least 32 bytes, not {len(key)}")
    return ring


def key_id(key: bytes) -> str:
    """Return the public name of a key: eight hexadecimal digits, which reveal nothing about the key."""
    return _derived(key, b"name").hex()[:8]


def _derived(key: bytes, purpose: bytes) -> bytes:
    """Return the key for one purpose (HKDF, RFC 5869, with an output of one block)."""
    extracted = hmac.digest(b"mcpio request state", key, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def encode64(data: bytes) -> str:
    """Return base64 for URLs, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode64(text: str) -> bytes:
    """Return what ``encode64`` was given."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class RequestStates:
    """How a server seals the state of a call between its rounds.

    ::

        server = Server("shop", states=RequestStates(keys=[bytes.fromhex(os.environ["STATE_KEY"])]))

    Without keys, one is drawn when it is first needed: then only this process can open its states, so calls with more
    than one round of questions fail after a restart, and behind a balancer.
    """

    ttl: float
    """How many seconds a state is valid: the time that a client and its user have for one round."""
    most: int
    """The length of the longest state that is sent, in characters."""

    def __init__(
        self,
        keys: Iterable[bytes] | None = None,
        *,
        ttl: float = 600.0,
        sealer: Sealer | None = None,
        most: int = 16 * 1024,
    ) -> None:
        """Configure the sealing.

        Args:
            keys: Secrets of 32 bytes or more, the same in all processes that serve one address. The first one seals,
                all of them open.
            ttl: How many seconds a state is valid. Processes may disagree about the time by a minute.
            sealer: Replaces the signature by something else, such as ``mcpio.seals.AeadSealer``, which encrypts.
            most: The length of the longest state, in characters. A longer one fails the call: keep the data in a store,
                and carry its key.

        Raises:
            TypeError: ``keys`` and ``sealer`` are both given, or a key is not bytes.
            ValueError: A key is shorter than 32 bytes, or ``ttl`` or ``most`` is not a positive number.

        """
        if keys is not None and sealer is not None:
            raise TypeError("give keys=, or a sealer= that has keys of its own, not both")
        if not is_amount(ttl) or ttl == 0:
            raise ValueError(f"ttl must be a number of seconds, more than 0, not {ttl!r:.100}")
        if not is_count(most, 1):
            raise ValueError(f"most must be a number of characters, more than 0, not {most!r:.100}")
        self.ttl = ttl
        self.most = most
        self._sealer: Sealer | None = HmacSealer(keys) if keys is not None else sealer
        self._is_shared = self._sealer is not None

    @property
    def is_shared(self) -> bool:
        """Whether other processes, and this one after a restart, can open the states: keys or a sealer were given."""
        return self._is_shared

    @property
    def conceals(self) -> bool:
        """Whether clients cannot read their states."""
        return self._sealer is not None and self._sealer.conceals

    def seal(
        self, carried: Mapping[str, Any], call: Mapping[str, Any], now: float, entropy: Callable[[int], bytes]
    ) -> str:
        """Return a state for a call (``call_of``) at a wall-clock time. Raises RequestError if it is too long."""
        if self._sealer is None:
            self._sealer = HmacSealer([entropy(32)])
        payload = {"exp": math.ceil(now + self.ttl), **call, **carried}
        text = self._sealer.seal(json.dumps(payload))
        if len(text) > self.most:
            message = f"The request state has {len(text):,} characters, and at most {self.most:,} are sent"
            advice = "keep the data in a store, and carry its key (RequestStates.most)"
            raise RequestError(ErrorCode.INTERNAL_ERROR, message, {"reason": "request_state_too_large", "hint": advice})
        return text

    def open(self, text: str, call: Mapping[str, Any] | Callable[[], Mapping[str, Any]], now: float) -> dict[str, Any]:
        """Return the state of this call. Raises StateRejected for a state of another call, or an altered one.

        A function for ``call`` is called once the seal was found right: a digest of many arguments takes time.
        """
        if len(text) > 4 * self.most:
            raise StateRejected(f"it has {len(text):,} characters, and at most {self.most:,} are sent")
        if self._sealer is None:
            raise StateRejected("this process has sealed none, and was given no keys (RequestStates(keys=[...]))")
        try:
            payload = json.loads(self._sealer.open(text))
        except ValueError as error:
            raise StateRejected(str(error)) from None
        expires = payload.pop("exp")
        if now > expires + _SKEW:
            raise StateRejected(f"it expired {now - expires:.0f} seconds ago")
        if expires > now + self.ttl + _SKEW:
            raise StateRejected("it is from the future: the clocks of two processes differ, or ttl= does")
        for member, expected in (call() if callable(call) else call).items():
            if payload.pop(member, None) != expected:
                raise StateRejected(f"it belongs to another {_FACTS[member]}")
        carried: dict[str, Any] = payload
        return carried


_SKEW: Final = 60.0
"""Seconds by which the clocks of two processes may differ."""

_FACTS: Final = {
    "v": "version of the format",
    "aud": "server",
    "m": "method",
    "t": "tool, prompt or resource",
    "a": "set of arguments",
    "p": "principal",
}
"""The members of ``call_of``, in the order in which they are compared."""


def call_of(event: RequestReceived, audience: str) -> dict[str, Any]:
    """Return the values that bind a state: server, method, target, arguments, and principal."""
    params = event.raw.get("params") or {}
    bound_params = {name: value for name, value in params.items() if name not in _CHANGING}
    return {
        "v": 1,
        "aud": audience,
        "m": event.raw["method"],
        "t": params.get("name", params.get("uri")),
        "a": digest(canonical(bound_params)),
        "p": digest(_principal_text(event.context.principal).encode()),
    }


_CHANGING: Final = frozenset(["_meta", "inputResponses", "requestState"])
"""The members of params that change from round to round (MRTR-06)."""


def canonical(value: Any) -> bytes:
    """Return JSON with sorted members, so that equal values have equal bytes."""
    return json.dumps_sorted(value)


def digest(data: bytes) -> str:
    """Return a digest of 128 bits as text."""
    return encode64(hashlib.sha256(data).digest()[:16])


def _principal_text(principal: Any) -> str:
    """Return the principal as text, the same in all processes."""
    # Of a grant only the identity counts: its scopes and claims change with each token.
    return repr(principal.key if isinstance(principal, Grant) else principal)


def invalid_request_state() -> RequestError:
    """Return the one answer to every state that is rejected: its cause would help only those who forge states."""
    return RequestError(ErrorCode.INVALID_PARAMS, "Invalid request state", {"reason": "invalid_request_state"})


# --------------------------------------------------------------------------------------------------------------- rounds
# Rounds of questions: one handler asks its client in both eras.
# In a handshake session a question is a request, and the handler waits for the answer. A stateless client gets no
# requests: it gets the questions as the *result* of its call, and calls again with the answers (MRTR-01 to MRTR-12).
# The handler is then run again from its beginning, and the questions that it asked before return at once.
# A ``Flow`` is one call of a handler: the answers that came, the questions that are still open, and what is carried
# from round to round.

T = TypeVar("T")

MOST_ROUNDS: Final = 10
"""How often a handler in a handshake session may return ``InputRequired`` in one call. Stateless clients have other
limits."""


_ANSWERED: Final = "the request of this context has been answered: ask before its handler returns"


class Leave(BaseException):
    """Raised through a handler that needs an answer of the client to continue.

    Not an ``Exception``, so that a handler that catches those does not stop it; its ``finally`` blocks run.
    """


def without_leaving(error: BaseException) -> BaseException:
    """Return a group of exceptions without its ``Leave``, or a ``Leave`` if it contains nothing else."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    _, others = error.split(Leave)
    return Leave() if others is None else others


# One call


class Flow:
    """One call of a handler: its answers, its open questions, and the state between its rounds."""

    __slots__ = (
        "_earlier",
        "_id",
        "_keys",
        "_memory",
        "_misses",
        "_new",
        "_running",
        "_runtime",
        "_used",
        "becomes_task",
        "closed_because",
        "has_left",
        "may_become_task",
        "questions",
        "state",
    )

    questions: dict[str, Any]
    """The questions that have no answer yet, by key."""
    has_left: bool
    """Whether a question made the handler leave."""
    closed_because: str
    """Why no question can be put any more, or yet; empty while the handler runs."""
    may_become_task: bool
    """Whether the handler may be run again as a task: whether its tool was registered with ``becomes_task=True``."""
    becomes_task: bool
    """Whether the handler left to be run again as a task."""
    state: bytes | None
    """The state of the author's own: ``InputRequired.state``."""

    def __init__(
        self, runtime: Runtime, answers: Mapping[str, Any] | None = None, carried: Mapping[str, Any] | None = None
    ) -> None:
        """``answers`` came with the request; ``carried`` is what ``to_carry`` returned in the round before."""
        carried = carried or {}
        self._runtime = runtime
        self._new = answers or {}
        self._earlier: dict[str, Any] = carried.get("r", {})
        self._memory: dict[str, Any] = carried.get("o", {})
        self._id: str | None = carried.get("f")
        self._misses: int = carried.get("n", 0)
        self.state = decode64(carried["s"]) if "s" in carried else None
        self._running: dict[str, BroadcastEvent] = {}
        self._keys: set[str] = set()
        self._used: dict[str, Any] = {}
        self.questions = {}
        self.has_left = False
        self.closed_because = ""
        self.may_become_task = False
        self.becomes_task = False

    @property
    def id(self) -> str:
        """The same in all rounds of one call, and unguessable."""
        if self._id is None:
            self._id = self._runtime.entropy(16).hex()
        return self._id

    @property
    def has_asked(self) -> bool:
        """Whether the handler asked anything in this pass, answered or not."""
        return bool(self._keys)

    @property
    def missed(self) -> int:
        """In how many rounds of this call answers came, and none to a question that the handler asked again."""
        is_missed = bool(self._new) and bool(self.questions) and self._keys.isdisjoint(self._new)
        return self._misses + is_missed

    @property
    def answers(self) -> Mapping[str, Any]:
        """The answers that came with the request."""
        return self._new

    def key_of(self, request: Any, key: str | None) -> str:
        """Return the key of a question, once. Raises ValueError if the handler has used ``key`` in this pass."""
        if key is None:
            # Tasks of one handler may ask in another order each time, so only equal questions are numbered.
            name = digest(canonical(_wire_form(request)))
            number = 1
            while f"{name}.{number}" in self._keys:
                number += 1
            key = f"{name}.{number}"
        elif key in self._keys:
            raise ValueError(f"the handler asks twice with key={key!r:.100}: give each question a key of its own")
        self._keys.add(key)
        return key

    async def ask(self, request: Any, read: Callable[[Any], T], key: str | None) -> T:
        """Return the answer to a question, or leave the handler to get it.

        ``read`` makes the value from the result, and raises InvalidMessage if it does not fit: then the client is asked
        again (MRTR-12).
        """
        self.check_open()
        key = self.key_of(request, key)
        answer = self.recall(key, request, read)
        if answer is not None:
            return answer[0]
        self.questions[key] = request
        await self._wait_for_siblings()
        self.has_left = True
        raise Leave

    def check_open(self) -> None:
        """Raise LocalProtocolError if the request was answered already, or its method takes no questions."""
        if self.closed_because:
            raise LocalProtocolError(self.closed_because)

    def recall(self, key: str, request: Any, read: Callable[[Any], T]) -> tuple[T] | None:
        """Return the answer that came to a question, as a tuple of one; ``None`` if none did, or a malformed one."""
        # An answer that was accepted in an earlier round stands.
        raw = self._earlier.get(key)
        if raw is None and key in self._new:
            raw = codec(REV_2026_07_28).encode(self._new[key])
        if raw is None:
            return None
        try:
            value = read(read_answer(raw, request))
        except InvalidMessage:
            return None
        self._used[key] = raw
        return (value,)

    def again(self) -> Flow:
        """Return the flow of another pass with the same answers."""
        return Flow(self._runtime, self._new, self.to_carry(self.state))

    async def _wait_for_siblings(self) -> None:
        """Let the other tasks of the handler ask too, so that concurrent questions make one round."""
        # Each step may let a sibling reach its question, and that one may start others; a step that brings no new
        # question ends the wait. A sibling that waits for something slower asks in a later round.
        questions_before = 0
        while questions_before != len(self.questions):
            questions_before = len(self.questions)
            await self._runtime.sleep(0)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Return the value of a function from the first run that reached it, converted to JSON and back."""
        read = _reader(function)
        while key not in self._memory:
            if key in self._running:
                # A sibling task is at it: its value counts. If it fails, the next task calls its own function.
                await self._running[key].wait(None)
                continue
            finished = self._running[key] = BroadcastEvent(self._runtime)
            try:
                value = function()
                if is_awaitable(value):
                    value = await value
                self._memory[key] = to_json(value)
            finally:
                del self._running[key]
                finished.notify_all()
        return read(self._memory[key])

    def to_carry(self, state: bytes | None = None) -> dict[str, Any] | None:
        """Return the state for the next round, as JSON; ``None`` if the answers are enough."""
        members = {
            "r": {**self._earlier, **self._used},
            "o": self._memory,
            "f": self._id,
            "n": self.missed,
            "s": None if state is None else encode64(state),
        }
        carried = {name: value for name, value in members.items() if value or (name == "s" and value is not None)}
        return carried or None


def read_answer(raw: Any, request: Any) -> Any:
    """Return the typed answer to a question. Raises InvalidMessage if it is malformed."""
    return codec(REV_2026_07_28).decode(raw, method_of(request.__class__).result_type)


def _reader(function: Callable[[], Any]) -> Callable[[Any], Any]:
    """Return what makes a value of a function's return type from JSON. Without an annotation, JSON is the value."""
    plain = without_partial(function)
    if "return" not in getattr(plain, "__annotations__", {}):
        return lambda value: value
    name = getattr(plain, "__qualname__", repr(plain))
    try:
        hints = get_type_hints(plain, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{name}(): its return annotation cannot be read: {error}; define the class at module level"
        ) from None
    converter = SchemaBuilder(f"{name}(), the result").converter(hints["return"])
    return lambda value: read_value(converter.convert, value, f"the result of {name}()")


def _wire_form(request: Any) -> dict[str, Any]:
    """Return a question as stateless clients get it. Raises LocalProtocolError if it cannot be expressed."""
    try:
        return {"method": method_of(request.__class__).name, "params": codec(REV_2026_07_28).encode(request)}
    except InvalidMessage as error:
        raise LocalProtocolError(f"{type(request).__name__}: {error}") from error


def check_declared(request: Any, client: ClientCapabilities, text: str | None = None) -> None:
    """Raise CapabilityMissing if the client did not declare the capability for a question (MRTR-04)."""
    for path in _needs_of(request):
        if not declares(client, path):
            name = method_of(request.__class__).name
            default_text = f"{name} needs the capability {'.'.join(path)}, which the client did not declare"
            raise CapabilityMissing(text or default_text, path)


def _needs_of(request: Any) -> list[tuple[str, ...]]:
    """Return the paths of the capabilities that a question needs."""
    method = method_of(request.__class__)
    if method.name == "elicitation/create":
        return [("elicitation", request.mode)]
    needed = [method.capability]
    if method.name == "sampling/createMessage":
        if request.tools is not None or request.tool_choice is not None:
            needed.append(("sampling", "tools"))
        if request.include_context not in (None, "none"):
            needed.append(("sampling", "context"))
    return needed


def checked_question(request: Any, client: ClientCapabilities) -> dict[str, Any]:
    """Return a question as stateless clients get it.

    Raises CapabilityMissing if the client did not declare what it needs, and LocalProtocolError if no client may be
    asked this.
    """
    check_declared(request, client)
    wire_form = _wire_form(request)
    if (fault := why_not_asked(wire_form["method"], wire_form["params"], REV_2026_07_28, client)) is not None:
        raise LocalProtocolError(fault)
    return wire_form


# Running handlers


def in_rounds(handler: Handler, begin: Callable[[Any, Any], Flow]) -> Handler:
    """Return a handler for stateless clients, whose ``Leave`` becomes an ``InputRequired``.

    ``begin`` gives the context its flow; it raises RequestError if the state of the request is invalid.
    """

    def serve(scope: Any, request: Any) -> Any:
        flow = begin(scope, request)
        result = handler(scope, request)
        if is_awaitable(result):
            return _settle(scope, flow, result, is_last=True)
        flow.closed_because = _ANSWERED
        return result

    return serve


def in_layers(handler: Handler) -> Handler:
    """Return a handler for the middleware inside of ``in_rounds``, which is to see questions as a result too."""

    def serve(scope: Any, request: Any) -> Any:
        result = handler(scope, request)
        return _settle(scope, scope._own_flow, result, is_last=False) if is_awaitable(result) else result

    return serve


async def _settle(scope: Any, flow: Flow, result: Awaitable[Any], *, is_last: bool) -> Any:
    try:
        value = await result
    except (Leave, BaseExceptionGroup) as error:
        rest = without_leaving(error)
        if not isinstance(rest, Leave):
            raise rest from None
        flow.has_left = False
        return InputRequired(flow.questions)
    finally:
        if is_last:
            flow.closed_because = _ANSWERED
    if flow.has_left:
        text = (
            f"{scope.method} caught what leaves a handler whose client is asked: use `except Exception`, not a bare one"
        )
        scope._report(text, None)
    return value


def visits(error: URLElicitationRequired) -> InputRequired:
    """Return the visits that an error asks for as questions: no error says so to stateless clients (MRTR-15)."""
    return InputRequired({each.elicitation_id: each for each in error.elicitations})


def check_one_form(flow: Flow, returned: InputRequired) -> None:
    """Raise TypeError if a handler asked by its context, and returned an ``InputRequired`` as well."""
    if flow.has_asked and returned.requests is not flow.questions:
        raise TypeError("a handler asks either by its context, or by returning InputRequired, not both in one call")


async def run_again_with_answers(scope: Any, result: Any, run: Callable[[], Any]) -> Any:
    """Ask a client of the handshake era, and run the handler again, until it returns a complete result."""
    runtime = scope._runtime
    for _ in range(MOST_ROUNDS):
        check_one_form(scope._own_flow, result)
        answers = await gather(runtime, [scope._put(request) for request in result.requests.values()])
        scope._flow = AnsweredFlow(runtime, dict(zip(result.requests, answers, strict=True)), result.state)
        result = run()
        if is_awaitable(result):
            result = await result
        if not isinstance(result, InputRequired):
            return result
    raise RuntimeError(f"the handler returned InputRequired more than {MOST_ROUNDS} times in one call")


class AnsweredFlow(Flow):
    """The flow of a handler that is called again in a handshake session: its answers have their types already."""

    __slots__ = ("_typed",)

    def __init__(self, runtime: Runtime, answers: Mapping[str, Any], state: bytes | None) -> None:
        super().__init__(runtime)
        self._typed = answers
        self.state = state

    @property
    def answers(self) -> Mapping[str, Any]:
        """The answers."""
        return self._typed


async def gather(runtime: Runtime, coroutines: Iterable[Coroutine[Any, Any, Any]]) -> tuple[Any, ...]:
    """Run coroutines concurrently, and return their results in order.

    The first failure cancels the others, and is raised.
    """
    waiting = dict(enumerate(coroutines))
    results: list[Any] = [None] * len(waiting)
    over = runtime.one_shot()
    if not waiting:
        return ()

    async def run(number: int, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            results[number] = await coroutine
        except BaseException as error:
            if is_fault(error, runtime):
                over.set(error)
                return
            # Without an outcome, the caller would wait for ever for a task that was cancelled from inside.
            over.set(RequestCancelled("a question"))
            raise
        else:
            del waiting[number]
            if not waiting:
                over.set(None)

    tasks = [runtime.spawn(run(number, coroutine)) for number, coroutine in enumerate(tuple(waiting.values()))]
    try:
        error = await over.wait()
    finally:
        for task in tasks:
            task.cancel()
    if error is not None:
        raise error
    return tuple(results)


async def one_by_one(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> tuple[Any, ...]:
    """Run coroutines that ask a stateless client, so that all of them have asked before the handler leaves."""
    waiting = list(coroutines)
    results: list[Any] = []
    leave_error: Leave | None = None
    try:
        while waiting:
            try:
                results.append(await waiting.pop(0))
            except Leave as leave:
                leave_error = leave
    finally:
        # A coroutine that is dropped before it ran warns that it was never awaited.
        for each in waiting:
            each.close()
    if leave_error is not None:
        raise leave_error
    return tuple(results)


def result_of(questions: InputRequired, client: ClientCapabilities, state: str | None) -> InputRequiredResult:
    """Return the result that asks a stateless client. Raises as ``checked_question``."""
    for request in questions.requests.values():
        checked_question(request, client)
    return InputRequiredResult(questions.requests or None, state)
