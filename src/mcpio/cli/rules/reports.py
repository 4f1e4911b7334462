"""Reports of checks: as text, JSON, JUnit's XML, and SARIF."""

from __future__ import annotations

import json  # indented, for people
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, TypeAlias
from xml.etree import ElementTree as ET

import attrs

import mcpio

Level: TypeAlias = Literal["broken", "warning"]


@attrs.frozen
class Check:
    """One thing that was checked."""

    name: str
    demand: str
    fault: str | None
    """The actual behaviour, where it differs from the demand; else ``None``."""
    level: Level
    """The severity of a fault."""
    group: str
    """The revision, or the other subject of the comparison."""
    rules: tuple[str, ...] = ()
    sent: str = ""
    came: str = ""
    url: str = ""


@attrs.frozen
class Report:
    """All checks of one server."""

    target: str
    """The server, as it was named."""
    server: str
    """The name and version that the server reports."""
    groups: tuple[str, ...]
    """The revisions that the server speaks, or what else was compared."""
    checks: Sequence[Check]

    def faults(self, level: Level) -> list[Check]:
        """Return the faults of a level."""
        return [check for check in self.checks if check.fault is not None and check.level == level]

    def text(self, *, whole_warnings: bool) -> Iterator[str]:
        """Yield lines for people. Equal faults in several revisions are one entry; a warning is one line of it."""
        levels: tuple[Level, ...] = ("broken", "warning")
        for level in levels:
            faults = sorted(self.faults(level), key=_likeness)
            for _, alike in groupby(faults, key=_likeness):
                yield from _entry(list(alike), is_whole=level == "broken" or whole_warnings)
        broken, warnings = len(self.faults("broken")), len(self.faults("warning"))
        yield f"{self.server}: {', '.join(self.groups)}"
        yield f"{len(self.checks)} checks, {broken} broken, {_count(warnings, 'warning')}"

    def as_json(self) -> str:
        """Return the report as one JSON object."""
        faults = [
            {"level": check.level, **attrs.asdict(check, filter=lambda field, _: field.name != "level")}
            for check in self.checks
            if check.fault is not None
        ]
        whole = {"server": self.server, "revisions": self.groups, "checks": len(self.checks), "faults": faults}
        return json.dumps(whole, ensure_ascii=False)

    def junit(self) -> bytes:
        """Return the report as JUnit's XML: a suite for each revision. A warning is a test that is passed."""
        root = ET.Element("testsuites", name=_xml(f"mcpio check {self.target}"))
        for group in dict.fromkeys(check.group for check in self.checks):
            checks = [check for check in self.checks if check.group == group]
            failed = sum(check.fault is not None and check.level == "broken" for check in checks)
            suite = ET.SubElement(root, "testsuite", name=_xml(group), tests=str(len(checks)), failures=str(failed))
            for check in checks:
                case = ET.SubElement(suite, "testcase", classname=_xml(f"mcpio.{group}"), name=_xml(check.name))
                if check.fault is None:
                    continue
                if check.level == "broken":
                    ET.SubElement(case, "failure", message=_xml(check.fault)).text = _xml(_fault_lines(check))
                else:
                    ET.SubElement(case, "system-out").text = _xml(f"warning: {check.fault}\n{_fault_lines(check)}")
        ET.indent(root)
        return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"

    def sarif(self) -> str:
        """Return the faults as SARIF 2.1.0."""
        faults = [*self.faults("broken"), *self.faults("warning")]
        rules = {
            _rule_id(check): {
                "id": _rule_id(check),
                "name": check.name,
                "shortDescription": {"text": check.demand},
                **({"helpUri": check.url} if check.url else {}),
            }
            for check in faults
        }
        driver = {
            "name": "mcpio check",
            "version": mcpio.__version__,
            "rules": list(rules.values()),
        }
        return json.dumps(
            {
                "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
                "version": "2.1.0",
                "runs": [{"tool": {"driver": driver}, "results": [self._sarif_result(check) for check in faults]}],
            },
            indent=2,
        )

    def _sarif_result(self, check: Check) -> dict[str, Any]:
        return {
            "ruleId": _rule_id(check),
            "level": "error" if check.level == "broken" else "warning",
            "message": {"text": f"{check.name}, {check.group}: {check.fault}\n{_fault_lines(check)}"},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": self.target.replace(" ", "%20")}},
                    "logicalLocations": [{"fullyQualifiedName": f"{check.group}: {check.name}"}],
                }
            ],
        }


def _rule_id(check: Check) -> str:
    return f"{'+'.join(check.rules) or 'mcpio'}: {check.name}"


def _likeness(check: Check) -> tuple[str, str, str]:
    return (",".join(check.rules), check.name, check.fault or "")


def _entry(alike: list[Check], *, is_whole: bool) -> Iterator[str]:
    first = alike[0]
    rules = f" ({', '.join(first.rules)})" if first.rules else ""
    head = f"{first.level}: {first.name}{rules}, {', '.join(check.group for check in alike)}"
    if not is_whole:
        yield f"{head}: {first.fault}"
        return
    yield head
    for line in _fault_lines(first).splitlines():
        yield f"  {line}"
    yield ""


def _fault_lines(check: Check) -> str:
    """Return all that is known of a fault, in lines."""
    parts = {
        "demanded": check.demand,
        "found": check.fault or "",
        "sent": check.sent,
        "came": check.came,
        "see": check.url,
    }
    lines = [
        f"{name if not index else '':9}{line}"
        for name, text in parts.items()
        for index, line in enumerate(text.splitlines())
    ]
    return "\n".join(lines)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _xml(text: str) -> str:
    """Return a text with characters that XML cannot have escaped."""
    return "".join(
        each if each in "\t\n" or " " <= each <= "\ud7ff" or "\ue000" <= each <= "\ufffd" or each > "\uffff"
        else f"\\x{ord(each):02x}"
        for each in text
    )  # fmt: skip
