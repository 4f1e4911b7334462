"""Reports of checks: what a person reads, and what programs do."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import attrs

from mcpio.cli.check import Check, Report

BROKEN = Check(
    "ping", "Answer ping.", "no <response> \x00", "broken", "2025-11-25", ("PING-01",), '{"id":1}', "(nothing)\nmore",
    "https://example.com/ping",
)  # fmt: skip
ALIKE = Check("ping", "Answer ping.", "no <response> \x00", "broken", "2025-06-18", ("PING-01",))
WARNING = Check("order", "Keep the order.", "it differs", "warning", "2025-11-25")
KEPT = Check("ids", "Answer with the id.", None, "broken", "2025-11-25")
REPORT = Report("python server.py", "a server 1", ("2025-06-18", "2025-11-25"), (ALIKE, WARNING, BROKEN, KEPT))


def test_text_joins_equal_faults_and_shows_the_messages() -> None:
    assert list(REPORT.text(whole_warnings=False)) == [
        "broken: ping (PING-01), 2025-06-18, 2025-11-25",
        "  demanded Answer ping.",
        "  found    no <response> \x00",
        "",
        "warning: order, 2025-11-25: it differs",
        "a server 1: 2025-06-18, 2025-11-25",
        "4 checks, 2 broken, 1 warning",
    ]


def test_text_can_show_warnings_whole() -> None:
    assert "  demanded Keep the order." in REPORT.text(whole_warnings=True)


def test_json_has_every_fault() -> None:
    found = json.loads(REPORT.as_json())
    assert (found["server"], found["checks"], len(found["faults"])) == ("a server 1", 4, 3)
    assert found["faults"][2]["came"] == "(nothing)\nmore"


def test_junit_counts_failures_by_revision() -> None:
    root = ET.fromstring(REPORT.junit())  # our own text
    counted = [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root]
    assert counted == [("2025-06-18", "1", "1"), ("2025-11-25", "3", "1")]
    (failure,) = root[1].iter("failure")
    assert failure.get("message") == "no <response> \\x00"
    assert '{"id":1}' in str(failure.text)


def test_every_report_stays_readable_with_control_characters() -> None:
    hostile = '\x00\x01\x1b\x85\r\ud800\ufffe\u2028]]>&"'
    check = Check(hostile, hostile, hostile, "broken", hostile, (hostile,), hostile, hostile, hostile)
    report = Report(hostile, hostile, (hostile,), [check, attrs.evolve(check, level="warning")])
    escaped = '\\x00\\x01\\x1b\x85\\x0d\\xd800\\xfffe\u2028]]>&"'
    root = ET.fromstring(report.junit())  # our own text
    assert (root.get("name"), root[0].get("name")) == (f"mcpio check {escaped}", escaped)
    assert root[0][0].attrib == {"classname": f"mcpio.{escaped}", "name": escaped}
    assert json.loads(report.as_json())["server"] == hostile
    assert json.loads(report.sarif())["runs"][0]["tool"]["driver"]["rules"][0]["name"] == hostile


def test_sarif_has_rules_and_results() -> None:
    (run,) = json.loads(REPORT.sarif())["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["PING-01: ping", "mcpio: order"]
    assert [result["level"] for result in run["results"]] == ["error", "error", "warning"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "python%20server.py"
