"""What all tests share: one way to draw examples, and no test that is left out without anybody noticing."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Generator
from importlib.util import find_spec
from typing import NamedTuple
from zlib import crc32

import pytest
from eagertasks import make_all_eager
from hypothesis import Phase, settings

# The same examples in every run, so that a run that fails, fails again. CI has ``--hypothesis-profile=steady``, and
# ``explore`` looks further.
settings.register_profile("quick", deadline=None, derandomize=True, database=None, max_examples=20)
settings.register_profile("steady", settings.get_profile("quick"), max_examples=100)
# Failing examples are not shrunk: of a breakage of a promise, only the first failure counts.
settings.register_profile("unshrunk", settings.get_profile("steady"), phases=(Phase.explicit, Phase.generate))
settings.register_profile("mutants", settings.get_profile("quick"), phases=(Phase.explicit, Phase.generate))
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("quick")

# A shell that starts a job in the background has it ignore SIGINT, and so all its children. Ctrl-C is under test here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if os.environ.get("MCPIO_EAGER_TASKS"):  # as a program may set ``asyncio.eager_task_factory``
    make_all_eager()

# In debug mode asyncio logs the callbacks that took over 0.1 s, which on a busy machine may be any. Tests compare all
# lines of the log.
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing "))


class Needs(NamedTuple):
    """What some tests need that a machine may lack. CI installs it, and runs those tests by their names."""

    tests: str
    packages: str = ""
    programs: str = ""
    variable: str = ""

    def missing(self) -> list[str]:
        """Return what is not here, in words."""
        return [
            *(f"package {name}" for name in self.packages.split() if find_spec(name) is None),
            *(f"program {name}" for name in self.programs.split() if shutil.which(name) is None),
            *([self.variable] if self.variable and not os.environ.get(self.variable) else []),
        ]


LONG = (
    "auth/test_properties.py",
    "cli/demo/test_demo.py",
    "cli/test_addresses.py",
    "cli/test_answers.py",
    "cli/test_check.py",
    "cli/test_complete.py",
    "cli/test_hostile_text.py",
    "cli/test_install.py",
    "cli/test_login.py",
    "cli/test_loop.py",
    "cli/test_processes.py",
    "cli/test_reloading.py",
    "cli/test_websocket.py",
    "conformance/test_score.py",
    "drivers/http/test_client_faults.py",
    "drivers/http/test_client_pool.py",
    "drivers/stdio/test_parent.py",
    "drivers/stdio/test_restarting.py",
    "drivers/stdio/test_server.py",
    "drivers/test_cancellation.py",
    "drivers/test_graceful_restart.py",
    "drivers/test_preloading.py",
    "drivers/test_proxied_processes.py",
    "drivers/test_servers.py",
    "drivers/test_silent_listeners.py",
    "engine/test_any_cut.py",
    "engine/test_ledger.py",
    "engine/test_size.py",
    "framing/test_json_backends.py",
    "http/client/test_memory.py",
    "http/server/test_counted_memory.py",
    "http/server/test_many_sessions.py",
    "http/server/test_registry.py",
    "interop/test_websocket_*.py",
    "project/test_[!r]*.py",
    "project/test_requirements.py",
    "promises/test_p04_*.py",
    "promises/test_p06_work_per_byte.py",
    "promises/test_p09_*.py",
    "promises/test_p13_*.py",
    "promises/test_p14_*.py",
    "promises/test_p15_*.py",
    "stores/test_killed_*.py",
    "test_bad_input_over_streams.py",
    "testing/test_transport_kit*.py",
    "trio/http/test_http2_*.py",
    "trio/http/test_server_processes.py",
    "trio/net/test_failing_connections.py",
    "trio/stdio/test_killed_client.py",
    "trio/stdio/test_process.py",
    "trio/stdio/test_stdio.py",
    "trio/test_servers.py",
    "trio/test_signals.py",
    "websocket/test_frame_*.py",
)
"""Files that take seconds, or that check the project itself: many processes, real signals, large numbers, every module.
A run leaves them out unless ``MCPIO_LONG_TESTS`` is set, and then ``-m long`` selects them."""

ROWS = 3
"""How many rows of a parametrized test a run of the whole suite takes. The other rows are long, too."""

NEEDS = (
    Needs("schema/*", variable="MCPIO_SCHEMA_DIR"),  # a directory with the official schemas
    Needs("peers/*", variable="MCPIO_PEERS_DIR"),  # where npm installed them
    Needs("benchmarks/*", variable="MCPIO_BENCHMARKS"),  # anything: they take long
    Needs("docs/test_reference_pages.py", variable="MCPIO_SITE"),  # the built site
    Needs("docs/*", packages="sphinx gevent twisted waitress aiohttp"),
    Needs("interop/test_sdk_*.py", packages="mcp"),
    Needs("interop/test_fastmcp_programs.py", packages="fastmcp"),
    Needs("interop/test_fastmcp_skills.py", packages="fastmcp"),  # which serves skills so since 4.2
    Needs("interop/test_fastmcp_examples.py", packages="fastmcp", variable="MCPIO_FASTMCP_DIR"),  # its source
    Needs("interop/test_asgi_servers.py", packages="fastapi hypercorn quart mcp"),
    Needs("interop/test_uvloop.py", packages="uvloop"),
    Needs("interop/test_chromium*.py", programs="chromium", variable="MCPIO_LONG_TESTS"),
    Needs("interop/test_chromium_inspect.py", packages="playwright", variable="MCPIO_PEERS_DIR"),  # axe-core is there
    Needs("interop/test_site.py", packages="sphinx", programs="chromium", variable="MCPIO_SITE"),  # the built site
    Needs("interop/test_curl.py", programs="curl"),
    Needs("interop/test_redis.py", programs="redis-server", packages="coredis", variable="MCPIO_LONG_TESTS"),
    Needs(
        "interop/test_many_processes.py",
        programs="nginx redis-server",
        packages="coredis",
        variable="MCPIO_LONG_TESTS",
    ),
    Needs("interop/test_mosquitto.py", programs="mosquitto", packages="paho"),
    *(Needs(tests, variable="MCPIO_LONG_TESTS") for tests in LONG),
)

OPTIONAL = ("uvloop", "uvicorn", "hypercorn")
"""The packages that ``@pytest.mark.needs`` may name, for single tests of a file whose other tests need nothing."""

collect_ignore_glob = [needs.tests for needs in NEEDS if needs.missing()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and why."""
    left_out: dict[str, list[str]] = {}
    for needs in NEEDS:
        if needs.missing():
            left_out.setdefault(", ".join(needs.missing()), []).append(f"tests/{needs.tests}")
    for missing, tests in left_out.items():
        terminalreporter.write_line(f"left out for want of {missing}: {', '.join(tests)}")
    for package in OPTIONAL:
        if find_spec(package) is None:
            terminalreporter.write_line(f"left out for want of package {package}: tests marked with it")
    if takes_whole_suite(config) and not os.environ.get("MCPIO_LONG_TESTS"):
        terminalreporter.write_line(
            f"left out for want of MCPIO_LONG_TESTS: all but {ROWS} rows of a parametrized test"
        )


