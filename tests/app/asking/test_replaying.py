"""One handler for both eras: run again with the answers where there is no session, waiting for them where there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import attrs
import pytest
import trio
from linked import Link
from loops import by_hand, quiet, under_asyncio, under_trio
from questions import SAMPLE, said
from statelessly import EVERYTHING, StatelessClient, accept

from mcpio.app.asking import Accepted, Declined, ElicitAnswer
from mcpio.app.context import Context
from mcpio.app.rounds import HmacSealer, RequestStates, Sealer
from mcpio.app.runtime import Runtime
from mcpio.app.schema.signature import Depends
from mcpio.app.server import Server
from mcpio.errors import CapabilityMissing, ErrorCode, RequestError, ToolError, URLElicitationRequired
from mcpio.seals import AeadSealer
from mcpio.testing import ManualRuntime
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    Root,
    SamplingCapability,
    StringSchema,
    TaskMetadata,
    TextContent,
    ToolUseContent,
)

KEY = bytes(range(32))
T = TypeVar("T")


@attrs.frozen
class Name:
    name: str


@attrs.frozen
class Count:
    count: int


Answer: TypeAlias = Callable[[str, dict[str, Any]], Any]


class World:
    """A server whose tool is called in one era on one event loop, by a user with these answers."""

    def __init__(self, era: str, loop: str) -> None:
        self.era = era
        self.loop = loop
        self.server = Server("shop", states=RequestStates([KEY]))
        self.rounds: list[dict[str, Any]] = []
        self.reports: list[str] = []
        self.asked: list[str] = []

    def call(self, answer: Answer, **arguments: Any) -> str:
        """Call the tool ``work`` to its end, and return its text, a failure marked."""
        return (
            self._by_handshake(answer, arguments) if self.era == "handshake" else self._statelessly(answer, arguments)
        )

    def _by_handshake(self, answer: Answer, arguments: dict[str, Any]) -> str:
        def elicit(_: Any, request: Any) -> ElicitResult:
            self.asked.append(request.message)
            return ElicitResult(**answer("", {"method": "elicitation/create", "params": {"message": request.message}}))

        def sample(_: Any, request: Any) -> Any:
            self.asked.append("sample")
            return said("hello")

        link = Link(
            self.server,
            elicitation=elicit,
            sampling=sample,
            roots=[Root("file:///a")],
            capabilities=EVERYTHING,
            era="handshake",
        )
        text = link.text("work", **arguments)
        self.reports = link.reports
        return text

    def _statelessly(self, answer: Answer, arguments: dict[str, Any]) -> str:
        found = []

        def heard(key: str, question: dict[str, Any]) -> Any:
            self.asked.append(question["params"]["message"] if "message" in question.get("params", {}) else "sample")
            return answer(key, question)

        async def main(runtime: Runtime) -> None:
            client = StatelessClient(self.server, runtime)
            found.append(await client.talk("work", heard, arguments))
            self.rounds, self.reports = client.rounds, client.reports

        {"trio": under_trio, "asyncio": under_asyncio, "manual": by_hand}[self.loop](main)
        text = "\n".join(block["text"] for block in found[0]["content"])
        return f"failed: {text}" if found[0].get("isError") else text


WORLDS = [("handshake", "manual"), ("stateless", "manual"), ("stateless", "trio"), ("stateless", "asyncio")]


@pytest.fixture(params=WORLDS, ids=["-".join(world) for world in WORLDS])
def world(request: pytest.FixtureRequest) -> World:
    return World(*request.param)


@pytest.fixture(params=["manual", "trio", "asyncio"])
def stateless(request: pytest.FixtureRequest) -> World:
    return World("stateless", request.param)


def filled(answer: ElicitAnswer[T]) -> T:
    """Return the form that the user filled in."""
    assert isinstance(answer, Accepted)
    return answer.value


def by_message(**answers: Any) -> Answer:
    """Answer each question by the first word of its message."""
    return lambda _, question: answers[question["params"]["message"].split()[0].rstrip("?,")]


ADA = by_message(Name=accept(name="Ada"), Count=accept(count=3), Sure=accept(name="yes"))


@pytest.mark.req("ERA-15", "MRTR-02", "MRTR-03")
def test_one_question(world: World) -> None:
    passes = []

    @world.server.tool
    async def work(greeting: str, ctx: Context) -> str:
        passes.append(1)
        match await ctx.elicit("Name?", Name, key="user_name"):
            case Accepted(Name(name)):
                return f"{greeting}, {name}"
        return "nobody"

    assert world.call(lambda key, question: accept(name="Ada"), greeting="Hello") == "Hello, Ada"
    assert (world.asked, world.reports) == (["Name?"], [])
    if world.era == "stateless":
        assert len(passes) == 2
        assert list(world.rounds[0]["inputRequests"]) == ["user_name"]
        assert "requestState" not in world.rounds[0]  # one round carries nothing


@pytest.mark.req("MRTR-17")
def test_refusal_is_an_answer(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        return type(await ctx.elicit("Name?", Name)).__name__

    assert world.call(lambda *_: {"action": "decline"}) == Declined.__name__


@pytest.mark.req("MRTR-09")
def test_questions_one_after_the_other_carry_the_answers(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        name = await ctx.elicit("Name?", Name)
        count = await ctx.elicit("Count?", Count)
        sure = await ctx.elicit(f"Sure, {filled(name).name}?", Name)
        return f"{filled(name).name} {filled(count).count} {filled(sure).name}"

    answers = {"Name?": accept(name="Ada"), "Count?": accept(count=3), "Sure, Ada?": accept(name="yes")}
    assert world.call(lambda _, question: answers[question["params"]["message"]]) == "Ada 3 yes"
    assert world.asked == ["Name?", "Count?", "Sure, Ada?"]
    if world.era == "stateless":
        assert ["requestState" in each for each in world.rounds] == [False, True, True, False]
        assert len({each.get("requestState") for each in world.rounds[1:3]}) == 2


def test_questions_together_are_one_round(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        name, message, roots = await ctx.together(ctx.elicit("Name?", Name), ctx.sample(SAMPLE), ctx.roots())
        return f"{filled(name).name} {message.text} {roots[0].uri}"

    def answer(_: str, question: dict[str, Any]) -> Any:
        return {
            "elicitation/create": accept(name="Ada"),
            "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"},
            "roots/list": {"roots": [{"uri": "file:///a"}]},
        }[question["method"]]

    assert world.call(answer) == "Ada hello file:///a"
    if world.era == "stateless":
        assert [each.get("resultType", "complete") for each in world.rounds] == ["input_required", "complete"]
        asked = world.rounds[0]["inputRequests"].values()
        assert [each["method"] for each in asked] == ["elicitation/create", "sampling/createMessage", "roots/list"]
        assert "params" not in list(asked)[2]


def test_together_without_questions_returns_an_empty_result(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        return f"{await ctx.together()}"

    assert world.call(ADA) == "()"


def test_failure_beside_a_question_wins(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        async def fails() -> None:
            raise ToolError("no stock")

        await ctx.together(ctx.elicit("Name?", Name), fails(), ctx.elicit("Count?", Count))
        return "unreached"

    assert world.call(ADA) == "failed: no stock"


async def awaited(function: Callable[[], Awaitable[Any]]) -> Any:
    return await function()


Several: TypeAlias = Callable[[list[Callable[[], Awaitable[Any]]]], Awaitable[None]]


async def in_nursery(functions: list[Callable[[], Awaitable[Any]]]) -> None:
    async with trio.open_nursery() as nursery:
        for function in functions:
            nursery.start_soon(function)


async def in_task_group(functions: list[Callable[[], Awaitable[Any]]]) -> None:
    async with asyncio.TaskGroup() as group:
        for function in functions:
            group.create_task(awaited(function))


async def gathered(functions: list[Callable[[], Awaitable[Any]]]) -> None:
    await asyncio.gather(*(function() for function in functions))


WAYS = [("trio", in_nursery), ("asyncio", in_task_group), ("asyncio", gathered)]
ways = pytest.mark.parametrize(("loop", "way"), WAYS, ids=["nursery", "task-group", "gather"])


@ways
def test_parallel_questions_make_one_round(loop: str, way: Several) -> None:
    world = World("stateless", loop)

    @world.server.tool
    async def work(ctx: Context) -> str:
        found = {}

        async def ask(message: str) -> None:
            answer = await ctx.elicit(message, Name)
            found[message] = filled(answer).name

        async def ask_deeper() -> None:
            await way([lambda: ask("c"), lambda: ask("d")])

        await way([lambda: ask("a"), lambda: ask("b"), ask_deeper])
        await ask("e")
        return " ".join(f"{key}{found[key]}" for key in sorted(found))

    letters = {letter: accept(name=letter.upper()) for letter in "abcde"}
    assert world.call(by_message(**letters)) == "aA bB cC dD eE"
    assert [len(each.get("inputRequests", {})) for each in world.rounds] == [4, 1, 0]
    assert world.reports == []


@ways
def test_failure_of_a_sibling_task_wins(loop: str, way: Several) -> None:
    world = World("stateless", loop)

    @world.server.tool
    async def work(ctx: Context) -> str:
        async def fails() -> None:
            raise ToolError("no stock")

        await way([lambda: ctx.elicit("Name?", Name), fails])
        return "unreached"

    assert world.call(ADA) == "failed: no stock"


@ways
@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_failure_of_a_sibling_task_wins_elsewhere(loop: str, way: Several, method: str) -> None:
    server = Server("s")

    async def fails() -> None:
        raise RequestError(-32000, "no stock")

    @server.prompt
    async def work(ctx: Context) -> str:
        await way([lambda: ctx.elicit("Name?", Name), fails])
        return "unreached"

    server.resource("work://it")(work)

    async def main(runtime: Runtime) -> None:
        params = {"name": "work"} if method == "prompts/get" else {"uri": "work://it"}
        with pytest.raises(RequestError, match="no stock"):
            await StatelessClient(server, runtime).request(method, params)

    {"trio": under_trio, "asyncio": under_asyncio}[loop](main)


def test_finally_blocks_run_and_except_exception_does_not_catch(stateless: World) -> None:
    steps = []

    @stateless.server.tool
    async def work(ctx: Context) -> str:
        try:
            try:
                answer = await ctx.elicit("Name?", Name)
            except Exception:
                steps.append("caught")
                raise
            return filled(answer).name
        finally:
            steps.append("closed")

    assert stateless.call(ADA) == "Ada"
    assert steps == ["closed", "closed"]


def test_bare_except_is_reported_to_the_operator(stateless: World) -> None:
    @stateless.server.tool
    async def work(ctx: Context) -> str:
        try:
            await ctx.elicit("Name?", Name)
        except BaseException:
            return "swallowed"
        return "unreached"

    assert stateless.call(ADA) == "swallowed"
    assert ["caught what leaves a handler" in report for report in stateless.reports] == [True]


def test_question_after_a_timeout_of_the_handlers_own_is_not_asked() -> None:
    world = World("stateless", "trio")

    @world.server.tool
    async def work(ctx: Context) -> str:
        with trio.move_on_after(0):
            await ctx.elicit("Name?", Name)
        return "went on"

    assert world.call(ADA) == "went on"
    assert world.reports == []


# What is remembered


def test_effects_happen_once(world: World) -> None:
    reserved, ids = [], []

    @world.server.tool
    async def work(city: str, ctx: Context) -> str:
        def reserve() -> dict[str, int]:
            reserved.append(city)
            return {"price": 10 * len(reserved)}

        async def checked() -> Count:
            return Count(7)

        def nothing() -> Any:
            return None

        ids.append(ctx.flow_id)
        quote = await ctx.once("quote", reserve)
        count = await ctx.once("count", checked)
        plain = await ctx.once("plain", lambda: (1, 2))
        none = await ctx.once("none", nothing)
        name = await ctx.elicit(f"Sure about {quote['price']}?", Name)
        await ctx.elicit("Name?", Name)
        return f"{quote} {count} {plain} {none} {filled(name).name}"

    text = world.call(ADA, city="Oslo")
    assert text == "{'price': 10} Count(count=7) [1, 2] None yes"
    assert reserved == ["Oslo"]
    assert len(set(ids)) == 1
    assert len(ids[0]) == 32
    assert len(ids) == (1 if world.era == "handshake" else 3)


def test_once_remembers_within_a_pass(world: World) -> None:
    ran = []

    @world.server.tool
    async def work(ctx: Context) -> str:
        for _ in range(2):
            await ctx.once("it", lambda: ran.append(1))
        return "done"

    assert (world.call(ADA), len(ran)) == ("done", 1)


@ways
def test_once_in_parallel_tasks_runs_one_function(loop: str, way: Several) -> None:
    world, found, ran = World("stateless", loop), [], []

    @world.server.tool
    async def work(ctx: Context) -> str:
        async def reserve() -> int:
            ran.append(1)
            await ctx.sleep(0)
            return len(ran)

        async def task() -> None:
            found.append(await ctx.once("it", reserve))

        await way([task, task, task])
        return "done"

    assert (world.call(ADA), ran, found) == ("done", [1], [1, 1, 1])


@ways
def test_once_in_parallel_tasks_is_tried_again_after_a_failure(loop: str, way: Several) -> None:
    world, ran = World("stateless", loop), []

    @world.server.tool
    async def work(ctx: Context) -> str:
        async def reserve() -> int:
            ran.append(1)
            await ctx.sleep(0)
            return 1 // (len(ran) - 1)

        async def fails() -> None:
            with pytest.raises(ZeroDivisionError):
                await ctx.once("it", reserve)

        async def succeeds() -> None:
            while not ran:
                await ctx.sleep(0)
            assert await ctx.once("it", reserve) == 1

        await way([fails, succeeds])
        return "done"

    assert (world.call(ADA), len(ran)) == ("done", 2)


def test_once_rejects_a_value_that_is_not_json(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        await ctx.once("it", object)
        return "unreached"

    assert "a value of type object has no form in JSON" in world.call(ADA)


def test_once_with_an_unreadable_annotation_is_refused(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        class Local: ...

        def local() -> Local:
            return Local()

        await ctx.once("it", local)
        return "unreached"

    assert "its return annotation cannot be read: name 'Local' is not defined" in world.call(ADA)


def test_once_with_a_value_of_another_type_is_refused(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        def odd() -> int:
            return cast("int", "text")

        await ctx.once("it", odd)
        return "unreached"

    assert "odd(): expected an integer" in world.call(ADA)


def test_secrets_need_encryption(stateless: World) -> None:
    @stateless.server.tool
    async def work(ctx: Context) -> str:
        token = await ctx.once("token", lambda: "s3cret", secret=True)
        await ctx.elicit("Name?", Name)
        return token

    assert "a sealer that encrypts" in stateless.call(ADA)
    stateless.server._states = RequestStates(sealer=AeadSealer([KEY]))
    assert stateless.call(ADA) == "s3cret"


def test_blocking_handler_has_a_flow_too() -> None:
    server, found = Server("s"), []

    @server.tool(blocking=True)
    def work(ctx: Context) -> None:
        found.extend([ctx.flow_id, ctx.flow_id, ctx.answers, ctx.request_state])

    Link(server).call("work")
    assert found == [found[0], found[0], {}, None]


# Keys


def test_equal_questions_get_separate_answers(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        answers = [await ctx.elicit("Name?", Name) for _ in range(3)]
        return " ".join(filled(answer).name for answer in answers)

    names = iter(["Ada", "Bob", "Cy"])
    assert world.call(lambda *_: accept(name=next(names))) == "Ada Bob Cy"


def test_key_given_twice_is_refused(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        await ctx.together(ctx.elicit("Name?", Name, key="a"), ctx.elicit("Count?", Count, key="a"))
        return "unreached"

    assert "the handler asks twice with key='a'" in world.call(ADA)


def test_answer_to_another_question_does_not_count(stateless: World) -> None:
    price = iter([10, 20, 20, 20])

    @stateless.server.tool
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit(f"Pay {next(price)}?", Name)
        return filled(answer).name

    assert stateless.call(lambda *_: accept(name="yes")) == "yes"
    assert stateless.asked == ["Pay 10?", "Pay 20?"]
    assert stateless.reports == []  # once may be a new version of the server


def test_handler_that_asks_something_else_each_time_is_reported(stateless: World) -> None:
    numbers = iter(range(100))

    @stateless.server.tool
    async def work(ctx: Context) -> str:
        number = next(numbers)
        if number < 4:
            await ctx.elicit(f"Number {number}?", Name)
        return f"{number}"

    assert stateless.call(lambda *_: accept(name="yes")) == "4"
    assert len(stateless.reports) == 2
    assert stateless.reports[0].startswith("the handler of tools/call 'work' asks something else each time")


# Answers that do not fit


BAD: list[Any] = [accept(), accept(name=5), {"action": "accept"}, {"roots": []}]
"""Answers that are results, and do not fit their question."""


@pytest.mark.req("MRTR-12", "MRTR-11")
@pytest.mark.parametrize("bad", BAD)
def test_answer_that_does_not_fit_is_asked_for_again(bad: Any) -> None:
    world = World("stateless", "manual")

    @world.server.tool
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", Name, key="name")
        return filled(answer).name

    answers = iter([bad, accept(name="Ada")])
    assert world.call(lambda *_: next(answers)) == "Ada"
    assert (world.asked, world.reports) == (["Name?", "Name?"], [])
    assert "requestState" not in world.rounds[1]


@pytest.mark.req("MRTR-09", "MRTR-12", "MRTR-11")
def test_answers_without_a_question_or_state_count(stateless: World) -> None:
    @stateless.server.tool
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", Name, key="name")
        return filled(answer).name

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(stateless.server, runtime)
        cold = await client.call(
            "work", answers={"name": accept(name="Ada"), "odd": {"roots": []}, "other": accept(x=1)}
        )
        assert cold["content"][0]["text"] == "Ada"
        other = await client.call("work", answers={"other": accept(x=1)})
        assert other["resultType"] == "input_required"

    under_trio(main)


def test_accepted_answer_in_the_state_takes_precedence_over_a_new_one(stateless: World) -> None:
    @stateless.server.tool
    async def work(ctx: Context) -> str:
        pays = await ctx.elicit("Pay?", Name, key="pay")
        await ctx.elicit("Count?", Count, key="count")
        return filled(pays).name

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(stateless.server, runtime)
        state = (await client.call("work", answers={"pay": accept(name="10")}))["requestState"]
        answers = {"pay": accept(name="0"), "count": accept(count=1)}
        assert (await client.call("work", answers=answers, state=state))["content"][0]["text"] == "10"

    under_trio(main)


# State


@pytest.mark.req("MRTR-09")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_invalid_state_is_an_error_even_where_none_is_ever_sent(method: str) -> None:
    server = Server("s")

    def quiet() -> str:
        raise AssertionError("it was called")

    server.tool(quiet)
    server.prompt(quiet)
    server.resource("quiet://it")(quiet)

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(server, runtime)
        params = {"uri": "quiet://it"} if method == "resources/read" else {"name": "quiet"}
        with pytest.raises(RequestError, match="Invalid request state") as caught:
            await client.request(method, params, state="v1.forged")
        assert (caught.value.code, caught.value.data) == (-32602, {"reason": "invalid_request_state"})
        assert "was rejected: " in client.reports[0]

    under_trio(main)


@pytest.mark.req("MRTR-10")
def test_state_of_another_principal_is_an_error() -> None:
    world = World("stateless", "trio")

    @world.server.tool
    async def work(ctx: Context) -> str:
        await ctx.once("it", lambda: 1)
        await ctx.elicit("Name?", Name)
        return "done"

    async def main(runtime: Runtime) -> None:
        ada, bob = (StatelessClient(world.server, runtime, principal=name) for name in ("ada", "bob"))
        state = (await ada.call("work"))["requestState"]
        with pytest.raises(RequestError, match="Invalid request state"):
            await bob.call("work", state=state)
        assert "it belongs to another principal" in bob.reports[0]
        assert (await ada.call("work", state=state))["resultType"] == "input_required"

    under_trio(main)


@pytest.mark.req("MRTR-09", "MRTR-10")
@pytest.mark.parametrize("sealer", [HmacSealer, AeadSealer], ids=["hmac", "aead"])
def test_state_can_be_used_again_until_it_expires(sealer: Callable[[list[bytes]], Sealer]) -> None:
    server, booked = Server("s", states=RequestStates(sealer=sealer([KEY]), ttl=100)), list[str]()

    @server.tool
    async def work(ctx: Context) -> str:
        price = await ctx.once("price", lambda: 100)
        name = filled(await ctx.elicit("Name?", Name, key="name")).name
        booked.append(name)
        return f"{name} pays {price}"

    runtime = ManualRuntime()

    async def main() -> None:
        client = StatelessClient(server, runtime)
        state = (await client.call("work"))["requestState"]

        async def present(name: str) -> str:
            text: str = (await client.call("work", {}, {"name": accept(name=name)}, state))["content"][0]["text"]
            return text

        assert await present("Ada") == "Ada pays 100"
        assert await present("Ada") == "Ada pays 100"  # no single-use token: the handler runs each time
        runtime.advance_to(160.0)  # the clocks of two processes may differ by a minute
        assert await present("Eve") == "Eve pays 100"
        assert client.reports == []
        runtime.advance_to(161.0)
        for _ in range(2):
            with pytest.raises(RequestError, match="Invalid request state") as caught:
                await present("Bob")
            assert (caught.value.code, caught.value.data) == (-32602, {"reason": "invalid_request_state"})
        assert ["it expired 61 seconds ago" in report for report in client.reports] == [True, True]
        # A new call gets a new state, which is valid.
        state = (await client.call("work"))["requestState"]
        assert await present("Cy") == "Cy pays 100"
        assert booked == ["Ada", "Ada", "Eve", "Cy"]

    with quiet():
        runtime.complete(main())


def test_key_of_one_process_is_reported_where_there_may_be_several() -> None:
    reports = []
    for via in (None, "exchange"):
        server = Server("s")

        @server.tool
        async def work(ctx: Context) -> str:
            await ctx.once("it", lambda: 1)
            await ctx.elicit("Name?", Name)
            return "done"

        async def main(runtime: Runtime, server: Server = server, via: Any = via) -> None:
            client = StatelessClient(server, runtime, via=via)
            assert (await client.talk("work", ADA))["content"][0]["text"] == "done"
            reports.append(client.reports)

        under_trio(main)
    assert reports[0] == []
    assert len(reports[1]) == 1
    assert "give Server(states=RequestStates(keys=[...]))" in reports[1][0]


def test_state_beyond_its_limit_is_an_error() -> None:
    server = Server("s", states=RequestStates([KEY], most=1000))

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.once("it", lambda: "x" * 1000)
        await ctx.elicit("Name?", Name)
        return "unreached"

    async def main(runtime: Runtime) -> None:
        with pytest.raises(RequestError, match="at most 1,000 are sent") as caught:
            await StatelessClient(server, runtime).call("work")
        assert caught.value.code == -32603

    under_trio(main)


# Capabilities


NEEDS: list[tuple[Callable[[Context], Any], dict[str, Any]]] = [
    (lambda ctx: ctx.elicit("Name?", Name), {"elicitation": {"form": {}}}),
    (lambda ctx: ctx.elicit_url("Go", "https://example.com"), {"elicitation": {"url": {}}}),
    (lambda ctx: ctx.sample(SAMPLE), {"sampling": {}}),
    (lambda ctx: ctx.roots(), {"roots": {}}),
]


@pytest.mark.req("MRTR-04", "ENV-05")
@pytest.mark.parametrize(("ask", "required"), NEEDS, ids=["form", "url", "sampling", "roots"])
def test_missing_capability_is_an_error_that_names_it(ask: Callable[[Context], Any], required: dict[str, Any]) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ask(ctx)
        return "unreached"

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(server, runtime, capabilities=ClientCapabilities())
        with pytest.raises(RequestError) as caught:
            await client.call("work")
        assert (caught.value.code, caught.value.data) == (-32021, {"requiredCapabilities": required})
        assert client.reports == []

    under_trio(main)


def test_missing_sub_capability_is_an_error_that_names_it() -> None:
    server = Server("s")

    @server.tool
    async def context(ctx: Context) -> str:
        return (await ctx.sample(attrs.evolve(SAMPLE, include_context="thisServer"))).text

    @server.tool
    async def tools(ctx: Context) -> str:
        return (await ctx.sample_with_tools(SAMPLE, [])).text

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(server, runtime, capabilities=ClientCapabilities(sampling=SamplingCapability()))
        for name in ("context", "tools"):
            with pytest.raises(RequestError) as caught:
                await client.call(name)
            assert caught.value.data == {"requiredCapabilities": {"sampling": {name: {}}}}

    under_trio(main)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_missing_capability_can_be_caught_in_both_eras(era: str) -> None:
    server, found = Server("s"), []

    @server.tool
    async def work(ctx: Context) -> str:
        try:
            await ctx.elicit("Name?", Name)
        except CapabilityMissing as error:
            found.append(error.required)
        return "without"

    async def main(runtime: Runtime) -> None:
        await StatelessClient(server, runtime, capabilities=ClientCapabilities()).call("work")

    if era == "handshake":
        assert Link(server).text("work") == "without"
    else:
        under_trio(main)
    assert found == [{"elicitation": {"form": {}}}]


def test_question_that_no_client_may_be_asked_is_a_fault_of_the_handler(stateless: World) -> None:
    @stateless.server.tool
    async def work(ctx: Context) -> str:
        use = ToolUseContent("1", "a", {})
        message = attrs.evolve(SAMPLE.messages[0], role="assistant", content=use)
        await ctx.sample(attrs.evolve(SAMPLE, messages=(message,)))
        return "unreached"

    assert "Tool result missing in request" in stateless.call(ADA)


def test_question_of_another_revision_is_a_fault_of_the_handler(stateless: World) -> None:
    @stateless.server.tool
    async def work(ctx: Context) -> str:
        await ctx.sample(attrs.evolve(SAMPLE, task=TaskMetadata()))
        return "unreached"

    assert "CreateMessageRequest: " in stateless.call(ADA)


# Web addresses


def test_visit_has_the_same_id_in_all_rounds(stateless: World) -> None:
    seen: list[str] = []

    def address(id: str) -> str:
        seen.append(id)
        return f"https://example.com/{id}"

    @stateless.server.tool
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit_url("Visit", address)
        assert isinstance(answer, Accepted)
        plain = await ctx.elicit_url("Visit again", "https://example.com")
        request = ElicitURLRequest("Visit last", "https://example.com", "7")
        return f"{answer.value} {plain.action} {(await ctx.elicit(request)).action}"

    text = stateless.call(lambda *_: {"action": "accept", "content": {"odd": 1}})
    assert text == f"{seen[0]} accept accept"
    assert len(set(seen)) == 1
    first = next(iter(stateless.rounds[0]["inputRequests"].values()))["params"]
    assert (first["mode"], first["url"]) == ("url", f"https://example.com/{seen[0]}")
    assert "elicitationId" not in first


def test_visits_of_one_call_have_ids_of_their_own(stateless: World) -> None:
    seen: dict[str, set[str]] = {}

    def address(name: str) -> Callable[[str], str]:
        def made(id: str) -> str:
            seen.setdefault(name, set()).add(id)
            return f"https://example.com/{name}"

        return made

    @stateless.server.tool
    async def work(ctx: Context) -> str:
        for message, key in (("Login", None), ("Pay", None), ("Pay", "tip")):
            await ctx.elicit_url(message, address(f"{message}{key}"), key=key)
        return "done"

    assert stateless.call(lambda *_: {"action": "accept"}) == "done"
    assert [len(ids) for ids in seen.values()] == [1, 1, 1]
    assert len(set.union(*seen.values())) == 3


@pytest.mark.req("MRTR-15")
@pytest.mark.parametrize("later", [False, True])
def test_error_that_asks_for_a_visit_is_a_question(later: bool) -> None:
    server, done = Server("s"), set[str]()

    def check() -> str:
        if "7" not in done:
            raise URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com/7", "7")])
        return "lunch"

    if later:

        @server.tool(name="work")
        async def work() -> str:
            return check()

    else:
        server.tool(check, name="work")

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(server, runtime)
        asked = (await client.call("work"))["inputRequests"]
        assert asked["7"]["params"] == {"message": "Log in", "mode": "url", "url": "https://example.com/7"}
        again = await client.call("work", answers={"7": {"action": "accept"}})
        assert again["resultType"] == "input_required"
        done.add("7")
        assert (await client.call("work"))["content"][0]["text"] == "lunch"

    under_trio(main)


@pytest.mark.req("MRTR-15")
@pytest.mark.parametrize("later", [False, True])
def test_visit_is_refused_where_the_client_cannot_show_it(later: bool) -> None:
    server = Server("s")

    def prompt() -> str:
        raise URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com/7", "7")])

    async def later_prompt() -> str:
        return prompt()

    server.prompt(later_prompt if later else prompt, name="work")

    async def main(runtime: Runtime) -> None:
        asked = await StatelessClient(server, runtime).request("prompts/get", {"name": "work"})
        assert asked["inputRequests"]["7"]["params"]["url"] == "https://example.com/7"
        client = StatelessClient(server, runtime, capabilities=ClientCapabilities())
        with pytest.raises(RequestError) as caught:
            await client.request("prompts/get", {"name": "work"})
        assert caught.value.code == ErrorCode.MISSING_CLIENT_CAPABILITY

    under_trio(main)


# Models with tools


@pytest.mark.parametrize("ids", [("1", "1"), ("1", "2")])
def test_tools_of_a_model_run_once(stateless: World, ids: tuple[str, str]) -> None:
    ran = []

    def weather(city: str) -> str:
        ran.append(city)
        return f"rain in {city} ({len(ran)})"

    @stateless.server.tool
    async def work(ctx: Context) -> str:
        message = await ctx.sample_with_tools(SAMPLE, [weather], key="model")
        return message.text

    def model(key: str, question: dict[str, Any]) -> Any:
        spoken = len(question["params"]["messages"]) // 2
        if spoken < 2:
            use = {
                "type": "tool_use",
                "id": ids[spoken],
                "name": "weather",
                "input": {"city": ("Oslo", "Rome")[spoken]},
            }
            return {"role": "assistant", "content": use, "model": "m", "stopReason": "toolUse"}
        results = [message["content"]["content"][0]["text"] for message in question["params"]["messages"][2::2]]
        return {"role": "assistant", "content": {"type": "text", "text": "; ".join(results)}, "model": "m"}

    assert stateless.call(model) == "rain in Oslo (1); rain in Rome (2)"
    assert ran == ["Oslo", "Rome"]


# Around the handler


def test_middleware_sees_each_round_as_a_result(stateless: World) -> None:
    seen = []

    @stateless.server.middleware
    async def around(ctx: Context, request: Any, call_next: Any) -> Any:
        result = await call_next(request)
        seen.append(type(result).__name__)
        return result

    @stateless.server.tool
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", Name)
        return filled(answer).name

    assert stateless.call(ADA) == "Ada"
    assert seen == ["InputRequired", "CallToolResult"]


def test_low_level_handler_can_ask_too(stateless: World) -> None:
    async def call(ctx: Context, request: CallToolRequest) -> Any:
        from mcpio.types import CallToolResult

        answer = await ctx.elicit("Name?", Name)
        return CallToolResult((TextContent(filled(answer).name),))

    stateless.server.tool(lambda: None, name="declares_tools")
    stateless.server.handlers["tools/call"] = call
    assert stateless.call(ADA) == "Ada"


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_prompts_and_resources_ask_too(method: str) -> None:
    server = Server("s")

    @server.prompt
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", Name)
        return f"I am {filled(answer).name}"

    server.resource("work://it")(work)

    async def main(runtime: Runtime) -> None:
        params = {"name": "work"} if method == "prompts/get" else {"uri": "work://it"}
        result = await StatelessClient(server, runtime).talk("", ADA, method=method, params=params)
        assert "I am Ada" in str(result)

    under_trio(main)


def test_plain_elicitation_request(world: World) -> None:
    @world.server.tool
    async def work(ctx: Context) -> str:
        request = ElicitFormRequest("Name?", ElicitSchema({"name": StringSchema()}, ("name",)))
        return f"{(await ctx.elicit(request)).content}"

    assert world.call(ADA) == "{'name': 'Ada'}"


def test_form_capability_is_declared_by_plain_elicitation() -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.elicit("Name?", Name)
        return "unreached"

    async def main(runtime: Runtime) -> None:
        plain = ClientCapabilities(elicitation=ElicitationCapability())
        assert (await StatelessClient(server, runtime, capabilities=plain).call("work"))["inputRequests"]

    under_trio(main)


def test_each_pass_creates_its_dependencies(stateless: World) -> None:
    log = []

    async def database() -> AsyncIterator[str]:
        log.append("open")
        try:
            yield "db"
        finally:
            log.append("close")

    async def work(ctx: Context, db: Any) -> str:
        return f"{filled(await ctx.elicit('Name?', Name)).name} {db}"

    work.__annotations__["db"] = Annotated[str, Depends(database)]
    stateless.server.tool(work)
    assert stateless.call(ADA) == "Ada db"
    assert log == ["open", "close"] * 2
