"""Middleware that limits how large requests and results may be, in bytes of JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from mcpio._checks import is_count
from mcpio.app.middleware.limiting import checked_methods
from mcpio.codec import codec
from mcpio.errors import Refusal
from mcpio.framing.json import dumps
from mcpio.refusals import RefusalCode
from mcpio.revisions import REVISIONS, Revision
from mcpio.types._fields import Payload
from mcpio.types.content import TextContent
from mcpio.types.tools import CallToolResult

if TYPE_CHECKING:
    from mcpio.app.contracts import CallNext

__all__ = ["SizeLimit"]


class SizeLimit:
    """Middleware: refuses requests and results that are too large.

    A tool's result that is too large becomes one with ``is_error`` that names its size, so that the model can ask for
    less. All else is refused with 1068.

    Args:
        results: The most bytes of JSON that a result may have; ``None`` for no limit.
        requests: The same of a request's parameters.
        methods: The methods that are limited, one or several; ``None`` for all.

    Raises:
        ValueError: A limit is below 1, or there is none.
        TypeError: ``methods`` is of the wrong type.

    """

    def __init__(
        self, results: int | None = None, *, requests: int | None = None, methods: Collection[str] | None = None
    ) -> None:
        for name, limit in (("results", results), ("requests", requests)):
            if limit is not None and not is_count(limit, 1):
                raise ValueError(f"{name}= takes a number of bytes, 1 or more, not {limit!r:.60}")
        if results is None and requests is None:
            raise ValueError("SizeLimit limits nothing: give results= or requests=")
        self._results = results
        self._requests = requests
        self._methods = checked_methods(methods)

    async def __call__(self, ctx: Any, request: Any, call_next: CallNext) -> Any:
        """Pass the request on, and its result back, unless one is too large."""
        if self._methods is not None and ctx.method not in self._methods:
            return await call_next(request)
        revision = _revision_of(ctx)
        if self._requests is not None and (size := _size(request, revision)) > self._requests:
            raise Refusal(RefusalCode.MESSAGE_TOO_LARGE, f"The request is too large: {_said(size, self._requests)}")
        result = await call_next(request)
        if self._results is None or (size := _size(result, revision)) <= self._results:
            return result
        text = f"The result is too large: {_said(size, self._results)}"
        if isinstance(result, CallToolResult):
            return CallToolResult((TextContent(f"{text} Ask for less."),), is_error=True)
        raise Refusal(RefusalCode.MESSAGE_TOO_LARGE, text)


def _revision_of(ctx: Any) -> Revision:
    """Return the revision of a request that is served, or sent by a client."""
    peer = getattr(ctx, "peer", None)
    found: Revision | None = ctx.session.connection.revision if peer is None else peer.revision
    return REVISIONS[-1] if found is None else found


def _size(value: Any, revision: Revision) -> int:
    """Return the bytes of JSON of a request or result; 0 for the questions of a handler, which are no result yet."""
    if isinstance(value, Payload):
        return len(dumps(codec(revision).encode(value)))
    return len(dumps(value)) if isinstance(value, Mapping) else 0


def _said(size: int, limit: int) -> str:
    return f"{size:,} bytes, where at most {limit:,} are allowed."
