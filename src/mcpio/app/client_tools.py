"""Tools as a client knows them: cached definitions, header fields and typed results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.validation import SchemaError, Validator
from mcpio.app.schema.values import read_value
from mcpio.errors import ErrorCode, InvalidMessage, RequestError, ToolError
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.http.model import ParamHeader, param_headers
from mcpio.types._fields import MalformedItem
from mcpio.types.content import TextContent
from mcpio.types.features import CallToolRequest, ListToolsResult, Tool

if TYPE_CHECKING:
    from mcpio.app.client import OutgoingCall
    from mcpio.app.contracts import CallNext
    from mcpio.app.runtime import OneShot, Runtime
    from mcpio.app.schema.builder import Converter
    from mcpio.types.features import CallToolResult


# --------------------------------------------------------------------------------------------------------- client tools
# A client's view of its server's tools: a cached list, and checks of results against output schemas.

MOST_TOOLS: Final = 10_000
"""How many tools of one server are cached. Those after them in the list count as unknown (P6)."""
TOOL_BYTES: Final = 16 << 20
"""How many bytes of JSON they may have together."""
_WALKS: Final = 3
"""How often one caller repeats the listing because the list changed, before it uses an outdated one."""


class _Tools(dict[str, Tool]):
    """Tools by name, at most so many and of so many bytes."""

    def __init__(self, size_of: Callable[[Tool], int]) -> None:
        super().__init__()
        self._size_of = size_of
        self._sizes: dict[str, int] = {}
        self._room = TOOL_BYTES

    def put(self, tool: Tool) -> bool:
        """Record a tool in the place of one with its name. Return whether there was room; it is unknown otherwise."""
        self._room += self._sizes.pop(tool.name, 0)
        self.pop(tool.name, None)
        size = self._size_of(tool) if len(self) < MOST_TOOLS else TOOL_BYTES + 1
        if size > self._room:
            return False
        self._room -= size
        self[tool.name], self._sizes[tool.name] = tool, size
        return True


class ToolCache:
    """The server's tools by name, from every list that it sent. Concurrent calls share one listing."""

    version: int
    """How often the list was dropped: pass it to ``learn``, as it was when the list was requested."""

    def __init__(
        self,
        runtime: Runtime,
        walk: Callable[[], AsyncIterator[Tool]],
        announces: Callable[[], bool],
        size_of: Callable[[Tool], int],
    ) -> None:
        """``walk`` lists all tools. ``announces`` returns whether the server reports changes of the list now.

        ``size_of`` returns the bytes of a tool.
        """
        self._runtime = runtime
        self._walk = walk
        self._announces = announces
        self._size_of = size_of
        self._tools = _Tools(size_of)
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
            tools = await self._fill()
            walks += 1
            if walks == _WALKS:
                return tools.get(name)
        return self._tools.get(name)

    def at_hand(self, name: str) -> Tool | None:
        """Return a tool that a list has shown, without a request."""
        return self._tools.get(name)

    def learn(self, tools: Sequence[Tool], version: int, *, is_first: bool = False) -> None:
        """Record one page of the list, unless the list was dropped since it was requested. The first begins it anew."""
        if version == self.version:
            if is_first:
                self._tools, self._is_complete = _Tools(self._size_of), False
            for tool in reversed(tools):  # of two with one name the first counts
                self._tools.put(tool)

    def forget(self) -> None:
        """Drop the list. Called on ``notifications/tools/list_changed``."""
        self._tools, self._is_complete = _Tools(self._size_of), False
        self.version += 1

    async def _turn(self, waiting: list[OneShot]) -> None:
        """Wait until the task that requests the list has it, or has failed."""
        turn = self._runtime.one_shot()
        waiting.append(turn)
        await turn.wait()

    async def _fill(self) -> _Tools:
        """Request the list, and cache it unless it changed in the meantime."""
        self._waiting = []
        version = self.version
        try:
            tools = await self._list_all()
        finally:
            waiting, self._waiting = self._waiting, None
            for turn in waiting:
                turn.set(None)
        if version == self.version:
            self._tools, self._is_complete = tools, True
        return tools

    async def _list_all(self) -> _Tools:
        tools = _Tools(self._size_of)
        async for tool in self._walk():
            if tool.name not in tools and not tools.put(tool):
                break
        return tools


CheckResults: TypeAlias = Literal["raise", "report"]
"""The policy for a result that breaks its output schema: raise ``InvalidMessage``, or report it."""


class ResultChecks:
    """Checks structured results against the output schemas of their tools. A schema is compiled at its first use.

    The schemas are the server's, and so untrusted: see ``Validator``. An unusable schema is reported once, and its
    tool's results are not checked (SCHEMA-03). Raises ValidatorMissing without the package jsonschema.
    """

    def __init__(self, policy: CheckResults, report: Callable[[str], object]) -> None:
        if policy not in ("raise", "report"):
            raise ValueError(f'check_results must be "raise" or "report", not {policy!r:.100}')
        Validator({})  # raises early, rather than at the first result
        self._policy = policy
        self._report = report
        self._validators: dict[str, tuple[Any, Validator | None]] = {}
        self._room = TOOL_BYTES

    def fault(self, tool: Tool, result: CallToolResult) -> InvalidMessage | None:
        """Return how a result breaks its schema; ``None`` if it fits, or the schema is unusable."""
        try:
            self._compare(tool, result)
        except InvalidMessage as error:
            return error
        except SchemaError as error:
            self._report(f"the result of the tool {tool.name!r:.100} cannot be checked: {error}")
        return None

    def check(self, tool: Tool | None, result: CallToolResult) -> None:
        """Check a result, unless the server lists its tool no more."""
        if tool is None or (fault := self.fault(tool, result)) is None:
            return
        if self._policy == "raise":
            raise fault
        self._report(f"the result of the tool {tool.name!r:.100} breaks its output schema: {fault}")

    def _compare(self, tool: Tool, result: CallToolResult) -> None:
        if tool.output_schema is None or result.is_error:
            return  # a failure need not fit the schema (TOOL-13)
        if not result.has_structured_content:
            raise InvalidMessage("structuredContent", "missing, though the tool declares an output schema")
        validator = self._validator(tool)
        if validator is not None:
            validator.validate(result.structured_content, "structuredContent")

    def _validator(self, tool: Tool) -> Validator | None:
        schema: Any = tool.output_schema
        cached = self._validators.get(tool.name)
        if cached is not None and cached[0] is schema:
            return cached[1]
        size = len(dumps(schema))
        if size > self._room:  # forget all: a server may describe each of its tools anew
            self._validators, self._room = {}, TOOL_BYTES
        self._room -= size
        self._validators[tool.name] = schema, None
        validator = Validator(schema, trusted=False)
        self._validators[tool.name] = schema, validator
        return validator


