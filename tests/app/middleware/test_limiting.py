from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from linked import Ask, Link
from statelessly import StatelessClient
from waits import Wait

from mcpio.app.context import Context
from mcpio.app.middleware import policies as limiting
from mcpio.app.middleware.policies import (
    Cache,
    ConcurrencyLimit,
    RateLimit,
    SizeLimit,
    allow,
    for_all,
    per_method,
    per_name,
    per_principal,
    per_session,
)
from mcpio.app.server import Server
from mcpio.backoff import Backoff
from mcpio.errors import Refusal, RequestError
from mcpio.refusals import RefusalCode
from mcpio.testing import ManualRuntime
from mcpio.types import CreateMessageRequest, CreateMessageResult, PromptReference, SamplingMessage, TextContent


def serving(*middleware: Any) -> Server:
    """Return a server with tools, a prompt and a resource behind the middleware."""
    server = Server("s", middleware=middleware)
    for name in "ab":
        server.tool(lambda: None, name=name)
        server.resource(f"r:{name}", name=name)(lambda: "text")
    server.prompt(lambda text: text, name="say")
    server.completion("text", prompt="say")(lambda value: [value + "!"])

    @server.tool
    async def wait(ctx: Context) -> None:
        await ctx.session.driver.runtime.one_shot().wait()

    return server


def outcome(link: Link, coroutine: Any) -> int:
    """Return the code of the error, or 0."""
    try:
        link.do(coroutine)
    except (RequestError, Refusal) as error:
        return error.code
    return 0


def outcomes(link: Link, *tools: str) -> list[int]:
    return [outcome(link, link.client.call_tool(tool)) for tool in tools]


# Rates


@pytest.mark.req("TOOL-19")
@pytest.mark.parametrize(
    ("seconds", "options", "code"),
    [(1, {}, 1057), (60, {}, 1058), (10, {}, 1056), (1, {"code": 1059}, 1059), (60.0, {"burst": 2}, 1058)],
)
def test_request_beyond_the_rate_is_refused_and_passes_later(seconds: float, options: Any, code: int) -> None:
    link = Link(serving(RateLimit(2, seconds, **options)))
    assert outcomes(link, *"aaaa") == [0, 0, code, code]
    link.advance(seconds / 2)
    assert outcomes(link, *"aa") == [0, code]
    link.advance(seconds * 100)
    assert outcomes(link, *"aaa") == [0, 0, code]
    assert not link.reports


def test_refusal_contains_retry_after() -> None:
    link = Link(serving(RateLimit(10, 60, burst=1)))
    assert outcomes(link, "a") == [0]
    with pytest.raises(RequestError) as caught:
        link.call("a")
    error = caught.value
    assert (error.is_refusal(), error.is_retryable(), error.retry_after) == (True, True, 6.001)
    assert error.data["http_status"] == 429
    link.advance(error.retry_after or 0)
    assert outcomes(link, "a") == [0]


@pytest.mark.parametrize("rate", [1, 3, 7, 10, 33.3, 1e6])
def test_client_that_waits_for_retry_after_is_admitted(rate: float) -> None:
    link = Link(serving(RateLimit(rate, burst=1)), retry=Backoff(base=0, tries=1))
    for _ in range(20):
        ask = link.start(link.client.call_tool("a", retry=True))
        link.advance(2 / rate)
        assert ask.state == "returned"


def test_burst_is_the_number_admitted_at_once() -> None:
    link = Link(serving(RateLimit(1, burst=3)))
    assert outcomes(link, *"aaaa") == [0, 0, 0, 1057]
    link.advance(1)
    assert outcomes(link, *"aa") == [0, 1057]


def test_rate_may_be_below_one_a_second() -> None:
    link = Link(serving(RateLimit(0.5)))
    assert outcomes(link, *"aa") == [0, 1057]
    link.advance(2)
    assert outcomes(link, *"aa") == [0, 1057]


