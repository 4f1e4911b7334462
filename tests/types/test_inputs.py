from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2026_07_28
from mcpio.types import (
    CallToolRequest,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    GetPromptRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    ReadResourceRequest,
    TextContent,
)

E = codec(REV_2026_07_28)
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
URL = {"mode": "url", "message": "Go", "url": "https://example.com"}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 1}
QUESTIONS = {
    "the form": ({"method": "elicitation/create", "params": FORM}, ElicitFormRequest("Who?", ElicitSchema({}))),
    "the page": ({"method": "elicitation/create", "params": URL}, ElicitURLRequest("Go", "https://example.com")),
    "m": ({"method": "sampling/createMessage", "params": SAMPLE}, E.decode(SAMPLE, CreateMessageRequest)),
    "r": ({"method": "roots/list"}, ListRootsRequest()),
}
ANSWERS = {
    "f": ({"action": "accept", "content": {"a": 1}}, ElicitResult("accept", {"a": 1})),
    "m": (
        {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
        CreateMessageResult("assistant", TextContent("hi"), "m"),
    ),
    "r": ({"roots": []}, ListRootsResult(())),
    "odd": ({"action": "decline", "x": 1}, ElicitResult("decline", extra={"x": 1})),
}


def test_input_required_result_round_trips() -> None:
    raw = {
        "resultType": "input_required",
        "inputRequests": {key: question for key, (question, _) in QUESTIONS.items()},
        "requestState": "sealed",
    }
    read = E.decode(raw, InputRequiredResult)
    assert read.input_requests == {key: typed for key, (_, typed) in QUESTIONS.items()}
    assert read.request_state == "sealed"
    assert E.encode(read) == raw


def test_result_type_is_input_required() -> None:
    assert E.encode(InputRequiredResult(request_state="x")) == {"requestState": "x", "resultType": "input_required"}
    with pytest.raises(InvalidMessage, match=r"^resultType: missing$"):
        E.decode({"requestState": "x"}, InputRequiredResult)


@pytest.mark.req("MRTR-03")
@pytest.mark.parametrize(
    ("question", "fault"),
    [
        (5, r"expected an object, got a number"),
        ({"params": {}}, r"\.method: missing"),
        ({"method": 5}, r"\.method: expected elicitation/create or roots/list or sampling/createMessage, got a number"),
        ({"method": "tools/call", "params": {"name": "x"}}, r"\.method: expected .*, got 'tools/call'"),
        ({"method": "elicitation/create"}, r"\.params\.message: missing"),
        ({"method": "elicitation/create", "params": {**FORM, "message": 5}}, r"\.params\.message: expected a string"),
        ({"method": "sampling/createMessage", "params": {**SAMPLE, "systemPrompt": 5}}, r"\.params\.systemPrompt"),
        ({"method": "roots/list", "params": []}, r"\.params: expected an object"),
    ],
)
def test_malformed_question_is_refused_with_its_place(question: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage, match=rf"^inputRequests\.k.*{fault}"):
        E.decode({"resultType": "input_required", "inputRequests": {"k": question}}, InputRequiredResult)


@pytest.mark.req("MRTR-06", "MRTR-16")
@pytest.mark.parametrize("request_", [CallToolRequest("t"), GetPromptRequest("p"), ReadResourceRequest("a:1")])
def test_answers_round_trip(request_: Any) -> None:
    raw = {**E.encode(request_), "inputResponses": {key: answer for key, (answer, _) in ANSWERS.items()}}
    read = E.decode(raw, request_.__class__)
    assert read.input_responses == {key: typed for key, (_, typed) in ANSWERS.items()}
    assert E.encode(read) == raw


@pytest.mark.req("MRTR-12")
@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (5, "expected an object, got a number"),
        (None, "expected an object, got null"),
        ({}, "expected the result of elicitation/create or roots/list or sampling/createMessage"),
        ({"content": {}}, "expected the result of"),
        ({"action": "odd"}, r"\.action: expected one of"),
        ({"action": "accept", "content": 5}, r"\.content: expected an object"),
        ({"roots": 5}, r"\.roots: expected an array"),
        ({"role": "assistant"}, r"content: missing"),
    ],
)
def test_malformed_answer_is_refused_with_its_place(answer: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage, match=rf"^inputResponses\.k.*{fault}"):
        E.decode({"name": "t", "inputResponses": {"k": answer}}, CallToolRequest)


def test_answer_is_read_as_a_result_and_a_question_as_a_request() -> None:
    odd: list[str] = []
    answer = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m", "stopReason": 5}
    read = E.decode({"name": "t", "inputResponses": {"k": answer}}, CallToolRequest, odd)
    assert E.encode(read)["inputResponses"] == {"k": answer}
    assert odd == ["CreateMessageResult.stopReason: expected a string, got a number"]


@pytest.mark.parametrize("value", [5, {"action": "decline"}, ListRootsRequest(), CallToolRequest("t")])
def test_other_values_are_no_answers(value: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^inputResponses\.k: expected the result of elicitation/create or"):
        E.encode(CallToolRequest("t", input_responses={"k": value}))


@pytest.mark.parametrize("value", [5, {"method": "roots/list"}, ElicitResult("decline"), CallToolRequest("t")])
def test_other_values_are_no_questions(value: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^inputRequests\.k: expected the params of elicitation/create or"):
        E.encode(InputRequiredResult({"k": value}))
