from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import attrs
import pytest
from linked import Link
from seats import Seat

from mcpio.app.asking import Accepted, Cancelled, Declined, Form
from mcpio.app.context import Context
from mcpio.app.schema.constraints import Constraints
from mcpio.app.server import Server
from mcpio.engine.table import Role
from mcpio.errors import InvalidMessage, LocalProtocolError
from mcpio.revisions import REV_2025_06_18
from mcpio.types import (
    ClientCapabilities,
    ElicitationCapability,
    ElicitationCompleteNotification,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    StringSchema,
    TitledChoice,
    TitledSingleSelectEnumSchema,
)


@attrs.frozen
class Booking:
    to: Annotated[str, Constraints(min_length=3)]
    seat: Seat = Seat.AISLE


@attrs.frozen
class Extras:
    extras: tuple[Literal["meal", "bag"], ...] = ()


BOTH = ClientCapabilities(elicitation=ElicitationCapability(form={}, url={}))


def asked(ask: Callable[[Context], Any], answer: Any, **options: Any) -> tuple[Any, Link, list[Any]]:
    """Call a tool that asks; return what came of it, the link, and what the user was asked."""
    server, found, seen = Server("s"), [], []

    @server.tool
    async def tool(ctx: Context) -> None:
        try:
            found.append(await ask(ctx))
        except Exception as error:
            found.append(error)

    def elicit(_: Any, request: Any) -> Any:
        seen.append(request)
        return answer

    link = Link(server, elicitation=elicit, **{"capabilities": BOTH, **options}, era="handshake")
    link.call("tool")
    return found[0], link, seen


def past_the_client(ask: Callable[[Context], Any], result: str) -> Any:
    """Call a tool that asks a client which checks nothing; return what came of it."""
    server, found = Server("s"), []

    @server.tool
    async def tool(ctx: Context) -> None:
        try:
            found.append(await ask(ctx))
        except Exception as error:
            found.append(error)

    async def never(*_: Any) -> Any:
        await link.runtime.one_shot().wait()

    link = Link(server, elicitation=never, capabilities=BOTH, era="handshake")
    link.start(link.client.call_tool("tool"))
    link.pair.server.receive_data(f'{{"jsonrpc":"2.0","id":1,"result":{result}}}\n'.encode(), link.pair.now)
    link.run()
    return found[0]


# Forms from classes


@pytest.mark.req("ELIC-11", "ELIC-12")
@pytest.mark.parametrize("form", [Booking, Form(Booking)], ids=["class", "form"])
@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (ElicitResult("accept", {"to": "Oslo", "seat": "window"}), Accepted(Booking("Oslo", Seat.WINDOW))),
        (ElicitResult("accept", {"to": "Oslo"}), Accepted(Booking("Oslo", Seat.AISLE))),
        (ElicitResult("decline"), Declined()),
        (ElicitResult("cancel"), Cancelled()),
    ],
)
def test_form_of_a_class_returns_each_outcome(form: Any, answer: ElicitResult, meaning: Any) -> None:
    found, link, (request,) = asked(lambda ctx: ctx.elicit("Where to?", form), answer)
    assert found == meaning
    assert request.message == "Where to?"
    assert request.requested_schema.properties["seat"].default == "aisle"
    assert link.reports == []


@pytest.mark.req("ELIC-12")
@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda ctx: ctx.elicit("Where to?", Booking), "content.to: expected at least 3 characters, got 2"),
        (
            lambda ctx: ctx.elicit(ElicitFormRequest("Where?", ElicitSchema({"to": StringSchema(min_length=3)}))),
            "content.to: expected at least 3 characters, got 2",
        ),
    ],
)
def test_invalid_form_answer_raises(ask: Any, reason: str) -> None:
    found = past_the_client(ask, '{"action":"accept","content":{"to":"Os"}}')
    assert isinstance(found, InvalidMessage)
    assert str(found) == reason


@pytest.mark.req("ELIC-10")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_content_of_a_refusal_is_dropped(action: str) -> None:
    request = ElicitFormRequest("Where?", ElicitSchema({"to": StringSchema()}))
    found = past_the_client(lambda ctx: ctx.elicit(request), f'{{"action":"{action}","content":{{"to":"Os"}}}}')
    assert found == ElicitResult(action)  # type: ignore[arg-type]  # one of the two


@pytest.mark.parametrize("result", ['{"action":"maybe"}', '{"action":"accept","content":{"to":{}}}', "{}"])
def test_unknown_action_is_refused(result: str) -> None:
    assert isinstance(past_the_client(lambda ctx: ctx.elicit("Where to?", Booking), result), InvalidMessage)


@pytest.mark.req("ELIC-03", "ELIC-07")
def test_form_for_an_older_client_uses_enum_names_and_no_defaults() -> None:
    found, link, _ = asked(
        lambda ctx: ctx.elicit("Where to?", Booking),
        ElicitResult("accept", {"to": "Oslo"}),
        revision=REV_2025_06_18,
        capabilities=None,
    )
    assert found == Accepted(Booking("Oslo"))
    wire = link.pair.sent(Role.SERVER)
    assert b'"enum":["window","aisle"],"enumNames":["By the window","By the aisle"]' in wire
    assert b'"default"' not in wire
    assert b'"mode"' not in wire


