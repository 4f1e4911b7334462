from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcpio.app.caching import LONGEST, CachingLayer, ResultCache
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.testing import ManualRuntime
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    DiscoverRequest,
    DiscoverResult,
    ElicitResult,
    InputRequiredResult,
    ListPromptsRequest,
    ListPromptsResult,
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    ListToolsRequest,
    ListToolsResult,
    MalformedItem,
    PromptListChangedNotification,
    RawRequest,
    ReadResourceRequest,
    ReadResourceResult,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ServerCapabilities,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)


class Asked:
    """What the layer sees of a call."""

    def __init__(self, layers: Layers, method: str, *, fresh: bool | None) -> None:
        self._layers = layers
        self.method = method
        self.fresh = fresh

    def now(self) -> float:
        return self._layers.now


class Layers:
    """A caching layer over a server that answers with what the test says; ``sent`` are the requests that reached it."""

    def __init__(self, shared: ResultCache | None = None) -> None:
        self.layer: Any = CachingLayer(shared)
        self.now = 100.0
        self.sent: list[Any] = []
        self.answer: Any = None
        self.meanwhile: Callable[[], None] = lambda: None

    def ask(self, method: str, request: Any, *, fresh: bool | None = None) -> Any:
        return ManualRuntime().complete(self.layer(Asked(self, method, fresh=fresh), request, self._send))

    def read(self, uri: str = "a:1", *, fresh: bool | None = None) -> str:
        result = self.ask("resources/read", ReadResourceRequest(uri), fresh=fresh)
        return str(result.contents[0].text)

    def tell(self, notification: Any, method: str) -> None:
        self.layer.hear(notification, method)

    async def _send(self, request: Any) -> Any:
        self.sent.append(request)
        self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def contents(text: str, *, ttl: int = 1000, scope: Any = "private") -> ReadResourceResult:
    return ReadResourceResult((TextResourceContents("a:1", text),), ttl_ms=ttl, cache_scope=scope)


@pytest.mark.req("CACHE-03")
def test_result_is_fresh_until_its_time_after_receipt() -> None:
    layers = Layers()
    layers.answer = contents("old")
    layers.meanwhile = lambda: setattr(layers, "now", 105.0)  # the answer takes five seconds
    assert layers.read() == "old"
    layers.meanwhile = lambda: None
    layers.answer = contents("new")
    layers.now = 105.999
    assert layers.read() == "old"
    layers.now = 106.0
    assert layers.read() == "new"
    assert len(layers.sent) == 2


@pytest.mark.req("CACHE-03")
@pytest.mark.parametrize("ttl", [0, -1])
def test_result_without_time_is_not_kept(ttl: int) -> None:
    layers = Layers()
    layers.answer = contents("a", ttl=ttl)
    layers.read()
    layers.read()
    assert len(layers.sent) == 2


@pytest.mark.parametrize("ttl", [10**15, 10**400])
def test_time_is_capped_at_a_day(ttl: int) -> None:
    layers = Layers()
    layers.answer = contents("a", ttl=ttl)
    layers.read()
    layers.now += LONGEST - 1
    layers.read()
    assert len(layers.sent) == 1
    layers.now += 1
    layers.read()
    assert len(layers.sent) == 2


@pytest.mark.req("CACHE-04", "CACHE-08")
def test_other_params_are_another_result() -> None:
    layers = Layers()
    layers.answer = contents("one")
    layers.read("a:1")
    layers.answer = contents("two")
    assert layers.read("a:2") == "two"
    assert layers.read("a:1") == "one"
    first, second = ListToolsResult((), "next", ttl_ms=9), ListToolsResult((), ttl_ms=9)
    layers.answer = first
    assert layers.ask("tools/list", ListToolsRequest()) == first
    layers.answer = second
    assert layers.ask("tools/list", ListToolsRequest("next")) == second
    layers.answer = None
    assert layers.ask("tools/list", ListToolsRequest()) == first
    # An empty cursor is a cursor.
    assert layers.ask("tools/list", ListToolsRequest("")) is None


@pytest.mark.req("CACHE-04")
def test_metadata_of_a_request_does_not_distinguish_results() -> None:
    layers = Layers()
    layers.answer = contents("a")
    layers.ask("resources/read", ReadResourceRequest("a:1", meta={"example.com/a": 1}))
    layers.ask("resources/read", ReadResourceRequest("a:1", meta={"example.com/a": 2}))
    assert len(layers.sent) == 1


