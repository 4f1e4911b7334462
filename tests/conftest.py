"""What all tests share: one way to draw examples, and no test that is left out without anybody noticing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from importlib.util import find_spec

import pytest
from hypothesis import settings

# The same examples in every run, so that a run that fails, fails again; ``--hypothesis-profile=explore`` looks further.
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("steady")

# The comparison with the official schemas needs their files, which the project does not have: CI names the directory.
# The tests of what builds the docs need the tools for that, those under web servers need these, and those with programs
# from npm or Debian need those: CI installs them. It runs all of them by their names.
collect_ignore_glob = [
    *([] if os.environ.get("MCPIO_SCHEMA_DIR") else ["schema/*"]),
    *([] if all(map(find_spec, ("sphinx", "gevent", "twisted", "waitress"))) else ["docs/*"]),
    *([] if all(map(find_spec, ("fastapi", "hypercorn", "quart"))) else ["interop/test_asgi_servers.py"]),
    *([] if os.environ.get("MCPIO_PEERS_DIR") else ["peers/*"]),
    *([] if shutil.which("chromium") else ["interop/test_chromium.py"]),
    *([] if shutil.which("curl") else ["interop/test_curl.py"]),
    *([] if shutil.which("mosquitto") and find_spec("paho") else ["interop/test_mosquitto.py"]),
]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where ``MCPIO_NO_SKIPS`` is set, count a skipped test as failed: something it needs is missing."""
    report = yield
    if report.skipped and os.environ.get("MCPIO_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a file that is skipped as a whole."""
    report = yield
    if report.skipped and os.environ.get("MCPIO_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be: {report.longrepr}"
    return report
