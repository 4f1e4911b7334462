"""Run every benchmark that has a target, one after another; further arguments are passed on to each.

python benchmarks/run_all.py --rounds 3
"""

from __future__ import annotations

import subprocess
import sys

from harness import HERE

BENCHMARKS = (
    "import_time",
    "process_start",
    "engine",
    "entries",
    "framing",
    "stdio_server",
    "stdio_client",
    "in_memory",
    "http_server",
    "http_stateless",
    "http_processes",
    "http_client",
    "socket_server",
)


def main() -> int:
    """Run them; the exit status is 1 when one of them had another than 0."""
    statuses = {}
    for name in BENCHMARKS:
        print(f"== {name}", flush=True)
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *sys.argv[1:]], check=False)
        statuses[name] = done.returncode
        print(flush=True)
    failed = [name for name, status in statuses.items() if status != 0]
    print(f"failed: {', '.join(failed)}" if failed else f"all {len(BENCHMARKS)} ran")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
