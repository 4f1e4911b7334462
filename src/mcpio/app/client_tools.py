"""A client's view of its server's tools: a cached list, and checks of results against output schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from mcpio.app.schema.validation import SchemaError, Validator
from mcpio.errors import InvalidMessage

if TYPE_CHECKING:
    from mcpio.app.runtime import OneShot, Runtime
    from mcpio.types.tools import CallToolResult, Tool

__all__ = ["MOST_TOOLS", "CheckResults", "ResultChecks", "ToolCache"]


MOST_TOOLS: Final = 10_000
"""How many tools of one server are cached. Those after them in the list count as unknown (P6)."""
_WALKS: Final = 3
"""How often one caller repeats the listing because the list changed, before it uses an outdated one."""


class ToolCache:
    """The server's tools by name, from every list that it sent. Concurrent calls share one listing."""

    version: int
    """How often the list was dropped: pass it to ``learn``, as it was when the list was requested."""

    def __init__(
        self, runtime: Runtime, walk: Callable[[], AsyncIterator[Tool]], announces: Callable[[], bool]
    ) -> None:
        """``walk`` lists all tools. ``announces`` returns whether the server reports changes of the list now."""
        self._runtime = runtime
        self._walk = walk
        self._announces = announces
        self._tools: dict[str, Tool] = {}
        self._is_complete = False
        self.version = 0
        self._waiting: list[OneShot] | None = None

    async def tool(self, name: str) -> Tool | None:
        """Return a tool as the server describes it now, or ``None`` if the server does not list it.

        The list is requested if the name is in none so far, if it has changed, and, of a server that does not report
        changes, if the name is not in it. Raises what listing the tools raises.
        """
        if self._is_complete and name not in self._tools and not self._announces():
            self.forget()
        walks = 0
        while name not in self._tools and not self._is_complete:
            if self._waiting is not None:
                await self._turn(self._waiting)
                continue
            found = await self._fill()
            walks += 1
            if walks == _WALKS:
                return found.get(name)
        return self._tools.get(name)

    def at_hand(self, name: str) -> Tool | None:
        """Return a tool that a list has shown, without a request."""
        return self._tools.get(name)

    def learn(self, tools: Sequence[Tool], version: int) -> None:
        """Record one page of the list, unless the list was dropped since it was requested."""
        if version == self.version:
            for tool in reversed(tools):  # of two with one name the first counts
                if tool.name in self._tools or len(self._tools) < MOST_TOOLS:
                    self._tools[tool.name] = tool

    def forget(self) -> None:
        """Drop the list. Called on ``notifications/tools/list_changed``."""
        self._tools, self._is_complete = {}, False
        self.version += 1

    async def _turn(self, waiting: list[OneShot]) -> None:
        """Wait until the task that requests the list has it, or has failed."""
        turn = self._runtime.one_shot()
        waiting.append(turn)
        await turn.wait()

    async def _fill(self) -> dict[str, Tool]:
        """Request the list, and cache it unless it changed in the meantime."""
        self._waiting = []
        version = self.version
        try:
            found = await self._listed()
        finally:
            waiting, self._waiting = self._waiting, None
            for turn in waiting:
                turn.set(None)
        if version == self.version:
            self._tools, self._is_complete = found, True
        return found

    async def _listed(self) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        async for tool in self._walk():
            found.setdefault(tool.name, tool)
            if len(found) >= MOST_TOOLS:
                break
        return found


CheckResults: TypeAlias = Literal["raise", "report"]
"""The policy for a result that breaks its output schema: raise ``InvalidMessage``, or report it."""


class ResultChecks:
    """Checks structured results against the output schemas of their tools. A schema is compiled at its first use.

    The schemas are the server's, and so untrusted: see ``Validator``. An unusable schema is reported once, and its
    tool's results are not checked (SCHEMA-03). Raises ValidatorMissing without the package jsonschema.
    """

    def __init__(self, policy: CheckResults, report: Callable[[str], object]) -> None:
        if policy not in ("raise", "report"):
            raise ValueError(f'check_results is "raise" or "report", not {policy!r:.100}')
        Validator({})  # raises early, rather than at the first result
        self._policy = policy
        self._report = report
        self._validators: dict[str, tuple[Tool, Validator | None]] = {}

    def check(self, tool: Tool, result: CallToolResult) -> None:
        """Check a result. A failure need not fit the schema (TOOL-13)."""
        if tool.output_schema is None or result.is_error:
            return
        try:
            self._compare(tool, result)
        except InvalidMessage as error:
            if self._policy == "raise":
                raise
            self._report(f"the result of the tool {tool.name!r:.100} breaks its output schema: {error}")
        except SchemaError as error:
            self._report(f"the result of the tool {tool.name!r:.100} cannot be checked: {error}")

    def _compare(self, tool: Tool, result: CallToolResult) -> None:
        if not result.has_structured_content:
            raise InvalidMessage("structuredContent", "missing, though the tool declares an output schema")
        validator = self._validator(tool)
        if validator is not None:
            validator.validate(result.structured_content, "structuredContent")

    def _validator(self, tool: Tool) -> Validator | None:
        known = self._validators.get(tool.name)
        if known is not None and known[0] is tool:
            return known[1]
        self._validators[tool.name] = tool, None
        validator = Validator(tool.output_schema or {}, trusted=False)
        self._validators[tool.name] = tool, validator
        return validator
