from __future__ import annotations

from typing import Any, cast

import attrs
import pytest
from linked import Link

from mcpio.app.reporting import redact_secrets
from mcpio.app.server import Server
from mcpio.app.server_session import LogFilter
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.observe.tap import MARK
from mcpio.types import LoggingMessageNotification


def listening(**options: Any) -> tuple[Link, list[Any]]:
    """Return a link whose client keeps the data of what it hears."""
    heard: list[Any] = []
    link = Link(Server("s", **options), on_log=lambda message: heard.append(message.data), era="handshake")
    return link, heard


def test_value_beyond_json_is_logged_as_repr() -> None:
    link, heard = listening()
    link.session.log("info", {1, 2.5}, "a.logger")
    link.session.log("info", {"when": object})
    link.run()
    assert heard == [[1, 2.5], "{'when': <class 'object'>}"]


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no text")


def test_value_that_cannot_be_written_is_described() -> None:
    link, heard = listening()
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("caf\udce9", {"size": 10**5000}, Odd(), deep):
        link.session.log("info", value)
    link.run()
    assert heard[0] == r"'caf\udce9'"
    assert [each.partition(" object at ")[0].rpartition(".")[2] for each in heard[1:]] == ["<dict", "Odd", "<list"]
    assert link.errors == []


@pytest.mark.req("LOG-07", "LOG-09")
def test_secrets_are_redacted_by_name_and_form() -> None:
    link, heard = listening()
    data = {"user": "ann", "Password": "x", "deep": [{"API-Key": 5, "token_count": 3}], "set_cookie": None}
    link.session.log("info", data)
    link.session.log("info", "password: x, Authorization: Bearer abcdefgh")
    link.session.log("info", [["plain"], {"a": 1}])
    link.run()
    deep = [{"API-Key": 0, "token_count": 3}]
    expected = {"user": "ann", "Password": MARK, "deep": deep, "set_cookie": None}
    assert heard == [expected, f"password: x, Authorization: {MARK}", [["plain"], {"a": 1}]]
    assert data["Password"] == "x"


def test_message_without_secrets_is_unchanged() -> None:
    message = LoggingMessageNotification("info", {"a": [{"b": 1}]})
    assert redact_secrets(None, message) is message


@pytest.mark.req("LOG-07", "LOG-09")
def test_log_filter_sees_every_message_first() -> None:
    seen: list[Any] = []

    def chosen(session: Any, message: LoggingMessageNotification) -> LoggingMessageNotification | None:
        seen.append((session, message.level, message.logger))
        return None if message.data == "secret" else attrs.evolve(message, data=f"<{message.data}>")

    log_filter: LogFilter = chosen
    link, heard = listening(log_filter=log_filter)
    link.session.log("info", "secret", "a")
    link.session.log("error", "open", "b")
    link.session.log("debug", "below the level")
    link.run()
    assert heard == ["<open>"]
    assert seen == [(link.session, "info", "a"), (link.session, "error", "b")]


def test_message_of_a_failing_filter_is_dropped() -> None:
    link, heard = listening(log_filter=lambda session, message: 1 // 0)
    link.session.log("info", "secret")
    link.run()
    assert heard == []
    assert link.reports == ["the log filter failed, and the message was kept in"]
    assert isinstance(link.errors[0], ZeroDivisionError)


def test_async_log_filter_is_refused() -> None:
    async def later(session: Any, message: Any) -> Any:
        raise NotImplementedError

    with pytest.raises(TypeError, match="log_filter must be a plain function"):
        Server("s", log_filter=cast("Any", later))


@pytest.mark.req("LOG-07")
def test_messages_per_second_are_limited() -> None:
    link, heard = listening(options=Options(limits=Limits(logs_per_second=3)))
    for number in range(5):
        link.session.log("info", number)
    link.run()
    assert heard == [0, 1, 2]
    assert link.session.dropped_logs == 2
    link.advance(1.0)
    for number in range(5):
        link.session.log("info", number)
    link.run()
    assert heard == [0, 1, 2, 0, 1, 2]
    assert link.session.dropped_logs == 4


def test_new_session_has_dropped_no_logs() -> None:
    link, _ = listening()
    assert link.session.dropped_logs == 0
