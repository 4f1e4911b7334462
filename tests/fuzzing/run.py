"""Fuzzes everything that reads bytes: ``python tests/fuzzing/run.py --seconds 3600 [--target json …] [--keep]``.

The corpus comes first. Then each target is fuzzed for its share of the time, in a process of its own, one for each
processor at once: guided by coverage where ``atheris`` is installed, and by Hypothesis otherwise. An input that breaks
a target is printed, to be kept in the corpus. ``--keep`` adds inputs that reach further code.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import attrs

sys.path.append(str(Path(__file__).parents[1] / "support"))

import corpus  # which imports from there

HAS_ATHERIS: Final = find_spec("atheris") is not None
LONGEST: Final = 800
"""Bytes of the longest input."""
_INSTRUMENTED: Final = [
    *(f"mcpio.{name}" for name in ("auth", "codec", "engine", "framing", "http", "observe", "testing", "websocket")),
    *("mcpio._drivers.http_parsers", "mcpio.app.frontmatter", "mcpio.app.registry.resources"),
]


@attrs.frozen
class Running:
    """A process that fuzzes a target, and the folder that it writes to."""

    target: str
    folder: Path

    def failure(self, status: int) -> str:
        """Print how many inputs the target took, and return what went wrong, if anything."""
        said = (self.folder / "output").read_text(errors="replace")
        counts = [line.split()[-1] for line in said.splitlines() if line.startswith("stat::number_of_executed_units")]
        print(f"{self.target:12} {''.join(counts):>9} executions", flush=True)
        broken = [f"the input: {path.read_bytes()!r}" for path in self.folder.glob("broken-*")]
        return "\n".join([f"--- {self.target}", said[-3000:], *broken]) if status or broken else ""

    def found(self) -> list[bytes]:
        """Return the inputs that reached further code."""
        return [path.read_bytes() for path in (self.folder / "found").iterdir()]


def start(target: str, function: Callable[[bytes], None], seconds: int, folder: Path) -> tuple[int, Running]:
    """Start a process that fuzzes a target; return its id."""
    for name in ("seeds", "found"):
        (folder / name).mkdir(parents=True)
    for number, data in enumerate(corpus.read_all(target)):
        (folder / "seeds" / f"{number:04}").write_bytes(data)
    process = os.fork()
    if process == 0:
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = 1
        try:
            (_with_atheris if HAS_ATHERIS else _with_hypothesis)(_noting(function, folder), seconds, folder)
            status = 0
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(status)
    return process, Running(target, folder)


def _noting(function: Callable[[bytes], None], folder: Path) -> Callable[[bytes], None]:
    """Return the function with a note of the input that breaks it: the last one tried, which is the shortest."""

    def noting(data: bytes) -> None:
        try:
            function(data)
        except Exception:
            (folder / "broken-input").write_bytes(data)
            raise

    return noting


def _with_atheris(function: Callable[[bytes], None], seconds: int, folder: Path) -> None:
    import atheris

    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-timeout=20", "-print_final_stats=1"]
    options += [f"-artifact_prefix={folder}/broken-", "-rss_limit_mb=1000"]
    atheris.Setup([sys.argv[0], *options, f"{folder}/found", f"{folder}/seeds"], function)
    atheris.Fuzz()


def _instrumented() -> AbstractContextManager[object]:
    """Have what is imported in the block report its coverage."""
    if not HAS_ATHERIS:
        return nullcontext()
    import atheris

    instrumenting: AbstractContextManager[object] = atheris.instrument_imports(include=_INSTRUMENTED)
    return instrumenting


def _with_hypothesis(function: Callable[[bytes], None], seconds: int, folder: Path) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    seeds = [path.read_bytes() for path in sorted((folder / "seeds").iterdir())]
    pieces = st.builds(lambda data, start, end: data[start:end], st.sampled_from(seeds), *[st.integers(0, 200)] * 2)
    end, count = time.monotonic() + seconds, 0

    @given(st.lists(st.binary(max_size=6) | pieces | st.sampled_from(seeds), max_size=5).map(b"".join))
    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    def run(data: bytes) -> None:
        nonlocal count
        count += 1
        function(data)

    while time.monotonic() < end:
        run()
    print(f"stat::number_of_executed_units: {count}")


def main() -> int:
    """Fuzz, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together")
    parser.add_argument("--target", action="append", help="instead of all; may be repeated")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach further code to the corpus")
    chosen = parser.parse_args()
    with _instrumented():
        from targets import TARGETS
    names = chosen.target or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"--target must be one of {', '.join(TARGETS)}, not {', '.join(sorted(unknown))}")
    inputs = [(name, data) for name in names for data in corpus.read_all(name)]
    for name, data in inputs:
        TARGETS[name](data)
    jobs = min(os.cpu_count() or 1, len(names))
    seconds = max(1, round(chosen.seconds * jobs / len(names)))
    print(
        f"replayed {len(inputs)} inputs; {seconds} s for each target, with {'atheris' if HAS_ATHERIS else 'Hypothesis'}"
    )
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        waiting, running, done = list(names), dict[int, Running](), list[Running]()
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                process, started = start(name, TARGETS[name], seconds, Path(folder, name))
                running[process] = started
            process, status = os.wait()
            done.append(running.pop(process))
            failures += filter(None, [done[-1].failure(status)])
        for each in done if chosen.keep else ():
            faults, others = corpus.read(each.target)
            corpus.write(each.target, faults, corpus.reduced(TARGETS[each.target], [*others, *each.found()]))
    print("\n".join(failures) or f"verdict: nothing broke {len(names)} targets")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