def test_fresh_call_bypasses_and_updates_the_cache() -> None:
    layers = Layers()
    layers.answer = contents("old")
    layers.read()
    layers.answer = contents("new")
    assert layers.read(fresh=True) == "new"
    assert layers.read() == "new"
    layers.answer = contents("newest", ttl=0)
    assert layers.read(fresh=True) == "newest"
    assert layers.read() == "newest"
    assert len(layers.sent) == 4


def test_change_of_a_returned_result_does_not_reach_the_cache() -> None:
    layers = Layers()
    layers.answer = ListToolsResult((Tool("t", {"type": "object"}),), ttl_ms=9)
    layers.ask("tools/list", ListToolsRequest())
    layers.ask("tools/list", ListToolsRequest()).tools[0].input_schema["properties"] = {"evil": {}}
    assert layers.ask("tools/list", ListToolsRequest()).tools[0].input_schema == {"type": "object"}


@pytest.mark.req("CACHE-07", "MRTR-14")
def test_result_of_a_request_with_answers_or_state_is_not_kept() -> None:
    layers = Layers()
    layers.answer = contents("a")
    for request in (
        ReadResourceRequest("a:1", input_responses={"k": ElicitResult("decline")}),
        ReadResourceRequest("a:1", request_state="s"),
        ReadResourceRequest("a:1"),
    ):
        layers.ask("resources/read", request)
    assert len(layers.sent) == 3
    assert layers.read() == "a"
    assert len(layers.sent) == 3


@pytest.mark.req("CACHE-02")
def test_question_is_not_kept() -> None:
    layers = Layers()
    layers.answer = InputRequiredResult(request_state="s")
    layers.ask("resources/read", ReadResourceRequest("a:1"))
    layers.answer = contents("a")
    assert layers.read() == "a"


def test_other_results_are_not_kept() -> None:
    layers = Layers()
    layers.answer = contents("a", ttl=9000)
    layers.ask("resources/read", RawRequest("resources/read", {"uri": "a:1"}))
    layers.ask("resources/read", RawRequest("resources/read", {"uri": "a:1"}))
    layers.answer = CallToolResult((TextContent("a"),))
    layers.ask("tools/call", CallToolRequest("t"))
    layers.ask("tools/call", CallToolRequest("t"))
    layers.answer = ReadResourceResult((), result_type="task", ttl_ms=9)
    layers.ask("resources/read", ReadResourceRequest("a:1"))
    layers.ask("resources/read", ReadResourceRequest("a:1"))
    layers.answer = ListToolsResult((), ttl_ms=9, malformed=(MalformedItem(0, {}, "no name"),))
    layers.ask("tools/list", ListToolsRequest())
    layers.ask("tools/list", ListToolsRequest())
    assert len(layers.sent) == 8


LISTS = {
    "tools/list": (ListToolsRequest(), ListToolsResult((), ttl_ms=9)),
    "prompts/list": (ListPromptsRequest(), ListPromptsResult((), ttl_ms=9)),
    "resources/list": (ListResourcesRequest(), ListResourcesResult((), ttl_ms=9)),
    "resources/templates/list": (ListResourceTemplatesRequest(), ListResourceTemplatesResult((), ttl_ms=9)),
    "server/discover": (DiscoverRequest(), DiscoverResult(("2026-07-28",), ServerCapabilities(), ttl_ms=9)),
}


@pytest.mark.req("CACHE-06")
@pytest.mark.parametrize(
    ("notification", "method", "gone"),
    [
        (ToolListChangedNotification(), "notifications/tools/list_changed", {"tools/list"}),
        (PromptListChangedNotification(), "notifications/prompts/list_changed", {"prompts/list"}),
        (
            ResourceListChangedNotification(),
            "notifications/resources/list_changed",
            {"resources/list", "resources/templates/list"},
        ),
        (object(), "notifications/message", set()),
    ],
)
def test_notification_drops_the_list_that_changed(notification: Any, method: str, gone: set[str]) -> None:
    layers = Layers()
    for name, (request, layers.answer) in LISTS.items():
        layers.ask(name, request)
    layers.tell(notification, method)
    layers.sent.clear()
    for name, (request, layers.answer) in LISTS.items():
        layers.ask(name, request)
    assert layers.sent == [LISTS[name][0] for name in LISTS if name in gone]


