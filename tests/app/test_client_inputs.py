from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from waits import Wait

from mcpio.app.client import client_connection, elicitation_handler, roots_handler, sampling_handler
from mcpio.app.client_inputs import send_in_rounds
from mcpio.codec import codec
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import (
    ConnectionLost,
    InvalidMessage,
    RemoteProtocolError,
    RequestCancelled,
    SamplingRejected,
    TooManyRounds,
)
from mcpio.events import Peer, RequestReceived
from mcpio.revisions import REV_2026_07_28
from mcpio.testing import ManualRuntime
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    CompleteRequest,
    CompletionArgument,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitURLRequest,
    GetPromptRequest,
    Implementation,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    ListToolsRequest,
    PromptReference,
    ReadResourceRequest,
    Root,
    SamplingMessage,
    ServerCapabilities,
    TextContent,
)

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
WHO = codec(REV_2026_07_28).decode(FORM, ElicitFormRequest)
MESSAGE = CreateMessageRequest((SamplingMessage("user", TextContent("hi")),), 10)
ROOTS = ListRootsRequest()
DONE = CallToolResult((TextContent("done"),))
CALL = CallToolRequest("t", {"a": 1}, meta={"example.com/x": 1})


class Scope:
    """What a callback gets; it records that its answer is no longer wanted."""

    def __init__(self, event: RequestReceived) -> None:
        self.event = event
        self.cancelled = False

    def _abandon(self) -> None:
        self.cancelled = True


def call_of(client: Any) -> Any:
    """Return what the layer knows of a call: its client; the caller did not say how many rounds it allows."""
    return SimpleNamespace(session=client, rounds=None)


class Asked:
    """A client of a server that gives ``results`` in turn; ``sent`` are the requests that it got, ``at`` when."""

    def __init__(self, *results: Any, **callbacks: Any) -> None:
        self.runtime = ManualRuntime()
        capabilities = callbacks.pop("capabilities", None)
        self.connection = client_connection(capabilities=capabilities, **callbacks)
        self.server = Peer(Implementation("s", "1"), ServerCapabilities(), None)
        self.driver: Any = self
        self.sent: list[Any] = []
        self.at: list[float] = []
        self.scopes: list[Scope] = []
        self._answering: set[Any] = set()
        self._running: dict[Any, Any] = {}
        self._forget_handler = self._running.__delitem__
        self._results = list(results)
        nothing: Any = None
        self._handlers: Mapping[str, Callable[..., Any]] = {
            "elicitation/create": elicitation_handler(callbacks.get("elicitation", nothing), _no_visit),
            "sampling/createMessage": sampling_handler(callbacks.get("sampling", nothing)),
            "roots/list": roots_handler(callbacks.get("roots", ())),
        }

    def _handler_for(self, event: RequestReceived) -> Any:
        return self._handlers[event.raw["method"]]

    def _new_scope(self, _: Any, event: RequestReceived) -> Scope:
        self.scopes.append(Scope(event))
        return self.scopes[-1]

    def start(self, request: Any = CALL, most: int = 10) -> Wait[Any]:
        return Wait(self.runtime, send_in_rounds(most, call_of(self), request, self._send), self.runtime.run)

    def do(self, request: Any = CALL, most: int = 10) -> Any:
        return self.runtime.complete(send_in_rounds(most, call_of(self), request, self._send))

    async def _send(self, request: Any) -> Any:
        self.sent.append(request)
        self.at.append(self.runtime.now)
        return self._results.pop(0)


def _no_visit(id: str) -> None:
    raise AssertionError(f"no elicitation of this era has an id: {id}")


def accepted(scope: Any, request: Any) -> ElicitResult:
    return ElicitResult("accept", {"name": "Ann"})


def test_complete_result_is_returned() -> None:
    asked = Asked(DONE)
    assert asked.do() == DONE
    assert asked.sent == [CALL]


@pytest.mark.req("MRTR-06")
@pytest.mark.parametrize("request_", [CALL, GetPromptRequest("p", {"a": "1"}), ReadResourceRequest("a:1")])
def test_retry_repeats_the_params_with_answers_and_state(request_: Any) -> None:
    state = 'ü"\\ {"a": 1}'
    asked = Asked(InputRequiredResult({"who": WHO}, state), DONE, elicitation=accepted)
    assert asked.do(request_) == DONE
    first, second = asked.sent
    assert first == request_
    assert second.input_responses == {"who": ElicitResult("accept", {"name": "Ann"})}
    assert second.request_state == state
    same = {name for name in request_.__slots__ if name not in ("input_responses", "request_state", "__weakref__")}
    assert all(getattr(second, name) == getattr(request_, name) for name in same)


