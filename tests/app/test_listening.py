from __future__ import annotations

from typing import Any

import pytest
from linked import Ask, Link

from mcpio import Server
from mcpio.app.listening import MOST_CHANGES, Listening, Missed
from mcpio.engine.table import Role
from mcpio.errors import ConnectionLost, McpError, NoBackChannel, RequestTimeout
from mcpio.types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SubscriptionFilter,
    ToolListChangedNotification,
    UnsubscribeRequest,
)


def server_of_changes(**options: Any) -> Server:
    server = Server("s", **options)
    server.tool(lambda: "x", name="t")
    server.prompt(lambda: "x", name="p")
    server.resource("a:1", name="one")(lambda: "x")
    server.resource("a:2", name="two")(lambda: "x")
    return server


class Changes:
    """A listening, entered, and what it yields."""

    def __init__(self, link: Link, **wanted: Any) -> None:
        self.link = link
        self.listening: Listening = link.client.listen(**wanted)
        assert link.do(self.listening.__aenter__()) is self.listening

    def next(self) -> Any:
        return self.link.do(self.listening.__anext__())

    def wait(self) -> Ask[Any]:
        return self.link.start(self.listening.__anext__())

    @property
    def is_over(self) -> bool:
        try:
            self.next()
        except StopAsyncIteration:
            return True
        return False

    def leave(self) -> None:
        self.link.do(self.listening.__aexit__(None, None, None))
        self.link.run()


def sent(link: Link, method: str) -> int:
    return link.pair.sent(Role.CLIENT).count(f'"method":"{method}"'.encode())


def notify(link: Link, *notifications: Any) -> None:
    for each in notifications:
        link.session.notify(each)
        link.run()


LISTS: list[Any] = [ToolListChangedNotification(), PromptListChangedNotification(), ResourceListChangedNotification()]


def test_only_wanted_changes_are_yielded_in_order() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True, resources=True, uris=["a:1"])
    link.do(link.client.subscribe_resource("a:2"))
    notify(link, *LISTS, ResourceUpdatedNotification("a:2"), ResourceUpdatedNotification("a:1"))
    assert [changes.next() for _ in range(3)] == [LISTS[0], LISTS[2], ResourceUpdatedNotification("a:1")]
    assert changes.wait().state == "waits"


def test_iteration_waits_for_the_next_change() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True)
    waiting = changes.wait()
    assert waiting.state == "waits"
    notify(link, LISTS[0])
    assert waiting.result == LISTS[0]


@pytest.mark.req("SUB-04")
def test_filter_is_honoured_as_far_as_the_server_reports_changes() -> None:
    link = Link(server_of_changes())
    wanted = {"tools": True, "prompts": True, "resources": True, "uris": ["a:1", "a:2", "a:1"]}
    assert Changes(link, **wanted).listening.honoured == SubscriptionFilter(
        tools_list_changed=True,
        prompts_list_changed=True,
        resources_list_changed=True,
        resource_subscriptions=("a:1", "a:2"),
    )
    bare = Link(Server("s"))
    assert Changes(bare, **wanted).listening.honoured == SubscriptionFilter()
    assert sent(bare, "resources/subscribe") == 0


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("server", "wanted", "requests"),
    [
        (Server("s"), {"tools": True, "uris": ["a:1"]}, 0),
        (server_of_changes(changes=False), {"tools": True, "prompts": True, "resources": True, "uris": ["a:1"]}, 0),
        (server_of_changes(), {"uris": ["unknown:1"]}, 1),
    ],
)
def test_listening_for_what_is_not_reported_ends_at_once(server: Any, wanted: Any, requests: int, keep: bool) -> None:
    link = Link(server)
    changes = Changes(link, **wanted, keep=keep)
    assert changes.is_over
    assert (changes.listening.ended, changes.listening.honoured.is_empty) == ("graceful", True)
    link.runtime.advance_to(1000.0)
    link.run()
    assert sent(link, "subscriptions/listen") == requests
    assert len(link.session.connection.pending.incoming) == 0


def test_refused_resource_is_left_out() -> None:
    link = Link(server_of_changes())
    changes = Changes(link, uris=["a:1", "unknown:1"])
    assert changes.listening.honoured == SubscriptionFilter(resource_subscriptions=("a:1",))


def test_resource_refused_in_a_session_is_left_out() -> None:
    link = Link(server_of_changes(), era="handshake")
    assert Changes(link, uris=["a:1", "unknown:1"]).listening.honoured.resource_subscriptions == ("a:1",)
    bare = Link(Server("s"), era="handshake")
    assert Changes(bare, uris=["a:1"]).listening.honoured == SubscriptionFilter()
    assert sent(bare, "resources/subscribe") == 0


