from __future__ import annotations

import json
from typing import Any

import pytest
from handlers import returning
from linked import Link

from mcpio.app.client import roots_handler
from mcpio.app.context import Context, RequestScope
from mcpio.app.server import Server
from mcpio.engine.table import Role
from mcpio.errors import ErrorCode, LocalProtocolError, NoBackChannel, RequestError
from mcpio.types import (
    BooleanSchema,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    Implementation,
    ListRootsRequest,
    Root,
    RootsCapability,
    RootsListChangedNotification,
    SamplingCapability,
    SamplingMessage,
    StringSchema,
    TextContent,
    ToolUseContent,
    UntitledSingleSelectEnumSchema,
)
from mcpio.web_address import web_address

both = pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
SAMPLE = CreateMessageRequest((SamplingMessage("user", TextContent("hello")),), 10)
FORM = ElicitFormRequest("hi", ElicitSchema({}))
SAID = CreateMessageResult("assistant", TextContent("hi"), "model")


@both
def test_sampling_callback_answers(later: bool) -> None:
    link = Link(Server("s"), sampling=returning(SAID, later=later), era="handshake")
    assert link.do(link.session.request(SAMPLE)) == SAID


@both
@pytest.mark.req("SAMP-12")
def test_error_raised_by_a_sampling_callback_is_sent(later: bool) -> None:
    no = RequestError(ErrorCode.USER_REJECTED, "User rejected sampling request")
    link = Link(Server("s"), sampling=returning(no, later=later), era="handshake")
    with pytest.raises(RequestError, match=r"^User rejected sampling request \(-1\)$"):
        link.do(link.session.request(SAMPLE))
    assert link.reports == []


FAILED = r"^Internal error: the client's handler of [a-zA-Z]+/[a-zA-Z]+ failed \(-32603\)$"


@both
@pytest.mark.req("ROOT-04")
@pytest.mark.parametrize(
    ("options", "request_"),
    [({"sampling": ...}, SAMPLE), ({"elicitation": ...}, FORM), ({"roots": ...}, ListRootsRequest())],
)
def test_a_callback_that_fails_is_an_internal_error(later: bool, options: Any, request_: Any) -> None:
    given: Any = dict.fromkeys(options, returning(ValueError("secret"), later=later))
    link = Link(Server("s"), **given, era="handshake")
    with pytest.raises(RequestError, match=FAILED):
        link.do(link.session.request(request_))
    assert str(link.errors[0]) == "secret"


UNSAYABLE = ElicitResult("accept", {"a": object()})  # type: ignore[dict-item]  # the mistake


@both
@pytest.mark.parametrize(("name", "request_"), [("sampling", SAMPLE), ("elicitation", FORM)])
@pytest.mark.parametrize("value", [None, "text", FORM, UNSAYABLE])
def test_an_answer_of_the_wrong_type_is_an_internal_error(later: bool, name: str, request_: Any, value: Any) -> None:
    given: Any = {name: returning(value, later=later)}
    link = Link(Server("s"), **given, era="handshake")
    with pytest.raises(RequestError, match=FAILED):
        link.do(link.session.request(request_))
    assert len(link.reports) == 1


def test_callback_gets_the_server_in_its_scope() -> None:
    scopes: list[RequestScope] = []

    def sample(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
        scopes.append(scope)
        assert request == SAMPLE
        return SAID

    link = Link(Server("s"), sampling=sample, era="handshake")
    link.do(link.session.request(SAMPLE))
    assert scopes[0].peer.info == Implementation("s", "0")
    assert scopes[0].meta == {}


def test_slow_callback_is_reported_with_advice() -> None:
    def sample(*_: Any) -> CreateMessageResult:
        link.pair.now += 1
        return SAID

    link = Link(Server("s"), sampling=sample, era="handshake")
    link.do(link.session.request(SAMPLE))
    assert link.reports == ["sampling/createMessage held up everything else for 1000 ms: make its function async"]


@pytest.mark.req("ELIC-11")
@pytest.mark.parametrize(
    "answer", [ElicitResult("accept", {"a": 1.5, "b": ("c",)}), ElicitResult("decline"), ElicitResult("cancel")]
)
def test_elicitation_callback_answers(answer: ElicitResult) -> None:
    link = Link(Server("s"), elicitation=lambda *_: answer, era="handshake")
    assert link.do(link.session.request(FORM)) == answer


FIELDS: dict[str, Any] = {
    "name": StringSchema(min_length=2),
    "size": UntitledSingleSelectEnumSchema(("s", "l"), default="l"),
    "gift": BooleanSchema(default=False),
}
ORDER = ElicitFormRequest("Your order?", ElicitSchema(FIELDS, ("name",)))


@both
@pytest.mark.req("ELIC-09")
def test_an_accepted_form_goes_out_with_its_defaults(later: bool) -> None:
    link = Link(
        Server("s"),
        elicitation=returning(ElicitResult("accept", {"name": "Ada", "size": "s"}), later=later),
        era="handshake",
    )
    assert link.do(link.session.request(ORDER)).content == {"name": "Ada", "size": "s", "gift": False}


@both
@pytest.mark.req("ELIC-12")
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "content: missing: name"),
        ({"name": "A"}, "content.name: expected at least 2 characters, got 1"),
        ({"name": "Ada", "size": "xl"}, 'content.size: expected one of s, l, got "xl"'),
    ],
)
def test_invalid_form_content_is_not_sent(later: bool, content: Any, fault: str) -> None:
    link = Link(Server("s"), elicitation=returning(ElicitResult("accept", content), later=later), era="handshake")
    with pytest.raises(RequestError, match="Internal error"):
        link.do(link.session.request(ORDER))
    assert str(link.errors[0]) == f"the answer to elicitation/create: {fault}"


