"""The backend of the inspector, asked as its page asks it, without a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import trio

from mcpio import Client, ConnectFailed, Context, Limits, Options, RequestError, Server
from mcpio.app import TaskOptions
from mcpio.app.client import ClientOptions
from mcpio.framing.json import loads
from mcpio.inspecting.backend import Inspector
from mcpio.inspecting.ladder import Ladder, LadderTap
from mcpio.testing import parse_script, play
from mcpio.trio import memory_client
from mcpio.types import CreateMessageRequest, CreateMessageResult, SamplingMessage, TextContent
from mcpio.types.base import CustomRequest
from mcpio.view_pages import ViewPages

Era = Literal["handshake", "stateless"]
both_eras = pytest.mark.parametrize("era", ["handshake", "stateless"])


@dataclass
class Seats:
    seats: int


def kitchen() -> Server:
    server = Server("kitchen", "1.0", instructions="Bake.")

    @server.tool
    async def bake(ctx: Context, kind: str, count: int = 1) -> dict[str, int]:
        """Bake loaves."""
        ctx.progress(1, 2, "rising")
        ctx.debug("hot")
        ctx.info("baked")
        return {"loaves": count}

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask for seats."""
        answer = await ctx.elicit("How many seats?", Seats)
        return type(answer).__name__

    @server.tool
    async def sleep(ctx: Context) -> str:
        """Sleep for long."""
        await ctx.sleep(1000)
        return "awake"

    @server.resource("note://one")
    def one() -> str:
        return "a note"

    return server


class Page:
    """What a browser's page does."""

    def __init__(self, client: Client, inspector: Inspector) -> None:
        self._client = client
        self.inspector = inspector
        self.entries: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}
        self._number = 0

    async def ask(self, asked: str, /, **params: Any) -> dict[str, Any]:
        """Ask the backend."""
        answer: dict[str, Any] = await self._client.request(CustomRequest(f"inspect/{asked}", params))
        return answer

    async def send(self, sent: str, /, timeout: float | None = None, **params: Any) -> dict[str, Any]:
        """Have the backend send a request to the target."""
        return await self.ask("send", method=sent, params=params, timeout=timeout)

    async def until(self, is_there: Callable[[Page], object]) -> None:
        """Watch until something is there."""
        while not is_there(self):
            after = self.entries[-1]["n"] if self.entries else 0
            found = await self.ask("watch", after=after, state=self._number)
            self.entries += found["entries"]
            self.state, self._number = found.get("state", self.state), found.get("number", self._number)

    def of(self, method: str, kind: str = "request") -> dict[str, Any]:
        """Return the newest entry of a method."""
        return [each for each in self.entries if each.get("method") == method and each["kind"] == kind][-1]

    def has(self, method: str, kind: str = "result") -> bool:
        """Whether an entry of a method has been seen."""
        return any(each.get("method") == method and each["kind"] == kind for each in self.entries)


def inspecting(
    main: Callable[[Page], Awaitable[None]],
    server: Server | None = None,
    era: Era | None = "handshake",
    *,
    options: Options | None = None,
    **more: Any,
) -> None:
    """Run ``main`` with the page of an inspector of a server."""
    target = server or kitchen()

    def open_client(of_client: ClientOptions, tap: LadderTap) -> AbstractAsyncContextManager[Client]:
        if era is not None:
            of_client["era"] = era
        if options is not None:
            of_client["options"] = options
        return memory_client(target, tap=tap, **of_client)

    async def run() -> None:
        inspector = Inspector(open_client, Ladder(trio.current_time), {"target": "kitchen.py"}, **more)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inspector.run)
            async with memory_client(inspector.server) as client:
                page = Page(client, inspector)
                with trio.fail_after(20):
                    await page.until(lambda page: page.state.get("connected"))
                    await main(page)
            nursery.cancel_scope.cancel()

    trio.run(run)


@both_eras
def test_target_is_described(era: Era) -> None:
    async def main(page: Page) -> None:
        about = await page.ask("about")
        assert (about["target"], about["mode"], about["saves"]) == ("kitchen.py", "inspect", False)
        assert (page.state["era"], page.state["server"]["name"]) == (era, "kitchen")
        assert page.state["instructions"] == "Bake."
        assert page.state["why"] == f"This client was to speak the {era} era only."

    inspecting(main, era=era)