# --------------------------------------------------------------------------------------------------------- tool headers
# The header fields that repeat arguments of tools, as a client over HTTP learns them from lists (HDR-06, HDR-10).


HEADER_BYTES: Final = 4 << 20
"""About how many bytes of annotated properties of all tools of one server are remembered."""


class ToolHeaders:
    """The layer around a client's requests that learns headers from lists of tools, and lists them when it must."""

    def __init__(self) -> None:
        self._headers: dict[str, tuple[ParamHeader, ...]] = {}
        self._room = HEADER_BYTES

    def of(self, name: str) -> tuple[ParamHeader, ...]:
        """Return the annotated arguments of a tool; none for a tool that was not listed."""
        return self._headers.get(name, ())

    async def __call__(self, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        """Send the request. A call that is refused for its headers is sent again after a look at the list, once."""
        try:
            result = await call_next(request)
        except RequestError as error:
            if error.code != ErrorCode.HEADER_MISMATCH or not isinstance(request, CallToolRequest):
                raise
            self._headers, self._room = {}, HEADER_BYTES
            async for _ in call.session.tools(fresh=True):
                pass
            return await call_next(request)
        return self._learn_headers(result) if isinstance(result, ListToolsResult) else result

    def _learn_headers(self, page: ListToolsResult) -> ListToolsResult:
        """Return a page without the tools whose annotations break a rule; they are ``malformed`` (HDR-06)."""
        tools: list[Tool] = []
        broken: list[MalformedItem] = []
        for index, tool in enumerate(page.tools):
            try:
                headers = param_headers(tool.input_schema)
            except ValueError as error:
                broken.append(MalformedItem(index, {"name": tool.name}, str(error)))
                continue
            tools.append(tool)
            self._room += _header_bytes(tool.name, self._headers.pop(tool.name, ()))
            size = _header_bytes(tool.name, headers)
            if headers and size <= self._room:
                self._headers[tool.name] = headers
                self._room -= size
        return attrs.evolve(page, tools=tuple(tools), malformed=(*page.malformed, *broken)) if broken else page


def _header_bytes(name: str, headers: tuple[ParamHeader, ...]) -> int:
    """Return about how many bytes the annotated properties of a tool take; 0 without any."""
    return sum(100 + len(name) + len(header.name) + sum(8 + len(key) for key in header.path) for header in headers)


# -------------------------------------------------------------------------------------------------------- typed results
# Results of tools as values of types that the caller names: ``returns=`` and ``CallToolResult.into``.

MOST_TYPES: Final = 256
"""How many types are remembered with their converters. Beyond, all are forgotten."""

_WRAPPER: Final = "result"


def result_into(result: CallToolResult, kind: Any) -> Any:
    """Return the value of a result as a type: see ``CallToolResult.into``."""
    if result.is_error:
        raise ToolError(result.text or "the tool failed")
    converter, is_object = _converter(kind)
    where, value = "structuredContent", result.structured_content
    if not result.has_structured_content:
        if kind is str:
            return result.text
        where, value = "content", _json_of(result)
    if not is_object and isinstance(value, Mapping) and value.keys() == {_WRAPPER}:
        # A value that is no object is sent as the only member of one.
        where, value = f"{where}.{_WRAPPER}", value[_WRAPPER]
    return read_value(converter.convert, value, where)


def check_type(kind: Any) -> None:
    """Raise TypeError for a type that no result can be made into."""
    _converter(kind)


def _json_of(result: CallToolResult) -> Any:
    """Return the JSON in the one text block: servers before 2025-06-18 have no structured content."""
    block = result.content[0] if len(result.content) == 1 else None
    if not isinstance(block, TextContent):
        raise InvalidMessage("structuredContent", f"missing, and no single text has the value: {result.content!r:.100}")
    try:
        return loads(block.text)
    except JsonError:
        raise InvalidMessage("structuredContent", f"missing, and the text is no JSON: {block.text!r:.100}") from None


def _converter(kind: Any) -> tuple[Converter, bool]:
    """Return the converter of a type, and whether its values are objects. Raises TypeError for other types."""
    try:
        converter = _converters.get(kind)
    except TypeError:
        return _make_reader(kind)  # it cannot be hashed, such as Annotated with a list
    if converter is None:
        if len(_converters) >= MOST_TYPES:
            _converters.clear()
        converter = _converters[kind] = _make_reader(kind)
    return converter


def _make_reader(kind: Any) -> tuple[Converter, bool]:
    builder = SchemaBuilder("returns=")
    converter = builder.converter(kind)
    return converter, builder.complete(converter.schema).get("type") == "object"


_converters: Final[dict[Any, tuple[Converter, bool]]] = {}
