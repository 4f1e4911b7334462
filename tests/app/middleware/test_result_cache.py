"""Results that middleware keeps, for whom, how long, and within which bounds."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.changes import Changed
from mcpio.app.context import Context
from mcpio.app.contracts import InputRequired
from mcpio.app.middleware.policies import Cache, for_all
from mcpio.app.server import Server
from mcpio.errors import RequestError, ToolError
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25
from mcpio.types import ElicitFormRequest, ElicitResult, ElicitSchema, PromptReference, StringSchema


class Counting:
    """A server whose handlers count their calls, behind a cache."""

    def __init__(self, cache: Any) -> None:
        self.calls: list[str] = []
        self.server = server = Server("s", middleware=[] if cache is None else [cache])

        def count(what: str) -> str:
            self.calls.append(what)
            return what

        server.tool(lambda size=0: count("tool") + "x" * size, name="look")
        server.tool(lambda: count("effect"), name="effect")
        server.resource("r://{name}", name="r")(lambda name: count(f"r://{name}"))
        server.prompt(lambda x="1": count("prompt"), name="p")
        server.completion("x", prompt="p")(lambda text: [count("completion")])

        @server.tool
        def fail() -> str:
            count("fail")
            raise ToolError("no")

        @server.tool
        def ask(ctx: Context) -> Any:
            count("ask")
            if ctx.answers:
                return "thanks"
            return InputRequired({"a": ElicitFormRequest("?", ElicitSchema({"name": StringSchema()}))})

        @server.prompt
        async def greet(ctx: Context) -> str:
            answer = await ctx.elicit(ElicitFormRequest("?", ElicitSchema({"name": StringSchema()})))
            return count(answer.action)

        @server.tool(task_support="optional")
        async def work() -> str:
            return count("work")

    def link(self, **options: Any) -> Link:
        options.setdefault("revision", REV_2025_11_25)
        return Link(self.server, elicitation=lambda *_: ElicitResult("decline"), **options)

    def taken(self) -> list[str]:
        found, self.calls[:] = list(self.calls), []
        return found


def test_equal_requests_are_answered_from_the_cache_for_some_time() -> None:
    counting = Counting(Cache(60, tools=["look"]))
    link = counting.link()
    client = link.client
    for _ in range(2):
        assert link.do(client.read_resource("r://a")).text == "r://a"
        assert link.do(client.get_prompt("p")).messages[0].text == "prompt"
        assert link.do(client.complete(PromptReference("p"), "x", "")).completion.values == ("completion",)
        assert link.text("look") == "tool"
        assert link.text("effect") == "effect"
    assert counting.taken() == ["r://a", "prompt", "completion", "tool", "effect", "effect"]
    link.do(client.read_resource("r://b"))
    link.text("look", size=1)
    assert counting.taken() == ["r://b", "tool"]
    link.advance(61)
    link.do(client.read_resource("r://a"))
    assert counting.taken() == ["r://a"]


def test_results_belong_to_a_principal_and_a_revision() -> None:
    counting = Counting(Cache(60))
    links = [counting.link(principal=name) for name in ("ada", "ada", "bob", None, None)]
    links.append(counting.link(principal="ada", revision=REV_2025_06_18))
    for link in links:
        link.do(link.client.read_resource("r://a"))
    assert len(counting.taken()) == 5
    shared = Counting(Cache(60, per=for_all))
    for name in ("ada", "bob", None):
        link = shared.link(principal=name)
        link.do(link.client.read_resource("r://a"))
    assert len(shared.taken()) == 1


def test_failures_questions_and_tasks_are_not_kept() -> None:
    cache = Cache(60, tools=["fail", "ask", "work"])
    counting = Counting(cache)
    link = counting.link()
    for _ in range(2):
        assert link.text("fail") == "failed: no"
        assert link.text("ask") == "thanks"
        assert link.do(link.client.get_prompt("greet")).messages[0].text == "decline"
        with pytest.raises(RequestError):
            link.do(link.client.read_resource("none://"))
        assert link.do(link.client.call_tool("work", task=True)).text == "work"
    link.run()
    assert counting.taken() == ["fail", "ask", "ask", "decline", "work"] * 2
    assert len(cache) <= 1


def test_resource_that_was_updated_is_forgotten() -> None:
    counting = Counting(Cache(60))
    link = counting.link()

    def read(*names: str) -> list[str]:
        for name in names:
            link.do(link.client.read_resource(f"r://{name}"))
        return counting.taken()

    assert read("a", "all", "b") == ["r://a", "r://all", "r://b"]
    counting.server.notify_resource_updated("r://a", within="r://all")
    assert read("a", "all", "b") == ["r://a", "r://all"]
    counting.server.tools.changed()
    assert read("a", "all", "b") == []


def test_results_are_forgotten_with_changes_of_their_list() -> None:
    counting = Counting(Cache(60, tools=["look"]))
    server, link = counting.server, counting.link()

    def use() -> list[str]:
        link.do(link.client.read_resource("r://a"))
        link.do(link.client.get_prompt("p"))
        link.text("look")
        return counting.taken()

    assert use() == ["r://a", "prompt", "tool"]
    server.prompts.changed()
    assert use() == ["prompt"]
    server.tools.changed()
    assert use() == ["tool"]
    server.changes.publish(Changed("anything"))
    assert use() == ["r://a", "prompt", "tool"]
    server.resources.templates.disable("r://{name}")
    with pytest.raises(RequestError):
        use()


def test_result_of_before_a_change_is_not_kept() -> None:
    cache = Cache(60)
    counting = Counting(cache)

    @counting.server.resource("slow://x")
    async def slow() -> str:
        counting.calls.append("slow")
        cache.clear()
        return "old"

    link = counting.link()
    for _ in range(2):
        link.do(link.client.read_resource("slow://x"))
    assert counting.taken() == ["slow", "slow"]


def test_least_recently_used_results_leave_first() -> None:
    counting = Counting(Cache(60, methods="resources/read", entries=2))
    link = counting.link()
    for name in ("a", "b", "a", "c", "a", "b"):
        link.do(link.client.read_resource(f"r://{name}"))
    assert counting.taken() == ["r://a", "r://b", "r://c", "r://b"]


def test_results_are_bounded_in_bytes() -> None:
    cache = Cache(60, tools="look", size=2000)
    counting = Counting(cache)
    link = counting.link()
    for _ in range(2):
        link.text("look", size=5000)
        link.text("look", size=10)
    assert counting.taken() == ["tool", "tool", "tool"]
    for size in range(100):
        link.text("look", size=size)
        assert cache._kept._bytes <= 2000
    assert 1 < len(cache) < 100
    cache.clear()
    assert (len(cache), cache._kept._bytes) == (0, 0)


@pytest.mark.parametrize("options", [{"per": for_all}, {}])
def test_client_may_have_a_cache(options: Any) -> None:
    counting = Counting(None)
    link = counting.link(middleware=[Cache(60, **options)])
    for _ in range(2):
        assert link.do(link.client.read_resource("r://a")).text == "r://a"
    assert counting.taken() == ["r://a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": 0}, "ttl must be a number of seconds above 0"),
        ({"ttl": "1"}, "ttl must be a number"),
        ({"ttl": 1, "entries": 0}, "entries must be an integer of 1 or more"),
        ({"ttl": 1, "size": 0.5}, "size must be an integer"),
        (
            {"ttl": 1, "methods": "tools/call"},
            r"methods must have results that can be kept, not 'tools/call': name the tools",
        ),
        (
            {"ttl": 1, "methods": ["ping"]},
            "methods must have results that can be kept, not 'ping': there are resources/read",
        ),
    ],
)
def test_invalid_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cache(**options)
