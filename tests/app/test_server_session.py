from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.server import Server
from mcpio.app.server_session import checked_level
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import ErrorCode, RequestError
from mcpio.types import (
    LOGGING_LEVELS,
    CustomNotification,
    LoggingLevel,
    LoggingMessageNotification,
    ResourceUpdatedNotification,
    RootsListChangedNotification,
    ServerCapabilities,
)


def server_with_notes(**options: Any) -> Server:
    server = Server("s", **options)

    @server.resource("notes://{+name}")
    def note(name: str) -> str:
        return name

    return server


# Logging


@pytest.mark.req("LOG-02", "LOG-03", "LOG-04", "LOG-08")
@pytest.mark.parametrize(
    ("first", "asked", "seen"), [("info", None, 7), ("debug", None, 8), ("error", None, 4), ("info", "critical", 3)]
)
def test_messages_below_the_level_are_left_out(first: LoggingLevel, asked: LoggingLevel | None, seen: int) -> None:
    server = Server("s", log_level=first)
    heard: list[LoggingMessageNotification] = []
    others: list[LoggingMessageNotification] = []
    link, other = (
        Link(server, on_log=heard.append, era="handshake"),
        Link(server, on_log=others.append, era="handshake"),
    )
    if asked is not None:
        link.do(link.client.set_log_level(asked))
    for level in LOGGING_LEVELS:
        link.session.log(level, "text")
        other.session.log(level, "text")
    link.run()
    other.run()
    assert [message.level for message in heard] == list(LOGGING_LEVELS[-seen:])
    # The level is the session's own.
    assert [message.level for message in others] == list(LOGGING_LEVELS[LOGGING_LEVELS.index(first) :])


@pytest.mark.req("LOG-06")
def test_set_level_request_with_an_unknown_level_is_refused() -> None:
    link = Link(Server("s"), era="handshake")
    raw = b'{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"loud"}}\n'
    link.pair.server.receive_data(raw, 0)
    link.run()
    assert b'"code":-32602' in link.pair.sent(Role.SERVER)
    assert link.session.log_level == "info"


@pytest.mark.parametrize("level", ["warn", 5, None, ["info"]])
def test_checked_level_rejects_unknown_levels(level: Any) -> None:
    with pytest.raises(ValueError, match="level must be one of debug, "):
        checked_level(level)
    assert checked_level("info") == "info"


@pytest.mark.req("LOG-01")
def test_log_without_the_capability_is_not_sent() -> None:
    server = Server("s")
    link = Link(server, on_log=print)
    link.session.connection.capabilities = ServerCapabilities()
    link.session.log("error", "text")
    assert not link.session.connection.wants_write
    assert link.reports == []


def test_logs_are_sent_and_those_that_are_too_many_counted() -> None:
    heard: list[LoggingMessageNotification] = []
    link = Link(Server("s", options=Options(limits=Limits(logs_per_second=1))), on_log=heard.append, era="handshake")
    assert link.session.dropped_logs == 0
    link.session.log("info", 1)
    link.session.log("info", 2)
    link.run()
    assert [message.data for message in heard] == [1]
    assert link.session.dropped_logs == 1


# Telling


def test_notify_returns_whether_the_client_could_be_reached() -> None:
    heard: list[Any] = []
    link = Link(server_with_notes(), on_notification=heard.append, era="handshake")
    update = ResourceUpdatedNotification("notes://a")
    assert link.session.tell(update)
    link.run()
    assert heard == [update]
    assert not link.session.tell(CustomNotification("", {}))
    link.client.close()
    link.run()
    assert not link.session.tell(update)
    assert link.reports == []


def test_unencodable_notification_is_reported() -> None:
    link = Link(server_with_notes(), era="handshake")
    assert not link.session.tell(LoggingMessageNotification("info", object()))
    assert link.reports == ["a LoggingMessageNotification cannot be sent"]


# Subscriptions


@pytest.mark.req("RES-06", "RES-07", "RES-09")
def test_only_subscribers_are_notified() -> None:
    server = server_with_notes()
    heard: list[Any] = []
    others: list[Any] = []
    link, other = (
        Link(server, on_notification=heard.append, era="handshake"),
        Link(server, on_notification=others.append, era="handshake"),
    )
    assert server.notify_resource_updated("notes://a") == 0
    for _ in range(2):
        link.do(link.client.subscribe_resource("notes://a"))
    link.do(link.client.subscribe_resource("notes://b"))
    assert link.session.subscriptions == ("notes://a", "notes://b")
    assert server.notify_resource_updated("notes://a") == 1
    link.run()
    other.run()
    assert heard == [ResourceUpdatedNotification("notes://a")]
    link.do(link.client.unsubscribe_resource("notes://a"))
    assert not link.session.is_subscribed("notes://a")
    assert server.notify_resource_updated("notes://a") == 0
    assert server.notify_resource_updated("notes://b") == 1
    assert others == []


def test_unsubscribing_an_unknown_uri_changes_nothing() -> None:
    link = Link(server_with_notes())
    link.do(link.client.unsubscribe_resource("notes://a"))
    assert link.session.subscriptions == ()
    assert not link.session.is_subscribed("notes://a")


@pytest.mark.req("RES-09")
def test_unknown_resource_cannot_be_subscribed() -> None:
    link = Link(server_with_notes(), era="handshake")
    with pytest.raises(RequestError, match="Resource not found") as caught:
        link.do(link.client.subscribe_resource("other://a"))
    assert (caught.value.code, caught.value.data) == (ErrorCode.RESOURCE_NOT_FOUND, {"uri": "other://a"})


