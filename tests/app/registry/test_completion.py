from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from linked import Link
from wires import request as raw_request

from mcpio.app.context import Context
from mcpio.app.registry.prompts import MOST_VALUES, best_matches
from mcpio.app.server import Server
from mcpio.engine.table import Role
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError
from mcpio.types import CompleteResult, Completion, PromptReference, ResourceTemplateReference, ServerCapabilities

REVIEW = PromptReference("review")
NOTES = ResourceTemplateReference("notes://{year}/{name}")


def server() -> Server:
    server = Server("s")

    @server.prompt
    def review(language: str, style: str = "") -> str:
        return f"{language} {style}"

    @server.resource("notes://{year}/{name}")
    def note(year: int, name: str) -> str:
        return f"{year} {name}"

    @server.resource("notes://today")
    def today() -> str:
        return "today"

    return server


def completing(function: Callable[..., Any], **options: Any) -> Link:
    made = server()
    made.completion("language", prompt="review", **options)(function)
    return Link(made, state="ada", era="handshake")


def complete(link: Link, value: str = "p", **options: Any) -> Completion:
    return link.do(link.client.complete(REVIEW, "language", value, **options)).completion


def plain(value: str) -> list[str]:
    return [value + "ython"]


async def in_a_task(value: str) -> list[str]:
    return [value + "ython"]


@pytest.mark.req("COMP-02", "COMP-04")
@pytest.mark.parametrize(
    "function",
    [plain, in_a_task, lambda value: (value + "ython",), lambda value: iter([value + "ython"])],
)
def test_completion_suggests_values(function: Callable[..., Any]) -> None:
    assert complete(completing(function)) == Completion(("python",), 1, False)


def test_blocking_completion_runs_in_a_thread() -> None:
    assert complete(completing(plain, blocking=True)).values == ("python",)


@pytest.mark.req("COMP-03")
def test_chosen_arguments_are_passed() -> None:
    def suggest(value: str, chosen: Mapping[str, str], ctx: Context) -> list[str]:
        return [f"{value} {dict(chosen)} {ctx.state}"]

    link = completing(suggest)
    assert complete(link, chosen={"style": "pep8"}).values == ("p {'style': 'pep8'} ada",)
    assert complete(link, chosen={}).values == ("p {} ada",)
    assert complete(link).values == ("p {} ada",)


@pytest.mark.req("COMP-02")
def test_template_variable_is_completed() -> None:
    made = server()

    @made.completion("year", resource="notes://{year}/{name}")
    def years(value: str) -> list[str]:
        return [year for year in ("2024", "2025") if year.startswith(value)]

    link = Link(made)
    assert link.do(link.client.complete(NOTES, "year", "202")).completion.values == ("2024", "2025")
    assert link.do(link.client.complete(NOTES, "name", "a")).completion == Completion((), 0, False)
    today = ResourceTemplateReference("notes://today")
    assert link.do(link.client.complete(today, "name", "a")).completion == Completion((), 0, False)


MANY = tuple(f"value {number}" for number in range(250))


@pytest.mark.req("COMP-04")
@pytest.mark.parametrize(
    ("returned", "completion"),
    [
        (MANY, Completion(MANY[:MOST_VALUES], 250, True)),
        (MANY[:MOST_VALUES], Completion(MANY[:MOST_VALUES], 100, False)),
        ((), Completion((), 0, False)),
        (Completion(("a",), 900, True), Completion(("a",), 900, True)),
        (Completion(("a",)), Completion(("a",))),
        (Completion(MANY, 900), Completion(MANY[:MOST_VALUES], 900, True)),
        (CompleteResult(Completion(MANY)), Completion(MANY[:MOST_VALUES], 250, True)),
    ],
)
def test_values_beyond_one_hundred_are_cut(returned: Any, completion: Completion) -> None:
    assert complete(completing(lambda value: returned)) == completion


@pytest.mark.req("COMP-05")
@pytest.mark.parametrize("returned", ["text", None, 5, [5]])
def test_completion_returning_other_types_is_an_internal_error(returned: Any) -> None:
    link = completing(lambda value: returned)
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        complete(link)
    assert len(link.reports) == 1


@pytest.mark.req("COMP-05")
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (PromptReference("other"), "Unknown prompt: other"),
        (ResourceTemplateReference("other://{a}"), "Unknown resource template: other://{a}"),
    ],
)
def test_completing_an_unknown_target_is_refused(reference: Any, message: str) -> None:
    link = completing(plain)
    with pytest.raises(RequestError) as caught:
        link.do(link.client.complete(reference, "a", ""))
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_PARAMS, message)