@both_eras
def test_given_sampler_answers_instead_of_a_person(era: Era) -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        question = SamplingMessage("user", TextContent("How warm?"))
        return (await ctx.sample(CreateMessageRequest((question,), max_tokens=9))).text

    async def main(page: Page) -> None:
        answer = await page.send("tools/call", name="ask", arguments={})
        assert answer["result"]["content"][0]["text"] == "warm"
        assert page.state["questions"] == []

    answer = CreateMessageResult("assistant", TextContent("warm"), "a file")
    inspecting(main, server, era, sampling=lambda scope, request: answer)


@both_eras
def test_called_tool_answers_and_is_in_the_ladder(era: Era) -> None:
    async def main(page: Page) -> None:
        answer = await page.send("tools/call", timeout=60, name="bake", arguments={"kind": "rye", "count": 2})
        assert answer["result"]["structuredContent"] == {"loaves": 2}
        await page.until(lambda page: page.has("tools/call"))
        request, result = page.of("tools/call"), page.of("tools/call", "result")
        assert answer["n"] == request["n"]
        assert (request["from"], request["name"], result["from"], result["of"]) == (
            "client",
            "bake",
            "server",
            request["n"],
        )
        assert request["due"] == pytest.approx(request["at"] + 60)
        assert result["took"] >= 0
        assert page.of("notifications/message", "notification")["name"] == "info"
        progress = page.of("notifications/progress", "notification")
        assert progress["of"] == request["n"]
        text = await page.ask("text", n=request["n"])
        assert '"kind":"rye"' in text["text"]
        assert (await page.ask("find", text="KIND"))["found"] == [
            each["n"] for each in page.entries if "kind" in (await page.ask("text", n=each["n"]))["text"].lower()
        ]

    inspecting(main, era=era)


@both_eras
def test_lists_and_other_requests_are_passed_on(era: Era) -> None:
    async def main(page: Page) -> None:
        tools = await page.ask("list", what="tools")
        assert [tool["name"] for tool in tools["items"]] == ["bake", "ask", "sleep"]
        assert (await page.send("resources/read", uri="note://one"))["result"]["contents"][0]["text"] == "a note"
        failed = await page.send("tools/call", name="none")
        assert failed["error"]["code"] == -32602
        assert (await page.send("x/y"))["error"]["code"] == -32601
        refused = await page.send("prompts/list")
        assert "error" in refused

    inspecting(main, era=era)


@both_eras
def test_person_answers_a_form(era: Era) -> None:
    async def main(page: Page) -> None:
        async def answer() -> None:
            await page.until(lambda page: page.state["questions"])
            (asked,) = page.state["questions"]
            assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "How many seats?")
            with pytest.raises(RequestError, match="seats"):
                await page.ask("answer", id=asked["id"], result={"action": "accept", "content": {"seats": "many"}})
            await page.ask("answer", id=asked["id"], result={"action": "accept", "content": {"seats": 2}})
            with pytest.raises(RequestError, match="does not wait"):
                await page.ask("answer", id=asked["id"], result={"action": "decline"})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            assert (await page.send("tools/call", name="ask"))["result"]["content"][0]["text"] == "Accepted"
        await page.until(lambda page: not page.state["questions"])

    inspecting(main, era=era)


@both_eras
def test_timeout_says_what_was_waited_for(era: Era) -> None:
    async def main(page: Page) -> None:
        answer = await page.send("tools/call", timeout=0.05, name="sleep")
        assert answer["error"]["kind"] == "timeout"
        (given_up,) = (await page.ask("now"))["given_up"]
        assert (given_up["name"], given_up["method"]) == ("sleep", "tools/call")

    inspecting(main, era=era)


def test_answer_that_is_too_long_is_refused_and_ends_its_request() -> None:
    server = Server("long")

    @server.tool
    def long() -> str:
        """Return a long text."""
        return "x" * 20_000

    async def main(page: Page) -> None:
        answer = await page.send("tools/call", name="long")
        said = "a message is longer than 10000 bytes; to read longer ones, give mcpio inspect --max-message MIB"
        assert answer["error"] == {"kind": "InvalidMessage", "message": said}
        assert (await page.ask("now"))["open"] == []
        (cut,) = [each for each in page.inspector.ladder.after(0) if each["kind"] == "malformed"]
        assert (cut["name"], cut["failed"]) == ("long", True)

    inspecting(main, server, options=Options(limits=Limits(message_bytes=10_000, resync=True)))


