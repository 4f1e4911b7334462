"""Changes of what a server offers: the bus, and the listeners of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from linked import Link

from mcpio.app.changes import SLICE, Audience, Changed, LocalChanges, resource_topic
from mcpio.app.server import Server
from mcpio.errors import InvalidMessage
from mcpio.testing import ManualRuntime
from mcpio.types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SubscribeRequest,
    ToolListChangedNotification,
)

CHANGES = [
    (Changed("tools"), ToolListChangedNotification()),
    (Changed("prompts"), PromptListChangedNotification()),
    (Changed("resources"), ResourceListChangedNotification()),
    (Changed("updated", "a:b", ("a:",)), ResourceUpdatedNotification("a:b")),
]


class Ear:
    """A listener that remembers what it heard, and when."""

    def __init__(self, runtime: ManualRuntime, *, is_open: bool = True) -> None:
        self.driver: Any = self
        self.runtime = runtime
        self.is_open = is_open
        self.heard: list[Any] = []

    def hear(self, notification: Any) -> bool:
        self.heard.append(notification)
        return self.is_open


@pytest.mark.parametrize(("change", "notification"), CHANGES)
def test_change_is_plain_json_and_back(change: Changed, notification: Any) -> None:
    assert Changed.from_json(change.to_json()) == change
    assert change.notification() == notification


def test_lost_changes_of_a_bus_reach_every_listener() -> None:
    server, runtime = Server("s"), ManualRuntime()
    lists, one, other = Ear(runtime), Ear(runtime), Ear(runtime)
    server.audience.add(lists, ["tools", "resources"])
    server.audience.add(one, [resource_topic("a:1")])
    server.audience.add(other, ["prompts", resource_topic("a:2")])
    server.changes.publish(Changed("anything"))
    assert lists.heard == [ToolListChangedNotification(), ResourceListChangedNotification()]
    assert one.heard == [ResourceUpdatedNotification("a:1")]
    assert other.heard == [PromptListChangedNotification(), ResourceUpdatedNotification("a:2")]


MALFORMED: list[Any] = [
    None,
    [],
    {},
    {"kind": "odd"},
    {"kind": "tools", "uri": "a:b"},
    {"kind": "updated"},
    {"kind": "updated", "uri": 1},
    {"kind": "updated", "uri": "a:b", "within": "a:"},
    {"kind": "updated", "uri": "a:b", "within": [1]},
]


@pytest.mark.parametrize("said", MALFORMED)
def test_malformed_change_is_refused(said: Any) -> None:
    with pytest.raises(InvalidMessage, match="change"):
        Changed.from_json(said)


def test_bus_calls_its_subscribers_until_they_end() -> None:
    bus, heard = LocalChanges(), list[Changed]()
    ends = [bus.subscribe(heard.append)]

    def once(change: Changed) -> None:
        ends[1]()
        heard.append(change)

    ends.append(bus.subscribe(once))
    bus.publish(Changed("tools"))
    bus.publish(Changed("prompts"))
    ends[0]()
    ends[0]()
    bus.publish(Changed("resources"))
    assert heard == [Changed("tools"), Changed("tools"), Changed("prompts")]


def test_listener_of_several_topics_is_notified_once() -> None:
    audience, ear = Audience(), Ear(ManualRuntime())
    change = Changed("updated", "a:b", ("a:",))
    audience.add(ear, change.topics)
    assert audience.tell(change.topics, "it") == 1
    assert ear.heard == ["it"]
    audience.remove(ear, change.topics)
    audience.remove(ear, change.topics)
    assert audience.tell(change.topics, "it") == 0


def test_failed_notification_is_not_counted() -> None:
    audience, runtime = Audience(), ManualRuntime()
    for is_open in (True, False):
        audience.add(Ear(runtime, is_open=is_open), ["topic"])
    assert audience.tell(("topic",), "it") == 1


def many(count: int) -> tuple[Audience, list[Ear], ManualRuntime]:
    audience, runtime = Audience(), ManualRuntime()
    ears = [Ear(runtime) for _ in range(count)]
    for ear in ears:
        audience.add(ear, ["topic"])
    return audience, ears, runtime


def test_many_listeners_are_notified_in_slices() -> None:
    audience, ears, runtime = many(2 * SLICE + 1)
    assert audience.tell(("topic",), "it") == 2 * SLICE + 1
    told = [sum(bool(ear.heard) for ear in ears)]
    while runtime._turns:
        runtime._turns.popleft()()
        told.append(sum(bool(ear.heard) for ear in ears))
    assert told == [SLICE, 2 * SLICE, 2 * SLICE + 1]
    assert [ear.heard for ear in ears] == [["it"]] * len(ears)
    assert audience.tell(("other",), "it") == 0
    assert not audience._pending


def test_change_during_delivery_starves_no_listener() -> None:
    audience, ears, runtime = many(3 * SLICE)
    audience.tell(("topic",), "it")
    for _ in range(3):
        audience.tell(("topic",), "it")
        runtime._turns.popleft()()
    assert all(ear.heard for ear in ears)
    runtime.run()
    # Once for the changes that came while it waited, and never fewer than once after the last of them.
    assert {len(ear.heard) for ear in ears} == {2}


def test_listener_that_left_gets_at_most_one_more_attempt() -> None:
    audience, ears, runtime = many(2 * SLICE)
    audience.tell(("topic",), "it")
    audience.remove(ears[-1], ["topic"])
    runtime.run()
    assert len(ears[-1].heard) <= 1


class Shared:
    """A bus of two processes: it delivers when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[dict[str, Any]] = []
        self.callbacks: list[Callable[[Changed], None]] = []

    def publish(self, change: Changed) -> None:
        self.waiting.append(change.to_json())

    def subscribe(self, callback: Callable[[Changed], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def deliver(self) -> None:
        for said in self.waiting:
            for callback in self.callbacks:
                callback(Changed.from_json(said))
        self.waiting.clear()


def offering(bus: Shared) -> tuple[Server, Link, list[Any]]:
    server, heard = Server("s", changes=bus), list[Any]()
    server.tool(lambda: None, name="first")
    server.resource("a:b", name="b")(lambda: "text")
    bus.deliver()
    link = Link(server, on_notification=heard.append, era="handshake")
    return server, link, heard


def test_clients_of_other_processes_are_notified() -> None:
    bus = Shared()
    (here, link, heard), (_, other, heard_there) = offering(bus), offering(bus)
    other.do(other.client.request(SubscribeRequest("a:b")))
    link.run()
    heard.clear()
    here.tool(lambda: None, name="second")
    assert here.notify_resource_updated("a:b") == 0
    link.run()
    assert heard == []
    bus.deliver()
    link.run()
    other.run()
    assert heard == [ToolListChangedNotification()]
    assert heard_there == [ToolListChangedNotification(), ResourceUpdatedNotification("a:b")]
