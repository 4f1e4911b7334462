"""The header fields that repeat arguments of tools, as a client over HTTP learns them from lists (HDR-06, HDR-10)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from mcpio.app.client_tools import MOST_TOOLS
from mcpio.errors import ErrorCode, RequestError
from mcpio.http.param_headers import ParamHeader, param_headers
from mcpio.types._fields import MalformedItem
from mcpio.types.tools import CallToolRequest, ListToolsResult, Tool

if TYPE_CHECKING:
    from mcpio.app.contracts import CallNext

__all__ = ["HeaderCall", "ToolHeaders"]


class ToolLister(Protocol):
    """A client, as far as its tools can be listed."""

    def tools(self, *, fresh: bool | None = None) -> AsyncIterator[Tool]:
        """Iterate over all tools."""


class HeaderCall(Protocol):
    """An ``OutgoingCall``, as far as the headers of tools need it."""

    @property
    def session(self) -> ToolLister:
        """The client."""


class ToolHeaders:
    """The layer around a client's requests that learns headers from lists of tools, and lists them when it must."""

    def __init__(self) -> None:
        self._headers: dict[str, tuple[ParamHeader, ...]] = {}

    def of(self, name: str) -> tuple[ParamHeader, ...]:
        """Return the annotated arguments of a tool; none for a tool that was not listed."""
        return self._headers.get(name, ())

    async def __call__(self, call: HeaderCall, request: Any, call_next: CallNext) -> Any:
        """Send the request. A call that is refused for its headers is sent again after a look at the list, once."""
        try:
            result = await call_next(request)
        except RequestError as error:
            if error.code != ErrorCode.HEADER_MISMATCH or not isinstance(request, CallToolRequest):
                raise
            self._headers.clear()
            async for _ in call.session.tools(fresh=True):
                pass
            return await call_next(request)
        return self._learned(result) if isinstance(result, ListToolsResult) else result

    def _learned(self, page: ListToolsResult) -> ListToolsResult:
        """Return a page without the tools whose annotations break a rule; they are ``malformed`` (HDR-06)."""
        kept: list[Tool] = []
        broken: list[MalformedItem] = []
        for index, tool in enumerate(page.tools):
            try:
                headers = param_headers(tool.input_schema)
            except ValueError as error:
                broken.append(MalformedItem(index, {"name": tool.name}, str(error)))
                continue
            kept.append(tool)
            if headers and (tool.name in self._headers or len(self._headers) < MOST_TOOLS):
                self._headers[tool.name] = headers
            elif not headers:
                self._headers.pop(tool.name, None)
        return attrs.evolve(page, tools=tuple(kept), malformed=(*page.malformed, *broken)) if broken else page