@pytest.mark.parametrize(
    ("per", "expected"),
    [
        (for_all, [0, 1057, 1057, 1057, 1057, 1057]),
        (per_session, [0, 1057, 1057, 1057, 0, 1057]),
        (per_principal, [0, 1057, 1057, 1057, 1057, 1057]),
        (per_method, [0, 1057, 0, 1057, 1057, 1057]),
        (per_name, [0, 0, 0, 1057, 1057, 1057]),
        ((per_session, per_name), [0, 0, 0, 1057, 0, 0]),
        ((), [0, 1057, 1057, 1057, 1057, 1057]),
    ],
)
def test_each_key_is_counted_separately(per: Any, expected: list[int]) -> None:
    server = serving(RateLimit(1, per=per))
    one, other = Link(server, principal="ada"), Link(server, principal="ada")
    codes = [*outcomes(one, *"ab"), outcome(one, one.client.list_tools()), *outcomes(one, "a"), *outcomes(other, *"ab")]
    assert codes == expected


def test_anonymous_request_is_counted_by_session() -> None:
    server = serving(RateLimit(1, per=per_principal))
    known, other, unknown, stranger = (Link(server, principal=who) for who in ("ada", "bob", None, None))
    assert [outcomes(link, *"aa") for link in (known, other, unknown, stranger)] == [[0, 1057]] * 4


@pytest.mark.parametrize(("principal", "expected"), [("ada", [0, 1057, 1057]), (None, [0, 0, 0])])
def test_request_without_a_session_over_http_is_counted_by_principal(principal: Any, expected: list[int]) -> None:
    server, runtime = serving(RateLimit(1)), ManualRuntime()
    codes = []
    for _ in range(3):
        # Over HTTP each request has an exchange of its own.
        client = StatelessClient(server, runtime, principal=principal, via=object())
        error = Wait(runtime, client.call("a")).error
        codes.append(error.code if isinstance(error, RequestError) else 0)
    assert codes == expected


@pytest.mark.parametrize("methods", ["tools/call", ["tools/call"], {"tools/call", "no/such"}])
def test_only_the_named_methods_are_counted(methods: Any) -> None:
    link = Link(serving(RateLimit(1, methods=methods)))
    for _ in range(3):
        assert outcome(link, link.client.list_tools()) == 0
    assert outcomes(link, *"aa") == [0, 1057]


@pytest.mark.req("COMP-06")
def test_completions_can_have_a_separate_rate() -> None:
    link = Link(serving(RateLimit(5, methods="completion/complete")))
    ask = [link.client.complete(PromptReference("say"), "text", "a") for _ in range(6)]
    assert [outcome(link, each) for each in ask] == [0] * 5 + [1057]
    assert outcomes(link, "a") == [0]


@pytest.mark.req("TASK-36")
def test_calls_of_tools_and_questions_about_tasks_have_a_rate() -> None:
    limit = RateLimit(1, per=(per_session, per_method), methods={"tools/call", "tasks/get", "tasks/result"})
    server = serving(limit)
    link = Link(server)
    assert outcomes(link, *"aa") == [0, 1057]


@pytest.mark.req("TASK-36")
def test_task_call_counts_once_for_the_rate_and_its_work_for_concurrency() -> None:
    asked: list[Any] = []

    def may(ctx: Context, _: Any) -> bool:
        asked.append(ctx.task)
        return True

    server = Server(
        "s",
        middleware=[
            RateLimit(2, 60, methods="tools/call"),
            allow(may, methods="tools/call"),
            ConcurrencyLimit(1, methods="tools/call"),
        ],
    )

    @server.tool(task_support="optional")
    async def work(ctx: Context) -> str:
        await ctx.session.driver.runtime.sleep(10)
        return "done"

    link = Link(server, era="handshake")
    first, second = (link.start(link.client.call_tool("work", task=True)) for _ in range(2))
    assert isinstance(second.error, RequestError)
    assert second.error.code == 1060
    link.advance(20)
    assert first.state == "returned"
    assert asked == [None, None]
    assert outcome(link, link.client.call_tool("work", task=True)) == 1058


def test_pings_are_not_counted() -> None:
    link = Link(serving(RateLimit(1)), middleware=[RateLimit(1, per=for_all)], era="handshake")
    for _ in range(3):
        assert outcome(link, link.client.ping()) == 0
    assert outcomes(link, *"aa") == [0, 1057]


def test_rate_limit_of_a_client_limits_its_own_calls() -> None:
    link = Link(serving(), middleware=[RateLimit(2, 60)])
    assert outcomes(link, *"aaa") == [0, 0, 1058]