@pytest.mark.req("COMP-01", "COMP-05")
def test_completions_capability_follows_registration() -> None:
    made = server()

    def declared() -> Any:
        return made.capabilities.completions

    assert declared() is None
    link = Link(made)
    with pytest.raises(LocalProtocolError, match="needs the capability completions"):
        link.do(link.client.complete(REVIEW, "language", ""))
    made.completion("language", prompt="review")(plain)
    assert declared() == {}
    made.prompts.disable("review")
    assert declared() == {}
    made.prompts.remove("review")
    assert declared() is None
    made.completion("name", resource="notes://{year}/{name}")(plain)
    assert made.capabilities == ServerCapabilities(resources=made.capabilities.resources, completions={}, logging={})


# Registration


def test_disabled_prompts_and_templates_can_get_completions() -> None:
    made = server()
    made.prompts.disable("review")
    made.resources.templates.disable(NOTES.uri)
    made.completion("language", prompt="review")(plain)
    made.completion("name", resource=NOTES.uri)(plain)
    made.prompts.enable("review")
    assert complete(Link(made)).values == ("python",)


@pytest.mark.req("COMP-07")
def test_removing_a_prompt_removes_its_completion() -> None:
    made = server()
    made.completion("language", prompt="review")(plain)
    with pytest.raises(ValueError, match=r"^there is a completion for 'language' of prompt 'review' already$"):
        made.completion("language", prompt="review")(plain)
    made.prompts.remove("review")
    made.prompt(lambda language: language, name="review")
    made.completion("language", prompt="review")(plain)


@pytest.mark.parametrize(
    ("target", "argument", "message"),
    [
        ({"prompt": "other"}, "a", "there is no prompt 'other' to complete: register it first"),
        ({"prompt": "review"}, "a", "prompt 'review' has no argument 'a': it has language, style"),
        ({"resource": "a://{b}"}, "b", "there is no resource template 'a://{b}' to complete: register it first"),
        (
            {"resource": NOTES.uri},
            "b",
            "resource template 'notes://{year}/{name}' has no argument 'b': it has year, name",
        ),
    ],
)
def test_completion_for_an_unknown_target_is_refused(target: dict[str, str], argument: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        server().completion(argument, **target)(plain)  # type: ignore[arg-type]  # either of two names


def test_completion_for_a_prompt_without_arguments_is_refused() -> None:
    made = Server("s")
    made.prompt(lambda: "text", name="bare")
    with pytest.raises(ValueError, match="it has none"):
        made.completion("a", prompt="bare")(plain)


@pytest.mark.parametrize("target", [{}, {"prompt": "review", "resource": NOTES.uri}])
def test_completion_requires_one_target(target: dict[str, str]) -> None:
    with pytest.raises(TypeError, match=r"^give either prompt= or resource=$"):
        server().completion("language", **target)  # type: ignore[arg-type]  # the mistake


def nothing() -> list[str]:
    return []


def three(a: str, b: str, c: str) -> list[str]:
    return [a, b, c]


def yields(value: str) -> Iterator[str]:
    yield value


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (nothing, r"nothing\(\) must take the text so far, and at most the arguments chosen already"),
        (three, r"three\(\) must take the text so far, and at most the arguments chosen already"),
        (yields, r"yields\(\) yields: return a list"),
        ("name", "the handler must be a function"),
    ],
)
def test_completion_receives_the_text_so_far(function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        completing(function)


@pytest.mark.req("COMP-06", "COMP-07")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("py", ["Python", "pypy", "CPython", "puppy"]),
        ("", ["Python", "CPython", "pypy", "puppy", "ruby"]),
        ("RUBY", ["ruby"]),
        ("ruyb", []),
        ("ry", ["ruby"]),
    ],
)
def test_fuzzy_matches_are_ranked(text: str, found: list[str]) -> None:
    assert best_matches(text, ["Python", "CPython", "pypy", "puppy", "ruby"]) == found


@pytest.mark.req("COMP-06", "COMP-07")
def test_completion_receives_the_context() -> None:
    made = server()
    names = {"ada": ["plans.md"], None: []}

    @made.completion("language", prompt="review")
    def suggest(text: str, ctx: Context) -> list[str]:
        return best_matches(text, names[ctx.peer.principal])  # type: ignore[index]  # principals of the test

    assert complete(Link(made, principal="ada"), "").values == ("plans.md",)
    assert complete(Link(made), "").values == ()


@pytest.mark.req("COMP-05", "COMP-06")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "review"}},
        {"ref": {"type": "ref/tool", "name": "review"}, "argument": {"name": "language", "value": ""}},
        {"ref": {"type": "ref/prompt"}, "argument": {"name": "language", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": 5}},
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language"}},
    ],
)
def test_malformed_completion_request_is_refused(params: Any) -> None:
    link = completing(plain)
    link.pair.server.receive_data(json.dumps(raw_request("completion/complete", 99, **params)).encode() + b"\n", 0)
    link.run()
    assert b'"code":-32602' in link.pair.sent(Role.SERVER)
