"""Input that a stateless server needs before it can answer (2026-07-28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

from attrs import field

from mcpio.revisions import REV_2026_07_28, Revision
from mcpio.types._fields import Embedded, Payload, payload, wire, wired
from mcpio.types.messages import ResultPayload

if TYPE_CHECKING:
    from mcpio import types

__all__ = ["InputRequest", "InputRequiredResult", "InputResponse"]

if TYPE_CHECKING:
    InputRequest: TypeAlias = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
    InputResponse: TypeAlias = types.ElicitResult | types.CreateMessageResult | types.ListRootsResult
else:
    # Without the classes: few messages ask, and elicitation and sampling are large.
    InputRequest = Annotated[Payload, Embedded(is_request=True)]
    """A question to the client: the params of a request; on the wire with its method (MRTR-03)."""
    InputResponse = Annotated[Payload, Embedded(is_request=False)]
    """The answer to a question: a result without an envelope (MRTR-06)."""


@payload
class InputRequiredResult(ResultPayload):
    """The server needs input first: answer and ask again (MRTR-02). At least one of the two members is present."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    input_requests: Mapping[str, InputRequest] | None = wire(default=None, strict=True)
    """By keys that the server chose; the answers go back under the same keys."""
    request_state: str | None = wire(default=None, strict=True)
    """Returned with the answers, untouched (MRTR-06)."""
    result_type: str = field(default="input_required", kw_only=True, metadata=wired(always=True, required=True))