def test_default_that_breaks_the_form_is_left_out() -> None:
    fields: dict[str, Any] = {"mail": StringSchema(format="email", default=""), "gift": BooleanSchema(default=False)}
    request = ElicitFormRequest("Where to?", ElicitSchema(fields))
    link = Link(Server("s"), elicitation=returning(ElicitResult("accept", {}), later=False), era="handshake")
    assert link.do(link.session.request(request)).content == {"gift": False}


@both
@pytest.mark.req("SAMP-08")
def test_invalid_sampling_message_is_not_sent(later: bool) -> None:
    answer = CreateMessageResult("assistant", ToolUseContent("1", "a", {}), "model")
    link = Link(Server("s"), sampling=returning(answer, later=later), era="handshake")
    with pytest.raises(RequestError, match="Internal error"):
        link.do(link.session.request(SAMPLE))
    assert str(link.errors[0]) == ("the answer to sampling/createMessage: the model uses a tool where it may use none")


WITH_URL = ClientCapabilities(elicitation=ElicitationCapability(url={}))


@pytest.mark.req("ELIC-02", "ELIC-14", "ELIC-18", "SAMP-06")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}),
        ("elicitation/create", {"mode": "url", "message": "m", "url": "javascript:alert(1)", "elicitationId": "1"}),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1, "tools": []}),
    ],
)
def test_undeclared_request_reaches_no_callback(method: str, params: dict[str, Any]) -> None:
    asked: list[Any] = []

    def callback(*asks: Any) -> Any:
        asked.append(asks)

    declared = ClientCapabilities(elicitation=ElicitationCapability(url={}), sampling=SamplingCapability())
    link = Link(Server("s"), elicitation=callback, sampling=callback, capabilities=declared)
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    link.pair.client.receive_data(json.dumps(request).encode() + b"\n", link.pair.now)
    link.run()
    assert (asked, list(link.pair.client.pending.incoming)) == ([], [])


@pytest.mark.req("ELIC-18", "ELIC-22")
def test_callback_sees_the_server_and_the_host_of_the_url() -> None:
    said: list[str] = []

    def elicit(scope: RequestScope, request: Any) -> ElicitResult:
        said.append(f"{scope.peer.info.name} wants you to visit {web_address(request.url).host}: {request.message}")
        return ElicitResult("cancel")

    link = Link(Server("the bank"), elicitation=elicit, capabilities=WITH_URL, era="handshake")
    link.do(link.session.request(ElicitURLRequest("Log in", "https://Example.com/x", "1")))
    assert said == ["the bank wants you to visit example.com: Log in"]


@both
@pytest.mark.req("ELIC-10")
def test_content_with_a_refusal_is_the_callbacks_mistake(later: bool) -> None:
    link = Link(Server("s"), elicitation=returning(ElicitResult("decline", {"a": 1}), later=later), era="handshake")
    with pytest.raises(RequestError, match="Internal error"):
        link.do(link.session.request(FORM))
    assert str(link.errors[0]) == (
        "the answer to elicitation/create: content comes with the action accept of a form, and with nothing else"
    )


ROOTS = (Root("file:///a", "A"), Root("file:///b"))


@pytest.mark.req("ROOT-02")
@pytest.mark.parametrize(
    "roots",
    [list(ROOTS), ROOTS, lambda: ROOTS, lambda: iter(ROOTS), returning(ROOTS, later=True)],
    ids=["list", "tuple", "function", "function of an iterator", "async"],
)
def test_roots_are_given_as_a_list_or_a_function(roots: Any) -> None:
    link = Link(Server("s"), roots=roots, era="handshake")
    for _ in range(2):
        assert link.do(link.session.request(ListRootsRequest())).roots == ROOTS


