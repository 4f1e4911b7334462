"""OpenTelemetry: spans and metrics for requests both ways, and trace context that travels in ``_meta``.

Needs the extra ``mcpio[opentelemetry]``, which installs OpenTelemetry's API; the program sets up an SDK that exports
the data. Names follow OpenTelemetry's semantic conventions for MCP, which are still in development::

    telemetry = Telemetry()
    server.middleware(telemetry)                        # a span for each request served
    await serve(server, stream, tap=telemetry.tap)      # bytes, sessions, memory held

    async with open_stdio(command, middleware=[telemetry], tap=telemetry.tap) as client: ...

Arguments and results may be secret and are never recorded. The message of an error response is, and so are the message
and the traceback of an exception that a handler did not mean to raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio._extras import extra
from mcpio.app.client import OutgoingCall
from mcpio.engine.connection import Connection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Role
from mcpio.errors import RequestError
from mcpio.events import ConnectionClosed, Event
from mcpio.observe.tap import Tap
from mcpio.types.base import CustomRequest, RawRequest

with extra("opentelemetry", "mcpio.telemetry"):
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator

    from mcpio.app.middleware import CallNext

__all__ = ["Telemetry"]

_BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Histogram boundaries in seconds, as the conventions give them."""
_NAMED_BY: Final[Mapping[str, tuple[str, str]]] = {
    "tools/call": ("name", "gen_ai.tool.name"),
    "prompts/get": ("name", "gen_ai.prompt.name"),
    "resources/read": ("uri", "mcp.resource.uri"),
    "resources/subscribe": ("uri", "mcp.resource.uri"),
    "resources/unsubscribe": ("uri", "mcp.resource.uri"),
}
"""By method: the parameter that names the target, and the attribute that records it."""
_REGISTRIES: Final = {"gen_ai.tool.name": "tools", "gen_ai.prompt.name": "prompts"}
"""By attribute: the server's registry of valid values."""
_OTHER: Final = "_OTHER"
"""The conventions' value for an unknown value."""
_NOT_IN_METRICS: Final = ("mcp.resource.uri", "jsonrpc.request.id", "mcp.session.id")
"""Attributes with too many different values for metrics."""


