"""Breaks the code on purpose, in ways that ``breakages.toml`` lists, and has each promise's own tests catch it.

``python tests/promises/breakages.py`` tries all of them and exits 1 if any survives; ``P4`` tries those of one promise,
and ``P4:7`` its seventh. The code is broken in a copy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import attrs  # noqa: F401  imported once for all children
import cattrs  # noqa: F401  imported once for all children
import h11  # noqa: F401  imported once for all children
import hypothesis.stateful  # noqa: F401  imported once for all children
import pytest
import trio.testing  # noqa: F401  imported once for all children
import wsproto  # noqa: F401  imported once for all children

__all__ = ["Breakage", "Copy", "breakages", "own_tests"]

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "mcpio"
TIMEOUT: Final = 300.0
"""Seconds that the tests of a promise may take. A test that hangs fails long before, by its own timeout."""


class NoVerdictError(Exception):
    """No test failed, and not all passed: the broken library cannot be imported, for instance."""


class FirstFailure:
    """A plugin of pytest that writes the name of the first test that fails, not counting what fails around tests."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when == "call":
            os.write(self._pipe, report.nodeid.encode()[:1000] + b"\n")


class Breakage(NamedTuple):
    """A replacement in one file of the library."""

    promise: str
    number: int
    """Its place among those of its promise, from 1."""
    path: str
    old: str
    new: str

    def __str__(self) -> str:
        line = SOURCE.joinpath(self.path).read_text("utf-8").partition(self.old)[0].count("\n") + 1
        return f"{self.promise}:{self.number} {self.path}:{line}"

    def applied(self) -> str:
        """Return the broken text of the file. Raises ValueError if the old text does not stand there once."""
        text = SOURCE.joinpath(self.path).read_text("utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.promise}:{self.number}: {self.path} has the old text {text.count(self.old)} times")
        return text.replace(self.old, self.new)


def breakages() -> list[Breakage]:
    """Return all of them."""
    listed = tomllib.loads(Path(__file__).with_name("breakages.toml").read_text("utf-8"))
    return [
        Breakage(promise, number, **row) for promise, rows in listed.items() for number, row in enumerate(rows, start=1)
    ]


def own_tests(promise: str) -> list[str]:
    """Return the files of a promise's own tests."""
    return sorted(str(path) for path in Path(__file__).parent.glob(f"test_p{int(promise[1:]):02}_*.py"))


class Copy:
    """A copy of the library, which tests import in place of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(SOURCE, folder / "mcpio", ignore=shutil.ignore_patterns("__pycache__"))

    def failing_test(self, promise: str) -> str | None:
        """Run the tests of a promise in a process of their own; return the first that fails.

        Raises NoVerdictError where the run ends in any other way than by a failing test or by its end.
        """
        reader, writer = os.pipe()
        child = os.fork()  # of this one, which has imported what the tests need beside the library
        if child == 0:
            self._run_tests(promise, writer)
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            status = _wait(child)
            failed = pipe.readline().strip()
        if status == os.EX_OK:
            return None
        # A failed test may leave tasks or warnings behind, for which pytest raises an exception when it ends.
        if failed and status in (pytest.ExitCode.TESTS_FAILED, os.EX_SOFTWARE):
            return failed
        raise NoVerdictError("no end in time" if status is None else f"exit code {status}")

    def _run_tests(self, promise: str, pipe: int) -> NoReturn:
        os.setsid()
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.environ |= {"PYTHONPATH": str(self._folder), "MCPIO_LONG_TESTS": "1", "MCPIO_BREAKAGE": "1"}
        sys.path.insert(0, str(self._folder))
        options = [
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            "--assert=plain",
            "--hypothesis-profile=unshrunk",
            f"--rootdir={ROOT}",
        ]
        try:
            os._exit(pytest.main([*options, *own_tests(promise)], [FirstFailure(pipe)]))
        finally:
            os._exit(os.EX_SOFTWARE)

    def outcome(self, breakage: Breakage) -> str:
        """Break the copy; return whether a test of the promise fails, and which."""
        try:
            with self._broken(breakage):
                failed = self.failing_test(breakage.promise)
        except NoVerdictError as error:
            return f"NO VERDICT ({error})"
        return "SURVIVES" if failed is None else f"caught by {failed}"

    @contextmanager
    def _broken(self, breakage: Breakage) -> Iterator[None]:
        path = self._folder / "mcpio" / breakage.path
        whole = path.read_text("utf-8")
        try:
            self._write(path, breakage.applied())
            yield
        finally:
            self._write(path, whole)

    def _write(self, path: Path, text: str) -> None:
        """Write a module. Python would take its bytecode for that of another text of the same second and size."""
        path.write_text(text, "utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def _wait(child: int) -> int | None:
    """Return the exit code of a process, or ``None`` where it had to be killed."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)  # there is nothing to wait for with a limit
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def survivors(chosen: Sequence[Breakage]) -> list[Breakage]:
    """Try breakages, print each outcome, and return those that no test caught.

    Raises SystemExit if tests fail without any.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for promise in dict.fromkeys(each.promise for each in chosen):
            if failed := copy.failing_test(promise):
                raise SystemExit(f"{failed} fails without any breakage")
        for breakage in chosen:
            outcome = copy.outcome(breakage)
            print(f"{breakage}: {outcome}", flush=True)
            if not outcome.startswith("caught"):
                found.append(breakage)
    return found


def main() -> int:
    """Try the breakages that are named, and count."""
    parser = argparse.ArgumentParser(description="Break the code, and see whether the tests of its promises notice.")
    parser.add_argument(
        "which", nargs="*", help="promises, such as P4, or single breakages, such as P4:7; default: all"
    )
    which = parser.parse_args().which
    chosen = [each for each in breakages() if not which or {each.promise, f"{each.promise}:{each.number}"} & set(which)]
    left = survivors(chosen)
    print(f"{len(chosen)} breakages, {len(chosen) - len(left)} caught, {len(left)} survive")
    return 1 if left or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