def takes_whole_suite(config: pytest.Config) -> bool:
    """Tell whether a run was given no files."""
    return [config.rootpath / path for path in config.args] == [config.rootpath / "tests"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests, and leave out what is not to run: rows, and tests of packages that are not here."""
    long_files = {path for path in {item.path for item in items} if any(path.match(f"tests/{name}") for name in LONG)}
    long = {item for item in items if item.path in long_files}
    if takes_whole_suite(config):
        long |= {item for item in items if item.get_closest_marker("long")}
        long |= rows_beyond(ROWS, [item for item in items if item not in long])
    for item in long:
        item.add_marker("long")
    left_out = tests_of_missing_packages(items)
    if not os.environ.get("MCPIO_LONG_TESTS"):
        left_out |= {item for item in long if item.path not in long_files}  # a long file that is here was asked for
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def tests_of_missing_packages(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that are marked with a package that is not here."""
    named = {item: {name for mark in item.iter_markers("needs") for name in mark.args} for item in items}
    unknown = set().union(*named.values()) - set(OPTIONAL)
    if unknown:
        raise pytest.UsageError(f"OPTIONAL in tests/conftest.py does not list {', '.join(sorted(unknown))}")
    missing = {package for package in OPTIONAL if find_spec(package) is None}
    return {item for item in items if named[item] & missing}


def rows_beyond(count: int, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the rows of each parametrized test beyond a number of them. Their ids decide which: not only the first."""
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    drawn = (sorted(rows, key=lambda row: crc32(row.nodeid.encode())) for rows in tests.values())
    return {row for rows in drawn for row in rows[count:]}


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what pytest holds: tests that collect would look through it each time."""
    gc.collect()
    gc.freeze()


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