def test_open_request_and_its_cancellation_are_seen() -> None:
    async def main(page: Page) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def look() -> None:
                    await page.until(lambda page: page.has("tools/call", "request"))
                    (waiting,) = (await page.ask("now"))["open"]
                    assert (waiting["name"], waiting["from"]) == ("sleep", "client")
                    scope.cancel()

                nursery.start_soon(look)
                await page.send("tools/call", name="sleep")
        await page.until(lambda page: page.has("notifications/cancelled", "notification"))
        assert (await page.ask("now"))["open"] == []

    inspecting(main)


def test_now_tells_memory_and_limits() -> None:
    async def main(page: Page) -> None:
        now = await page.ask("now")
        assert now["phase"] == "operating"
        assert all(each["limit"] > each["bytes"] >= 0 for each in now["held"].values())

    inspecting(main)


@both_eras
def test_copied_conversation_can_be_played(era: Era) -> None:
    async def main(page: Page) -> None:
        await page.send("tools/call", name="bake", arguments={"kind": "rye"})
        await page.until(lambda page: page.has("tools/call"))
        number = page.of("tools/call")["n"]
        script = (await page.ask("copy", **{"as": "script"}, n=number, name="bake", arguments={}))["text"]
        assert "notifications/progress" in script
        play(parse_script(script))

    inspecting(main, era=era)


@both_eras
def test_copied_conversation_with_a_question_can_be_played(era: Era) -> None:
    async def main(page: Page) -> None:
        async def answer() -> None:
            await page.until(lambda page: page.state["questions"])
            accepted = {"action": "accept", "content": {"seats": 2}}
            await page.ask("answer", id=page.state["questions"][0]["id"], result=accepted)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            await page.send("tools/call", name="ask")
        await page.until(lambda page: page.has("tools/call"))
        number = next(each["n"] for each in page.entries if each.get("method") == "tools/call")
        script = (await page.ask("copy", **{"as": "script"}, n=number, name="ask", arguments={}))["text"]
        assert ("client answer" in script) == (era == "handshake")
        assert script.count("client request") == (1 if era == "handshake" else 2)
        assert "Accepted" in script
        play(parse_script(script))

    inspecting(main, era=era)


def test_copied_conversations_of_a_cancelled_call_and_of_a_task_can_be_played() -> None:
    server = Server("s", tasks=TaskOptions())

    @server.tool(task_support="optional")
    async def sleep(ctx: Context) -> str:
        await ctx.sleep(1000)
        return "awake"

    async def main(page: Page) -> None:
        cancelled = await page.send("tools/call", timeout=0.01, name="sleep", arguments={})
        task = await page.send("tools/call", name="sleep", arguments={}, task={})
        for answer, said in ((cancelled, "client cancel c2"), (task, '"task":{}')):
            script = (await page.ask("copy", **{"as": "script"}, n=answer["n"], name="sleep"))["text"]
            assert said in script
            play(parse_script(script))

    inspecting(main, server)


def test_copied_test_makes_the_call() -> None:
    async def main(page: Page) -> None:
        copied = await page.ask("copy", **{"as": "test"}, name="bake it!", arguments={"kind": "rye"})
        assert "def test_bake_it_answers() -> None:" in copied["text"]
        assert "async with open_stdio(['kitchen']) as client:" in copied["text"]
        compile(copied["text"], "test", "exec")

    opener = ("import trio", "", "from mcpio.trio import open_stdio"), "open_stdio(['kitchen'])"
    inspecting(main, opener=opener)


def test_command_that_cannot_be_copied_is_an_error() -> None:
    def words(name: str, arguments: object) -> str:
        raise ValueError(f"cannot hold {name}")

    async def main(page: Page) -> None:
        with pytest.raises(RequestError, match="cannot hold --inherit-env"):
            await page.ask("copy", **{"as": "command"}, name="--inherit-env")

    inspecting(main, words=words)


def test_lens_shows_a_call_in_both_eras() -> None:
    async def main(page: Page) -> None:
        odd = await page.ask("lens", method="tools/call", params={"name": "a\u2028b"})
        assert all(loads(era["request"])["params"]["name"] == "a\u2028b" for era in odd["eras"])
        lens = await page.ask("lens", method="tools/call", params={"name": "bake", "arguments": {"kind": "rye"}})
        old, new = lens["eras"]
        assert (old["revision"], new["revision"]) == ("2025-11-25", "2026-07-28")
        assert '"method":"initialize"' in old["opening"][0]
        assert new["opening"] == []
        assert "io.modelcontextprotocol/protocolVersion" in new["request"]
        assert "io.modelcontextprotocol" not in old["request"]
        old, new = (await page.ask("lens", method="ping", params={}))["eras"]
        assert old["why"] is None
        assert new["why"] == "PingRequest does not exist in 2026-07-28"

    inspecting(main)


