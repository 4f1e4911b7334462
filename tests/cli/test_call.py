"""``mcpio call`` calls a tool, prints what it returns, and has a status and a reason for everything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mcpio import RequestError, Server
from mcpio.cli.exit_status import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Speaking

TOOLS = {"tools": [{"name": "cut", "inputSchema": {"type": "object"}}, {"name": "saw", "inputSchema": 5}, 5]}


def test_result_printed_as_text(command: Command, server: Server) -> None:
    assert command("call", "add", "a=2", "b=3", server=server) == (Exit.DONE, '{\n  "result": 5\n}\n', "")


def test_json_option_prints_one_object(command: Command, server: Server) -> None:
    ran = command("call", "add", "--json", "a=2", server=server)
    assert (ran.status, ran.err, ran.out.count("\n")) == (Exit.DONE, "", 1)
    assert json.loads(ran.out) == {
        "content": [{"type": "text", "text": '{"result":3}'}],
        "structuredContent": {"result": 3},
    }


def test_options_between_positional_arguments_accepted(command: Command, server: Server) -> None:
    assert command("call", "--json", "add", "a=2", "-q", "b=3", server=server).status is Exit.DONE


def test_image_block_described(command: Command, server: Server) -> None:
    assert command("call", "picture", server=server).out == "a dot:\n[image: image/png, 3 bytes]\n"


def test_progress_and_logs_go_to_standard_error(command: Command, server: Server) -> None:
    ran = command("call", "steps", "count=2", server=server)
    assert ran.out == "done\n"
    assert ran.err.splitlines() == [
        "progress: 1 of 2 working",
        "progress: 2 of 2 working",
        'warning (bench): {"left": 0}',
        "info: tidy",
    ]


def test_quiet_suppresses_progress_and_logs(command: Command, server: Server) -> None:
    assert command("call", "-q", "steps", "count=2", server=server) == (Exit.DONE, "done\n", "")


def test_tool_error_goes_to_standard_error(command: Command, server: Server) -> None:
    ran = command("call", "breaks", server=server)
    assert ran == (Exit.TOOL_FAILED, "", "mcpio: the tool reports an error:\nthe saw is blunt\n")


def test_tool_error_with_json_goes_to_standard_output(command: Command, server: Server) -> None:
    ran = command("call", "--json", "breaks", server=server)
    assert (ran.status, ran.err) == (Exit.TOOL_FAILED, "")
    assert json.loads(ran.out) == {"content": [{"type": "text", "text": "the saw is blunt"}], "isError": True}


def test_unknown_tool_lists_known_tools(command: Command, server: Server) -> None:
    ran = command("call", "ad", server=server)
    assert ran == (
        Exit.NOT_FOUND,
        "",
        "mcpio: no tool 'ad': the server has add, steps, picture, breaks. Did you mean 'add'?\n",
    )


def test_unknown_tool_of_server_without_tools(command: Command) -> None:
    ran = command("call", "add", server=Server("empty"))
    assert (ran.status, ran.err) == (Exit.NOT_FOUND, "mcpio: no tool 'add': the server has no tools.\n")


def test_bad_arguments_do_not_reach_the_server(command: Command, server: Server) -> None:
    ran = command("call", "add", "a=two", server=server)
    assert ran.status is Exit.BAD_ARGUMENTS
    assert ran.err.splitlines()[:2] == ["mcpio: bad arguments for 'add':", "  a: expected integer, got 'two'"]


def test_failure_with_json_prints_an_object(command: Command, server: Server) -> None:
    ran = command("call", "--json", "ad", server=server)
    assert json.loads(ran.out) == {"error": {"kind": "not-found", "status": 4, "message": ran.err[7:].rstrip()}}


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RequestError(-32602, "too long"), Exit.BAD_ARGUMENTS, "'add' refuses the arguments: too long"),
        (RequestError(-32603, "no luck"), Exit.REFUSED, "the server answered with an error: no luck (-32603)"),
    ],
)
def test_error_response_sets_exit_status(
    command: Command, server: Server, error: Exception, status: Exit, said: str
) -> None:
    def fail(scope: object, request: object) -> None:
        raise error

    server.handlers["tools/call"] = fail
    assert command("call", "add", "a=1", server=server) == (status, "", f"mcpio: {said}\n")


def test_server_exit_before_the_answer_fails(command: Command, speaking: Speaking) -> None:
    ran = command("call", "cut", server=speaking({"tools/list": TOOLS, "tools/call": EOFError()}))
    assert ran == (Exit.SERVER_DIED, "", "mcpio: tools/call: the connection ended (closed by the peer)\n")


def test_timeout_fails_with_124(command: Command, speaking: Speaking) -> None:
    ran = command("call", "--timeout", "0.3", "cut", server=speaking({"tools/list": TOOLS}))
    assert ran == (Exit.TIMEOUT, "", "mcpio: tools/call: no answer within 0.3 s\n")


def test_malformed_result_fails(command: Command, speaking: Speaking) -> None:
    ran = command("call", "cut", server=speaking({"tools/list": TOOLS, "tools/call": {"content": 5}}))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the server's answer is malformed: content: ")


def test_malformed_tool_cannot_be_called(command: Command, speaking: Speaking) -> None:
    ran = command("call", "saw", server=speaking({"tools/list": TOOLS}))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the server's description of saw is malformed: inputSchema: ")


def test_first_of_two_tools_with_one_name_counts(command: Command, speaking: Speaking) -> None:
    first, second = (
        {"name": "cut", "inputSchema": {"type": "object", "required": [name], "properties": {name: {}}}}
        for name in ("first", "second")
    )
    tools = {"tools/list": {"tools": [first, second]}, "tools/call": {"content": []}}
    assert command("call", "cut", "first=1", server=speaking(tools)).status is Exit.DONE


def test_undescribed_argument_prints_a_note(command: Command, speaking: Speaking) -> None:
    ran = command("call", "cut", "depth=5", server=speaking({"tools/list": TOOLS, "tools/call": {"content": []}}))
    assert ran == (Exit.DONE, "", "note: cut does not describe an argument 'depth'.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no tool given; see mcpio call --help"),
        (("add", "5"), "an argument must be key=value or key:=json, not '5'"),
    ],
)
def test_wrong_usage_rejected(command: Command, server: Server, words: tuple[str, ...], said: str) -> None:
    assert command("call", *words, server=server) == (Exit.USAGE, "", f"mcpio: {said}\n")
