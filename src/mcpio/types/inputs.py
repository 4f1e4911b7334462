"""Input that a stateless server needs before it can answer (2026-07-28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import field

from mcpio.revisions import REV_2026_07_28, Revision
from mcpio.types._fields import Payload, payload, wire, wired
from mcpio.types.messages import ResultPayload

__all__ = ["InputRequest", "InputRequiredResult"]


@payload
class InputRequest(Payload):
    """A request inside a result. ``params`` are plain: ``METHODS[method].params_type`` says what they are (MRTR-03)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    method: str
    params: Mapping[str, Any] | None = None


@payload
class InputRequiredResult(ResultPayload):
    """The server needs input first: answer and ask again (MRTR-02). At least one of the two members is present."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    input_requests: Mapping[str, InputRequest] | None = wire(default=None, strict=True)
    """By keys that the server chose; the answers go back under the same keys."""
    request_state: str | None = wire(default=None, strict=True)
    """Returned with the answers, untouched (MRTR-06)."""
    result_type: str = field(default="input_required", kw_only=True, metadata=wired(always=True, required=True))