@pytest.mark.req("MRTR-08")
def test_parallel_calls_have_each_their_own_state_and_answers() -> None:
    asked = Asked(elicitation=accepted)
    held = {name: asked.runtime.one_shot() for name in ("a", "b")}

    async def send(request: Any) -> Any:
        asked.sent.append(request)
        if request.request_state is not None:
            return DONE
        await held[request.name].wait()
        return InputRequiredResult({f"who {request.name}": WHO}, f"state {request.name}")

    calls = [
        Wait(asked.runtime, send_in_rounds(10, call_of(asked), CallToolRequest(name), send), asked.runtime.run)
        for name in ("a", "b")
    ]
    for name in ("b", "a"):
        held[name].set(None)
        asked.runtime.run()
    assert [call.result for call in calls] == [DONE, DONE]
    retries = {request.name: request for request in asked.sent if request.request_state is not None}
    for name, retry in retries.items():
        assert retry.request_state == f"state {name}"
        assert list(retry.input_responses) == [f"who {name}"]
    assert sorted(retries) == ["a", "b"]


@pytest.mark.req("MRTR-06")
def test_retry_has_no_state_if_none_was_given() -> None:
    asked = Asked(InputRequiredResult({"a": WHO}, "one"), InputRequiredResult({"b": WHO}), DONE, elicitation=accepted)
    asked.do()
    assert [each.request_state for each in asked.sent] == [None, "one", None]
    assert [set(each.input_responses or ()) for each in asked.sent] == [set(), {"a"}, {"b"}]


@pytest.mark.req("MRTR-16")
def test_every_kind_of_question_is_answered_without_an_envelope() -> None:
    said = CreateMessageResult("assistant", TextContent("hello"), "model")
    asked = Asked(
        InputRequiredResult({"f": WHO, "m": MESSAGE, "r": ROOTS}),
        DONE,
        elicitation=lambda scope, request: ElicitResult("decline"),
        sampling=lambda scope, request: said,
        roots=[Root("file:///a")],
    )
    asked.do()
    assert asked.sent[1].input_responses == {
        "f": ElicitResult("decline"),
        "m": said,
        "r": ListRootsResult((Root("file:///a"),)),
    }
    assert codec(REV_2026_07_28).encode(asked.sent[1])["inputResponses"] == {
        "f": {"action": "decline"},
        "m": {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "model"},
        "r": {"roots": [{"uri": "file:///a"}]},
    }


def test_callback_sees_the_question_and_who_asks() -> None:
    asked = Asked(InputRequiredResult({"who": WHO}), DONE, elicitation=accepted)
    asked.do()
    (scope,) = asked.scopes
    assert scope.event.request.message == "Who?"
    assert scope.event.context.info.name == "s"
    assert scope.event.raw == {"method": "elicitation/create", "params": FORM}


def test_callbacks_run_concurrently() -> None:
    asked: Asked
    waits: list[Any] = []

    async def slowly(scope: Any, request: Any) -> ElicitResult:
        waits.append(asked.runtime.one_shot())
        return ElicitResult("accept", {"name": await waits[-1].wait()})

    asked = Asked(InputRequiredResult({"a": WHO, "b": WHO}), DONE, elicitation=slowly)
    call = asked.start()
    assert len(waits) == 2
    waits[1].set("second")
    waits[0].set("first")
    asked.runtime.run()
    assert call.result == DONE
    assert [each.content["name"] for each in asked.sent[1].input_responses.values()] == ["second", "first"]
    assert asked.sent[1].input_responses["a"].content["name"] == "first"


@pytest.mark.req("MRTR-13")
def test_failing_callback_ends_the_call_and_cancels_the_others() -> None:
    asked: Asked

    async def never(scope: Any, request: Any) -> ElicitResult:
        await asked.runtime.one_shot().wait()
        raise AssertionError

    async def reject(scope: Any, request: Any) -> CreateMessageResult:
        await asked.runtime.sleep(0)
        raise SamplingRejected

    asked = Asked(InputRequiredResult({"a": WHO, "b": MESSAGE}), elicitation=never, sampling=reject)
    with pytest.raises(SamplingRejected):
        asked.do()
    assert len(asked.sent) == 1
    assert asked.scopes[0].cancelled


def test_plain_callback_that_fails_ends_the_call_before_the_next_is_asked() -> None:
    def fail(scope: Any, request: Any) -> ElicitResult:
        raise ZeroDivisionError

    asked = Asked(InputRequiredResult({"a": WHO, "b": WHO}), elicitation=fail)
    with pytest.raises(ZeroDivisionError):
        asked.do()
    assert len(asked.scopes) == 1


def test_answer_of_the_wrong_type_ends_the_call() -> None:
    asked = Asked(InputRequiredResult({"m": MESSAGE}), sampling=lambda scope, request: "hello")
    with pytest.raises(TypeError, match="sampling/createMessage must be a CreateMessageResult, not a str"):
        asked.do()


def test_answer_that_does_not_fit_the_form_ends_the_call() -> None:
    asked = Asked(
        InputRequiredResult({"a": WHO}), elicitation=lambda scope, request: ElicitResult("accept", {"name": 5})
    )
    with pytest.raises(ValueError, match="the answer to elicitation/create"):
        asked.do()