class Telemetry:
    """Middleware that traces and measures requests, both served and sent.

    Providers and the propagator default to the global ones. ``attributes`` are set on every span and metric:
    ``{"network.transport": "pipe"}`` over stdio, ``server.address`` and ``server.port`` elsewhere. Add it as the
    outermost middleware, so that it measures the others too.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        attributes: Mapping[str, str | int] | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("mcpio", tracer_provider=tracer_provider)
        meter = metrics.get_meter("mcpio", meter_provider=meter_provider)
        self._propagator = propagator
        self._attributes: dict[str, Any] = dict(attributes or {})
        self._durations = {
            kind: meter.create_histogram(
                f"mcp.{side}.operation.duration", "s", explicit_bucket_boundaries_advisory=_BUCKETS
            )
            for kind, side in ((SpanKind.CLIENT, "client"), (SpanKind.SERVER, "server"))
        }
        self._sessions = {
            role: meter.create_histogram(
                f"mcp.{role.value}.session.duration", "s", explicit_bucket_boundaries_advisory=_BUCKETS
            )
            for role in Role
        }
        self._active = meter.create_up_down_counter("mcpio.requests.active", "{request}", "Requests in flight")
        self._bytes = meter.create_counter("mcpio.io", "By", "Bytes of messages")
        self._held = meter.create_up_down_counter("mcpio.held", "By", "Memory held for peers")

    def tap(self) -> Tap:
        """Return a tap for one connection: it measures bytes, memory held for the peer, and the session's duration."""
        return _SessionTap(self._attributes, self._sessions, self._bytes, self._held)

    async def __call__(self, scope: Any, request: Any, call_next: CallNext) -> Any:
        """Middleware entry point."""
        if isinstance(scope, OutgoingCall):
            return await self._send(scope, request, call_next)
        return await self._serve(scope, request, call_next)

    async def _send(self, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        attributes = {**self._attributes, **_attributes_of(call.method, request)}
        revision = call.session.connection.revision
        if revision is not None:
            attributes["mcp.protocol.version"] = revision.name
        with self._tracer.start_as_current_span(
            _name(attributes),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            self._textmap.inject(carrier)
            return await self._timed(call, span, attributes, SpanKind.CLIENT, call_next, _with_meta(request, carrier))

    async def _serve(self, scope: Any, request: Any, call_next: CallNext) -> Any:
        attributes = {**self._attributes, **_attributes_of(scope.method, request)}
        _hide_unknown(attributes, scope)
        attributes["mcp.protocol.version"] = scope.peer.revision.name
        attributes["jsonrpc.request.id"] = str(scope.raw["id"])
        carrier = {name: value for name, value in scope.meta.items() if isinstance(value, str)}
        ambient = trace.get_current_span().get_span_context()
        parent: Context = self._textmap.extract(carrier, contexts.get_current())
        differs = trace.get_current_span(parent).get_span_context() != ambient
        links = [Link(ambient)] if ambient.is_valid and differs else []
        token = contexts.attach(parent)
        try:
            with self._tracer.start_as_current_span(
                _name(attributes),
                kind=SpanKind.SERVER,
                attributes=attributes,
                links=links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                return await self._timed(scope, span, attributes, SpanKind.SERVER, call_next, request)
        finally:
            contexts.detach(token)

    # A RequestError is a response that the handler chose, not a crash, so spans are told not to record exceptions
    # automatically; this method records the others.
    async def _timed(
        self, scope: Any, span: Span, attributes: dict[str, Any], kind: SpanKind, call_next: CallNext, request: Any
    ) -> Any:
        now = scope.session.driver.now
        counted = {name: value for name, value in attributes.items() if name not in _NOT_IN_METRICS}
        active = {"mcp.method.name": counted["mcp.method.name"], "mcpio.side": kind.name.lower()}
        self._active.add(1, active)
        began = now()
        failure: dict[str, str] = {}
        try:
            result = await call_next(request)
        except Exception as error:
            failure = _failure(error)
            if not isinstance(error, RequestError):
                span.record_exception(error)
            raise
        except BaseException:
            failure = {"error.type": "cancelled"}
            raise
        else:
            failure = {"error.type": "tool_error"} if getattr(result, "is_error", False) is True else {}
            return result
        finally:
            if failure:
                span.set_attributes({name: value for name, value in failure.items() if name != "message"})
                span.set_status(Status(StatusCode.ERROR, failure.pop("message", None)))
            self._durations[kind].record(now() - began, {**counted, **failure})
            self._active.add(-1, active)

    @property
    def _textmap(self) -> TextMapPropagator:
        return self._propagator or propagate.get_global_textmap()


class _SessionTap(Tap):
    """Measures one connection."""

    def __init__(self, attributes: Mapping[str, Any], sessions: Mapping[Role, Any], io: Any, held: Any) -> None:
        self._attributes = attributes
        self._sessions = sessions
        self._bytes = io
        self._held = held
        self._counted = 0
        """The bytes of this connection that are part of the counter ``mcpio.held``."""
        self._connection: Connection | StatelessEngine | None = None
        self._began: float | None = None
        self._role = Role.CLIENT

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Start the clock."""
        self._role, self._began, self._connection = connection.role, now, connection

    def message_received(self, text: bytes, via: Any, now: float) -> None:
        """Count the input."""
        self._count("receive", len(text))

    def message_sent(self, text: bytes, via: Any, now: float) -> None:
        """Count the output."""
        self._count("transmit", len(text))

    def event(self, event: Event, now: float) -> None:
        """Record the duration when the connection closes."""
        if isinstance(event, ConnectionClosed) and self._began is not None:
            self._count_held(0)
            failed = {} if event.cause is None else {"error.type": type(event.cause).__qualname__}
            self._sessions[self._role].record(max(0.0, now - self._began), {**self._attributes, **failed})

    def _count(self, direction: str, size: int) -> None:
        self._bytes.add(size, {"network.io.direction": direction, "mcpio.side": self._role.value})
        if self._connection is not None:
            self._count_held(self._connection.held.total)

    def _count_held(self, total: int) -> None:
        if total != self._counted:
            self._held.add(total - self._counted, {"mcpio.side": self._role.value})
            self._counted = total


def _attributes_of(method: str, request: Any) -> dict[str, Any]:
    """Return the attributes of a request: its method and target, never its arguments."""
    described: dict[str, Any] = {"mcp.method.name": method}
    if method in _NAMED_BY:
        member, attribute = _NAMED_BY[method]
        value = request.params.get(member) if isinstance(request, RawRequest) else getattr(request, member, None)
        if isinstance(value, str):
            described[attribute] = value
    if method == "tools/call":
        described["gen_ai.operation.name"] = "execute_tool"
    return described


def _hide_unknown(attributes: dict[str, Any], scope: Any) -> None:
    """Replace the name of a tool or prompt that the server does not offer.

    Clients choose these names, and each new one would create a set of metrics. An SDK with too many sets merges the
    rest, those of real tools included, into one overflow.
    """
    for attribute, registry in _REGISTRIES.items():
        if attribute in attributes and attributes[attribute] not in getattr(scope.session.server, registry):
            attributes[attribute] = _OTHER


def _name(attributes: Mapping[str, Any]) -> str:
    """Return the name of a span: the method, with the name of a tool or prompt (both have few values)."""
    target = attributes.get("gen_ai.tool.name", attributes.get("gen_ai.prompt.name"))
    method: str = attributes["mcp.method.name"]
    return method if target is None else f"{method} {target}"


def _failure(error: Exception) -> dict[str, str]:
    if isinstance(error, RequestError):
        code = str(error.code)
        return {"error.type": code, "rpc.response.status_code": code, "message": error.message}
    return {"error.type": type(error).__qualname__}


def _with_meta(request: Any, carrier: Mapping[str, str]) -> Any:
    """Return the request with ``carrier`` added to its ``_meta``."""
    if not carrier:
        return request
    if isinstance(request, CustomRequest | RawRequest):
        meta = request.params.get("_meta") or {}
        return attrs.evolve(request, params={**request.params, "_meta": {**meta, **carrier}})
    return attrs.evolve(request, meta={**(request.meta or {}), **carrier})
