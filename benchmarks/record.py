"""Measure what the docs publish, ours and the peers', and keep it in ``results.json``. Takes about twenty minutes.

    MCPIO_PEERS_DIR=peers python benchmarks/record.py && python docs/_ext/generated.py

The second command makes every table and plot of README and the docs anew from that file. ``--short`` measures for two
minutes, for a look at the pages; ``--only TEXT`` runs the benchmarks with this text in their names, and keeps the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any, Final

from harness import HERE, node
from packaging.requirements import Requirement

RESULTS: Final = HERE / "results.json"
SUITE: Final = (
    "import_time.py --rounds 9",
    "process_start.py --rounds 5",
    "stdio_server.py --rounds 5",
    "stdio_client.py --rounds 5",
    "in_memory.py --rounds 5",
    "http_server.py --rounds 5 --seconds 0.6",
    "http_stateless.py --rounds 5 --seconds 0.6",
    "http_client.py --rounds 5 --seconds 0.5",
    "socket_server.py --rounds 3",
)
UNTIMED: Final = ("import_time.py", "process_start.py")
"""Benchmarks that take no ``--seconds``."""
PACKAGES: Final = ("mcpio", "mcp", "fastmcp", "trio", "h11", "httptools", "uvicorn")
NPM_PACKAGES: Final = ("@modelcontextprotocol/sdk", "@modelcontextprotocol/server", "@modelcontextprotocol/client")


def main() -> int:
    """Measure and keep; the exit status is 1 when a benchmark had another than 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--short", action="store_true", help="one short round of each: for a look, not for publishing")
    parser.add_argument("--only", default="", metavar="TEXT", help="run the benchmarks with this text in their names")
    parser.add_argument("--file", type=Path, default=RESULTS, help="where to keep the figures")
    options = parser.parse_args()
    chosen = [_shortened(command) if options.short else command for command in SUITE if options.only in command]
    records = json.loads(options.file.read_text(encoding="utf-8")) if options.file.exists() else {"runs": {}}
    records["about"] = about(is_short=options.short)
    failed = []
    for command in chosen:
        name = command.partition(" ")[0]
        print(f"== {command}", flush=True)
        records["runs"].pop(name, None)
        options.file.write_text(json.dumps(records), encoding="utf-8")
        argv = [sys.executable, str(HERE / name), *command.split()[1:], "--save", str(options.file)]
        if subprocess.run(argv, check=False).returncode:
            failed.append(name)
        records = json.loads(options.file.read_text(encoding="utf-8"))
        records["runs"].setdefault(name, {})["command"] = command
        print(flush=True)
    options.file.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    print(f"failed: {', '.join(failed)}" if failed else f"{len(chosen)} benchmarks ran; now run docs/_ext/generated.py")
    return 1 if failed else 0


def _shortened(command: str) -> str:
    name = command.partition(" ")[0]
    rest = "" if name in UNTIMED else " --seconds 0.15" + (" --sessions 200" if name == "http_server.py" else "")
    return f"{name} --rounds 1{rest}"


def about(*, is_short: bool) -> dict[str, Any]:
    """Return what a reader needs to judge the figures: when, on what, and the versions of all that was measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "is_short": is_short,
        "load": round(os.getloadavg()[0], 1),
        "processors": len(os.sched_getaffinity(0)),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "node": _node_version(),
        "versions": {name: version(name) for name in PACKAGES} | dict(filter(all, map(_npm_version, NPM_PACKAGES))),
        "distributions": {name: len(_dependencies(name)) for name in ("mcpio", "mcp", "fastmcp")},
    }


def _node_version() -> str | None:
    runs = node()
    if runs is None:
        return None
    return subprocess.run([runs, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip().lstrip("v")


def _npm_version(name: str) -> tuple[str, str]:
    """Return a package of npm with its version, which is empty where the package is not installed."""
    file = Path(os.environ.get("MCPIO_PEERS_DIR", ""), "node_modules", name, "package.json")
    return name, json.loads(file.read_text(encoding="utf-8"))["version"] if file.exists() else ""


def _dependencies(name: str, *extras: str, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the distributions that installing one brings here, without itself."""
    for line in distribution(name).requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            key = wanted.name.lower().replace("_", "-")
            if key not in known:
                try:
                    known = _dependencies(key, *wanted.extras, known=known | {key})
                except PackageNotFoundError:
                    known -= {key}
    return known


if __name__ == "__main__":
    sys.exit(main())