def test_view_of_a_tool_has_an_address() -> None:
    server = Server("clock")
    server.view("ui://clock", lambda: "<p>now</p>")

    @server.tool(view="ui://clock")
    def now() -> str:
        """Tell the time."""
        return "12:00"

    async def main(page: Page) -> None:
        assert (await page.ask("view", name="now", arguments={}))["url"].startswith("http://127.0.0.1:")
        with pytest.raises(RequestError, match="has no tool 'none' with a view"):
            await page.ask("view", name="none")

    with ViewPages() as pages:
        inspecting(main, server, views=lambda: pages)


def test_failed_connection_is_explained_and_tried_again() -> None:
    tries: list[str] = []

    @asynccontextmanager
    async def open_client(options: ClientOptions, tap: LadderTap) -> AsyncIterator[Client]:
        tries.append("try")
        if len(tries) == 1:
            raise ConnectFailed("cannot start it") from OSError("no such file")
        async with memory_client(kitchen(), tap=tap, **options) as client:
            yield client

    async def run() -> None:
        ladder = Ladder(trio.current_time)
        inspector = Inspector(open_client, ladder, {}, explained=lambda error: f"{error}: {error.__cause__}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inspector.run)
            async with memory_client(inspector.server) as client:
                page = Page(client, inspector)
                with trio.fail_after(20):
                    await page.until(lambda page: page.state.get("ended"))
                    assert page.state["ended"] == "cannot start it: no such file"
                    with pytest.raises(RequestError, match="there is no connection: cannot start it"):
                        await page.send("ping")
                    await page.ask("restart")
                    await page.until(lambda page: page.state["connected"])
            nursery.cancel_scope.cancel()

    trio.run(run)


def test_server_that_ends_leaves_the_page() -> None:
    async def main(page: Page) -> None:
        client = page.inspector._client
        assert client is not None
        client.close(0)
        await page.until(lambda page: page.state.get("ended"))
        assert page.state["ended"].startswith("the connection ended")
        assert not page.state["connected"]

    inspecting(main)


def test_restart_opens_the_target_anew() -> None:
    async def main(page: Page) -> None:
        before = page.inspector.ladder.last
        await page.ask("restart")
        await page.until(lambda page: page.entries and page.entries[-1]["n"] > before + 2 and page.state["connected"])
        assert (await page.send("resources/read", uri="note://one"))["result"]
        with pytest.raises(RequestError, match="era must be one of auto, handshake, stateless"):
            await page.ask("restart", era="old")

    inspecting(main)


def test_restart_may_choose_the_era() -> None:
    async def main(page: Page) -> None:
        assert page.state["era"] == "stateless"
        await page.ask("restart", era="handshake")
        await page.until(lambda page: page.state.get("era") == "handshake")
        await page.ask("restart")
        await page.until(lambda page: page.state.get("era") == "stateless")

    inspecting(main, era=None)


def test_roots_are_given_to_the_server() -> None:
    server = Server("r")

    @server.tool
    async def where(ctx: Context) -> str:
        """Tell the roots."""
        return " ".join(root.uri for root in await ctx.roots())

    async def main(page: Page) -> None:
        await page.ask("roots", roots=[{"uri": "file:///here", "name": "here"}])
        assert (await page.send("tools/call", name="where"))["result"]["content"][0]["text"] == "file:///here"

    inspecting(main, server)


def test_nonsense_is_refused_with_a_reason() -> None:
    async def main(page: Page) -> None:
        for method, params in (
            ("text", {"n": 10_000}),
            ("text", {"n": "x"}),
            ("find", {}),
            ("send", {"method": "ping", "timeout": "x"}),
            ("roots", {"roots": [{}]}),
            ("save", {}),
            ("drift", {}),
            ("copy", {"as": "script", "n": 10_000, "name": "x"}),
            ("list", {"what": "x"}),
            ("view", {"name": "bake"}),
        ):
            with pytest.raises(RequestError):
                await page.ask(method, **params)

    inspecting(main)
