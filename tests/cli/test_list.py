"""``mcpio list`` shows what a server offers, to people and to programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mcpio import ListToolsRequest, ListToolsResult, RequestError, Server, Tool
from mcpio.app import pagination
from mcpio.cli.exit_status import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Speaking

TOOL = {"name": "cut", "inputSchema": {"type": "object"}}


def test_lists_printed_with_signatures(command: Command, server: Server) -> None:
    status, out, err = command("list", server=server)
    assert (status, err) == (Exit.DONE, "")
    assert out.splitlines() == [
        "The workshop 2, speaking 2025-11-25",
        "",
        "Tools",
        "  add a=integer [b=integer]",
        "      Add two numbers.",
        "  steps count=integer",
        "  picture",
        "      Draw.",
        "  breaks",
        "",
        "Resources",
        "  bench://notes  (text/plain)",
        "      What lies there.",
        "  bench://blob",
        "      blob",
        "",
        "Resource templates",
        "  bench://drawer/{number}",
        "      A drawer.",
        "",
        "Prompts",
        "  repair thing=text [tool=text]",
        "      Ask how to repair a thing.",
    ]


def test_empty_version_leaves_no_space(command: Command) -> None:
    ran = command("list", server=Server("plain", ""))
    assert ran.out.startswith("plain, speaking ")


def test_long_descriptions_wrapped(command: Command, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    server.tool(name="long", description="word " * 20)(lambda: None)
    assert max(map(len, command("list", server=server).out.splitlines())) <= 40


def test_json_option_prints_one_object_as_sent(command: Command, server: Server) -> None:
    ran = command("list", "--json", server=server)
    found = json.loads(ran.out)
    assert (ran.status, ran.err, ran.out.count("\n")) == (Exit.DONE, "", 1)
    assert list(found) == [
        "server", "protocolVersion", "instructions", "tools", "resources", "resourceTemplates", "prompts"
    ]  # fmt: skip
    assert found["server"] == {"name": "workshop", "version": "2", "title": "The workshop"}
    assert found["tools"][0]["inputSchema"]["required"] == ["a"]
    assert [each["uri"] for each in found["resources"]] == ["bench://notes", "bench://blob"]


def test_undeclared_lists_not_requested(command: Command) -> None:
    ran = command("list", server=Server("empty", "1"))
    assert ran == (Exit.DONE, "empty 1, speaking 2025-11-25\nIt offers nothing.\n", "")


def test_all_pages_fetched(command: Command, server: Server) -> None:
    paged = Server("paged", page_size=1)
    for name in ("a", "b", "c"):
        paged.tool(name=name)(lambda: None)
    assert [tool["name"] for tool in json.loads(command("list", "--json", server=paged).out)["tools"]] == [
        "a",
        "b",
        "c",
    ]


def test_malformed_tool_is_left_out_alone(command: Command, speaking: Speaking) -> None:
    answers = {
        "tools/list": {"tools": [{"name": 5}, TOOL]},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
        "prompts/list": {"prompts": []},
    }
    ran = command("list", server=speaking(answers))
    assert ran.out.splitlines()[2:] == ["Tools", "  cut"]
    assert ran.err.startswith("note: one of the tools, number 0, is malformed: ")
    assert json.loads(command("list", "--json", "-q", server=speaking(answers)).out)["tools"] == [{"name": 5}, TOOL]


def test_declared_list_with_method_not_found_is_empty(command: Command, server: Server) -> None:
    del server.handlers["resources/templates/list"]
    ran = command("list", "--json", server=server)
    assert (ran.status, json.loads(ran.out)["resourceTemplates"]) == (Exit.DONE, [])


def test_list_refused_with_another_error_fails(command: Command, server: Server) -> None:
    def fail(scope: object, request: object) -> None:
        raise RequestError(-32603, "no time")

    server.handlers["prompts/list"] = fail
    ran = command("list", server=server)
    assert ran == (Exit.REFUSED, "", "mcpio: the server answered with an error: no time (-32603)\n")


def test_malformed_list_fails(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({"tools/list": {"tools": 5}}))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the server's answer is malformed: ")
    assert ran.out == ""


def test_repeated_cursor_fails(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({"tools/list": {"tools": [], "nextCursor": "again"}}))
    assert (ran.status, ran.err) == (
        Exit.PROTOCOL,
        "mcpio: the server breaks the protocol: tools/list: the cursor 'again' came a second time\n",
    )


@pytest.fixture
def endless() -> Server:
    """Return a server with a list of tools that never ends; the third page has the tool ``wanted``."""
    server = Server("endless")
    server.tool(lambda: "found", name="wanted")

    def page(scope: object, request: ListToolsRequest) -> ListToolsResult:
        number = int(request.cursor or 0)
        names = ("wanted",) if number == 2 else (f"tool{number}", f"tool{number}b")
        tools = tuple(Tool(name, {"type": "object"}, description="x" * 200_000) for name in names)
        return ListToolsResult(tools, next_cursor=str(number + 1))

    server.handlers["tools/list"] = page
    return server


@pytest.mark.parametrize(("name", "bound", "most"), [("MAX_ITEMS", 9, "9 items"), ("MAX_BYTES", 1 << 20, "1 MiB")])
@pytest.mark.parametrize("words", [("list",), ("call", "absent")])
def test_endless_list_abandoned(
    words: tuple[str, ...],
    name: str,
    bound: int,
    most: str,
    command: Command,
    endless: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pagination, name, bound)
    ran = command(*words, server=endless)
    fault = f"the server breaks the protocol: tools/list: the list is too long: mcpio reads at most {most} of it"
    assert ran == (Exit.PROTOCOL, "", f"mcpio: {fault}\n")


def test_tool_found_in_endless_list(command: Command, endless: Server) -> None:
    assert command("call", "wanted", server=endless) == (Exit.DONE, "found\n", "")


def test_extra_argument_rejected(command: Command, server: Server) -> None:
    ran = command("list", "tools", server=server)
    assert (ran.status, ran.err) == (Exit.USAGE, "mcpio: unexpected argument 'tools'; see mcpio list --help\n")