def asked_in_vain() -> Asked:
    """Return a call whose callback never answers."""
    asked: Asked

    async def never(scope: Any, request: Any) -> ElicitResult:
        await asked.runtime.one_shot().wait()
        raise AssertionError

    asked = Asked(InputRequiredResult({"a": WHO}), elicitation=never)
    return asked


def test_cancelled_call_cancels_the_callbacks() -> None:
    asked = asked_in_vain()
    call = asked.start()
    call.cancel()
    asked.runtime.run()
    assert call.state == "cancelled"
    assert asked.scopes[0].cancelled
    assert len(asked.sent) == 1


def test_end_of_the_connection_ends_the_call_and_cancels_the_callbacks() -> None:
    asked = asked_in_vain()
    call = asked.start()
    (answering,) = asked._answering
    answering.lose(ConnectionLost("gone"))
    asked.runtime.run()
    assert isinstance(call.error, ConnectionLost)
    assert asked.scopes[0].cancelled
    assert not asked._answering


def test_callback_that_is_cancelled_from_inside_ends_the_call() -> None:
    asked: Asked

    async def stop(scope: Any, request: Any) -> ElicitResult:
        await asked.runtime.sleep(0)
        raise asked.runtime.cancellation

    asked = Asked(InputRequiredResult({"a": WHO}), elicitation=stop)
    with pytest.raises(RequestCancelled, match="its callback was cancelled from inside"):
        asked.do()


@pytest.mark.req("MRTR-05")
def test_rounds_are_limited() -> None:
    asked = Asked(*[InputRequiredResult({"a": WHO}) for _ in range(4)], elicitation=accepted)
    with pytest.raises(TooManyRounds, match="tools/call: the server asks for more input after 3 rounds") as caught:
        asked.do(most=3)
    assert (caught.value.method, caught.value.rounds) == ("tools/call", 3)
    assert len(asked.sent) == 4


def test_without_rounds_the_question_is_the_result() -> None:
    question = InputRequiredResult({"a": WHO})
    asked = Asked(question)
    assert asked.do(most=0) is question


@pytest.mark.req("MRTR-05")
def test_retries_that_only_carry_state_back_off() -> None:
    states = [InputRequiredResult(request_state=str(number)) for number in range(7)]
    asked = Asked(*states, DONE)
    call = asked.start()
    for _ in range(20):
        asked.runtime.advance_to(asked.runtime.now + 0.5)
    assert call.result == DONE
    gaps = [later - earlier for earlier, later in zip(asked.at, asked.at[1:], strict=False)]
    assert gaps == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert [each.request_state for each in asked.sent[1:]] == ["0", "1", "2", "3", "4", "5", "6"]
    assert all(each.input_responses is None for each in asked.sent)


@pytest.mark.req("MRTR-01")
@pytest.mark.parametrize(
    "request_", [ListToolsRequest(), CompleteRequest(PromptReference("p"), CompletionArgument("a", ""))]
)
def test_question_in_answer_to_another_method_is_invalid(request_: Any) -> None:
    asked = Asked(InputRequiredResult({"a": WHO}), elicitation=accepted)
    with pytest.raises(InvalidMessage, match=r"resultType: .* must not be answered by 'input_required'"):
        asked.do(request_)


@pytest.mark.req("MRTR-02")
@pytest.mark.parametrize("questions", [None, {}])
def test_result_that_asks_nothing_is_invalid(questions: Any) -> None:
    with pytest.raises(InvalidMessage, match="needs inputRequests or requestState"):
        Asked(InputRequiredResult(questions)).do()


@pytest.mark.req("MRTR-15")
def test_url_question_needs_no_id() -> None:
    url = ElicitURLRequest("Go", "https://example.com/a")
    asked = Asked(
        InputRequiredResult({"a": url}),
        DONE,
        elicitation=lambda scope, request: ElicitResult("accept"),
        capabilities=ClientCapabilities(elicitation=ElicitationCapability(url={})),
    )
    asked.do()
    assert asked.sent[1].input_responses == {"a": ElicitResult("accept")}


def test_plain_callback_that_is_cancelled_from_inside_ends_the_call() -> None:
    asked: Asked

    def stop(scope: Any, request: Any) -> ElicitResult:
        raise asked.runtime.cancellation

    asked = Asked(InputRequiredResult({"a": WHO}), elicitation=stop)
    with pytest.raises(RequestCancelled, match="its callback was cancelled from inside"):
        asked.do()


def test_more_questions_than_a_session_would_allow_are_refused() -> None:
    options = Options(limits=Limits(incoming_requests=2))
    for count in (2, 3):
        questions = {str(number): WHO for number in range(count)}
        asked = Asked(InputRequiredResult(questions), DONE, elicitation=accepted, options=options)
        if count == 2:
            assert asked.do() == DONE
        else:
            with pytest.raises(RemoteProtocolError, match="asks 3 questions at once, where at most 2 are allowed"):
                asked.do()
            assert asked.scopes == []