def test_form_with_multiple_choice_raises_for_an_older_client() -> None:
    found, _, seen = asked(
        lambda ctx: ctx.elicit("What else?", Extras), None, revision=REV_2025_06_18, capabilities=None
    )
    assert isinstance(found, LocalProtocolError)
    assert "does not exist in 2025-06-18" in str(found)
    assert seen == []


def test_own_request_is_translated_for_an_older_revision() -> None:
    field = TitledSingleSelectEnumSchema((TitledChoice("a", "The first"),))
    request = ElicitFormRequest("Which?", ElicitSchema({"which": field}))
    answer = ElicitResult("accept", {"which": "a"})
    found, *_ = asked(lambda ctx: ctx.elicit(request), answer, revision=REV_2025_06_18, capabilities=None)
    assert found == answer


@pytest.mark.req("ELIC-13")
def test_request_for_secrets_warns_at_its_definition() -> None:
    request = ElicitFormRequest("Log in", ElicitSchema({"password": StringSchema()}))
    with pytest.warns(UserWarning, match="must not ask for secrets: password") as caught:
        asked(lambda ctx: ctx.elicit(request), ElicitResult("decline"))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("ask", "kind", "reason"),
    [
        (
            lambda ctx: ctx.elicit("Where to?"),
            TypeError,
            "request must be a request, or a message with the class",
        ),
        (lambda ctx: ctx.elicit("Where to?", int), TypeError, "it has no fields"),
        (lambda ctx: ctx.elicit_url("Log in", "example.com"), ValueError, "a web address must begin with https://"),
        (
            lambda ctx: ctx.elicit(ElicitURLRequest("Log in", "ftp://example.com", "1")),
            ValueError,
            "a web address must begin with https://",
        ),
    ],
)
def test_invalid_form_request_raises(ask: Any, kind: type[Exception], reason: str) -> None:
    found, _, seen = asked(ask, None)
    assert isinstance(found, kind)
    assert reason in str(found)
    assert seen == []


# Web addresses


def at(id: str) -> str:
    return f"https://example.com/connect/{id}"


@pytest.mark.req("ELIC-14", "ELIC-15")
@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (ElicitResult("accept"), Accepted(f"{1:032x}")),
        (ElicitResult("decline"), Declined()),
        (ElicitResult("cancel"), Cancelled()),
    ],
)
def test_elicit_url_sends_the_address_and_an_id(answer: ElicitResult, meaning: Any) -> None:
    found, link, (request,) = asked(lambda ctx: ctx.elicit_url("Log in", at), answer)
    assert found == meaning
    id = f"{1:032x}"
    assert request == ElicitURLRequest("Log in", at(id), id)
    assert link.session._has_elicitation(id)
    assert link.reports == []


def test_elicitation_id_option_sets_the_id() -> None:
    found, _, (request,) = asked(
        lambda ctx: ctx.elicit_url("Log in", "https://example.com", elicitation_id="mine"), ElicitResult("accept")
    )
    assert found == Accepted("mine")
    assert request.elicitation_id == "mine"


@pytest.mark.req("ELIC-14")
def test_two_visits_have_two_ids() -> None:
    async def twice(ctx: Context) -> Any:
        return [await ctx.elicit_url("Log in", at) for _ in range(2)]

    (first, second), *_ = asked(twice, ElicitResult("accept"))
    assert first != second


@pytest.mark.req("ELIC-15")
def test_content_that_comes_with_a_visit_is_left_out() -> None:
    request = ElicitURLRequest("Log in", "https://example.com", "1")
    found = past_the_client(lambda ctx: ctx.elicit(request), '{"action":"accept","content":{"to":"Os"}}')
    assert found == ElicitResult("accept")


def test_url_elicitation_without_an_id_raises() -> None:
    found, link, _ = asked(lambda ctx: ctx.elicit(ElicitURLRequest("Log in", "https://example.com")), None)
    assert isinstance(found, LocalProtocolError)
    assert not link.session._has_elicitation("None")


@pytest.mark.req("ELIC-19")
@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.elicit_url("Log in", "http://example.com"),
        lambda ctx: ctx.elicit(ElicitURLRequest("Log in", "http://example.com", "1")),
    ],
)
def test_unsafe_address_warns_at_the_call(ask: Any) -> None:
    with pytest.warns(UserWarning, match="the web address 'http://example.com': it is not https") as caught:
        asked(ask, ElicitResult("accept"))
    assert caught[0].filename == __file__


@pytest.mark.req("ELIC-02", "ELIC-16")
def test_elicit_url_without_the_url_capability_raises() -> None:
    found, *_ = asked(lambda ctx: ctx.elicit_url("Log in", at), None, capabilities=None)
    assert isinstance(found, LocalProtocolError)
    assert "elicitation.url" in str(found)


@pytest.mark.req("ELIC-16")
def test_completion_before_the_answer_is_recorded() -> None:
    server = Server("s")
    heard: list[Any] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        return type(await ctx.elicit_url("Log in", at, elicitation_id="1")).__name__

    async def elicit(*_: Any) -> ElicitResult:
        await leave.wait()
        return ElicitResult("accept")

    link = Link(server, elicitation=elicit, capabilities=BOTH, on_notification=heard.append, era="handshake")
    leave = link.runtime.one_shot()
    ask = link.start(link.client.call_tool("tool"))
    assert server.notify_elicitation_complete("1")
    link.run()
    assert heard == [ElicitationCompleteNotification("1")]
    leave.set(None)
    link.run()
    assert ask.state == "returned"
