from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from linked import Link

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from trio.testing import MockClock, memory_stream_pair

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.telemetry import Telemetry
from mcpio.trio import memory_client, open_transport, serve
from mcpio.types import CustomRequest, RawRequest


class Bench:
    """Telemetry that ends up here, and a server."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(
            tracer_provider=self.provider,
            meter_provider=MeterProvider([self.reader]),
            propagator=TraceContextTextMapPropagator(),
            **options,
        )
        self.server = Server("s")
        self.server.middleware(self.telemetry)
        self.seen: list[Any] = []

        @self.server.tool
        async def work(ctx: Context) -> int:
            self.seen.append(ctx.meta)
            self.provider.get_tracer("inside").start_span("inside").end()
            await trio.sleep(0.3)
            return 1

        @self.server.tool
        def fail() -> None:
            raise RuntimeError("secret")

        @self.server.tool
        def refuse() -> None:
            raise RequestError(-5, "no", {"secret": 1})

        async def act(ctx: Any, request: Any) -> dict[str, Any]:
            self.seen.append(ctx.meta)
            return {}

        self.server.handlers["acme/act"] = act

        async def broken(ctx: Any, request: Any) -> dict[str, Any]:
            raise ValueError("x")

        self.server.handlers["acme/broken"] = broken

    def run(self, body: Callable[[Any], Awaitable[None]]) -> None:
        async def main() -> None:
            async with memory_client(
                self.server, middleware=[self.telemetry], tap=self.telemetry.tap, era="handshake"
            ) as client:
                await body(client)

        trio.run(main, clock=MockClock(autojump_threshold=0))

    def spans(self) -> dict[Any, Any]:
        return {(span.name, span.kind): span for span in self.exporter.get_finished_spans()}

    def metrics(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        data: Any = self.reader.get_metrics_data()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            found[metric.name] = list(metric.data.data_points)
        return found


@pytest.mark.req("ENV-08")
def test_call_is_one_trace_on_both_sides() -> None:
    bench = Bench(attributes={"network.transport": "pipe"})

    async def body(client: Any) -> None:
        await client.call_tool("work")

    bench.run(body)
    spans = bench.spans()
    asked, served = spans["tools/call work", SpanKind.CLIENT], spans["tools/call work", SpanKind.SERVER]
    assert served.parent.span_id == asked.context.span_id
    assert spans["inside", SpanKind.INTERNAL].parent.span_id == served.context.span_id
    assert set(bench.seen[0]) == {"traceparent"}
    assert dict(asked.attributes) == {
        "network.transport": "pipe",
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "work",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-11-25",
    }
    assert dict(served.attributes) == {
        **asked.attributes,
        "jsonrpc.request.id": served.attributes["jsonrpc.request.id"],
    }
    assert served.status.status_code is StatusCode.UNSET


def test_metrics_of_a_session() -> None:
    bench = Bench()

    async def body(client: Any) -> None:
        await client.call_tool("work")

    bench.run(body)
    found = bench.metrics()
    (point,) = found["mcp.server.operation.duration"]
    assert (point.count, round(point.sum, 3)) == (1, 0.3)
    assert point.attributes["gen_ai.tool.name"] == "work"
    assert "jsonrpc.request.id" not in point.attributes
    assert len(found["mcp.client.operation.duration"]) >= 1
    assert found["mcp.client.session.duration"][0].count == 1
    assert {each.value for each in found["mcpio.requests.active"]} == {0}
    sizes = {each.attributes["network.io.direction"]: each.value for each in found["mcpio.io"]}
    assert sizes["transmit"] > 100
    assert sizes["receive"] > 100


def test_held_memory_counted_while_a_call_runs() -> None:
    bench = Bench()
    during: list[Any] = []

    @bench.server.tool
    async def report(ctx: Context) -> None:
        ctx.progress(1)
        await trio.sleep(1)

    def look(*_: object) -> None:
        during.extend(bench.metrics()["mcpio.held"])

    async def main() -> None:
        here, there = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve, bench.server, there, tap=bench.telemetry.tap))
            async with open_transport(here) as client:
                await client.call_tool("report", on_progress=look)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    (point,) = during
    assert point.value > 4096
    assert point.attributes["mcpio.side"] == "server"
    (point,) = bench.metrics()["mcpio.held"]
    assert point.value == 0


def test_unknown_names_share_one_attribute_value() -> None:
    bench = Bench()
    bench.server.prompt(lambda: "text", name="known")

    async def body(client: Any) -> None:
        await client.call_tool("work")
        for number in range(3):
            for method in ("tools/call", "prompts/get"):
                with pytest.raises(RequestError):
                    await client.request(RawRequest(method, {"name": f"made-up-{number}"}))

    bench.run(body)
    served = [span for span in bench.spans().values() if span.kind is SpanKind.SERVER]
    assert "made-up" not in "".join(f"{span.name} {dict(span.attributes)}" for span in served)
    points = [each.attributes for each in bench.metrics()["mcp.server.operation.duration"]]
    assert {each.get("gen_ai.tool.name") for each in points} == {None, "work", "_OTHER"}
    assert {each.get("gen_ai.prompt.name") for each in points} == {None, "_OTHER"}


def test_failures_have_distinct_error_types() -> None:
    bench = Bench()

    async def body(client: Any) -> None:
        await client.call_tool("fail")
        for request in (RawRequest("tools/call", {"name": "refuse"}), CustomRequest("acme/broken")):
            with pytest.raises(RequestError):
                await client.request(request)

    bench.run(body)
    spans = bench.spans()
    failed = spans["tools/call fail", SpanKind.SERVER]
    assert (failed.attributes["error.type"], failed.status.status_code) == ("tool_error", StatusCode.ERROR)
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        refused = spans["tools/call refuse", kind]
        assert refused.attributes["error.type"] == refused.attributes["rpc.response.status_code"] == "-5"
        assert (refused.status.status_code, refused.status.description) == (StatusCode.ERROR, "no")
        assert refused.events == ()
    broken = spans["acme/broken", SpanKind.SERVER]
    assert broken.attributes["error.type"] == "ValueError"
    assert [event.name for event in broken.events] == ["exception"]
    assert spans["acme/broken", SpanKind.CLIENT].attributes["error.type"] == "-32603"


def test_unknown_attributes_are_left_out() -> None:
    bench = Bench()
    link = Link(bench.server, shake_hands=False, middleware=[bench.telemetry])
    with pytest.raises(LocalProtocolError):
        link.do(link.client.ping())
    assert "mcp.protocol.version" not in bench.spans()["ping", SpanKind.CLIENT].attributes
    link.do(link.client.initialize())
    with pytest.raises(RequestError):
        link.do(link.client.request(RawRequest("tools/call", {"name": 5})))
    assert "gen_ai.tool.name" not in bench.spans()["tools/call", SpanKind.CLIENT].attributes


def test_cancelled_call_ends_both_spans() -> None:
    bench = Bench()

    async def body(client: Any) -> None:
        with trio.move_on_after(0.1):
            await client.call_tool("work")
        await client.ping()

    bench.run(body)
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        assert bench.spans()["tools/call work", kind].attributes["error.type"] == "cancelled"


def test_incoming_context_links_the_surrounding_span() -> None:
    bench = Bench()
    remote = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def main() -> None:
        tracer = bench.provider.get_tracer("around")
        with tracer.start_as_current_span("around"):
            async with memory_client(bench.server) as client:
                await client.call_tool("work", meta={"traceparent": remote, "n": 5})
                await client.call_tool("work")

    trio.run(main, clock=MockClock(autojump_threshold=0))
    around = bench.spans()["around", SpanKind.INTERNAL]
    first, second = (span for span in bench.exporter.get_finished_spans() if span.kind is SpanKind.SERVER)
    assert trace.format_span_id(first.parent.span_id) == "00f067aa0ba902b7"  # type: ignore[union-attr]  # it has one
    assert [link.context.span_id for link in first.links] == [around.context.span_id]
    assert second.parent is not None
    assert (second.parent.span_id, second.links) == (around.context.span_id, ())


def test_call_without_a_trace_adds_nothing_to_meta() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.meta)

    async def main() -> None:
        async with memory_client(server, middleware=[Telemetry()], era="handshake") as client:
            await client.call_tool("look", meta={"a": 1})

    trio.run(main)
    assert seen == [{"a": 1}]


def test_server_request_has_a_span_on_the_client() -> None:
    bench = Bench()

    @bench.server.tool
    async def roots(ctx: Context) -> int:
        return len(await ctx.roots())

    async def main() -> None:
        async with memory_client(
            bench.server, roots=[], handler_middleware=[bench.telemetry], era="handshake"
        ) as client:
            await client.call_tool("roots")

    trio.run(main)
    assert ("roots/list", SpanKind.SERVER) in bench.spans()


def test_broken_session_sets_the_error_type() -> None:
    bench = Bench()

    async def main() -> None:
        here, there = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: serve(bench.server, there, tap=bench.telemetry.tap))
            async with open_transport(here, era="handshake") as client:
                await client.ping()
                there.send_stream.close()
                there.receive_stream.close()
                here.receive_stream.close()

    trio.run(main)
    found = bench.metrics()["mcp.server.session.duration"]
    assert len(found) == 1


def test_channel_messages_are_counted_in_bytes() -> None:
    bench = Bench()
    tap = bench.telemetry.tap()
    tap.message_received("é".encode(), None, 0.0)
    (point,) = bench.metrics()["mcpio.io"]
    assert point.value == 2
