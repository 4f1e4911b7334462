"""Whatever goes wrong between a command and its server, one status and one text tell what it was."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest
import trio

from mcpio import Client, ConnectFailed, Server
from mcpio.cli import connect, main
from mcpio.cli.exit_status import Exit
from mcpio.cli.use import USES, Use

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Speaking


def test_unknown_revision_fails(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({}, revision="1999-01-01"))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the handshake failed: the server speaks revision '1999-01-01', this client ")


def test_server_exit_before_the_handshake_fails(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({"initialize": EOFError()}))
    assert ran.status is Exit.SERVER_DIED
    assert ran.err.startswith("mcpio: the handshake failed: initialize: the connection ended (closed by the peer)")


def test_silent_server_times_out(command: Command, speaking: Speaking) -> None:
    ran = command("list", "--timeout", "0.01", server=speaking({"initialize": None}))
    assert ran.status is Exit.TIMEOUT
    assert ran.err.startswith("mcpio: the handshake failed: initialize: no answer within 0.01 s")


def test_malformed_handshake_fails(command: Command, speaking: Speaking) -> None:
    ran = command("list", server=speaking({"initialize": {"protocolVersion": "2025-11-25"}}))
    assert ran.status is Exit.PROTOCOL
    assert ran.err.startswith("mcpio: the handshake failed: ")


def test_options_reach_process_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def start(argv: list[str], **options: Any) -> None:
        seen.update(options, argv=argv)
        raise ConnectFailed("cannot start it") from FileNotFoundError()

    monkeypatch.setattr(connect, "open_stdio", start)
    status = main(
        ["list", "-e", "A=1", "--env", "B=x=y", "--inherit-env", "--cwd", ".", "--", "python", "a b", "--", "c"]
    )
    assert status is Exit.NO_PROGRAM
    assert seen["argv"] == ["python", "a b", "--", "c"]
    assert (seen["env"], seen["inherit_env"], seen["cwd"]) == ({"A": "1", "B": "x=y"}, True, ".")
    assert seen["stderr"] == "capture"


def test_verbose_shows_standard_error_of_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(argv: list[str], **options: Any) -> None:
        options["stderr"]("starting up")
        raise ConnectFailed("cannot start it") from PermissionError()

    monkeypatch.setattr(connect, "open_stdio", start)
    assert main(["list", "-v", "server"]) is Exit.NOT_EXECUTABLE
    assert capsys.readouterr().err == "server: starting up\nmcpio: cannot start it\n"


@pytest.mark.parametrize(("seconds", "limit"), [(5.0, 5.0), (0.0, None)])
def test_zero_timeout_means_no_timeout(seconds: float, limit: float | None) -> None:
    options = connect.engine_options(seconds)
    assert (options.request_timeout.total, options.initialize_timeout) == (limit, limit)


def test_unexpected_exception_propagates(command: Command, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client, options: argparse.Namespace, console: object) -> int:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    monkeypatch.setitem(USES, "list", Use(work))
    with pytest.raises(ZeroDivisionError):
        command("list", server=server)
