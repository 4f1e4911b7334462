"""What a server's session keeps of its client where there is something to keep."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.session import SavedSession
from mcpio.errors import LocalProtocolError
from mcpio.types import ClientCapabilities, ElicitationCapability, ElicitResult, Root, RootsCapability

BY_URL = ClientCapabilities(elicitation=ElicitationCapability(url={}))


@pytest.mark.req("ELIC-16", "ELIC-20")
def test_only_the_elicited_client_is_notified_of_completion() -> None:
    link = Link(Server("s"), capabilities=BY_URL, elicitation=lambda *_: ElicitResult("decline"), era="handshake")
    with pytest.raises(LocalProtocolError, match="this client was never sent the elicitation 'e1'"):
        link.session.notify_elicitation_complete("e1")
    link.session._known_url_elicitations().withdraw("e1")
    assert not link.session._has_elicitation("e1")
    link.session._known_url_elicitations().begin("e1")
    assert link.session._has_elicitation("e1")
    assert link.session.notify_elicitation_complete("e1")
    assert not link.session.notify_elicitation_complete("e1")


@pytest.mark.req("ROOT-06")
def test_roots_are_cached_if_the_client_notifies_changes() -> None:
    asked: list[int] = []

    def roots(*_: Any) -> list[Root]:
        asked.append(1)
        return [Root("file:///a")]

    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> int:
        return len(await ctx.roots()) + len(await ctx.roots())

    link = Link(server, roots=roots, era="handshake")
    assert link.call("look").structured_content == {"result": 2}
    assert len(asked) == 1
    link.client.notify_roots_changed()
    link.run()
    link.call("look")
    assert len(asked) == 2
    silent = Link(server, roots=roots, capabilities=ClientCapabilities(roots=RootsCapability()), era="handshake")
    assert silent.session._known_roots() is None


def saved_state(link: Link, **changes: Any) -> SavedSession:
    snapshot = link.session.snapshot()
    return SavedSession.read({**snapshot, "state": {**snapshot["state"], **changes}})


def test_snapshot_has_level_and_subscriptions() -> None:
    server = Server("s")
    link = Link(server, capabilities=BY_URL, elicitation=lambda *_: ElicitResult("decline"), era="handshake")
    link.session._known_url_elicitations().begin("open")
    link.session._known_url_elicitations().begin("done")
    link.session.notify_elicitation_complete("done")
    link.run()
    saved = saved_state(link, log_level="error", subscriptions=["memo://a"])
    driver: Any = link.session.driver
    session = server.session(server.connection(saved=saved, now=0.0), driver)
    session._resume(saved)
    assert (session.log_level, session.subscriptions) == ("error", ("memo://a",))
    assert (session._has_elicitation("open"), session.notify_elicitation_complete("done")) == (True, False)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"log_level": 5}, "expected a log level"),
        ({"log_level": "loud"}, "expected a log level"),
        ({"subscriptions": "memo://a"}, "expected URIs"),
        ({"subscriptions": [5]}, "expected URIs"),
        ({"visits": []}, "expected elicitations by id"),
        ({"visits": {"e1": 1}}, "expected elicitations by id"),
    ],
)
def test_malformed_snapshot_is_refused(changes: dict[str, Any], fault: str) -> None:
    server = Server("s")
    link = Link(server)
    saved = saved_state(link, **changes)
    driver: Any = link.session.driver
    session = server.session(server.connection(saved=saved, now=0.0), driver)
    with pytest.raises(LocalProtocolError, match=fault):
        session._resume(saved)
