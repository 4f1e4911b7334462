from __future__ import annotations

from collections.abc import Callable

import pytest
from linked import Link
from tasked import Mine

from mcpio.app import reporting
from mcpio.app.reporting import FaultReports
from mcpio.app.server import Server
from mcpio.types import CallToolRequest, TaskMetadata


class Log:
    """An operator who keeps what they are told."""

    def __init__(self) -> None:
        self.time = 0.0
        self.told: list[tuple[str, bool]] = []

    def now(self) -> float:
        return self.time

    def report(self, message: str, error: BaseException | None) -> None:
        self.told.append((message, error is not None))


def raised(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def test_first_failure_of_a_kind_has_a_traceback_and_later_ones_are_lines_and_counts() -> None:
    log, reports = Log(), FaultReports()
    for _ in range(100):
        reports.report(log, "it failed", raised(lambda: 1 // 0))
    again = "it failed again: ZeroDivisionError('integer division or modulo by zero')"
    assert log.told == [("it failed", True), *[(again, False)] * 10]
    log.time = 10.0
    reports.report(log, "it failed", raised(lambda: 1 // 0))
    assert log.told[11:] == [("it failed", True)]  # from another line
    log.told.clear()
    for _ in range(2):
        reports.report(log, "slow", None)
    assert log.told == [("slow", False)] * 2


def test_suppressed_reports_are_counted() -> None:
    log, reports = Log(), FaultReports()
    for _ in range(20):
        reports.report(log, "slow", None)
    log.time = 10.0
    reports.report(log, "slow", None)
    assert log.told[-1] == ("slow (9 times more before)", False)


def test_failures_of_another_type_line_or_message_have_separate_kinds() -> None:
    log, reports = Log(), FaultReports()
    for error in (raised(lambda: int("x")), raised(lambda: int("y")), ValueError(), TypeError(), KeyError()):
        reports.report(log, "it failed", error)
    reports.report(log, "other", ValueError())
    assert [is_whole for _, is_whole in log.told] == [True] * 6


def test_kind_argument_groups_messages_that_quote_the_peer() -> None:
    log, reports = Log(), FaultReports()
    for number in range(100):
        reports.report(log, f"{number} is slow", None, kind="slow")
    assert len(log.told) == 11


def test_the_memory_for_kinds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_MOST_KINDS", 3)
    log, reports = Log(), FaultReports()
    for number in range(10):
        reports.report(log, str(number), ValueError())
        assert len(reports._kinds) <= 4
    assert [is_whole for _, is_whole in log.told] == [True] * 4 + [False] * 6
    for number in range(100):
        reports.report(log, str(number), ValueError())
    assert [is_whole for _, is_whole in log.told].count(True) == 4, "none was forgotten"


def failing() -> Server:
    server = Server("s")

    @server.tool
    def fail() -> None:
        raise ValueError("x" * 1000)

    @server.resource("note://{name}")
    def note(name: str) -> str:
        raise ValueError(name)

    return server


def test_clients_that_repeat_a_failing_call_do_not_flood_the_log() -> None:
    server = failing()
    links = [Link(server) for _ in range(5)]
    for link in links:
        for _ in range(10):
            assert link.text("fail").startswith("failed: 'fail' failed: ValueError")
    reports = [report for link in links for report in link.reports]
    errors = [error for link in links for error in link.errors if error is not None]
    assert (len(reports), len(errors)) == (11, 1)
    assert all(len(report) < 350 for report in reports)


def test_names_chosen_by_a_client_do_not_distinguish_kinds() -> None:
    link = Link(failing())
    for number in range(50):
        link.start(link.client.read_resource(f"note://{number}"))
    assert len(link.reports) == 11
    assert sum(error is not None for error in link.errors) == 1


def test_tasks_that_fail_again_and_again_do_not_flood_the_log() -> None:
    mine = Mine()

    @mine.server.tool(task_support="optional")
    def fail() -> None:
        raise ValueError

    for _ in range(50):
        mine.wire.link.pair.client.send_request(CallToolRequest("fail", task=TaskMetadata()), now=0)
        mine.wire.look()
    assert len(mine.wire.link.reports) == 11
