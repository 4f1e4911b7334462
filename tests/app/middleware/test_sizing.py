"""Limits on the sizes of requests and results."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.contracts import InputRequired
from mcpio.app.middleware.policies import SizeLimit
from mcpio.app.server import Server
from mcpio.errors import RequestError
from mcpio.revisions import REV_2025_11_25
from mcpio.types import CustomRequest, ElicitFormRequest, ElicitResult, ElicitSchema, StringSchema


def serving(*middleware: Any) -> Server:
    server = Server("s", middleware=middleware)

    @server.tool
    def text(size: int) -> str:
        return "x" * size

    @server.resource("text://{size}")
    def resource(size: int) -> str:
        return "x" * size

    @server.tool
    def ask(ctx: Context) -> Any:
        if ctx.answers:
            return "thanks"
        return InputRequired({"a": ElicitFormRequest("x" * 500, ElicitSchema({"name": StringSchema()}))})

    server.handlers["x/text"] = lambda ctx, request: {"text": "x" * request.params["size"]}
    return server


def linked(server: Server, **options: Any) -> Link:
    return Link(server, revision=REV_2025_11_25, elicitation=lambda *_: ElicitResult("decline"), **options)


def refusal(link: Link, call: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        link.do(call)
    return caught.value.code, caught.value.message


def test_result_of_a_tool_that_is_too_large_is_a_failure_for_the_model() -> None:
    link = linked(serving(SizeLimit(200)))
    assert not link.call("text", size=100).is_error
    said = link.text("text", size=1000)
    assert said.startswith("failed: The result is too large: 1,")
    assert said.endswith("bytes, where at most 200 are allowed. Ask for less.")


def test_other_results_and_requests_that_are_too_large_are_refused() -> None:
    link = linked(serving(SizeLimit(200, requests=100)))
    client = link.client
    assert link.do(client.read_resource("text://100")).text == "x" * 100
    assert refusal(link, client.read_resource("text://1000"))[0] == 1068
    code, message = refusal(link, client.call_tool("text", {"size": "x" * 200}))
    assert (code, message.partition(":")[0]) == (1068, "The request is too large")
    assert link.do(client.request(CustomRequest("x/text", {"size": 10}))) == {"text": "x" * 10}
    assert refusal(link, client.request(CustomRequest("x/text", {"size": 1000})))[0] == 1068


def test_questions_of_a_handler_are_not_limited_as_results() -> None:
    link = linked(serving(SizeLimit(100)))
    assert link.text("ask") == "thanks"


@pytest.mark.parametrize("methods", ["resources/read", ["resources/read", "prompts/get"]])
def test_limit_may_be_for_some_methods(methods: Any) -> None:
    link = linked(serving(SizeLimit(200, methods=methods)))
    assert not link.call("text", size=1000).is_error
    assert refusal(link, link.client.read_resource("text://1000"))[0] == 1068


def test_only_requests_may_be_limited() -> None:
    assert len(linked(serving(SizeLimit(requests=100))).text("text", size=1000)) == 1000


def test_client_may_limit_what_it_receives() -> None:
    link = Link(serving(), revision=REV_2025_11_25, middleware=[SizeLimit(200)])
    assert link.text("text", size=1000).startswith("failed: The result is too large")


@pytest.mark.parametrize("options", [{}, {"results": 0}, {"requests": -1}, {"results": "1 MB"}])
def test_limit_of_nothing_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"SizeLimit must have results=, requests=, or both|must be a number of bytes"):
        SizeLimit(**options)
