"""Trying again what failed, where that helps and does no harm: middleware for a client's own requests (A35 to A37)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mcpio.errors import McpError
from mcpio.types.tools import CallToolRequest

if TYPE_CHECKING:
    from mcpio.app.middleware import CallNext, OutgoingCall
    from mcpio.backoff import Backoff

__all__ = ["READING", "Retry"]

READING: Final = frozenset(
    {
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "tasks/get",
        "tasks/list",
        "tasks/result",
    }
)
"""The methods that only read: asking twice changes nothing."""


class Retry:
    """Sends a client's request again after errors that are worth it, as often as the policy says.

    Again are sent requests that only read, and those whose caller says ``retry=True``; never one whose caller says
    ``retry=False``. With ``trust_annotations`` calls of tools are sent again too that the server calls read-only or
    idempotent: what it says is not checked (TOOL-17), and its list of tools is asked for before.

    Each try has the request's whole timeout. In the end the last error is raised.
    """

    def __init__(self, policy: Backoff, *, trust_annotations: bool = False) -> None:
        self.policy = policy
        self.trust_annotations = trust_annotations

    async def __call__(self, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        """Be the middleware."""
        attempt = 0
        while True:
            try:
                return await call_next(request)
            except McpError as error:
                delay = await self._delay(call, request, attempt, error)
                if delay is None:
                    raise
            await call.session.driver.runtime.sleep(delay)
            attempt += 1

    async def _delay(self, call: OutgoingCall, request: Any, attempt: int, error: McpError) -> float | None:
        chance = 0.0
        if self.policy.jitter:
            chance = int.from_bytes(call.session.driver.runtime.entropy(6), "big") / 2**48
        delay = self.policy.next_delay(attempt, error, chance=chance)
        return delay if delay is not None and await self._may_repeat(call, request) else None

    async def _may_repeat(self, call: OutgoingCall, request: Any) -> bool:
        if call.retry is not None:
            return call.retry
        if call.method in READING:
            return True
        return self.trust_annotations and isinstance(request, CallToolRequest) and await _is_harmless(call, request)


async def _is_harmless(call: OutgoingCall, request: CallToolRequest) -> bool:
    """Tell whether the server says of a tool that calling it twice does no more than calling it once."""
    try:
        tool = await call.session.tool(request.name)
    except McpError:
        return False
    hints = None if tool is None else tool.annotations
    return hints is not None and (hints.read_only_hint is True or hints.idempotent_hint is True)
