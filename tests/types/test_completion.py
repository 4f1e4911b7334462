from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_03_26, REV_2025_11_25, REVISIONS, Revision
from mcpio.types import (
    CompleteRequest,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

ARGUMENT = {"name": "x", "value": "be"}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("ref", "raw"),
    [
        (PromptReference("a"), {"type": "ref/prompt", "name": "a"}),
        (ResourceTemplateReference("file:///{path}"), {"type": "ref/resource", "uri": "file:///{path}"}),
    ],
)
def test_complete_request_round_trips(ref: Any, raw: dict[str, str], revision: Revision) -> None:
    read = codec(revision).decode({"ref": raw, "argument": ARGUMENT}, CompleteRequest)
    assert read == CompleteRequest(ref, CompletionArgument("x", "be"))
    assert codec(revision).encode(read) == {"ref": raw, "argument": ARGUMENT}


@pytest.mark.parametrize(
    ("ref", "fault"),
    [
        ({"type": "ref/tool", "name": "a"}, "ref.type: 'ref/tool' is not known here"),
        ({"name": "a"}, "ref.type: missing"),
        ({"type": "ref/prompt", "uri": "a:b"}, "ref.name: missing"),
        ("a", "ref: expected an object, got a string"),
    ],
)
def test_unknown_reference_is_refused(ref: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        codec(REV_2025_11_25).decode({"ref": ref, "argument": ARGUMENT}, CompleteRequest)
    assert str(caught.value) == fault


def test_context_is_left_out_before_2025_06_18() -> None:
    request = CompleteRequest(
        PromptReference("a", "A"), CompletionArgument("x", "be"), CompletionContext({"language": "python"})
    )
    assert codec(REV_2025_11_25).encode(request)["context"] == {"arguments": {"language": "python"}}
    assert codec(REV_2025_03_26).encode(request) == {"ref": {"type": "ref/prompt", "name": "a"}, "argument": ARGUMENT}


@pytest.mark.parametrize("revision", REVISIONS)
def test_complete_result_round_trips(revision: Revision) -> None:
    raw = {"completion": {"values": ["bee", "beer"], "total": 250, "hasMore": True}}
    read = codec(revision).decode(raw, CompleteResult)
    assert read == CompleteResult(Completion(("bee", "beer"), 250, True))
    assert raw.items() <= codec(revision).encode(read).items()
