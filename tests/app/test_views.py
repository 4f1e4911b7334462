"""Views that a server offers: their resource, the tools that name them, and clients that show none."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from linked import Link

from mcpio._drivers import lifespan_of
from mcpio.app import runtime
from mcpio.app.context import Context
from mcpio.app.forwarding import ForwardingServer
from mcpio.app.server import Server
from mcpio.app.views import is_origin
from mcpio.types import BlobResourceContents, ClientCapabilities, TextResourceContents

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
SHOWS = ClientCapabilities(extensions={EXTENSION: {"mimeTypes": [MIME_TYPE]}})
PAGE = "<!doctype html><title>Clock</title>"


@pytest.fixture(params=["handshake", "stateless"])
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def page() -> str:
    return PAGE


def clock(**options: Any) -> Server:
    server = Server("clock")
    server.view("ui://clock", page, **options)

    @server.tool(view="ui://clock")
    def now(ctx: Context) -> str:
        return "views" if ctx.shows_views else "text"

    @server.tool(visibility=("app",))
    def wind() -> str:
        return "wound"

    return server


def contents(link: Link, uri: str = "ui://clock") -> Any:
    (found,) = link.do(link.client.read_resource(uri)).contents
    return found


def ui_of(link: Link) -> Any:
    """Return the view's description of itself, which its resource and its content agree on."""
    (listed,) = link.do(link.client.list_resources()).resources
    found = contents(link, listed.uri)
    assert listed.meta["ui"] == found.meta["ui"]
    assert listed.mime_type == found.mime_type == MIME_TYPE
    return found.meta["ui"]


# Declared


@pytest.mark.req("APP-01")
def test_server_with_a_view_declares_the_extension(era: Any) -> None:
    assert Link(clock(), era=era).client.server.capabilities.extensions == {EXTENSION: {}}
    assert Link(Server("s"), era=era).client.server.capabilities.extensions is None


@pytest.mark.req("APP-01")
def test_client_that_declares_no_views_gets_the_text_alone(era: Any) -> None:
    assert Link(clock(), era=era, capabilities=SHOWS).text("now") == "views"
    others: list[Any] = [{}, 5, {"mimeTypes": ["text/html"]}, {"mimeTypes": {}}]
    for declared in (None, {}, *({EXTENSION: each} for each in others)):
        assert Link(clock(), era=era, capabilities=ClientCapabilities(extensions=declared)).text("now") == "text"


# The resource


@pytest.mark.req("APP-02")
def test_view_is_a_resource_with_its_policy_on_the_resource_and_the_content(era: Any) -> None:
    options: Any = {
        "connect": ["https://api.example.com", "wss://live.example.com:8443"],
        "resources": ("https://*.example.com",),
        "frames": ["https://maps.example.com"],
        "bases": ["http://localhost:3000"],
        "permissions": ["camera", "clipboardWrite"],
        "border": True,
        "domain": "clock.example.com",
    }
    link = Link(clock(**options), era=era)
    assert ui_of(link) == {
        "csp": {
            "connectDomains": ["https://api.example.com", "wss://live.example.com:8443"],
            "resourceDomains": ["https://*.example.com"],
            "frameDomains": ["https://maps.example.com"],
            "baseUriDomains": ["http://localhost:3000"],
        },
        "permissions": {"camera": {}, "clipboardWrite": {}},
        "prefersBorder": True,
        "domain": "clock.example.com",
    }
    assert contents(link).text == PAGE


@pytest.mark.req("APP-02")
def test_view_without_options_declares_nothing(era: Any) -> None:
    assert ui_of(Link(clock(connect=None, resources=(), permissions=[], border=None), era=era)) == {}


@pytest.mark.req("APP-02")
def test_file_is_read_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("clock.html")
    file.write_text("<!doctype html>ü", "utf-8")
    server = Server("s")
    server.view("ui://a/clock.html", "clock.html", title="Clock", meta={"com.example/a": 1})
    monkeypatch.chdir("/")
    link = Link(server)
    assert contents(link, "ui://a/clock.html").text == "<!doctype html>ü"
    (tmp_path / file).write_text("<!doctype html>new", "utf-8")
    assert contents(link, "ui://a/clock.html").text == "<!doctype html>new"
    (listed,) = link.do(link.client.list_resources()).resources
    assert (listed.name, listed.title, listed.meta["com.example/a"]) == ("clock.html", "Clock", 1)


@pytest.mark.req("APP-02")
def test_page_of_bytes_is_a_blob_with_the_policy() -> None:
    server = Server("s")
    server.view("ui://clock", PAGE.encode, border=False)
    found = contents(Link(server))
    assert isinstance(found, BlobResourceContents)
    assert base64.b64decode(found.blob).decode() == PAGE
    assert found.meta["ui"] == {"prefersBorder": False}


@pytest.mark.req("APP-02")
def test_policy_of_a_plain_resource_is_on_its_content_too() -> None:
    server = Server("s")

    @server.resource("ui://clock", mime_type=MIME_TYPE, meta={"ui": {"prefersBorder": True}})
    def view() -> Any:
        return page()

    @server.resource("data://own", meta={"ui": {"prefersBorder": True}})
    def own() -> TextResourceContents:
        return TextResourceContents("data://own", "text")

    link = Link(server)
    assert contents(link).meta == {"ui": {"prefersBorder": True}}
    assert contents(link, "data://own").meta == {}


