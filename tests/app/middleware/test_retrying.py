from __future__ import annotations

from typing import Any

import pytest
from linked import Ask, Link

from mcpio.app.context import Context
from mcpio.app.middleware.policies import READING, Retry
from mcpio.app.server import Server
from mcpio.backoff import Backoff
from mcpio.errors import ConnectionLost, NoBackChannel, Refusal, RequestError, RequestTimeout
from mcpio.methods import METHODS, Kind
from mcpio.refusals import RefusalCode
from mcpio.types import CallToolResult, ToolAnnotations

BUSY = Refusal(RefusalCode.DEPENDENCY_UNAVAILABLE)


class Unsteady:
    """A server that fails so many times, or for ever, and when it was asked."""

    def __init__(self, *failures: Exception, annotations: ToolAnnotations | None = None) -> None:
        self.at: list[float] = []
        self.listed = 0
        self._failures = list(failures)
        self.server = Server("s", middleware=[self._fail])
        self.server.tool(self.work, annotations=annotations)
        self.server.prompt(lambda: "hi", name="hi")

    async def work(self, ctx: Context) -> str:
        return "done"

    async def _fail(self, ctx: Context, request: Any, call_next: Any) -> Any:
        if ctx.method == "tools/list" and request.cursor is None:
            self.listed += 1
        if ctx.method in ("prompts/get", "tools/call"):
            self.at.append(ctx.session.driver.now())
            if self._failures:
                raise self._failures.pop(0)
        return await call_next(request)


def after(link: Link, ask: Ask[Any], seconds: float = 60) -> Any:
    link.advance(seconds)
    return ask.result


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a35_only_reading_requests_are_retried_by_default(method: str) -> None:
    said = METHODS[method]
    verb = method.rsplit("/", maxsplit=1)[-1]
    reads = said.kind is Kind.REQUEST and verb in ("list", "read", "get", "ping", "complete", "result")
    assert (method in READING) is (reads and method != "roots/list")


def test_a36_a_client_tries_again_after_100_200_and_400_ms() -> None:
    peer = Unsteady(BUSY, BUSY, BUSY)
    link = Link(peer.server, retry=Backoff())
    ask = link.start(link.client.get_prompt("hi"))
    assert (peer.at, ask.state) == ([0.0], "waits")
    assert after(link, ask).messages
    assert peer.at == pytest.approx([0, 0.1, 0.3, 0.7])


def test_exhausted_retries_raise_the_last_error() -> None:
    peer = Unsteady(BUSY, BUSY, BUSY, Refusal(RefusalCode.RATE_LIMIT_EXCEEDED), BUSY)
    link = Link(peer.server, retry=Backoff())
    with pytest.raises(RequestError, match="Rate limit exceeded"):
        after(link, link.start(link.client.get_prompt("hi")))
    assert len(peer.at) == 4


def test_a37_a_client_backs_off_after_1056_and_1080_for_retry_after() -> None:
    peer = Unsteady(Refusal(1056, retry_after=2), Refusal(1080), Refusal(1059))
    link = Link(peer.server, retry=Backoff())
    with pytest.raises(RequestError, match="Quota limit exceeded"):
        after(link, link.start(link.client.get_prompt("hi")))
    assert peer.at == pytest.approx([0, 2, 2.2])


def test_h_error_recovery_patterns_recovered_server_causes_no_report() -> None:
    peer = Unsteady(Refusal(RefusalCode.CIRCUIT_BREAKER_OPEN, retry_after=1))
    link = Link(peer.server, retry=Backoff())
    assert after(link, link.start(link.client.get_prompt("hi"))).messages
    assert not link.reports


def test_jitter_of_a_retry_uses_the_entropy_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Unsteady(BUSY, BUSY)
    link = Link(peer.server, retry=Backoff(jitter=1))
    drawn: list[int] = []

    def half(size: int) -> bytes:
        drawn.append(size)
        return b"\x80" + bytes(size - 1)

    monkeypatch.setattr(link.runtime, "entropy", half)
    assert after(link, link.start(link.client.get_prompt("hi"))).messages
    assert peer.at == pytest.approx([0, 0.05, 0.15])
    assert len(drawn) == 2


@pytest.mark.parametrize(("retry", "tries"), [(None, 1), (False, 1), (True, 2)])
def test_a35_a_tool_call_is_retried_only_on_request(retry: bool | None, tries: int) -> None:
    peer = Unsteady(BUSY)
    link = Link(peer.server, retry=Backoff())
    ask = link.start(link.client.call_tool("work", retry=retry))
    link.advance(1)
    assert len(peer.at) == tries
    assert isinstance(ask.error, RequestError) is (tries == 1)


