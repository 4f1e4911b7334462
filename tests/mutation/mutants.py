"""Changes one operator, constant or statement of the library at a time, and runs the tests that pass through it.

``python tests/mutation/mutants.py engine --sample 150 --seed 1`` tries a sample of the mutants of a room, prints those
that no test kills, and exits 1 if any of them is missing from ``survivors.toml``, which gives a reason for each.

``--all --record FILE`` tries all of them and writes down each outcome at once. The same command continues where it was
ended, and then tries only those that are new, or that no test has killed.

Tests are collected once. Each mutant is tried in a fork, in which the function's code is exchanged. Code that runs at
import (constants, defaults of arguments) is not changed, nor are texts, annotations, logging and ``__repr__``.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import gc
import math
import os
import pickle
import resource
import select
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple
from zlib import crc32

import coverage
import pytest
from _pytest.runner import runtestprotocol

__all__ = ["ROOMS", "Mutant", "mutants", "of_room", "reasons_anywhere", "survivors"]

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "mcpio"
SURVIVORS: Final = Path(__file__).with_name("survivors.toml")
ANYWHERE: Final = "*"
"""The table in that file of changes that tell the same wherever they survive. These are tried, too."""

ROOMS: Final = {
    "engine": ["engine/*.py"],
    # http/lifecycle.py is a table; tests/http/server/test_lifecycle_model.py changes each of its cells.
    "http/server": [f"http/{name}.py" for name in ("server", "sessions", "streams", "calls", "checks", "model")],
    "http/client": ["http/client.py"],
    "app/tasks": ["app/tasks/*.py"],
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
NOT_RUN: Final = ("annotation", "returns", "args", "decorator_list", "format_spec")
"""The attributes of a function that are not its code."""
TESTS: Final = [
    *("engine/test_*.py", "http/**/test_*.py", "observe/test_*.py", "asgi/test_*.py"),
    *("test_conversations.py", "test_seeds.py"),
]
LEFT_OUT: Final = ("test_any_cut.py", "test_counted_memory.py", "test_many_sessions.py", "test_memory.py")
"""Tests that take seconds, and pass nearly every line."""
BY_TIME: Final = "linear_time"
"""Part of the names of tests that compare processor times. They fail in a fork, whose first writes copy pages."""
SECONDS: Final = 5
"""Processor time that a test of a mutant may take, beyond three times that of the same test without it."""
CACHED: Final = type(cache(lambda: None))
WAITING: Final = 300.0
"""Seconds without the end of a test after which a mutant is taken to wait for ever, also on a busy machine."""
MEMORY: Final = 4 << 30
LOUD: Final = os.dup(2)
"""Standard error, where a fork silences it."""

OTHERS: Final[dict[type[ast.cmpop], list[type[ast.cmpop]]]] = {
    ast.Lt: [ast.GtE, ast.LtE], ast.LtE: [ast.Gt, ast.Lt], ast.Gt: [ast.LtE, ast.GtE], ast.GtE: [ast.Lt, ast.Gt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn], ast.NotIn: [ast.In],
}  # fmt: skip
"""The comparisons that may replace each comparison."""
UNTOUCHED: Final = {"__repr__", "__str__", "__rich_repr__"}


class Mutant(NamedTuple):
    """A changed function."""

    path: str
    function: str
    change: str
    """The old text and the new one; with a number where the function has the same text twice."""
    lines: range
    code: CodeType
    first_line: int

    @property
    def name(self) -> str:
        """Return what ``survivors.toml`` calls it, as ``path function: change``."""
        return f"{self.path} {self.function}: {self.change}"

    def __str__(self) -> str:
        return f"{self.path}:{self.lines.start} {self.function}: {self.change}"


def mutants(path: Path) -> list[Mutant]:
    """Return all mutants of a module."""
    module = ast.parse(path.read_text("utf-8"))
    return [mutant for function, classes in _functions(module, []) for mutant in _of_function(path, function, classes)]


def _functions(parent: ast.AST, classes: list[ast.ClassDef]) -> Iterator[tuple[Function, list[ast.ClassDef]]]:
    """Yield the outermost functions, each with the classes around it."""
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, Function):
            if child.name not in UNTOUCHED:
                yield child, classes
        else:
            yield from _functions(child, [*classes, child] if isinstance(child, ast.ClassDef) else classes)


def _of_function(path: Path, function: Function, classes: list[ast.ClassDef]) -> Iterator[Mutant]:
    name = ".".join(each.name for each in [*classes, function])
    original = _compiled(path, function, classes)
    stored = [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    once = {each for each, times in Counter(stored).items() if times == 1}
    once -= {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    seen = Counter[str]()
    for node, replace in _places(function):
        for new in (*_other_expressions(node), *_other_statements(node, once)):
            change = f"{_text(node)} -> {_text(new)}"
            seen[change] += 1
            replace(ast.copy_location(new, node))
            code = _compiled(path, function, classes)
            replace(node)
            if code.co_freevars != original.co_freevars or code == original:
                continue  # it does not fit the closure of the function, or is the same
            header = node.test if isinstance(node, ast.If | ast.While) else node
            lines = range(header.lineno, (header.end_lineno or header.lineno) + 1)
            number = f" #{seen[change]}" if seen[change] > 1 else ""
            yield Mutant(str(path.relative_to(SOURCE)), name, change + number, lines, code, original.co_firstlineno)


def _text(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]


def _compiled(path: Path, function: Function, classes: Sequence[ast.ClassDef]) -> CodeType:
    """Return the code of a function, compiled inside empty copies of its classes."""
    body: ast.stmt = function
    for each in reversed(classes):
        body = ast.copy_location(ast.ClassDef(each.name, bases=[], keywords=[], body=[body], decorator_list=[]), each)
    module = ast.fix_missing_locations(ast.Module([body], type_ignores=[]))
    code: CodeType = compile(module, str(path), "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    for _ in [*classes, function]:
        code = next(each for each in code.co_consts if isinstance(each, CodeType))
    return code


def _places(parent: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, Callable[[ast.AST], None]]]:
    """Yield each statement and expression that runs in a function, and what puts another in its place."""
    for name, value in list(ast.iter_fields(parent)):
        if name in NOT_RUN and not isinstance(parent, ast.Call):
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            if isinstance(node, ast.expr | ast.stmt):
                yield (
                    node,
                    partial(value.__setitem__, index) if isinstance(value, list) else partial(setattr, parent, name),
                )
            yield from _places(node)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).startswith(("_log.", "assert_never", "cast"))
    return isinstance(node, ast.JoinedStr | ast.Assert)


def _other_expressions(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [operator], right):
            for other in OTHERS[type(operator)]:
                yield ast.Compare(left, [other()], right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right):
            yield ast.BinOp(left, ast.Sub() if isinstance(operator, ast.Add) else ast.Add(), right)
        case ast.IfExp(_, body, orelse):
            yield from (ast.IfExp(ast.Constant(value), body, orelse) for value in (True, False))
        case _:
            pass


def _other_statements(node: ast.AST, once: Container[str]) -> Iterator[ast.stmt]:
    match node:
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            yield ast.Return(None)  # which is as false as False
        case ast.If(_, body, orelse):
            yield from (ast.If(ast.Constant(value), body, orelse) for value in (True, False))
        case ast.While(test, body, orelse) if not isinstance(test, ast.Constant):
            yield ast.While(ast.Constant(False), body, orelse)
        case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)) if name in once:
            pass  # without it, the name is an error wherever it is read
        case ast.Expr(ast.Call() | ast.Await()) | ast.Assign() | ast.AugAssign() | ast.AnnAssign(value=ast.expr()):
            yield ast.Pass()
        case _:
            pass


class Record:
    """A file of the mutants that a test has killed, by their names and code."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._killed = set(path.read_text("utf-8").splitlines()) if path is not None and path.exists() else set[str]()

    def __contains__(self, mutant: Mutant) -> bool:
        return self._line(mutant) in self._killed

    def add(self, mutant: Mutant) -> None:
        self._killed.add(self._line(mutant))
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:  # in one write: parts may share the file
                file.write(f"{self._line(mutant)}\n")

    @staticmethod
    def _line(mutant: Mutant) -> str:
        return f"{crc32(mutant.code.co_code):08x} {mutant.name}"


