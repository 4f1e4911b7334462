"""Whatever goes wrong between a command and its server, one status and one text tell what it was."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest
import trio

from mcpio import Client, ConnectFailed, Server
from mcpio.cli import conversation, main
from mcpio.cli.failures import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Speaking


def test_a_revision_that_nobody_speaks(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({}, revision="1999-01-01"))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the handshake failed: the server speaks revision '1999-01-01', this client ")


def test_a_server_that_ends_before_the_handshake(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({"initialize": EOFError()}))
    assert ran.status is Exit.SERVER_DIED
    assert ran.err.startswith("mcpio: the handshake failed: initialize: the connection ended (closed by the peer)")


def test_a_server_that_never_answers_is_given_up(command: Command, speaking: Speaking) -> None:
    ran = command("list", "--timeout", "0.01", server=speaking({"initialize": None}))
    assert ran.status is Exit.TIMEOUT
    assert ran.err.startswith("mcpio: the handshake failed: initialize: no answer within 0.01 s")


def test_a_server_whose_handshake_makes_no_sense(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({"initialize": {"protocolVersion": "2025-11-25"}}))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the handshake failed: ")


def test_what_the_process_gets_and_the_engine_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def start(argv: list[str], **options: Any) -> None:
        seen.update(options, argv=argv)
        raise ConnectFailed("cannot start it") from FileNotFoundError()

    monkeypatch.setattr(conversation, "open_stdio", start)
    status = main(
        ["list", "-e", "A=1", "--env", "B=x=y", "--inherit-env", "--cwd", ".", "--", "python", "a b", "--", "c"]
    )
    assert status is Exit.NO_PROGRAM
    assert seen["argv"] == ["python", "a b", "--", "c"]
    assert (seen["env"], seen["inherit_env"], seen["cwd"]) == ({"A": "1", "B": "x=y"}, True, ".")
    assert seen["stderr"] == "capture"


def test_verbose_shows_what_the_server_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(argv: list[str], **options: Any) -> None:
        options["stderr"]("starting up")
        raise ConnectFailed("cannot start it") from PermissionError()

    monkeypatch.setattr(conversation, "open_stdio", start)
    assert main(["list", "-v", "server"]) is Exit.NOT_EXECUTABLE
    assert capsys.readouterr().err == "server: starting up\nmcpio: cannot start it\n"


@pytest.mark.parametrize(("seconds", "limit"), [(5.0, 5.0), (0.0, None)])
def test_a_timeout_of_zero_is_none(seconds: float, limit: float | None) -> None:
    options = conversation._engine_options(seconds)
    assert (options.request_timeout.total, options.initialize_timeout) == (limit, limit)


def test_a_failure_of_our_own_is_not_disguised(
    command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Client, options: argparse.Namespace, console: object) -> int:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    monkeypatch.setattr("mcpio.cli.list.show", work)
    with pytest.raises(ZeroDivisionError):
        command("list", server=server)
