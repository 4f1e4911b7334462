"""``mcpio read`` prints a resource: as it is for a program, and so that it does no harm for people."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from mcpio import RequestError, Server
from mcpio.cli import main, pages
from mcpio.cli.failures import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Speaking


def test_text_comes_as_it_is(command: Command, server: Server) -> None:
    assert command("read", "bench://notes", server=server) == (Exit.DONE, "two nails", "")
    assert command("read", "bench://drawer/7", server=server).out == "drawer 7"


def test_programs_get_one_object(command: Command, server: Server) -> None:
    found = json.loads(command("read", "--json", "bench://blob", server=server).out)
    assert found == {"contents": [{"uri": "bench://blob", "blob": "AAE="}]}


def test_binary_contents_come_as_they_are(command: Command, server: Server) -> None:
    assert command("read", "bench://blob", server=server) == (Exit.DONE, "\x00\x01", "")


def test_people_see_a_description_of_binary_contents(
    command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    assert command("read", "bench://blob", server=server).out == "[binary: bench://blob, of no stated type, 2 bytes]\n"


def test_unknown_resource_of_a_server_with_too_many_is_not_found(
    command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_ITEMS", 1)
    ran = command("read", "bench://notez", server=server)
    assert ran == (Exit.NOT_FOUND, "", "mcpio: no resource 'bench://notez': Resource not found: bench://notez.\n")


def test_an_unknown_resource(command: Command, server: Server) -> None:
    ran = command("read", "bench://notez", server=server)
    assert ran == (
        Exit.NOT_FOUND,
        "",
        "mcpio: no resource 'bench://notez': Resource not found: bench://notez. Did you mean 'bench://notes'?\n",
    )
    ran = command("read", "bench://notes", server=Server("empty"))
    assert ran == (Exit.NOT_FOUND, "", "mcpio: no resource 'bench://notes': the server has no resources.\n")


def test_another_error_is_the_servers(command: Command, server: Server) -> None:
    def fail(scope: object, request: object) -> None:
        raise RequestError(-32603, "the bench is on fire")

    server.handlers["resources/read"] = fail
    ran = command("read", "bench://notes", server=server)
    assert ran == (Exit.REFUSED, "", "mcpio: the server answered with an error: the bench is on fire (-32603)\n")


@pytest.mark.parametrize("blob", ["?", "é"])
def test_contents_that_are_no_base64(command: Command, speaking: Speaking, blob: str) -> None:
    peer = speaking({"resources/read": {"contents": [{"uri": "a://b", "blob": blob}]}})
    ran = command("read", "a://b", server=peer)
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the binary contents of a://b are no base64: ")


def test_usage(command: Command, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("read", server=server).err == "mcpio: no URI given; see mcpio read --help\n"
    assert command("read", "a://b", "c", server=server).err == "mcpio: what is 'c' for? See mcpio read --help\n"
    assert command("read", "a://\udcff", server=server).status is Exit.USAGE
    assert main(["read"]) is Exit.USAGE
    assert capfd.readouterr().err == "mcpio: no server given; see mcpio read --help\n"
