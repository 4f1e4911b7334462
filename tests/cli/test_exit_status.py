"""Every error of the library has one exit status and one text for people."""

from __future__ import annotations

import pytest

from mcpio.cli.exit_status import CREDENTIALS, Exit, Failure, did_you_mean, failure_of
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    NoBackChannel,
    RemoteProtocolError,
    RequestError,
    RequestTimeout,
)


def _caused(error: McpError, cause: BaseException) -> McpError:
    error.__cause__ = cause
    return error


FAILED = "cannot start 'x': y"


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RequestTimeout("tools/call", 5), Exit.TIMEOUT, "tools/call: no answer within 5 s"),
        (RequestError(-32603, "no"), Exit.REFUSED, "the server answered with an error: no (-32603)"),
        (InvalidMessage("a", "b"), Exit.PROTOCOL, "the server's answer is malformed: a: b"),
        (RemoteProtocolError("x"), Exit.PROTOCOL, "the server breaks the protocol: x"),
        (LocalProtocolError("x"), Exit.PROTOCOL, "x"),
        (ConnectionLost("x"), Exit.SERVER_DIED, "x"),
        (NoBackChannel("x"), Exit.SERVER_DIED, "x"),
        (_caused(ConnectFailed(FAILED), FileNotFoundError()), Exit.NO_PROGRAM, FAILED),
        (_caused(ConnectFailed(FAILED), PermissionError()), Exit.NOT_EXECUTABLE, FAILED),
        (_caused(ConnectFailed("x"), RequestTimeout("initialize", 1)), Exit.TIMEOUT, "x"),
        (_caused(ConnectFailed("x"), ConnectionLost("y")), Exit.SERVER_DIED, "x"),
        (_caused(ConnectFailed("x"), ConnectFailed("y")), Exit.PROTOCOL, "x"),
        (_caused(ConnectFailed("x"), AuthorizationRequired("y")), Exit.REFUSED, f"x{CREDENTIALS}"),
        (AuthorizationRequired("x"), Exit.REFUSED, f"x{CREDENTIALS}"),
        (AuthorizationRequired("x", is_without_auth=True), Exit.REFUSED, f"x{CREDENTIALS}"),
        (AuthorizationRequired("x", status=403, challenges=["Bearer"]), Exit.REFUSED, f"x{CREDENTIALS}"),
        (AuthorizationRequired("x", status=403), Exit.REFUSED, "x"),
        (_caused(ConnectFailed("x"), AuthorizationRequired("y", status=403)), Exit.REFUSED, "x"),
    ],
)
def test_error_maps_to_exit_status(error: McpError, status: Exit, text: str) -> None:
    failure = failure_of(error)
    assert (failure.status, failure.message) == (status, text)


def test_statuses_are_distinct_and_avoid_those_of_shells() -> None:
    assert len({int(status) for status in Exit}) == len(Exit)
    assert {int(status) for status in Exit} & {130, 143} == set()


def test_failure_kind_is_the_status_name() -> None:
    assert Failure(Exit.SERVER_DIED, "x").kind == "server-died"


@pytest.mark.parametrize(
    ("name", "said"),
    [("ecko", " Did you mean 'echo'?"), ("red", " Did you mean 'reed' or 'read'?"), ("zzz", ""), ("", "")],
)
def test_close_names_are_suggested(name: str, said: str) -> None:
    assert did_you_mean(name, ["echo", "read", "reed"]) == said


def test_suggestions_compare_a_bounded_number_of_short_names() -> None:
    assert did_you_mean("echo", ["x"] * 999 + ["ecco"]) == " Did you mean 'ecco'?"
    assert did_you_mean("echo", ["x"] * 1000 + ["ecco"]) == ""
    assert did_you_mean("e" * 201, ["e" * 200]) == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (_caused(ConnectFailed("x"), _caused(ConnectFailed("y"), OSError())), Exit.UNREACHABLE),
        (_caused(ConnectFailed("x"), TimeoutError()), Exit.UNREACHABLE),
        (_caused(ConnectFailed("x"), ConnectFailed("y")), Exit.PROTOCOL),
        (_caused(ConnectFailed("x"), ConnectionLost("y")), Exit.SERVER_DIED),
    ],
)
def test_connect_failure_by_url_is_unreachable(error: McpError, status: Exit) -> None:
    assert failure_of(error, by_url=True).status is status


@pytest.mark.parametrize("status", [401, 403])
def test_command_that_gave_headers_is_not_advised_to_give_them(status: int) -> None:
    error = AuthorizationRequired("x", status=status, challenges=["Bearer"])
    assert failure_of(error, has_headers=True).message == "x. What --header gave is not enough for it"
    assert failure_of(AuthorizationRequired("x", status=403), has_headers=True).message == "x"
