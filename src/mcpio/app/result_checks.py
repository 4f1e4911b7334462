"""What a server's tools return, compared with what they promised (TOOL-14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from mcpio.app.values.validation import SchemaError, Validator
from mcpio.errors import InvalidMessage

if TYPE_CHECKING:
    from mcpio.types.tools import CallToolResult, Tool

__all__ = ["CheckResults", "ResultChecks"]

CheckResults: TypeAlias = Literal["raise", "report"]
"""What to do about a result that breaks its tool's output schema: raise ``InvalidMessage``, or report it."""


class ResultChecks:
    """Checks structured results against the output schemas of their tools, each looked at when it is first used.

    The schemas come from the server, so they are not trusted: see ``Validator``. One that cannot be used is reported
    once, and what its tool returns is not checked (SCHEMA-03). ``ValidatorMissing`` without the package jsonschema.
    """

    def __init__(self, policy: CheckResults, report: Callable[[str], object]) -> None:
        if policy not in ("raise", "report"):
            raise ValueError(f'check_results is "raise" or "report", not {policy!r:.100}')
        Validator({})  # says what to install, before there is a result that nobody can check
        self._policy = policy
        self._report = report
        self._validators: dict[str, tuple[Tool, Validator | None]] = {}

    def check(self, tool: Tool, result: CallToolResult) -> None:
        """Check a result; one that tells of a failure has nothing to fulfil (TOOL-13)."""
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
