"""``mcpio call`` calls a tool, prints what it returns, and has a status and a reason for everything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mcpio import RequestError, Server
from mcpio.cli.failures import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Speaking

TOOLS = {"tools": [{"name": "cut", "inputSchema": {"type": "object"}}, {"name": "saw", "inputSchema": 5}, 5]}


def test_a_result_is_printed_for_people(command: Command, server: Server) -> None:
    assert command("call", "add", "a=2", "b=3", server=server) == (Exit.DONE, '{\n  "result": 5\n}\n', "")


def test_a_result_is_one_object_for_programs(command: Command, server: Server) -> None:
    ran = command("call", "add", "--json", "a=2", server=server)
    assert (ran.status, ran.err, ran.out.count("\n")) == (Exit.DONE, "", 1)
    assert json.loads(ran.out) == {
        "content": [{"type": "text", "text": '{"result":3}'}],
        "structuredContent": {"result": 3},
    }


def test_options_may_stand_anywhere(command: Command, server: Server) -> None:
    assert command("call", "--json", "add", "a=2", "-q", "b=3", server=server).status is Exit.DONE


def test_blocks_that_are_no_text_are_described(command: Command, server: Server) -> None:
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


def test_quiet_leaves_them_out(command: Command, server: Server) -> None:
    assert command("call", "-q", "steps", "count=2", server=server) == (Exit.DONE, "done\n", "")


def test_an_error_of_the_tool_goes_to_standard_error(command: Command, server: Server) -> None:
    ran = command("call", "breaks", server=server)
    assert ran == (Exit.TOOL_FAILED, "", "mcpio: the tool reports an error:\nthe saw is blunt\n")


def test_an_error_of_the_tool_is_a_result_for_programs(command: Command, server: Server) -> None:
    ran = command("call", "--json", "breaks", server=server)
    assert (ran.status, ran.err) == (Exit.TOOL_FAILED, "")
    assert json.loads(ran.out) == {"content": [{"type": "text", "text": "the saw is blunt"}], "isError": True}


def test_an_unknown_tool_is_told_what_there_is(command: Command, server: Server) -> None:
    ran = command("call", "ad", server=server)
    assert ran == (
        Exit.NOT_FOUND,
        "",
        "mcpio: no tool 'ad': the server has add, steps, picture, breaks. Did you mean 'add'?\n",
    )


def test_a_server_may_have_no_tools(command: Command) -> None:
    ran = command("call", "add", server=Server("empty"))
    assert (ran.status, ran.err) == (Exit.NOT_FOUND, "mcpio: no tool 'add': the server has no tools.\n")


def test_bad_arguments_do_not_reach_the_server(command: Command, server: Server) -> None:
    ran = command("call", "add", "a=two", server=server)
    assert ran.status is Exit.BAD_ARGUMENTS
    assert ran.err.splitlines()[:2] == ["mcpio: bad arguments for add:", "  a: expected integer, got 'two'"]


def test_a_failure_is_an_object_for_programs_too(command: Command, server: Server) -> None:
    ran = command("call", "--json", "ad", server=server)
    assert json.loads(ran.out) == {"error": {"kind": "not-found", "status": 4, "message": ran.err[7:].rstrip()}}


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RequestError(-32602, "too long"), Exit.BAD_ARGUMENTS, "add refuses the arguments: too long"),
        (RequestError(-32603, "no luck"), Exit.REFUSED, "the server answered with an error: no luck (-32603)"),
    ],
)
def test_an_error_answer_has_its_status(
    command: Command, server: Server, error: Exception, status: Exit, said: str
) -> None:
    def fail(scope: object, request: object) -> None:
        raise error

    server.handlers["tools/call"] = fail
    assert command("call", "add", "a=1", server=server) == (status, "", f"mcpio: {said}\n")


def test_a_server_that_ends_too_early(command: Command, speaking: Speaking) -> None:
    ran = command("call", "cut", server=speaking({"tools/list": TOOLS, "tools/call": EOFError()}))
    assert ran == (Exit.SERVER_DIED, "", "mcpio: tools/call: the connection ended (closed by the peer)\n")


def test_no_answer_in_time(command: Command, speaking: Speaking) -> None:
    ran = command("call", "--timeout", "0.01", "cut", server=speaking({"tools/list": TOOLS}))
    assert ran == (Exit.TIMEOUT, "", "mcpio: tools/call: no answer within 0.01 s\n")


def test_a_result_that_makes_no_sense(command: Command, speaking: Speaking) -> None:
    ran = command("call", "cut", server=speaking({"tools/list": TOOLS, "tools/call": {"content": 5}}))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the server's answer makes no sense: content: ")


def test_a_tool_whose_description_makes_no_sense_cannot_be_called(command: Command, speaking: Speaking) -> None:
    ran = command("call", "saw", server=speaking({"tools/list": TOOLS}))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the server's description of saw makes no sense: inputSchema: ")


def test_an_argument_that_the_schema_does_not_know_brings_a_note(command: Command, speaking: Speaking) -> None:
    ran = command("call", "cut", "depth=5", server=speaking({"tools/list": TOOLS, "tools/call": {"content": []}}))
    assert ran == (Exit.DONE, "", "note: cut does not describe an argument 'depth'.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "no tool given; see mcpio call --help"), (("add", "5"), "'5' is no argument: write key=value, or key:=json")],
)
def test_wrong_usage(command: Command, server: Server, words: tuple[str, ...], said: str) -> None:
    assert command("call", *words, server=server) == (Exit.USAGE, "", f"mcpio: {said}\n")