def test_update_of_a_part_of_a_resource_counts() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, uris=["a:1"])
    notify(link, ResourceUpdatedNotification("a:1"))
    link.client._known_changes().hear(ResourceUpdatedNotification("a:1/part"))
    assert [changes.next().uri for _ in range(2)] == ["a:1", "a:1/part"]


def test_equal_changes_that_wait_count_once() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True, uris=["a:1"])
    notify(link, LISTS[0], ResourceUpdatedNotification("a:1"), LISTS[0], ResourceUpdatedNotification("a:1"))
    assert [type(changes.next()) for _ in range(2)] == [ToolListChangedNotification, ResourceUpdatedNotification]
    assert changes.wait().state == "waits"


def test_unread_changes_collapse_into_missed() -> None:
    link = Link(server_of_changes())
    changes = Changes(link, uris=["a:1"])
    for number in range(MOST_CHANGES + 1):
        changes.listening.hear(ResourceUpdatedNotification(f"a:1/{number}"))
    assert changes.next() == Missed()
    assert changes.wait().state == "waits"


def test_leaving_the_block_unsubscribes_and_ends() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True, uris=["a:1"])
    notify(link, LISTS[0])
    changes.leave()
    assert changes.listening.ended == "here"
    assert sent(link, "resources/unsubscribe") == 1
    notify(link, LISTS[0], LISTS[1])
    # What was reported before can be read.
    assert changes.next() == LISTS[0]
    assert changes.is_over
    changes.leave()
    changes.listening.hear(LISTS[0])
    assert changes.is_over


def test_resource_stays_subscribed_while_something_needs_it() -> None:
    link = Link(server_of_changes(), era="handshake")
    first, second = Changes(link, uris=["a:1"]), Changes(link, uris=["a:1"])
    link.do(link.client.subscribe_resource("a:1"))
    first.leave()
    link.do(link.client.unsubscribe_resource("a:1"))
    assert sent(link, "resources/unsubscribe") == 0
    notify(link, ResourceUpdatedNotification("a:1"))
    assert second.next().uri == "a:1"
    second.leave()
    assert sent(link, "resources/unsubscribe") == 1


def test_subscription_of_the_program_outlives_a_listening() -> None:
    link = Link(server_of_changes(), era="handshake")
    link.do(link.client.subscribe_resource("a:1"))
    Changes(link, uris=["a:1"]).leave()
    assert sent(link, "resources/unsubscribe") == 0
    link.do(link.client.unsubscribe_resource("a:1"))
    assert sent(link, "resources/unsubscribe") == 1


def test_end_of_a_subscription_that_is_unknown_is_sent() -> None:
    link = Link(server_of_changes(), era="handshake")
    link.session._subscribe("a:1")  # such as by the program that had the session before
    link.do(link.client.unsubscribe_resource("a:1"))
    assert sent(link, "resources/unsubscribe") == 1
    assert not link.session.is_subscribed("a:1")


def test_resource_that_is_needed_again_is_not_unsubscribed_from() -> None:
    link = Link(server_of_changes(), era="handshake")
    listening = link.client.listen(uris=["a:1"])
    link.do(listening.__aenter__())
    again = link.client.listen(uris=["a:1"])

    async def leave_and_return() -> None:
        listening.close()
        await again.__aenter__()

    link.do(leave_and_return())
    link.run()
    assert (sent(link, "resources/subscribe"), sent(link, "resources/unsubscribe")) == (1, 0)
    # And the next session knows nothing of what was left just before.
    again.close()
    link.client._lose_session()
    link.run()
    assert sent(link, "resources/unsubscribe") == 0


def test_resource_whose_end_passes_to_the_next_session_is_subscribed_to_when_it_is_needed_again() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, uris=["a:1"])
    request = link.client.request

    async def request_in_the_next_session(*given: Any, **options: Any) -> Any:
        if isinstance(given[0], UnsubscribeRequest):
            link.client._lose_session()
            link.client._restored_subscription("a:1")
        return await request(*given, **options)

    link.client.request = request_in_the_next_session  # type: ignore[method-assign]  # what a reconnection does
    changes.leave()
    assert not link.session.is_subscribed("a:1")
    link.do(link.client.listen(uris=["a:1"]).__aenter__())
    assert link.session.is_subscribed("a:1")


@pytest.mark.parametrize("keep", [False, True])
def test_end_of_the_connection_ends_the_iteration(keep: bool) -> None:
    link = Link(server_of_changes())
    changes = Changes(link, tools=True, keep=keep)
    waiting = changes.wait()
    link.client.close()
    link.run()
    assert waiting.state == "failed"
    assert isinstance(waiting.error, StopAsyncIteration)
    assert changes.listening.ended == "lost"