@pytest.mark.req("SAMP-15")
def test_rate_limit_of_a_client_limits_sampling_requests() -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("hi")),), 10))
        return "asked"

    link = Link(
        server,
        sampling=lambda _, __: CreateMessageResult("assistant", TextContent("hi"), "m"),
        handler_middleware=[RateLimit(2, 60)],
        era="handshake",
    )
    assert [link.text("ask") for _ in range(2)] == ["asked", "asked"]
    assert "Per-minute rate limit hit" in link.text("ask")


def test_p6_full_table_refuses_new_keys_and_forgets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiting, "MOST_KEYS", 2)
    limit = RateLimit(1, 1000, per=per_name, methods="tools/call")
    link = Link(serving(limit))
    assert outcomes(link, "a", "b", "a", "x", "a", "b") == [0, 0, 1056, 1056, 1056, 1056]
    assert len(limit._throttles) == 2
    link.advance(1001)
    assert outcomes(link, "x", "y") == [-32602, 1056], "what has its whole burst again is forgotten"
    assert len(limit._throttles) == 2


def test_unknown_names_count_as_one() -> None:
    limit = RateLimit(2, 1000, per=(per_session, per_name))
    link = Link(serving(limit))
    assert outcomes(link, *(f"x{number}" for number in range(6))) == [-32602, -32602, *[1056] * 4]
    assert outcomes(link, "a", "b", "a") == [0, 0, 0]
    uris = [outcome(link, link.client.read_resource(f"x:{number}")) for number in range(4)]
    assert uris[:2] != uris[2:] == [1056] * 2


def test_uris_of_a_template_count_as_one() -> None:
    server = serving(RateLimit(2, 1000, per=per_name, methods="resources/read"))
    server.resource("t:{name}", name="t")(lambda name: name)
    link = Link(server)
    reads = [outcome(link, link.client.read_resource(f"t:{number}")) for number in range(4)]
    assert reads == [0, 0, 1056, 1056]
    assert outcome(link, link.client.read_resource("r:a")) == 0


def test_names_count_each_where_no_registry_knows_them() -> None:
    ctx = SimpleNamespace(session=SimpleNamespace(server=SimpleNamespace(tools=())), method="tools/call")
    keys = [per_name(ctx, SimpleNamespace(name=name)) for name in ("a", "b", "x" * 1000)]
    assert keys == [("tools/call", "a"), ("tools/call", "b"), ("tools/call", "x" * 200)]


def test_limiter_drops_a_closed_session() -> None:
    ctx = SimpleNamespace(session=Namespace())
    key: Any = per_session(ctx, None)
    assert key() is ctx.session
    del ctx.session
    assert key() is None


class Namespace:
    """Something that can be referred to weakly, as a session can."""


# How many at once


@pytest.mark.req("TASK-36")
def test_concurrency_limit_refuses_further_requests() -> None:
    link = Link(serving(ConcurrencyLimit(2)))
    asks: list[Ask[Any]] = [link.start(link.client.call_tool("wait")) for _ in range(3)]
    assert [ask.state for ask in asks] == ["waits", "waits", "failed"]
    assert outcomes(link, "a") == [1060]
    asks[0].cancel()
    assert outcomes(link, "a", "a") == [0, 0]


def test_concurrency_is_counted_per_session_and_freed_at_its_end() -> None:
    limit = ConcurrencyLimit(1)
    server = serving(limit)
    one, other = Link(server), Link(server)
    ask = one.start(one.client.call_tool("wait"))
    assert (outcomes(one, "a"), outcomes(other, "a")) == ([1060], [0])
    ask.cancel()
    assert limit._running == {}
    one.start(one.client.call_tool("wait"))
    one.pair.lose()
    one.run()
    assert limit._running == {}


def test_only_the_named_methods_count_as_concurrent() -> None:
    link = Link(serving(ConcurrencyLimit(1, methods="tools/call")))
    link.start(link.client.call_tool("wait"))
    assert outcome(link, link.client.list_tools()) == 0


def test_failed_request_stops_counting_as_concurrent() -> None:
    limit = ConcurrencyLimit(1)
    link = Link(serving(limit))
    assert outcomes(link, "no such", "no such") == [-32602, -32602]
    assert limit._running == {}


def test_limit_for_all_clients_uses_a_custom_code() -> None:
    limit = ConcurrencyLimit(1, per=for_all, code=RefusalCode.SERVICE_UNAVAILABLE)
    server = serving(limit)
    one, other = Link(server), Link(server)
    one.start(one.client.call_tool("wait"))
    assert outcomes(other, "a") == [1078]


