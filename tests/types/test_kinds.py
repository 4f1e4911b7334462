from __future__ import annotations

import base64
import copy
import pickle
import re
from typing import Any

import attrs
import pytest

from mcpio.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolRequest,
    CallToolResult,
    CancelledNotification,
    CreateMessageRequest,
    CreateMessageResult,
    EmbeddedResource,
    ImageContent,
    ProgressNotification,
    PromptMessage,
    Root,
    SamplingMessage,
    TextContent,
)

BASE64 = "Encode the bytes in base64: base64.b64encode(data).decode()"
ANY_PNG: Any = b"\x89PNG"


def odd(value: Any) -> Any:
    """Hide the kind of a value from type checkers."""
    return value


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (
            lambda: ImageContent(ANY_PNG, "image/png"),
            rf"^ImageContent: data= takes a str, not {re.escape(repr(ANY_PNG))}. {re.escape(BASE64)}$",
        ),
        (lambda: AudioContent(ANY_PNG, "audio/wav"), "^AudioContent: data= takes a str, .*base64"),
        (lambda: BlobResourceContents("a:b", ANY_PNG), "^BlobResourceContents: blob= takes a str, .*base64"),
        (lambda: TextContent(odd(5)), r"^TextContent: text= takes a str, not 5$"),
        (lambda: TextContent("a", odd({})), r"^TextContent: annotations= takes Annotations, not {}$"),
        (lambda: TextContent("a", meta=odd(None)), r"^TextContent: meta= takes a mapping, not None$"),
        (lambda: Annotations(priority=odd(True)), r"^Annotations: priority= takes a number, not True$"),
        (lambda: CallToolRequest("a", odd([1])), r"^CallToolRequest: arguments= takes a mapping, not \[1\]$"),
        (lambda: CallToolResult((), is_error=odd(1)), r"^CallToolResult: is_error= takes a bool, not 1$"),
        (
            lambda: CallToolResult(odd("hi")),
            r"^CallToolResult: content= takes a tuple, not 'hi'. Wrap the text: \(TextContent\('hi'\),\)$",
        ),
        (lambda: CallToolResult(odd(TextContent("hi"))), r"^CallToolResult: .* Put the item in a tuple$"),
        (lambda: PromptMessage("user", odd("hi")), r"^PromptMessage: content= .*. Wrap the text: TextContent\('hi'\)$"),
        (lambda: SamplingMessage("user", odd("hi")), r"^SamplingMessage: content= takes .* or a tuple, not 'hi'. Wrap"),
        (lambda: CreateMessageRequest((), odd("5")), r"^CreateMessageRequest: max_tokens= takes a number, not '5'$"),
        (
            lambda: EmbeddedResource(odd(Root("a:b"))),
            r"^EmbeddedResource: resource= takes TextResourceContents or Blob",
        ),
        (
            lambda: CancelledNotification(odd([])),
            r"^CancelledNotification: request_id= takes a number or a str, not \[\]$",
        ),
        (lambda: SamplingMessage(odd(5), ()), r"^SamplingMessage: role= takes a str, not 5$"),
        (lambda: attrs.evolve(TextContent("a"), text=odd(5)), r"^TextContent: text= takes a str, not 5$"),
    ],
)
def test_a_member_of_the_wrong_kind_is_refused_where_it_is_given(make: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        make()


def test_a_fault_does_not_quote_a_whole_picture() -> None:
    with pytest.raises(TypeError) as caught:
        ImageContent(odd(b"x" * 1_000_000), "image/png")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "made",
    [
        ImageContent(base64.b64encode(b"\x89PNG").decode(), "image/png"),
        CallToolResult([TextContent("hi")]),  # type: ignore[arg-type]  # a caller without a type checker
        CallToolResult((), structured_content=5),
        CreateMessageResult("assistant", (TextContent("hi"),), "m"),
        CreateMessageResult("assistant", TextContent("hi"), "m"),
        ProgressNotification("token", 1),
        ProgressNotification(1, 0.5, 1),
        Annotations(("user",), None, None),
        CallToolRequest("a", None, meta={"x": 1}),
    ],
)
def test_what_is_of_the_right_kind_is_taken(made: Any) -> None:
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == attrs.evolve(made) == made


def test_a_subclass_of_a_kind_is_of_the_kind() -> None:
    cls = type("Text", (str,), {})
    for _ in range(2):
        assert TextContent(cls("hi"), Annotations()).text == "hi"
        with pytest.raises(TypeError):
            TextContent(odd(5), Annotations())