def test_lost_session_ends_the_iteration() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True, uris=["a:1"])
    link.client._lose_session()
    assert changes.is_over
    assert changes.listening.ended == "lost"
    # The next session knows nothing of it.
    link.run()
    assert sent(link, "resources/unsubscribe") == 0


@pytest.mark.req("SUB-09")
def test_kept_listening_is_renewed_in_the_next_session() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True, uris=["a:1"], keep=True)
    link.client._lose_session()
    waiting = changes.wait()
    assert waiting.state == "waits"
    link.advance(0.1)
    assert waiting.result == Missed()
    assert sent(link, "resources/subscribe") == 2
    notify(link, ResourceUpdatedNotification("a:1"))
    assert changes.next() == ResourceUpdatedNotification("a:1")
    assert changes.listening.ended is None


def test_renewal_that_fails_is_tried_again() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, uris=["a:1"], keep=True)
    request, failures = link.client.request, [ConnectionLost("again")]

    def fail_first(*given: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return request(*given, **options)

    link.client.request = fail_first  # type: ignore[method-assign]  # a session that breaks while it opens
    link.client._lose_session()
    link.advance(0.1)
    waiting = changes.wait()
    assert waiting.state == "waits"
    link.advance(0.2)
    assert waiting.result == Missed()


# Streams that the transport gives up while the session goes on


@pytest.mark.parametrize("keep", [False, True])
def test_lost_stream_ends_or_renews_the_iteration(keep: bool) -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True, uris=["a:1"], keep=keep)
    link.client._note_stream(ConnectionLost("the stream"))
    if not keep:
        assert changes.is_over
        assert changes.listening.ended == "lost"
        return
    waiting = changes.wait()
    link.advance(0.1)
    assert waiting.state == "waits"
    link.client._note_stream(None)
    link.run()
    assert waiting.result == Missed()
    notify(link, ResourceUpdatedNotification("a:1"))
    assert changes.next() == ResourceUpdatedNotification("a:1")


def test_listening_begins_when_the_lost_stream_is_open_again() -> None:
    link = Link(server_of_changes(), era="handshake")
    link.client._note_stream(ConnectionLost("the stream"))
    entering = [link.start(link.client.listen(tools=True).__aenter__()) for _ in range(2)]
    link.run()
    assert [each.state for each in entering] == ["waits", "waits"]
    link.client._note_stream(None)
    link.run()
    assert [each.state for each in entering] == ["returned", "returned"]


def test_listening_is_refused_while_the_stream_cannot_be_opened() -> None:
    link = Link(server_of_changes(), era="handshake")
    link.client._note_stream(ConnectionLost("the stream"))

    def fails(then: Any) -> McpError:
        entering = link.start(link.client.listen(tools=True).__aenter__())
        link.run()
        then()
        link.run()
        assert isinstance(entering.error, McpError)
        return entering.error

    lost = fails(lambda: link.client._note_stream(ConnectionLost("once more")))
    assert isinstance(lost, ConnectionLost)
    assert str(lost.__cause__) == "once more"
    assert isinstance(fails(lambda: link.advance(61)), RequestTimeout)
    assert isinstance(fails(link.client.close), NoBackChannel)


def test_stream_that_is_open_again_before_the_answer_is_not_waited_for() -> None:
    link = Link(server_of_changes(), era="handshake")
    link.client._note_stream(None)  # it was not lost
    link.client._note_stream(ConnectionLost("the stream"))
    entered = list[Listening]()

    async def enter() -> None:
        entered.append(await link.client.listen(tools=True).__aenter__())

    link.runtime.spawn(enter())
    link.runtime.run()  # the ping is sent, and nothing is received
    assert sent(link, "ping") == 0
    link.client._note_stream(None)
    link.run()
    assert (sent(link, "ping"), len(entered)) == (1, 1)


def test_cached_tools_are_not_believed_while_the_stream_is_lost() -> None:
    link = Link(server_of_changes(), era="handshake")

    def look_up(name: str) -> int:
        before = sent(link, "tools/list")
        link.do(link.client.tool(name))
        return sent(link, "tools/list") - before

    assert [look_up("t"), look_up("t")] == [1, 0]
    link.client._note_stream(ConnectionLost("the stream"))
    assert look_up("t") == 1
    assert not link.client._hears_of_tools()
    link.client._note_stream(None)
    assert [look_up("t"), look_up("t")] == [1, 0]  # it may have changed in between