@pytest.mark.req("CACHE-06")
def test_update_of_a_resource_drops_its_contents_only() -> None:
    layers = Layers()
    layers.answer = contents("a")
    layers.read("a:1")
    layers.read("a:2")
    layers.tell(ResourceUpdatedNotification("a:1"), "notifications/resources/updated")
    layers.answer = contents("b")
    assert layers.read("a:2") == "a"
    assert layers.read("a:1") == "b"


@pytest.mark.req("CACHE-06")
def test_answer_under_way_when_the_notification_came_is_not_kept() -> None:
    layers = Layers()
    layers.answer = contents("of before")
    layers.meanwhile = lambda: layers.tell(ResourceUpdatedNotification("a:1"), "notifications/resources/updated")
    assert layers.read() == "of before"
    layers.meanwhile = lambda: None
    layers.answer = contents("of after")
    assert layers.read() == "of after"
    assert layers.read() == "of after"
    assert len(layers.sent) == 2


@pytest.mark.req("CACHE-08")
def test_refused_cursor_drops_every_page() -> None:
    layers = Layers()
    layers.answer = ListToolsResult((), "2", ttl_ms=9)
    layers.ask("tools/list", ListToolsRequest())
    layers.answer = RequestError(-32602, "Invalid cursor")
    with pytest.raises(RequestError):
        layers.ask("tools/list", ListToolsRequest("2"))
    layers.answer = ListToolsResult((), ttl_ms=9)
    layers.ask("tools/list", ListToolsRequest())
    assert len(layers.sent) == 3


def test_error_of_a_first_page_drops_nothing() -> None:
    layers = Layers()
    layers.answer = ListToolsResult((), "2", ttl_ms=9)
    layers.ask("tools/list", ListToolsRequest("2"))
    layers.answer = RequestError(-32603, "no")
    with pytest.raises(RequestError):
        layers.ask("tools/list", ListToolsRequest())
    assert layers.ask("tools/list", ListToolsRequest("2")).next_cursor == "2"


@pytest.mark.req("CACHE-05")
def test_shared_cache_takes_public_results_only() -> None:
    shared = ResultCache()
    ann, bob = Layers(shared), Layers(shared)
    ann.answer, bob.answer = contents("Ann's"), contents("Bob's")
    assert (ann.read(), bob.read()) == ("Ann's", "Bob's")
    assert len(shared) == 0
    ann.answer = contents("everybody's", scope="public")
    assert ann.read("a:2") == bob.read("a:2") == "everybody's"
    assert (len(ann.sent), len(bob.sent)) == (2, 1)
    # A change that one of them hears of holds for all.
    ann.tell(ResourceUpdatedNotification("a:2"), "notifications/resources/updated")
    assert bob.read("a:2") == "Bob's"


def test_result_that_became_private_leaves_the_shared_cache() -> None:
    shared = ResultCache()
    ann, bob = Layers(shared), Layers(shared)
    ann.answer, bob.answer = contents("everybody's", scope="public"), contents("Bob's")
    ann.read()
    ann.answer = contents("Ann's")
    assert ann.read(fresh=True) == "Ann's"
    assert bob.read() == "Bob's"


def test_clear_drops_the_own_results() -> None:
    layers = Layers()
    layers.answer = contents("a")
    layers.read()
    layers.layer.clear()
    layers.read()
    assert len(layers.sent) == 2


def test_least_recently_used_result_leaves_first() -> None:
    cache = ResultCache(entries=2)
    keys = [("resources/read", bytes([number])) for number in range(3)]
    cache.put(keys[0], contents("0"), 0.0)
    cache.put(keys[1], contents("1"), 0.0)
    assert cache.get(keys[0], 0.5) == contents("0")
    cache.put(keys[2], contents("2"), 0.0)
    assert [cache.get(key, 0.5) is not None for key in keys] == [True, False, True]


def test_bytes_are_bounded() -> None:
    cache = ResultCache(size=1000)
    for number in range(100):
        cache.put(("resources/read", b"%d" % number), contents("x" * 100), 0.0)
    assert 1 <= len(cache) <= 10
    before = len(cache)
    cache.put(("resources/read", b"large"), contents("x" * 2000), 0.0)
    assert len(cache) == before
    assert cache.get(("resources/read", b"large"), 0.0) is None


@pytest.mark.parametrize("bounds", [{"entries": 0}, {"size": 0}, {"entries": "many"}])
def test_cache_without_room_raises(bounds: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bounds))} must be an integer of 1 or more"):
        ResultCache(**bounds)


def test_params_that_json_cannot_express_are_an_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="not expressible in JSON: uri: a string with a surrogate"):
        Layers().read("a:\udcff")
