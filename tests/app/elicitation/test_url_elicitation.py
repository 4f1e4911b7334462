"""Elicitation at web addresses, from asking to the end: both sides of a session, and error -32042."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.table import Role
from mcpio.errors import ConnectionLost, LocalProtocolError, NoBackChannel, RequestError, URLElicitationRequired
from mcpio.types import (
    ClientCapabilities,
    CustomNotification,
    ElicitationCapability,
    ElicitationCompleteNotification,
    ElicitResult,
    ElicitURLRequest,
    PromptMessage,
    TextContent,
)

WITH_URL = ClientCapabilities(elicitation=ElicitationCapability(url={}))


def visit(id: str = "1") -> ElicitURLRequest:
    return ElicitURLRequest("Log in", f"https://example.com/{id}", id)


def agree(*_: Any) -> ElicitResult:
    return ElicitResult("accept")


def linked(server: Server, **options: Any) -> tuple[Link, list[Any]]:
    """Return a link to a client that takes web addresses, and what it hears."""
    heard: list[Any] = []
    return Link(
        server, elicitation=agree, capabilities=WITH_URL, on_notification=heard.append, **options, era="handshake"
    ), heard


def asking() -> Server:
    server = Server("s")

    @server.tool
    async def tool(ctx: Context, id: str = "1") -> str:
        return str(await ctx.elicit(visit(id)))

    @server.tool
    def locked(ids: list[str]) -> None:
        raise URLElicitationRequired(map(visit, ids))

    @server.prompt(name="locked")
    async def prompt() -> PromptMessage:
        raise URLElicitationRequired([visit("p")])

    return server


# The end of a visit


@pytest.mark.req("ELIC-16")
def test_completion_is_sent_once_to_the_asked_client() -> None:
    server = asking()
    (link, heard), (other, others) = linked(server), linked(server)
    link.call("tool")
    assert not server.notify_elicitation_complete("2")
    assert server.notify_elicitation_complete("1")
    assert not server.notify_elicitation_complete("1")
    assert not link.session.notify_elicitation_complete("1")
    link.run()
    other.run()
    assert (heard, others) == ([ElicitationCompleteNotification("1")], [])
    with pytest.raises(LocalProtocolError, match="this client was never sent the elicitation '1'"):
        other.session.notify_elicitation_complete("1")


def test_completion_for_a_closing_session_is_not_new() -> None:
    server = asking()
    link, heard = linked(server)
    link.call("tool")
    link.session.connection.close(0.0)
    assert server.sessions == (link.session,)
    assert not server.notify_elicitation_complete("1")
    assert heard == []


@pytest.mark.req("ELIC-16")
def test_unknown_and_repeated_completions_are_ignored() -> None:
    link, heard = linked(asking())
    link.session.notify(ElicitationCompleteNotification("1"))
    link.run()
    assert heard == []
    link.call("tool")
    for _ in range(3):
        link.session.notify(ElicitationCompleteNotification("1"))
        link.session.notify(ElicitationCompleteNotification("2"))
    link.run()
    assert heard == [ElicitationCompleteNotification("1")]
    link.session.notify(CustomNotification("custom/other", {}))
    link.run()
    assert len(heard) == 2


@pytest.mark.req("ELIC-16")
def test_wait_for_elicitation_returns_at_completion() -> None:
    link, _ = linked(asking())
    link.call("tool")
    wait = link.start(link.client.wait_for_elicitation("1"))
    assert wait.state == "waits"
    link.session.notify_elicitation_complete("1")
    link.run()
    assert wait.state == "returned"
    link.do(link.client.wait_for_elicitation("1"))
    with pytest.raises(LocalProtocolError, match="the server never named the elicitation '2'"):
        link.do(link.client.wait_for_elicitation("2"))


def test_cancelled_wait_for_elicitation_leaves_nothing() -> None:
    link, _ = linked(asking())
    link.call("tool")
    wait = link.start(link.client.wait_for_elicitation("1"))
    wait.cancel()
    assert wait.state == "cancelled"
    link.session.notify_elicitation_complete("1")
    link.run()
    assert link.reports == []


def test_connection_end_fails_wait_for_elicitation() -> None:
    link, _ = linked(asking())
    link.call("tool")
    wait = link.start(link.client.wait_for_elicitation("1"))
    link.client.connection.abort()
    link.run()
    with pytest.raises(ConnectionLost, match="the connection ended"):
        _ = wait.result
    with pytest.raises(NoBackChannel):
        link.do(link.client.wait_for_elicitation("1"))


@pytest.mark.req("ELIC-20")
def test_principal_of_the_asked_client_is_known() -> None:
    """Whoever follows the link may be somebody else: the visit is kept by the user who was asked."""
    server, sent_to = Server("s"), dict[str, Any]()

    @server.tool
    async def connect(ctx: Context) -> str:
        def address(id: str) -> str:
            sent_to[id] = ctx.peer.principal
            return f"https://example.com/connect/{id}"

        return (await ctx.elicit_url("Log in", address)).action

    def page(id: str, logged_in: str) -> bool:
        return sent_to.get(id) == logged_in and server.notify_elicitation_complete(id)

    link, heard = linked(server, principal="ada")
    link.call("connect")
    (id,) = sent_to
    assert not page(id, "eve")
    assert not page("guessed", "ada")
    assert page(id, "ada")
    link.run()
    assert heard == [ElicitationCompleteNotification(id)]


# Error -32042


@pytest.mark.req("ELIC-17")
def test_a_handler_asks_for_a_visit_first() -> None:
    link, heard = linked(asking())
    with pytest.raises(URLElicitationRequired) as caught:
        link.call("locked", ids=["a", "b"])
    assert caught.value.elicitations == (visit("a"), visit("b"))
    with pytest.raises(URLElicitationRequired):
        link.do(link.client.get_prompt("locked"))
    wait = link.start(link.client.wait_for_elicitation("b"))
    assert link.session.server.notify_elicitation_complete("b")
    link.run()
    assert wait.state == "returned"
    assert heard == [ElicitationCompleteNotification("b")]
    assert link.reports == []


@pytest.mark.req("ELIC-17")
@pytest.mark.parametrize("capabilities", [None, ClientCapabilities(elicitation=ElicitationCapability(form={}))])
def test_undeclared_url_elicitation_is_refused(capabilities: Any) -> None:
    link = Link(asking(), elicitation=agree, capabilities=capabilities, era="handshake")
    with pytest.raises(RequestError, match=r"needs the capability elicitation\.url, which .* \(-32603\)$"):
        link.call("locked", ids=["a"])
    assert link.reports == []
    assert not link.session._has_elicitation("a")


@pytest.mark.req("ELIC-17")
def test_url_elicitation_code_needs_its_error() -> None:
    server = Server("s")

    @server.tool
    def tool() -> None:
        raise RequestError(-32042, "for something else", {"a": 1})

    link, _ = linked(server)
    with pytest.raises(RequestError, match="Internal error"):
        link.call("tool")
    assert b"-32042" not in link.pair.sent(Role.SERVER)


def test_urls_in_a_clients_answer_are_not_sent_back_to_the_client() -> None:
    """A question that the client answers with -32042, which is not for it to say."""
    server, found = Server("s"), list[Any]()

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit(visit())
        except RequestError as error:
            found.append(error)
            raise
        return ""

    def elicit(*_: Any) -> ElicitResult:
        raise RequestError(-32042, "no", {"elicitations": []})

    link = Link(server, elicitation=elicit, capabilities=WITH_URL, era="handshake")
    result = link.call("tool")
    assert result.is_error
    assert isinstance(result.content[0], TextContent)
    assert type(found[0]) is RequestError