@pytest.mark.req("RES-09")
def test_subscriptions_end_with_the_session() -> None:
    server = server_with_notes()
    link = Link(server)
    link.do(link.client.subscribe_resource("notes://a"))
    assert list(server.sessions) == [link.session]
    link.client.connection.abort()
    link.run()
    assert list(server.sessions) == []
    assert server.notify_resource_updated("notes://a") == 0


@pytest.mark.req("SEC-10")
def test_subscriptions_of_one_client_are_limited() -> None:
    link = Link(server_with_notes(options=Options(limits=Limits(subscriptions=3))), era="handshake")
    for number in range(3):
        link.session._subscribe(f"notes://{number}")
    link.do(link.client.subscribe_resource("notes://0"))
    with pytest.raises(RequestError, match="Too many subscriptions") as caught:
        link.do(link.client.subscribe_resource("notes://more"))
    assert caught.value.data == {"reason": "too many subscriptions", "limit": 3}
    link.do(link.client.unsubscribe_resource("notes://0"))
    link.do(link.client.subscribe_resource("notes://more"))


def test_the_memory_of_subscriptions_is_bounded_and_counted() -> None:
    link = Link(server_with_notes(options=Options(limits=Limits(subscription_bytes=1000))))
    session = link.session
    held = session.connection.held
    session._subscribe("memo://a")
    once = held.subscriptions
    session._subscribe("memo://a")
    assert held.subscriptions == once > 0
    with pytest.raises(RequestError) as caught:
        session._subscribe("memo://" + "x" * 1000)
    assert caught.value.data == {"reason": "the subscriptions take too much memory", "limit": 1000}
    session._unsubscribe("memo://a")
    session._unsubscribe("memo://a")
    assert held.subscriptions == 0


@pytest.mark.req("RES-07")
def test_within_also_notifies_subscribers_of_the_parent() -> None:
    server = server_with_notes()
    heard: list[Any] = []
    link = Link(server, on_notification=heard.append)
    link.do(link.client.subscribe_resource("notes://a"))
    assert server.notify_resource_updated("notes://a/b") == 0
    assert server.notify_resource_updated("notes://a/b", within="notes://a") == 1
    assert server.notify_resource_updated("notes://a/c", within=["notes://x", "notes://a"]) == 1
    assert server.notify_resource_updated("notes://a", within=["notes://a"]) == 1
    assert server.notify_resource_updated("notes://x/b", within="notes://x") == 0
    link.run()
    assert [update.uri for update in heard] == ["notes://a/b", "notes://a/c", "notes://a"]


@pytest.mark.req("RES-07")
def test_consecutive_changes_are_coalesced() -> None:
    server = server_with_notes()
    heard: list[Any] = []
    link = Link(server, on_notification=heard.append)
    for uri in ("notes://a", "notes://b"):
        link.do(link.client.subscribe_resource(uri))
    for _ in range(100):
        server.notify_resource_updated("notes://a")
        server.notify_resource_updated("notes://b")
    link.run()
    assert sorted(update.uri for update in heard) == ["notes://a", "notes://b"]


def test_undelivered_broadcasts_are_counted() -> None:
    server = Server("s")
    server.tool(lambda: None, name="tool")
    link, early = Link(server, era="handshake"), Link(server, shake_hands=False, era="handshake")
    server.resource("late:1", name="late")(lambda: "")
    assert (link.session.undelivered, early.session.undelivered, server.undelivered) == (1, 1, 2)
    server.tools.disable("tool")
    assert (link.session.undelivered, early.session.undelivered, server.undelivered) == (1, 2, 3)
    link.session.close()
    server.tools.enable("tool")
    assert link.session.undelivered == 2
    assert server.undelivered == 5


# Notifications of the client's


@pytest.mark.req("ROOT-03")
def test_notifications_reach_the_servers_handlers() -> None:
    server, heard = Server("s"), []
    for method in ("notifications/initialized", "notifications/roots/list_changed", "custom/told"):
        server.notification_handlers[method] = lambda session, notification: heard.append((session, notification))
    link = Link(server, roots=[], era="handshake")
    link.client.notify_roots_changed()
    link.client.notify(CustomNotification("custom/told", {"a": 1}))
    link.client.notify(CustomNotification("custom/other", {}))
    link.run()
    assert heard == [
        (link.session, None),
        (link.session, RootsListChangedNotification()),
        (link.session, CustomNotification("custom/told", {"a": 1})),
    ]


def test_failing_notification_handler_is_reported_and_the_session_continues() -> None:
    def fail(*_: Any) -> None:
        raise ExceptionGroup("nursery", [ValueError("told")])

    server = Server("s")
    server.notification_handlers["notifications/initialized"] = fail
    link = Link(server, era="handshake")
    assert link.reports == ["the handler of notifications/initialized failed"]
    assert str(link.errors[0]) == "told"
    link.do(link.client.ping())


# Handlers


def test_method_without_a_handler_is_not_found() -> None:
    server = server_with_notes()
    del server.handlers["resources/read"]
    link = Link(server)
    with pytest.raises(RequestError, match=r"^Method not found: resources/read \(-32601\)$"):
        link.do(link.client.read_resource("notes://a"))
    assert link.reports == []


def test_a_session_knows_its_server_and_state() -> None:
    server = Server("s")
    link = Link(server, state={"db": 1})
    assert link.session.server is server
    assert link.session.state == {"db": 1}


def test_settling_after_the_end_of_a_session_leaves_nothing_in_the_ledger() -> None:
    server = Server("s")
    link = Link(server)
    link.session.connection.set_unwritten(48)
    link.session._settle()
    assert server.ledger.total == 48
    link.pair.server.abort()
    link.run()
    link.session._settle()
    assert server.ledger.total == 0