def test_concurrency_limit_may_be_zero() -> None:
    assert outcomes(Link(serving(ConcurrencyLimit(0))), "a") == [1060]


# Who may


@pytest.mark.req("TOOL-19", "TASK-38")
@pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])
def test_s_3_authorization_is_checked_before_the_tool_and_refused_with_1014_and_not_32051(later: bool) -> None:
    asked: list[Any] = []

    def may(ctx: Context, request: Any) -> Any:
        asked.append((ctx.peer.principal, request.name))
        verdict = request.name == "a"
        return _later(verdict) if later else verdict

    link = Link(serving(allow(may, methods="tools/call")), principal="ada")
    assert outcomes(link, *"ab") == [0, 1014]
    assert asked == [("ada", "a"), ("ada", "b")]
    assert outcome(link, link.client.list_tools()) == 0


async def _later(value: Any) -> Any:
    return value


def test_shutting_down_server_refuses_with_its_code() -> None:
    stopping: list[bool] = []
    gate = allow(lambda *_: not stopping, code=RefusalCode.SERVER_SHUTTING_DOWN, message="back at noon")
    link = Link(serving(gate))
    assert outcomes(link, "a") == [0]
    stopping.append(True)
    with pytest.raises(RequestError, match="back at noon") as caught:
        link.call("a")
    assert (caught.value.code, caught.value.is_retryable()) == (1077, True)


def test_failing_check_refuses_the_request() -> None:
    def fail(*_: Any) -> bool:
        raise KeyError("ada")

    link = Link(serving(allow(fail)))
    assert outcomes(link, "a") == [-32603]
    assert link.reports == ["the handler of tools/call 'a' failed"]


# What makes no sense


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RateLimit(0), "a rate must be more than 0 calls in more than 0 seconds, not 0 in 1.0"),
        (lambda: RateLimit(float("inf")), "a rate must be"),
        (lambda: RateLimit(1, 0), "a rate must be"),
        (lambda: RateLimit(1, float("nan")), "a rate must be"),
        (lambda: RateLimit("5", 60), "a rate must be more than 0 calls in more than 0 seconds, not '5' in 60"),  # type: ignore[arg-type]  # which is the point
        (lambda: RateLimit(1, burst="2"), "burst must be 1 call or more, not '2'"),  # type: ignore[arg-type]  # as above
        (lambda: RateLimit(1, burst=0), "burst must be 1 call or more, not 0"),
        (lambda: RateLimit(1, code=-32051), "a refusal code must lie between 1001 and 1089"),
        (lambda: RateLimit(1, code=1061), "message must be given for the code 1061"),
        (lambda: ConcurrencyLimit(-1), "a number of requests must be 0 or more, not -1"),
        (lambda: ConcurrencyLimit("5"), "a number of requests must be 0 or more, not '5'"),  # type: ignore[arg-type]  # as above
        (lambda: ConcurrencyLimit(1, code=1090), "a refusal code must lie between 1001 and 1089"),
        (lambda: allow(lambda *_: True, code=429), "a refusal code must lie between 1001 and 1089"),
    ],
)
def test_invalid_limit_raises_on_construction(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda odd: RateLimit(1, methods=odd), "^methods must be the name of a method, or several, not 5"),
        (
            lambda odd: ConcurrencyLimit(1, methods=[odd]),
            r"^methods must be the name of a method, or several, not \[5\]",
        ),
        (lambda odd: SizeLimit(1, methods=odd), "^methods must be the name of a method"),
        (lambda odd: RateLimit(1, per=odd), r"^per must be a function of \(ctx, request\), or several, not 5"),
        (lambda odd: RateLimit(1, per=[odd]), "^per must be a function"),
        (lambda odd: Cache(1, per=odd), r"^per must be a function of \(ctx, request\), not 5"),
        (allow, r"^predicate must be a function of \(ctx, request\), not 5"),
    ],
)
def test_options_of_the_wrong_type_are_refused(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(5)


def test_methods_of_an_iterator_are_all_counted() -> None:
    link = Link(serving(RateLimit(1, methods=iter(["prompts/get", "tools/call"]))))  # type: ignore[arg-type]  # on purpose
    assert outcomes(link, *"aa") == [0, 1057]