@pytest.mark.parametrize("uri", ["clock", "ui://", "http://clock", "ui://{id}", None, 5])
def test_uri_that_no_view_can_have_is_refused(uri: Any) -> None:
    with pytest.raises(ValueError, match="begin with ui://"):
        Server("s").view(uri, page)


@pytest.mark.req("APP-02")
@pytest.mark.parametrize(
    "origin",
    ["example.com", "https://example.com/", "https://a.com; script-src *", "https://a.com,b.com", "https://*", "*",
     "'unsafe-eval'", "https://a b", "https://user@a.com", "ftp://a.com", "data:", "https://a.com\n", "https://é.com",
     "https://a.com:", "https://-a.com", "https://a.*.com", "https://[::1]", "", 5, None, "https://" + "a" * 600],
)  # fmt: skip
def test_what_is_not_an_origin_is_refused(origin: Any) -> None:
    assert not is_origin(origin)
    for option in ("connect", "resources", "frames", "bases"):
        with pytest.raises(ValueError, match=f"{option} must be origins"):
            clock(**{option: [origin]})


def test_wrong_options_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="connect must be a list"):
        clock(connect="https://example.com")
    with pytest.raises(TypeError, match="frames must be a list"):
        clock(frames=5)
    with pytest.raises(ValueError, match="permissions must be of camera"):
        clock(permissions=["screen"])
    with pytest.raises(TypeError, match="border must be bool"):
        clock(border="yes")
    with pytest.raises(TypeError, match="domain must be str"):
        clock(domain=5)
    with pytest.raises(ValueError, match=r"use the options of Server\.view"):
        clock(meta={"ui": {}})
    with pytest.raises(TypeError, match="conect"):
        clock(conect=[])
    with pytest.raises(FileNotFoundError):
        Server("s").view("ui://clock", "no such file.html")


def test_file_before_any_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "OPENERS", {})
    monkeypatch.setattr("mcpio.app.views.OPENERS", {})
    with pytest.raises(RuntimeError, match=r"import mcpio\.trio"):
        Server("s").view("ui://clock", "clock.html")


# Tools


@pytest.mark.req("APP-03")
def test_tool_names_its_view_and_who_may_call_it(era: Any) -> None:
    link = Link(clock(), era=era)
    metas = {tool.name: tool.meta for tool in link.do(link.client.list_tools()).tools}
    assert metas == {"now": {"ui": {"resourceUri": "ui://clock"}}, "wind": {"ui": {"visibility": ["app"]}}}


@pytest.mark.req("APP-03")
def test_tool_with_a_view_that_is_no_uri_is_refused() -> None:
    server = Server("s")
    with pytest.raises(ValueError, match=r"page\(\): view must be the URI of a view"):
        server.tool(page, view="clock")
    wrong: Any = ((), ("model", "nobody"), [[]])
    for visibility in wrong:
        with pytest.raises(ValueError, match=r"page\(\): visibility must be 'model', 'app' or both"):
            server.tool(page, visibility=visibility)
    with pytest.raises(TypeError, match="visibility must be a list"):
        server.tool(page, visibility="app")
    with pytest.raises(ValueError, match="the member ui of meta="):
        server.tool(page, view="ui://clock", meta={"ui": {}})


@pytest.mark.req("APP-03")
def test_missing_view_is_an_error_when_the_server_is_served() -> None:
    server = Server("s")
    server.tool(page, view="ui://clock", meta={"com.example/a": 1})
    with pytest.raises(ValueError, match="the tool 'page' has the view 'ui://clock', which does not exist"):
        lifespan_of(server)
    server.view("ui://clock", page)
    lifespan_of(server)
    with pytest.raises(ValueError, match="the tool 'late' has the view 'ui://other'"):
        server.tool(page, name="late", view="ui://other")
    assert "late" not in server.tools
    server.tool(page, name="late", view="ui://clock")


@pytest.mark.req("APP-03")
def test_view_may_be_disabled_of_a_template_or_not_be_named_at_all() -> None:
    server = Server("s")

    @server.resource("ui://clocks/{id}", mime_type=MIME_TYPE)
    def view(id: str) -> str:
        return id

    server.view("ui://clock", page)
    server.resources.static.disable("ui://clock")
    server.tool(page, name="a", view="ui://clocks/5")
    server.tool(page, name="b", view="ui://clock")
    server.tool(page, name="c", meta={"ui": 5})
    server.check_views()


@pytest.mark.req("APP-02", "APP-03")
def test_views_of_a_mounted_server_keep_their_uris(era: Any) -> None:
    parent = Server("parent")
    parent.mount(clock(border=True), prefix="hall")
    parent.check_views()
    link = Link(parent, era=era, capabilities=SHOWS)
    assert link.client.server.capabilities.extensions == {EXTENSION: {}}
    assert ui_of(link) == {"prefersBorder": True}
    assert link.text("hall__now") == "views"
    metas = {tool.name: tool.meta for tool in link.do(link.client.list_tools()).tools}
    assert metas["hall__now"] == {"ui": {"resourceUri": "ui://clock"}}


def test_proxy_offers_no_view_of_its_own() -> None:
    with pytest.raises(TypeError, match="never be served"):
        ForwardingServer(lambda _: None, may_change=False).view("ui://clock", page)  # type: ignore[arg-type,return-value]  # never entered
