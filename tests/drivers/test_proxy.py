"""A server that has another one answer, and sessions that outlive the server behind them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from eachloop import EachLoop, Here, on_each_virtual_loop

from mcpio import Client, ConnectFailed, Context, Limits, Options, Server, TextContent
from mcpio.app import Accepted, Form
from mcpio.app.forwarding import HANDSHAKE_ERA, ForwardingServer
from mcpio.errors import ErrorCode, RequestError, UnexpectedResponse
from mcpio.events import Peer
from mcpio.http import HttpOptions
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2025_03_26,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
    Era,
    Revision,
)
from mcpio.types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitResult,
    ListToolsResult,
    LoggingMessageNotification,
    PromptListChangedNotification,
    PromptsCapability,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    Root,
    SamplingMessage,
    ServerCapabilities,
    Tool,
    ToolListChangedNotification,
    ToolsCapability,
)


@attrs.frozen
class Order:
    """An order."""

    seats: int


STATELESS_ONLY = Options(revisions=(REV_2026_07_28,))


def _kitchen(version: str = "1", options: Options | None = None) -> Server:
    server = Server("kitchen", version, title="The kitchen", instructions="Mind the stove.", options=options)
    server.cancelled = []  # type: ignore[attr-defined]  # what the tests look at

    @server.tool
    def bake(kind: str) -> str:
        """Bake a loaf."""
        return f"{kind} of {version}"

    @server.tool
    async def steps(ctx: Context) -> str:
        for step in range(3):
            ctx.progress(step, 3, "kneading")
            await ctx.sleep(0.001)
        ctx.warning("hot", "oven")
        return "done"

    @server.tool
    async def wait(ctx: Context) -> None:
        try:
            await ctx.sleep(1e6)
        finally:
            server.cancelled.append("wait")  # type: ignore[attr-defined]  # likewise

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", Form(Order))
        assert isinstance(answer, Accepted)
        message = await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 9))
        return f"{answer.value.seats}, {message.text}, {[root.name for root in await ctx.roots()]}"

    @server.tool
    def refuse() -> str:
        raise RequestError(-32010, "no flour", {"left": 0})

    @server.tool
    def touch() -> int:
        return server.notify_resource_updated("bench://notes")

    @server.resource("bench://notes")
    def notes() -> str:
        return f"notes of {version}"

    @server.resource("bench://{drawer}")
    def drawer(drawer: str) -> str:
        return drawer

    @server.prompt
    def greet(who: str) -> str:
        return f"Greet {who}"

    @server.completion("who", prompt="greet")
    def names(text: str) -> list[str]:
        return [text + "a"]

    return server


class Kitchens:
    """A source of servers: each is the next version. ``fail`` and ``hang`` say what the next ones do."""

    def __init__(self, here: Here, make: Callable[[str], Server] = _kitchen) -> None:
        self.here = here
        self.make = make
        self.servers: list[Server] = []
        self.clients: list[Client] = []
        self.fail = False
        self.hang = False
        self.replace = self.here.event()

    async def watch(self) -> None:
        await self.replace.wait()
        self.replace = self.here.event()

    async def reload(self) -> None:
        self.replace.set()
        await self.here.settle()

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[Client]:
        if self.fail:
            raise ConnectFailed("burnt down")
        if self.hang:
            await self.here.forever()
        server = self.make(str(len(self.clients)))  # of those that a client took
        self.servers.append(server)
        async with self.here.drivers.memory_client(server, **options) as client:
            self.clients.append(client)
            yield client


def through(here: Here, source: Any, *, watch: Any = None, **options: Any) -> Any:
    """Return the block of a client of a proxy of ``source``."""
    return here.drivers.memory_client(here.drivers.proxy(source, watch=watch), **options)


def _sampled(scope: Any, request: Any) -> CreateMessageResult:
    return CreateMessageResult("assistant", TextContent("a tree"), "m")


@pytest.mark.parametrize("options", [None, STATELESS_ONLY], ids=["sessions", "stateless"])
@on_each_virtual_loop
async def test_every_feature_passes_through(here: Here, options: Options | None) -> None:
    seen: list[Any] = []
    handling: dict[str, Any] = {
        "elicitation": lambda scope, request: ElicitResult("accept", {"seats": 2}),
        "sampling": _sampled,
        "roots": [Root("file:///srv", "srv")],
        "on_notification": seen.append,
    }
    async with through(here, Kitchens(here, partial(_kitchen, options=options)), **handling) as client:
        assert client.era is Era.HANDSHAKE
        assert client.server.info.display_name == "The kitchen"
        assert client.server.instructions == "Mind the stove."
        assert [tool.name async for tool in client.tools()][:2] == ["bake", "steps"]
        assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"
        progress: list[Any] = []
        result = await client.call_tool("steps", on_progress=lambda *said: progress.append(said))
        assert result.text == "done"
        assert progress == [(step, 3, "kneading") for step in range(3)]
        assert [each.data for each in seen if isinstance(each, LoggingMessageNotification)] == ["hot"]
        assert (await client.call_tool("ask")).text == "2, a tree, ['srv']"
        assert [each.uri async for each in client.resources()] == ["bench://notes"]
        assert [each.uri_template async for each in client.resource_templates()] == ["bench://{drawer}"]
        assert (await client.call_tool("touch")).structured_content == {"result": 0}
        await client.subscribe_resource("bench://notes")
        assert (await client.call_tool("touch")).structured_content == {"result": 1}
        await here.settle()
        assert [each.uri for each in seen if isinstance(each, ResourceUpdatedNotification)] == ["bench://notes"]
        await client.unsubscribe_resource("bench://notes")
        await here.settle()
        assert (await client.call_tool("touch")).structured_content == {"result": 0}
        seen.clear()
        await client.set_log_level("error")
        await client.call_tool("steps")  # its warning is below the level
        assert not any(isinstance(each, LoggingMessageNotification) for each in seen)
        (contents,) = (await client.read_resource("bench://socks")).contents
        assert contents.uri == "bench://socks"
        assert [each.name async for each in client.prompts()] == ["greet"]
        assert (await client.get_prompt("greet", {"who": "you"})).messages[0].content == TextContent("Greet you")
        client.set_roots([Root("file:///new", "new")])
        await here.settle()
        assert (await client.call_tool("ask")).text == "2, a tree, ['new']"
        with pytest.raises(RequestError, match="no flour") as caught:
            await client.call_tool("refuse")
        assert (caught.value.code, caught.value.data) == (-32010, {"left": 0})


def test_capabilities_are_those_of_the_server_found_last() -> None:
    proxied = ForwardingServer(lambda _: nullcontext(), may_change=False)
    for capabilities in (ServerCapabilities(tools=ToolsCapability()), ServerCapabilities(prompts=PromptsCapability())):
        proxied.adopt(Peer(proxied.info, capabilities, None))
        assert (proxied.capabilities.tools, proxied.capabilities.prompts) == (capabilities.tools, capabilities.prompts)


@on_each_virtual_loop
async def test_each_session_has_its_own_session_behind_the_proxy(here: Here) -> None:
    kitchens = Kitchens(here)
    server = here.drivers.proxy(kitchens)
    async with here.drivers.memory_client(server) as one, here.drivers.memory_client(server) as two:
        for _ in range(3):
            await one.call_tool("bake", {"kind": "rye"})
        texts = {(await client.call_tool("bake", {"kind": "rye"})).text for client in (one, two)}
        assert len(texts) == 2
        one.close()
        await here.settle()
        assert [client.connection.closed for client in kitchens.clients].count(False) == 1
        assert (await two.call_tool("bake", {"kind": "rye"})).text in texts


@on_each_virtual_loop
async def test_cancelled_request_cancelled_behind_too(here: Here) -> None:
    kitchens = Kitchens(here)
    async with through(here, kitchens) as client:
        with here.scope(5):
            await client.call_tool("wait")
        await here.settle()
        assert kitchens.servers[-1].cancelled == ["wait"]  # type: ignore[attr-defined]  # see _kitchen


@on_each_virtual_loop
async def test_server_that_does_not_start_ends_the_serving(here: Here) -> None:
    kitchens = Kitchens(here)
    kitchens.fail = True
    with pytest.raises(ConnectFailed, match="burnt down"):
        async with through(here, kitchens):
            pytest.fail("served")


@on_each_virtual_loop
async def test_dead_server_started_again_for_the_next_request(here: Here) -> None:
    kitchens = Kitchens(here)
    async with through(here, kitchens) as client:
        async with here.tasks() as tasks:

            async def doomed() -> None:
                with pytest.raises(RequestError, match="the server behind this proxy is gone: ") as caught:
                    await client.call_tool("wait")
                assert caught.value.code == ErrorCode.INTERNAL_ERROR

            tasks.spawn(doomed())
            await here.settle()
            kitchens.clients[-1].close(0)
        assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 2"
        kitchens.clients[-1].close(0)
        await here.settle()
        kitchens.fail = True
        with pytest.raises(RequestError, match="the server behind this proxy does not start: burnt down"):
            await client.call_tool("bake", {"kind": "rye"})
        kitchens.fail = False
        assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 3"


@on_each_virtual_loop
async def test_request_that_cannot_be_passed_on_fails_with_the_reason(here: Here) -> None:
    small = Options(revisions=HANDSHAKE_REVISIONS, limits=Limits(sent_message_bytes=1000))
    async with through(here, partial(here.drivers.memory_client, _kitchen(), options=small)) as client:
        with pytest.raises(RequestError, match="cannot be passed on to the server behind this"):
            await client.call_tool("bake", {"kind": "x" * 2000})
        assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"


def test_server_that_asks_for_ever_behind_a_proxy_is_given_up(each_virtual_loop: EachLoop) -> None:
    server = Server("asking", options=STATELESS_ONLY)

    @server.tool
    async def ask(ctx: Context) -> str:
        while True:
            await ctx.elicit("How many?", Form(Order))

    async def main(here: Here) -> None:
        elicit: dict[str, Any] = {"elicitation": lambda scope, request: ElicitResult("accept", {"seats": 2})}
        async with through(here, partial(here.drivers.memory_client, server), **elicit) as client:
            with pytest.raises(RequestError, match="the server behind this proxy gives no answer: "):
                await client.call_tool("ask")

    each_virtual_loop.run(main, virtual=True)


# Replacing the server


@pytest.mark.parametrize("behind", [None, STATELESS_ONLY], ids=["sessions", "stateless"])
def test_session_outlives_three_servers(behind: Options | None, each_virtual_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        kitchens, seen = Kitchens(here, partial(_kitchen, options=behind)), list[Any]()
        asked = here.event()
        gone: list[str] = []

        async def elicit(scope: Any, request: Any) -> ElicitResult:
            nonlocal asked
            asked.set()
            try:
                await here.forever()
            finally:
                gone.append("the question")
            raise AssertionError

        options: dict[str, Any] = {"elicitation": elicit, "on_notification": seen.append}
        async with through(here, kitchens, watch=kitchens.watch, **options) as client:
            await client.subscribe_resource("bench://notes")
            await client.set_log_level("error")
            for version in ("2", "3", "4"):
                seen.clear()
                async with here.tasks() as tasks:

                    async def doomed() -> None:
                        with pytest.raises(
                            RequestError, match="replaced by a newer one while it handled this"
                        ) as caught:
                            await client.call_tool("ask")
                        assert caught.value.data == {"reason": "reloaded"}

                    tasks.spawn(doomed())
                    await asked.wait()
                    asked = here.event()
                    await kitchens.reload()
                assert gone == ["the question"] * (int(version) - 1)
                kinds = [type(each) for each in seen]
                assert kinds == [
                    ToolListChangedNotification,
                    ResourceListChangedNotification,
                    PromptListChangedNotification,
                ]
                assert (await client.call_tool("bake", {"kind": "rye"})).text == f"rye of {version}"
                assert (await client.call_tool("touch")).structured_content == {"result": 1}  # still subscribed
                assert isinstance(seen[-1], ResourceUpdatedNotification)
                await client.call_tool("steps")  # its warning is below the level
                assert not any(isinstance(each, LoggingMessageNotification) for each in seen)
            await client.unsubscribe_resource("bench://notes")
            await kitchens.reload()
            assert (await client.call_tool("touch")).structured_content == {"result": 0}
            alive = [each for each in kitchens.clients if not each.connection.closed]
            assert alive == kitchens.clients[-1:]

    each_virtual_loop.run(main, virtual=True)


def test_replacement_that_fails_or_hangs_leaves_the_old_server(
    caplog: pytest.LogCaptureFixture, each_virtual_loop: EachLoop
) -> None:
    async def main(here: Here) -> None:
        kitchens = Kitchens(here)
        async with through(here, kitchens, watch=kitchens.watch) as client:
            assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"
            kitchens.fail = True
            await kitchens.reload()
            assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"
            kitchens.fail, kitchens.hang = False, True
            before = here.now()
            kitchens.replace.set()
            await here.settle()
            assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"  # waited for the outcome
            assert here.now() - before == pytest.approx(15)
            kitchens.hang = False
            await kitchens.reload()
            assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 2"

    each_virtual_loop.run(main, virtual=True)
    said = [record.message for record in caplog.records]
    assert said == [
        "the new server does not start, so the old one stays: burnt down",
        "the new server does not start, so the old one stays: no answer within 15 s",
    ]


def test_watch_that_fails_is_reported_and_the_server_stays(
    caplog: pytest.LogCaptureFixture, each_virtual_loop: EachLoop
) -> None:
    async def fail() -> None:
        raise OSError("no such directory")

    async def main(here: Here) -> None:
        async with through(here, Kitchens(here), watch=fail) as client:
            await here.settle()
            assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"

    each_virtual_loop.run(main, virtual=True)
    assert "watch= failed" in caplog.text


@on_each_virtual_loop
async def test_reload_before_the_first_request_starts_nothing(here: Here) -> None:
    kitchens = Kitchens(here)
    async with through(here, kitchens, watch=kitchens.watch) as client:
        await kitchens.reload()
        assert len(kitchens.servers) == 1  # the one that was asked for its name
        assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"


def test_features_come_and_go_with_a_replacement(each_virtual_loop: EachLoop) -> None:
    def make(version: str) -> Server:
        return Server("bare", version) if version in ("0", "1") else _kitchen(version)

    async def main(here: Here) -> None:
        kitchens = Kitchens(here, make)
        async with through(here, kitchens, watch=kitchens.watch) as client:
            assert [tool async for tool in client.tools()] == []
            assert [each async for each in client.resources()] == []
            assert [each async for each in client.resource_templates()] == []
            assert [each async for each in client.prompts()] == []
            with pytest.raises(RequestError, match="the server behind this proxy has no tools/call") as caught:
                await client.call_tool("bake", {"kind": "rye"})
            assert caught.value.code == ErrorCode.METHOD_NOT_FOUND
            await kitchens.reload()
            assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 2"

    each_virtual_loop.run(main, virtual=True)


@on_each_virtual_loop
async def test_session_that_ends_during_a_reload_leaves_nothing(here: Here) -> None:
    kitchens = Kitchens(here)
    async with through(here, kitchens, watch=kitchens.watch) as client:
        await client.call_tool("bake", {"kind": "rye"})
        kitchens.hang = True
        kitchens.replace.set()
        await here.settle()
    assert all(each.connection.closed for each in kitchens.clients)


@pytest.mark.parametrize(
    ("options", "expected"), [(None, REV_2025_11_25), (STATELESS_ONLY, REV_2026_07_28)], ids=["both", "stateless"]
)
@on_each_virtual_loop
async def test_server_behind_has_sessions_where_it_offers_them(
    here: Here, options: Options | None, expected: Revision
) -> None:
    kitchens = Kitchens(here, partial(_kitchen, options=options))
    async with through(here, kitchens) as client:
        await client.call_tool("bake", {"kind": "rye"})
        assert kitchens.clients[-1].connection.revision == expected
        assert client.connection.revision == REV_2025_11_25


@pytest.mark.parametrize("revisions", [REVISIONS, HANDSHAKE_REVISIONS], ids=["both", "handshake"])
def test_server_without_sessions_over_http_is_used_as_stateless_if_it_can(
    revisions: tuple[Revision, ...], each_loop: EachLoop
) -> None:
    server = _kitchen(options=Options(revisions=revisions))
    asking: dict[str, Any] = {
        "elicitation": lambda scope, request: ElicitResult("accept", {"seats": 2}),
        "sampling": _sampled,
        "roots": [Root("file:///srv", "srv")],
    }

    async def main(here: Here) -> None:
        options = HttpOptions(sessions=False)
        async with (
            here.listening("http", server, port=0, options=options) as (listening, _),
            through(here, partial(here.open_http, listening.url), **asking) as client,
        ):
            assert (await client.call_tool("bake", {"kind": "rye"})).text == "rye of 1"
            answer = await client.call_tool("ask")
            assert answer.is_error is (revisions is HANDSHAKE_REVISIONS)
            assert answer.is_error or answer.text == "2, a tree, ['srv']"

    each_loop.run(main)


@pytest.mark.parametrize(("output", "content"), [([1], ()), (None, ()), ("é", (TextContent("said"),)), ({"a": 1}, ())])
def test_output_that_is_no_object_comes_as_text_alone(
    output: Any, content: tuple[TextContent, ...], each_virtual_loop: EachLoop
) -> None:
    schemas: list[dict[str, Any] | None] = [None, {"type": "array"}, {"type": "object"}, {}]
    server = Server("new", "1", options=STATELESS_ONLY)

    def tools(scope: Any, request: Any) -> ListToolsResult:
        return ListToolsResult(tuple(Tool("find", {"type": "object"}, output_schema=schema) for schema in schemas))

    @server.tool
    def find() -> CallToolResult:
        return CallToolResult(content, structured_content=output, given=("structured_content",))

    server.handlers["tools/list"] = tools

    async def main(here: Here) -> None:
        async with through(here, partial(here.drivers.memory_client, server)) as client:
            listed = [tool.output_schema async for tool in client.tools()]
            assert listed == [None, None, {"type": "object"}, None]
            found = await client.call_tool("find")
            is_object = isinstance(output, dict)
            assert found.structured_content == (output if is_object else None)
            assert found.has_structured_content is is_object
            text = TextContent(json.dumps(output, ensure_ascii=False))
            assert found.content == (content if is_object else content or (text,))

    each_virtual_loop.run(main, virtual=True)


@pytest.mark.parametrize("status", [None, 400])
def test_server_that_refuses_both_eras_reported_by_its_first_answer(
    status: int | None, each_virtual_loop: EachLoop
) -> None:
    attempts: list[Any] = []

    def refuse(**options: Any) -> Any:
        attempts.append(options.get("options"))
        cause = RequestError(-32601, "no") if status is None else UnexpectedResponse(status, "text/plain", "no")
        raise ConnectFailed(f"refused {len(attempts)}") from cause

    async def main(here: Here) -> None:
        with pytest.raises(ConnectFailed, match=r"^refused 1$"):
            async with through(here, refuse):
                pytest.fail("served")
        assert attempts == [HANDSHAKE_ERA, None]

    each_virtual_loop.run(main, virtual=True)


@on_each_virtual_loop
async def test_options_of_the_source_kept(here: Here) -> None:
    options = Options(revisions=(REV_2025_03_26,))
    kitchen = _kitchen()
    async with through(here, partial(here.drivers.memory_client, kitchen, options=options)) as client:
        await client.call_tool("bake", {"kind": "rye"})
        assert [session.connection.revision for session in kitchen.sessions] == [REV_2025_03_26]


@on_each_virtual_loop
async def test_client_without_capabilities_declares_none(here: Here) -> None:
    server: Any = here.drivers.proxy(Kitchens(here))
    session = SimpleNamespace(connection=server.connection())  # before its handshake
    assert list(server.options_for(session)) == ["on_notification"]
