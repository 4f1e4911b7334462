"""``mcpio prompt`` prints a prompt, filled in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mcpio import RequestError, Server
from mcpio.cli.exit_status import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def test_messages_printed_with_roles(command: Command, server: Server) -> None:
    ran = command("prompt", "repair", "thing=a 5", "tool=glue", server=server)
    assert ran == (Exit.DONE, "user: Repair a 5 with glue.\n", "")


def test_values_stay_text(command: Command, server: Server) -> None:
    ran = command("prompt", "--json", "repair", "thing=5", server=server)
    assert json.loads(ran.out)["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Repair 5 with anything."}}
    ]


def test_wrong_arguments_rejected(command: Command, server: Server) -> None:
    ran = command("prompt", "repair", "think=x", server=server)
    assert ran.status is Exit.BAD_ARGUMENTS
    assert ran.err.splitlines() == [
        "mcpio: bad arguments for 'repair':",
        "  think: no such argument. Did you mean 'thing'?",
        "  thing: missing",
        "  it takes: thing=string [tool=string]",
    ]


def test_argument_that_is_not_text_rejected(command: Command, server: Server) -> None:
    ran = command("prompt", "repair", "thing:=[5]", server=server)
    assert ran.status is Exit.BAD_ARGUMENTS
    assert ran.err.splitlines() == [
        "mcpio: bad arguments for 'repair':",
        "  thing: expected string, got [5]; write thing=TEXT instead of thing:=JSON",
    ]


def test_unknown_prompt_lists_known_prompts(command: Command, server: Server) -> None:
    ran = command("prompt", "repare", server=server)
    assert ran == (Exit.NOT_FOUND, "", "mcpio: no prompt 'repare': the server has repair. Did you mean 'repair'?\n")
    ran = command("prompt", "repair", server=Server("empty"))
    assert (ran.status, ran.err) == (Exit.NOT_FOUND, "mcpio: no prompt 'repair': the server has no prompts.\n")


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (-32602, Exit.BAD_ARGUMENTS, "'repair' refuses the arguments: no"),
        (-32603, Exit.REFUSED, "the server answered with an error: no (-32603)"),
    ],
)
def test_error_response_sets_exit_status(command: Command, server: Server, code: int, status: Exit, said: str) -> None:
    def fail(scope: object, request: object) -> None:
        raise RequestError(code, "no")

    server.handlers["prompts/get"] = fail
    assert command("prompt", "repair", "thing=x", server=server) == (status, "", f"mcpio: {said}\n")