def lose_in_requests(link: Link, losses: int, *, repeated: bool = False) -> None:
    """Lose the session while requests wait for their answers; ``repeated``: in the next session they succeed."""
    request, left = link.client.request, [None] * losses

    async def losing(*given: Any, **options: Any) -> Any:
        if left:
            left.pop()
            link.client._lose_session()
            if not repeated:
                raise ConnectionLost("again")
        return await request(*given, **options)

    link.client.request = losing  # type: ignore[method-assign]  # a session that breaks while it opens


def test_session_lost_during_a_renewal_is_renewed_once() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, uris=["a:1"], keep=True)
    lose_in_requests(link, 1)
    link.client._lose_session()
    link.advance(0.1)
    link.advance(1)
    assert changes.next() == Missed()
    assert sent(link, "resources/subscribe") == 2
    changes.leave()
    assert not link.client._known_changes().needs("a:1")
    assert sent(link, "resources/unsubscribe") == 1


def test_renewal_whose_request_outlives_its_session_is_tried_again() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, uris=["a:1"], keep=True)
    lose_in_requests(link, 1, repeated=True)
    link.client._lose_session()
    link.advance(0.1)
    waiting = changes.wait()
    assert waiting.state == "waits"
    link.advance(0.2)
    assert waiting.result == Missed()
    notify(link, ResourceUpdatedNotification("a:1"))
    assert changes.next() == ResourceUpdatedNotification("a:1")


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_session_lost_during_entry_fails_the_entry_for_good(keep: bool, repeated: bool) -> None:
    link = Link(server_of_changes(), era="handshake")
    lose_in_requests(link, 1, repeated=repeated)
    listening = link.client.listen(uris=["a:1"], keep=keep)
    entering = link.start(listening.__aenter__())
    assert isinstance(entering.error, ConnectionLost)
    before = sent(link, "resources/subscribe")
    link.advance(1)
    assert sent(link, "resources/subscribe") == before
    assert not link.client._known_changes().needs("a:1")


@pytest.mark.parametrize("era", ["handshake", "auto"])
def test_end_of_the_client_ends_a_renewal(era: Any) -> None:
    link = Link(server_of_changes(), era=era)
    changes = Changes(link, tools=True, keep=True)
    link.client._lose_session()
    link.client.close()
    link.advance(0.1)
    assert changes.is_over
    assert changes.listening.ended == "lost"


def test_listening_that_never_began_can_be_ended() -> None:
    listening = Link(server_of_changes()).client.listen(tools=True)
    listening.end("here")
    assert listening.ended == "here"


def test_leaving_the_block_ends_a_renewal() -> None:
    link = Link(server_of_changes())
    changes = Changes(link, tools=True, keep=True)
    link.client._lose_session()
    changes.leave()
    link.client._lose_session()
    link.advance(1)
    assert changes.is_over
    assert changes.listening.ended == "here"


def test_callback_still_sees_what_a_listening_sees() -> None:
    seen: list[Any] = []
    link = Link(server_of_changes(), on_notification=seen.append, era="handshake")
    changes = Changes(link, tools=True)
    notify(link, LISTS[0])
    assert seen == [changes.next()] == [LISTS[0]]


def test_second_consumer_raises() -> None:
    link = Link(server_of_changes(), era="handshake")
    changes = Changes(link, tools=True)
    first = changes.wait()
    with pytest.raises(RuntimeError, match="another task iterates over these changes"):
        changes.next()
    first.cancel()
    notify(link, LISTS[0])
    assert changes.next() == LISTS[0]
    assert changes.listening.__aiter__() is changes.listening


def test_second_entry_raises() -> None:
    link = Link(server_of_changes())
    changes = Changes(link, tools=True)
    with pytest.raises(RuntimeError, match="this is in use"):
        link.do(changes.listening.__aenter__())


def test_cancelled_entry_leaves_nothing_behind() -> None:
    link = Link(server_of_changes(), era="handshake")
    listening = link.client.listen(uris=["a:1", "a:2"])
    entering = Ask(link, listening.__aenter__())
    assert entering.state == "returned"
    other = link.client.listen(uris=["a:1", "a:3"])
    pending = other.__aenter__()
    pending.send(None)  # it waits for the answer
    pending.close()
    link.run()
    notify(link, ResourceUpdatedNotification("a:1"))
    assert link.do(listening.__anext__()) == ResourceUpdatedNotification("a:1")


def test_listening_for_nothing_raises() -> None:
    link = Link(server_of_changes())
    with pytest.raises(ValueError, match="listen\\(\\) must have something to report"):
        link.client.listen()


@pytest.mark.parametrize("uris", ["a:1", [1]])
def test_uris_of_the_wrong_type_raise(uris: Any) -> None:
    link = Link(server_of_changes())
    with pytest.raises(TypeError, match="uris must be a collection of URIs"):
        link.client.listen(uris=uris)
