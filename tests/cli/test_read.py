"""``mcpio read`` prints a resource: as it is for a program, and so that it does no harm for people."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from mcpio import RequestError, Server
from mcpio.app import pagination
from mcpio.cli import main
from mcpio.cli.exit_status import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Speaking


def test_text_printed_unchanged(command: Command, server: Server) -> None:
    assert command("read", "bench://notes", server=server) == (Exit.DONE, "two nails", "")
    assert command("read", "bench://drawer/7", server=server).out == "drawer 7"


def test_json_option_prints_one_object(command: Command, server: Server) -> None:
    found = json.loads(command("read", "--json", "bench://blob", server=server).out)
    assert found == {"contents": [{"uri": "bench://blob", "blob": "AAE="}]}


def test_binary_contents_written_unchanged(command: Command, server: Server) -> None:
    assert command("read", "bench://blob", server=server) == (Exit.DONE, "\x00\x01", "")


def test_terminal_shows_a_description_of_binary_contents(
    command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    assert command("read", "bench://blob", server=server).out == "[binary: bench://blob, of unknown type, 2 bytes]\n"


def test_unknown_resource_of_a_server_with_too_many_is_not_found(
    command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagination, "MAX_ITEMS", 1)
    ran = command("read", "bench://notez", server=server)
    assert ran == (Exit.NOT_FOUND, "", "mcpio: no resource 'bench://notez': Resource not found: bench://notez.\n")


def test_unknown_resource_suggests_a_close_one(command: Command, server: Server) -> None:
    ran = command("read", "bench://notez", server=server)
    assert ran == (
        Exit.NOT_FOUND,
        "",
        "mcpio: no resource 'bench://notez': Resource not found: bench://notez. Did you mean 'bench://notes'?\n",
    )
    ran = command("read", "bench://notes", server=Server("empty"))
    assert ran == (Exit.NOT_FOUND, "", "mcpio: no resource 'bench://notes': the server has no resources.\n")


def test_other_errors_are_refusals(command: Command, server: Server) -> None:
    def fail(scope: object, request: object) -> None:
        raise RequestError(-32603, "the bench is on fire")

    server.handlers["resources/read"] = fail
    ran = command("read", "bench://notes", server=server)
    assert ran == (Exit.REFUSED, "", "mcpio: the server answered with an error: the bench is on fire (-32603)\n")


@pytest.mark.parametrize("blob", ["?", "é"])
def test_invalid_base64_fails(command: Command, speaking: Speaking, blob: str) -> None:
    peer = speaking({"resources/read": {"contents": [{"uri": "a://b", "blob": blob}]}})
    ran = command("read", "a://b", server=peer)
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the binary contents of a://b are not base64: ")


def test_wrong_usage_rejected(command: Command, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("read", server=server).err == "mcpio: no URI given; see mcpio read --help\n"
    assert command("read", "a://b", "c", server=server).err == "mcpio: unexpected argument 'c'; see mcpio read --help\n"
    assert command("read", "a://\udcff", server=server).status is Exit.USAGE
    assert main(["read"]) is Exit.USAGE
    assert capfd.readouterr().err == "mcpio: no server given; see mcpio read --help\n"
