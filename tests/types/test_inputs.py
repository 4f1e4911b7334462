from __future__ import annotations

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.methods import METHODS
from mcpio.revisions import REV_2026_07_28
from mcpio.types import ElicitFormRequest, ElicitSchema, InputRequest, InputRequiredResult

E = codec(REV_2026_07_28)
ASKED = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


def test_input_required_result_round_trips() -> None:
    raw = {
        "resultType": "input_required",
        "inputRequests": {"the name": {"method": "elicitation/create", "params": ASKED}, "r": {"method": "roots/list"}},
        "requestState": "sealed",
    }
    read = E.decode(raw, InputRequiredResult)
    assert read.input_requests == {
        "the name": InputRequest("elicitation/create", ASKED),
        "r": InputRequest("roots/list"),
    }
    assert read.request_state == "sealed"
    assert E.encode(read) == raw


def test_type_of_an_input_request_follows_from_its_method() -> None:
    asked = InputRequest("elicitation/create", ASKED)
    found = E.decode(asked.params or {}, METHODS[asked.method].params_type)
    assert found == ElicitFormRequest("Who?", ElicitSchema({}))


def test_result_type_is_input_required() -> None:
    assert E.encode(InputRequiredResult(request_state="x")) == {"requestState": "x", "resultType": "input_required"}
    with pytest.raises(InvalidMessage, match=r"^resultType: missing$"):
        E.decode({"requestState": "x"}, InputRequiredResult)


def test_unknown_members_of_an_input_request_are_kept() -> None:
    raw = {"resultType": "input_required", "inputRequests": {"a": {"method": "x/y", "id": 5}}}
    assert E.encode(E.decode(raw, InputRequiredResult)) == raw
