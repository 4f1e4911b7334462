"""Retries of a client's own requests, where they help and do no harm (A35 to A37)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpio._checks import required
from mcpio.backoff import Backoff
from mcpio.errors import McpError, RequestError
from mcpio.types.tools import CallToolRequest

if TYPE_CHECKING:
    from mcpio.app.contracts import CallNext
    from mcpio.app.runtime import Driver
    from mcpio.types.tools import Tool

__all__ = ["READING", "Retry"]


class _ToolSession(Protocol):
    @property
    def driver(self) -> Driver:
        """The driver that carries the session."""

    async def tool(self, name: str) -> Tool | None:
        """Return a tool as the server describes it."""


class RetriableCall(Protocol):
    """An ``OutgoingCall``, as far as ``Retry`` needs it."""

    @property
    def method(self) -> str:
        """The method of the request."""

    @property
    def retry(self) -> bool | None:
        """Whether the caller allows it to be sent again."""

    @property
    def session(self) -> _ToolSession:
        """The client."""


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
"""Methods that only read, and so can be repeated."""


class Retry:
    """Retry policy for a client's requests.

    Read-only requests are repeated, those that a closing server did not run, and those whose caller says
    ``retry=True``; never those with ``retry=False``. With
    ``trust_annotations``, calls of tools that the server calls read-only or idempotent are repeated too: that is not
    verified (TOOL-17), and lists the tools before.

    Each attempt has the request's full timeout. The last error is raised. Raises TypeError if ``policy`` is no Backoff.
    """

    policy: Backoff
    """How often to repeat a request, and how long to wait before."""

    def __init__(self, policy: Backoff, *, trust_annotations: bool = False) -> None:
        self.policy = required("policy", policy, Backoff)
        self.trust_annotations = trust_annotations

    async def __call__(self, call: RetriableCall, request: Any, call_next: CallNext) -> Any:
        """Send the request, and repeat it as the policy says."""
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

    async def _delay(self, call: RetriableCall, request: Any, attempt: int, error: McpError) -> float | None:
        chance = 0.0
        if self.policy.jitter:
            chance = int.from_bytes(call.session.driver.runtime.entropy(6), "big") / 2**48
        delay = self.policy.next_delay(attempt, error, chance=chance)
        return delay if delay is not None and await self._may_repeat(call, request, error) else None

    async def _may_repeat(self, call: RetriableCall, request: Any, error: McpError) -> bool:
        if call.retry is not None:
            return call.retry
        if call.method in READING or (isinstance(error, RequestError) and error.is_closing()):
            return True
        return self.trust_annotations and isinstance(request, CallToolRequest) and await _is_harmless(call, request)


async def _is_harmless(call: RetriableCall, request: CallToolRequest) -> bool:
    """Whether the server says that calling a tool twice has the effect of calling it once."""
    try:
        tool = await call.session.tool(request.name)
    except McpError:
        return False
    hints = None if tool is None else tool.annotations
    return hints is not None and (hints.read_only_hint is True or hints.idempotent_hint is True)