def test_a_tool_that_may_be_a_task_is_called_again_too() -> None:
    peer = Unsteady(BUSY)
    peer.server.tool(peer.work, name="either", task_support="optional")
    link = Link(peer.server, retry=Backoff(), era="handshake")
    assert link.do(link.client.tool("either"))
    assert after(link, link.start(link.client.call_tool("either", retry=True))).content
    assert len(peer.at) == 2


def test_retry_false_prevents_the_retry_of_a_read_only_request() -> None:
    peer = Unsteady(BUSY)
    link = Link(peer.server, retry=Backoff())
    with pytest.raises(RequestError):
        link.do(link.client.get_prompt("hi", retry=False))


@pytest.mark.parametrize("data", [{"retryable": True}, {"retryable": True, "retry_after": 0}])
def test_retries_end_with_the_policy_though_the_error_is_retryable(data: Any) -> None:
    peer = Unsteady(*[RequestError(-32601, "no such prompt", data)] * 1000)
    link = Link(peer.server, retry=Backoff(tries=5))
    with pytest.raises(RequestError, match="no such prompt"):
        after(link, link.start(link.client.get_prompt("hi")))
    assert len(peer.at) == 6


def test_endless_retry_after_raises_the_error_at_once() -> None:
    peer = Unsteady(Refusal(1056, retry_after=1e300))
    link = Link(peer.server, retry=Backoff())
    with pytest.raises(RequestError, match="Rate limit exceeded"):
        link.do(link.client.get_prompt("hi"))


def test_without_a_policy_nothing_is_sent_again() -> None:
    peer = Unsteady(BUSY)
    link = Link(peer.server)
    with pytest.raises(RequestError):
        link.do(link.client.call_tool("work", retry=True))
    assert len(peer.at) == 1


@pytest.mark.parametrize(
    ("annotations", "tries"),
    [
        (ToolAnnotations(read_only_hint=True), 2),
        (ToolAnnotations(idempotent_hint=True), 2),
        (ToolAnnotations(read_only_hint=False, destructive_hint=False), 1),
        (None, 1),
    ],
)
@pytest.mark.parametrize("trusting", [True, False])
@pytest.mark.req("TOOL-17")
def test_annotations_count_only_where_they_are_trusted(
    annotations: ToolAnnotations | None, tries: int, trusting: bool
) -> None:
    peer = Unsteady(BUSY, annotations=annotations)
    link = Link(peer.server, middleware=[Retry(Backoff(), trust_annotations=trusting)])
    ask: Ask[CallToolResult] = link.start(link.client.call_tool("work"))
    link.advance(1)
    assert len(peer.at) == (tries if trusting else 1)
    assert (ask.state == "returned") is (trusting and tries == 2)
    assert peer.listed == trusting


def test_a_tool_that_is_not_listed_is_not_called_again() -> None:
    peer = Unsteady(BUSY)
    link = Link(peer.server, middleware=[Retry(Backoff(), trust_annotations=True)])
    with pytest.raises(RequestError):
        after(link, link.start(link.client.call_tool("other")))


def test_tool_call_is_not_retried_if_the_tool_list_is_unavailable() -> None:
    peer = Unsteady(BUSY, annotations=ToolAnnotations(read_only_hint=True))
    peer.server.handlers["tools/list"] = _refuse
    link = Link(peer.server, middleware=[Retry(Backoff(tries=0)), Retry(Backoff(), trust_annotations=True)])
    with pytest.raises(RequestError, match="External dependency unavailable"):
        after(link, link.start(link.client.call_tool("work")))
    assert len(peer.at) == 1


def _refuse(*_: Any) -> Any:
    raise Refusal(RefusalCode.AUTHZ_FORBIDDEN)


def test_cancellation_during_the_wait_ends_the_call() -> None:
    peer = Unsteady(BUSY)
    link = Link(peer.server, retry=Backoff(10))
    ask = link.start(link.client.get_prompt("hi"))
    ask.cancel()
    link.advance(60)
    assert (ask.state, len(peer.at)) == ("cancelled", 1)


def test_connection_end_during_the_wait_fails_the_call() -> None:
    peer = Unsteady(BUSY)
    link = Link(peer.server, retry=Backoff())
    ask = link.start(link.client.get_prompt("hi"))
    link.pair.lose()
    link.advance(60)
    assert isinstance(ask.error, NoBackChannel)


@pytest.mark.parametrize("also", [(), (RequestTimeout, ConnectionLost)])
def test_timeout_is_retried_if_the_policy_includes_it(also: Any) -> None:
    server = Server("s")

    @server.prompt
    async def hang(ctx: Context) -> str:
        seen.append(ctx.id)
        await ctx.session.driver.runtime.one_shot().wait()
        return "never"

    seen: list[Any] = []
    link = Link(server, retry=Backoff(also=also))
    ask = link.start(link.client.get_prompt("hang", timeout=1))
    link.advance(60)
    assert isinstance(ask.error, RequestTimeout)
    assert len(seen) == (4 if also else 1)
