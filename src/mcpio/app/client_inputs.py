# ruff: noqa: SLF001 - the library uses clients from inside
"""Rounds of a client's request: the server asks for input, the client answers and sends the request again (MRTR).

A stateless server cannot send requests. It answers ``tools/call``, ``prompts/get`` or ``resources/read`` with an
``InputRequiredResult``, whose questions go to the callbacks that answer a server's requests in the handshake era.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.app.runtime import failure_of, is_awaitable, is_fault, settled
from mcpio.codec import codec
from mcpio.engine.payloads import method_to_send
from mcpio.errors import InvalidMessage, RemoteProtocolError, RequestCancelled, TooManyRounds
from mcpio.events import IncomingId, RequestContext, RequestReceived
from mcpio.methods import METHODS, Kind, method_of
from mcpio.revisions import REV_2026_07_28
from mcpio.types.base import InputRequiredResult

if TYPE_CHECKING:
    from mcpio.app.client import Client, OutgoingCall
    from mcpio.app.contracts import CallNext
    from mcpio.app.runtime import OneShot, Spawned
    from mcpio.types.base import InputRequest, InputResponse

__all__ = ["ROUNDS", "answers_to", "send_in_rounds"]

ROUNDS: Final = 10
"""Default for how often one request is sent again with answers (MRTR-05)."""

SOONEST: Final = 0.05
"""Seconds before a request that only carries state is sent again, doubled each time in a row."""
LATEST: Final = 1.0
"""The most seconds before a request that only carries state is sent again."""


async def send_in_rounds(usual: int, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
    """Send a request, answer the server's questions, and send it again until the result is complete.

    A client's layer, for at most ``usual`` rounds unless the caller said how many. With 0 an ``InputRequiredResult`` is
    returned as it is. Each round repeats the method and the params, with the answers under the keys of the questions,
    and the server's state unchanged (MRTR-06).

    Raises:
        TooManyRounds: The server asked again after ``most`` rounds.
        InvalidMessage: The server must not ask here, or a question is malformed.
        RemoteProtocolError: The server asked for what this client did not declare, or too much at once.
        Exception: The exception of a callback, such as SamplingRejected. Nothing is sent then (MRTR-13).

    """
    client: Client = call.session
    most = usual if call.rounds is None else call.rounds
    result = await call_next(request)
    pauses = 0
    for _ in range(most):
        if not isinstance(result, InputRequiredResult):
            return result
        _check(request, result)
        answers = None
        if result.input_requests:
            pauses = 0
            answers = await answers_to(client, result.input_requests)
        else:
            # Only state: the server sheds load, or is not ready (MRTR-05).
            await client.driver.runtime.sleep(min(LATEST, SOONEST * 2.0**pauses))
            pauses += 1
        result = await call_next(attrs.evolve(request, input_responses=answers, request_state=result.request_state))
    if most and isinstance(result, InputRequiredResult):
        raise TooManyRounds(_name_of(request), most)
    return result


def _name_of(request: Any) -> str:
    method = method_to_send(request, Kind.REQUEST)
    return str(request.method if method is None else method.name)


def _check(request: Any, result: InputRequiredResult) -> None:
    """Raise InvalidMessage for a result with questions where none are allowed, or without any (MRTR-01, MRTR-02)."""
    if not hasattr(request, "input_responses"):
        raise InvalidMessage("resultType", f"{_name_of(request):.100} must not be answered by 'input_required'")
    if not result.input_requests and result.request_state is None:
        raise InvalidMessage("result", "'input_required' needs inputRequests or requestState")


async def answers_to(client: Client, questions: Mapping[str, InputRequest]) -> dict[str, InputResponse]:
    """Return the answers to all questions by their keys. The callbacks run concurrently.

    Raises what a callback raises; the others are cancelled then. Raises RemoteProtocolError, and calls none, for more
    questions than ``Limits.incoming_requests``, as many as a server may ask at once in a session.
    """
    most = client.connection.options.limits.incoming_requests
    if len(questions) > most:
        raise RemoteProtocolError(
            f"the server asks {len(questions)} questions at once, where at most {most} are allowed"
        )
    answering = Round(client, {key: _event(client, question) for key, question in questions.items()})
    try:
        answering.begin()
        await answering.over.wait()
    finally:
        answering.abandon()
    if answering.failure is not None:
        raise answering.failure
    return answering.answers


def _event(client: Client, question: InputRequest) -> RequestReceived:
    """Return a question as the request that it would be in the handshake era."""
    method, params = method_of(question), codec(REV_2026_07_28).encode(question)
    peer = client.server
    context = RequestContext(REV_2026_07_28.era, REV_2026_07_28, peer.capabilities, peer.info, None, None, None)
    # It has no id on the wire. No request has the id 0, so progress reported on it goes nowhere.
    return RequestReceived(IncomingId(0), question, context, {"method": method.name, "params": params}, False)


class Round:
    """The callbacks that answer the questions of one result."""

    answers: dict[str, InputResponse]
    """The answers so far, by the keys of the questions."""
    failure: BaseException | None
    """The exception of the first callback that failed."""
    over: OneShot
    """Set when every callback has answered, or one has failed."""

    def __init__(self, client: Client, events: Mapping[str, RequestReceived]) -> None:
        self.answers = {}
        self.failure = None
        self.over = client.driver.runtime.one_shot()
        self._client = client
        self._events = events
        self._running: dict[str, tuple[Any, Spawned]] = {}

    def begin(self) -> None:
        """Call the callbacks: a plain function now, a coroutine as a task."""
        runtime = self._client.driver.runtime
        self._client._answering.add(self)
        for key, event in self._events.items():
            if self.failure is not None:
                break
            scope = self._client._new_scope(self._client, event)
            try:
                result = self._client._handler_for(event)(scope, event.request)
                if is_awaitable(result):
                    task = runtime.spawn(self._finish(key, scope, result))
                    self._running[key] = scope, task
                    self._client._running[scope] = scope, task
                else:
                    self._take(key, result)
            except BaseException as error:
                self._fail(event, failure_of(error))

    def abandon(self) -> None:
        """Cancel the callbacks that still run."""
        self._client._answering.discard(self)
        for scope, task in tuple(self._running.values()):
            scope._abandon()
            task.cancel()

    def lose(self, error: Exception) -> None:
        """End the round with an error: no answer can be sent any more."""
        self.failure = self.failure or error
        self.over.set(None)

    async def _finish(self, key: str, scope: Any, result: Awaitable[Any]) -> None:
        try:
            self._take(key, await settled(result))
        except BaseException as error:
            # Where only what the callback awaited was cancelled, the caller learns so. Where the whole round was,
            # nothing reads the failure.
            self._fail(self._events[key], error)
            if not is_fault(error, self._client.driver.runtime):
                raise
        finally:
            self._running.pop(key)
            self._client._forget_handler(scope)

    def _take(self, key: str, result: Any) -> None:
        method = METHODS[self._events[key].raw["method"]]
        if not isinstance(result, method.result_type):
            wanted, got = method.result_type.__name__, type(result).__name__
            raise TypeError(f"the answer to {method.name} must be a {wanted}, not a {got}")
        self.answers[key] = result
        if len(self.answers) == len(self._events):
            self.over.set(None)

    def _fail(self, event: RequestReceived, error: BaseException) -> None:
        if self.failure is None:
            was_cancelled = isinstance(error, self._client.driver.runtime.cancellation)
            self.failure = _cancelled_inside(event) if was_cancelled else error
        self.over.set(None)


def _cancelled_inside(event: RequestReceived) -> RequestCancelled:
    return RequestCancelled(event.raw["method"], "its callback was cancelled from inside")