class Trial:
    """A plugin of pytest that tries mutants with the tests that were collected, in place of running them."""

    def __init__(self, tried: Sequence[Mutant], record: Record, jobs: int, most: int | None) -> None:
        self._tried = tried
        self._record = record
        self._jobs = jobs
        self._most = most
        self.survivors: list[Mutant] = []
        self.complete = False
        self._failed = False
        self._caches: list[Any] = []
        self._functions: dict[tuple[str, int], list[FunctionType]] = defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        files = sorted({str(SOURCE / mutant.path) for mutant in self._tried})
        for file in files:
            import_module(".".join(Path(file).relative_to(SOURCE.parent).with_suffix("").parts))
        functions = self._functions
        gc.unfreeze()  # what tests/conftest.py froze: get_objects() leaves it out
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in files:
                functions[each.__code__.co_filename, each.__code__.co_firstlineno].append(each)
            elif isinstance(each, CACHED) and isinstance(wrapped := each.__wrapped__, FunctionType):  # or a class
                self._caches += [each] if wrapped.__code__.co_filename in files else []
        gc.freeze()
        status, measured = _joined(*_forked(lambda pipe: self._measure(items, files, pipe)))
        if status:
            return True
        passing, times = pickle.loads(measured)
        numbers = [range(job, len(self._tried), self._jobs) for job in range(self._jobs)]
        jobs = [_forked(partial(self._try_some, part, items, passing, times), silent=False) for part in numbers]
        for job in jobs:
            status, survivors = _joined(*job)
            if status:
                return True
            self.survivors += [self._tried[number] for number in pickle.loads(survivors)]
        self.complete = True
        return True

    def _try_some(
        self,
        numbers: Sequence[int],
        items: Sequence[pytest.Item],
        passing: dict[str, dict[int, list[int]]],
        times: Sequence[float],
        pipe: int,
    ) -> None:
        """Try some of the mutants, and write the numbers of those that survive."""
        survivors = []
        killers: dict[str, set[int]] = defaultdict(set)  # of other mutants of the same function
        for number in numbers:
            mutant = self._tried[number]
            file, first = str(SOURCE / mutant.path), killers[mutant.function]
            tests = {test for line in mutant.lines for test in passing.get(file, {}).get(line, ())}
            order = [(items[i], times[i], i) for i in _in_order(tests, first, items, times)[: self._most]]
            targets = self._functions[file, mutant.first_line]
            status, killer = _joined(*_forked(partial(self._try, mutant, targets, order)), WAITING)
            if status == os.EX_OK:
                survivors.append(number)
                outcome = f"survives {len(order)} tests" if order else "is run by none of these tests"
                print(f"{number + 1}/{len(self._tried)} {outcome}: {mutant}", flush=True)
            else:
                self._record.add(mutant)
                if killer.strip():
                    first.add(int(killer))
        with open(pipe, "wb") as writer:
            pickle.dump(survivors, writer)

    def _measure(self, items: Sequence[pytest.Item], files: Sequence[str], pipe: int) -> None:
        """Write which tests pass each line, and how long each takes."""
        measured = coverage.Coverage(data_file=None, config_file=False, include=files, context="")
        measured.set_option("run:disable_warnings", ["no-data-collected"])  # of tests that run none of the files
        times = []
        measured.start()
        for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
            began = time.process_time()
            if sys.gettrace() is None:  # a test has set a trace function of its own
                measured.stop()
                measured.start()
            measured.switch_context(str(number))
            self._run(item, following)
            times.append(time.process_time() - began)
            if self._failed:
                os.write(LOUD, f"{item.nodeid} fails without any mutant\n".encode())
                os._exit(os.EX_DATAERR)
        measured.stop()
        data = measured.get_data()
        passing = {
            file: {line: [int(test) for test in tests if test] for line, tests in data.contexts_by_lineno(file).items()}
            for file in data.measured_files()
        }
        with open(pipe, "wb") as writer:
            pickle.dump((passing, times), writer)

    def _try(
        self,
        mutant: Mutant,
        functions: Sequence[FunctionType],
        tests: Sequence[tuple[pytest.Item, float, int]],
        pipe: int,
    ) -> None:
        """Run tests with a mutant until one fails; write a space for each that passes, and the number of that one."""
        for function in functions:
            function.__code__ = mutant.code
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        following = [*(item for item, _, _ in tests[1:]), None]
        for (item, seconds, number), next_item in zip(tests, following, strict=False):
            limit = math.ceil(time.process_time() + 3 * seconds + SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            self._run(item, next_item)
            if self._failed:
                os.write(pipe, str(number).encode())
                os._exit(pytest.ExitCode.TESTS_FAILED)
            os.write(pipe, b" ")

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        for function in self._caches:
            function.cache_clear()
        reports = runtestprotocol(item, log=False, nextitem=following)
        self._failed |= any(report.failed for report in reports)


def _in_order(
    tests: set[int], first: Container[int], items: Sequence[pytest.Item], times: Sequence[float]
) -> list[int]:
    """Return tests in the order in which to try them: those that killed before, one of each function, two of each."""
    rank, seen = {}, Counter[str]()
    for i in sorted(tests, key=lambda i: (i not in first, times[i])):
        function = items[i].nodeid if "conversations" in items[i].nodeid else items[i].nodeid.partition("[")[0]
        rank[i] = (i not in first, seen[function], times[i])
        seen[function] += 1
    return sorted(rank, key=rank.__getitem__)


def _forked(work: Callable[[int], None], *, silent: bool = True) -> tuple[int, int]:
    """Call a function in a fork with the end of a pipe; return the fork, and the other end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        if silent:
            silence = os.open(os.devnull, os.O_RDWR)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
        try:
            work(writer)
            os._exit(os.EX_OK)
        except Exception:
            os.write(LOUD, traceback.format_exc().encode())  # not of a test: pytest catches those
        finally:
            os._exit(os.EX_SOFTWARE)
    os.close(writer)
    return child, reader


def _joined(child: int, reader: int, waiting: float | None = None) -> tuple[int, bytes]:
    """Return the exit code of a fork, and the bytes from it. Kills one that writes nothing for ``waiting`` seconds."""
    written = b""
    with open(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], waiting)[0]:
            if not (more := pipe.read(1 << 20)):
                break
            written += more
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), written


def survivors() -> dict[str, str]:
    """Return the listed survivors, each with its reason."""
    listed = tomllib.loads(SURVIVORS.read_text("utf-8"))
    return {
        f"{path} {mutant}": reason
        for path, rows in listed.items()
        if path != ANYWHERE
        for mutant, reason in rows.items()
    }


def reasons_anywhere() -> dict[str, str]:
    """Return the changes that tests may leave alive in any function, each with its reason."""
    listed: dict[str, str] = tomllib.loads(SURVIVORS.read_text("utf-8"))[ANYWHERE]
    return listed


def of_room(room: str) -> list[Mutant]:
    """Return the mutants of a room of ``ROOMS``, of a file, or of one function (``engine/limits.py:parsed_size``)."""
    name, _, function = room.partition(":")
    files = [path for pattern in ROOMS.get(name, [name]) for path in sorted(SOURCE.glob(pattern))]
    return [mutant for path in files for mutant in mutants(path) if function in ("", mutant.function)]


def main() -> int:
    """Try mutants of each room; print the survivors and the counts."""
    parser = argparse.ArgumentParser(description="Change the library in small ways, and see whether tests notice.")
    parser.add_argument("rooms", nargs="+", help=f"{', '.join(ROOMS)}; a file in src/mcpio; or file:function")
    parser.add_argument("--sample", type=int, default=150, help="how many mutants of each room are tried")
    parser.add_argument("--all", action="store_true", help="try each mutant of the rooms")
    parser.add_argument("--record", type=Path, help="the file of killed mutants, which are not tried again")
    parser.add_argument("--most", type=int, help="how many tests may try to kill a mutant; default: all that pass it")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at once")
    parser.add_argument("--seed", type=int, default=1, help="chooses which")
    parser.add_argument("--again", action="store_true", help="try listed survivors, too")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="patterns of files in tests/")
    given = parser.parse_args()
    listed = {} if given.again else survivors()
    record = Record(given.record)
    counts, tried = [], []
    for room in given.rooms:
        everything = of_room(room)
        # By the hash of the name, so that a change of the code elsewhere leaves the sample as it was.
        order = sorted(everything, key=lambda mutant: crc32(f"{given.seed} {mutant.name}".encode()))
        sample = order if given.all else order[: given.sample]
        tried += [mutant for mutant in sample if mutant.name not in listed and mutant not in record]
        counts.append((room, len(everything), sample))
    files = [
        str(file)
        for pattern in given.tests
        for file in sorted((ROOT / "tests").glob(pattern))
        if pattern not in TESTS or not file.name.endswith(LEFT_OUT)
    ]
    trial = Trial(tried, record, given.jobs, given.most)
    os.chdir(ROOT)
    options = ["-q", "-s", "--tb=no", "--assert=plain", "--hypothesis-profile=mutants"]
    options += ["-p", "no:cacheprovider", f"--rootdir={ROOT}", f"-k=not {BY_TIME}"]
    if tried:
        pytest.main([*options, *files], [trial])
        if not trial.complete:
            return 2
    anywhere = reasons_anywhere()
    unlisted = {mutant.name for mutant in trial.survivors if mutant.change.partition(" #")[0] not in anywhere}
    explained = {mutant.name for mutant in trial.survivors} - unlisted
    for room, total, sample in counts:
        new = len({mutant.name for mutant in sample} & unlisted)
        known = len([mutant for mutant in sample if mutant.name in listed or mutant.name in explained])
        killed = len(sample) - known - new
        print(f"{room}: {len(sample)} of {total} mutants tried, {killed} killed, {known + new} survive, {new} unlisted")
    return 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
