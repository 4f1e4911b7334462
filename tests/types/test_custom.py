from __future__ import annotations

import pytest

from mcpio.codec import codec
from mcpio.revisions import REVISIONS, Revision
from mcpio.types import CustomNotification, CustomRequest, RawNotification, RawRequest
from mcpio.types._fields import EMPTY


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("kind", [CustomRequest, CustomNotification, RawRequest, RawNotification])
def test_params_are_sent_unchanged(kind: type[CustomRequest], revision: Revision) -> None:
    params = {"_meta": {"a": 1}, "x": [None]}
    written = codec(revision).encode(kind("x/do", params))
    assert written == params
    assert written is not params
    assert codec(revision).encode(kind("x/do")) == {}


def test_params_default_to_empty() -> None:
    assert CustomRequest("x/do").params is EMPTY
    assert CustomRequest("x/do") == CustomRequest("x/do", {})
    assert CustomNotification("x/done", {"a": 1}).method == "x/done"