@pytest.mark.req("ROOT-03")
def test_changed_roots_are_notified() -> None:
    roots = list(ROOTS)
    heard: list[Any] = []
    server = Server("s")
    server.notification_handlers["notifications/roots/list_changed"] = lambda _, told: heard.append(told)
    link = Link(server, roots=lambda: roots, era="handshake")
    roots.pop()
    link.client.notify_roots_changed()
    link.run()
    assert heard == [RootsListChangedNotification()]
    assert link.do(link.session.request(ListRootsRequest())).roots == ROOTS[:1]
    with pytest.raises(LocalProtocolError, match="needs the capability roots"):
        Link(Server("s"), era="handshake").client.notify_roots_changed()


@pytest.mark.req("ROOT-03")
@pytest.mark.parametrize("roots", [list(ROOTS[1:]), lambda: ROOTS[1:]], ids=["list", "function"])
def test_changed_roots_are_reported(roots: Any) -> None:
    heard: list[Any] = []
    server = Server("s")
    server.notification_handlers["notifications/roots/list_changed"] = lambda _, told: heard.append(told)
    link = Link(server, roots=ROOTS, era="handshake")
    link.client.set_roots(roots)
    link.run()
    assert heard == [RootsListChangedNotification()]
    assert link.do(link.session.request(ListRootsRequest())).roots == ROOTS[1:]


def test_undeclared_roots_change_is_not_sent() -> None:
    heard: list[Any] = []
    server = Server("s")
    server.notification_handlers["notifications/roots/list_changed"] = lambda _, told: heard.append(told)
    link = Link(server, roots=ROOTS, capabilities=ClientCapabilities(roots=RootsCapability()), era="handshake")
    link.client.set_roots([])
    link.run()
    assert heard == []
    assert link.do(link.session.request(ListRootsRequest())).roots == ()


def test_invalid_roots_change_nothing() -> None:
    link = Link(Server("s"), roots=ROOTS, era="handshake")
    with pytest.raises(ValueError, match="must begin with file://"):
        link.client.set_roots([Root("https://example.com")])
    assert link.do(link.session.request(ListRootsRequest())).roots == ROOTS
    with pytest.raises(LocalProtocolError, match="needs the capability roots"):
        Link(Server("s"), era="handshake").client.set_roots([])
    with pytest.raises(LocalProtocolError, match="made without roots="):
        Link(Server("s"), era="stateless").client.set_roots([])
    link.client.close()
    link.run()
    with pytest.raises(NoBackChannel):
        link.client.set_roots([])


def test_tool_whose_client_fails_says_so_without_the_clients_secrets() -> None:
    server = Server("s")

    @server.tool
    async def book(ctx: Context) -> str:
        return str(await ctx.elicit(FORM))

    link = Link(server, elicitation=returning(ValueError("secret"), later=True), era="handshake")
    said = "Internal error: the client's handler of elicitation/create failed (-32603)"
    assert link.text("book") == f"failed: 'book' failed: RequestError: {said}"
    assert [str(error) for error in link.errors] == ["secret", said]


@pytest.mark.req("ROOT-02")
def test_root_that_is_not_a_file_uri_is_an_internal_error() -> None:
    link = Link(Server("s"), roots=lambda: [Root("https://example.com")], era="handshake")
    with pytest.raises(RequestError, match="Internal error"):
        link.do(link.session.request(ListRootsRequest()))
    assert str(link.errors[0]).startswith("roots: the URI must begin with file://")


@pytest.mark.req("ELIC-23", "ROOT-04")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", '{"messages":[],"maxTokens":1}'),
        ("elicitation/create", '{"message":"hi","requestedSchema":{"type":"object","properties":{}}}'),
        ("roots/list", "{}"),
        ("custom/method", "{}"),
    ],
)
@pytest.mark.parametrize("declared", [False, True])
def test_unserved_method_is_not_found(method: str, params: str, declared: bool) -> None:
    """Also where a client declared what it does not serve."""
    capabilities = ClientCapabilities(
        sampling=SamplingCapability(), elicitation=ElicitationCapability(), roots=RootsCapability()
    )
    link = Link(Server("s"), capabilities=capabilities if declared else None, era="handshake")
    raw = f'{{"jsonrpc":"2.0","id":"x","method":"{method}","params":{params}}}\n'
    link.pair.client.receive_data(raw.encode(), 0)
    link.run()
    assert f'"Method not found: {method}"'.encode() in link.pair.sent(Role.CLIENT)


@pytest.mark.req("ROOT-02")
@pytest.mark.parametrize(
    ("roots", "kind", "message"),
    [
        (
            [Root("https://example.com")],
            ValueError,
            "roots: the URI must begin with file://, not 'https://",
        ),
        (["file:///a"], TypeError, "roots must be Root objects, not 'file:///a'"),
        (iter(ROOTS), TypeError, "roots must be a list, or a function that returns one, not <tuple_iterator"),
    ],
)
def test_invalid_roots_are_refused_at_once(roots: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        roots_handler(roots)
