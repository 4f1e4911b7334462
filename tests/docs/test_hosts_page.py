"""The page on hosts says what the table of hosts says."""

from __future__ import annotations

import pytest
from tree import ROOT

from mcpio.cli.targets import CHECKED, HOSTS, Host

PAGE = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_every_host_has_a_row_and_a_section(host: Host) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {host.title}: `{host.name}` |")]
    for template in host.files.values():
        for path in [template] if isinstance(template, str) else template.values():
            folder, _, file = path.rpartition("/")
            where = folder.replace("{home}", "~").replace("{config}", "~/.config").replace("{app_data}", "%APPDATA%")
            where = where.replace("{project}", "").removeprefix("/")
            assert file in row
            assert where in row or where.replace("/", "\\") in row
    does = "runs" if host.add else "writes" if host.writes else "prints"
    assert row.rpartition(" | ")[2].startswith(does)
    section = PAGE.partition(f"\n### {host.title}\n")[2].partition("\n#")[0]
    assert f"mcpio install {host.name} server.py" in section


def test_the_page_has_the_date_of_the_table() -> None:
    assert f"As of {CHECKED}." in PAGE
