"""What importing costs in a fresh process, time and memory, against importing the official SDK.

    python benchmarks/import_time.py

Being lazy only moves a cost that is still paid. So one case shakes hands and calls a tool through both engines, and
``mcpio.trio`` is measured with the names that a server or a client uses, and a server with ``Server`` itself.
"""

from __future__ import annotations

import sys

from harness import HERE, Rounds, arguments, run_program

SDK = "import mcp"
FASTMCP = "import fastmcp"
CONVERSATION = "handshake and tools/call"
TRIO = "mcpio.trio, its names"
SERVER = "mcpio.trio, and a Server"
CASES = {
    "import mcpio": "import mcpio",
    CONVERSATION: "import conversation; conversation.main()",
    "import trio": "import trio",
    TRIO: "from mcpio.trio import open_stdio, serve_stdio",
    SERVER: "from mcpio import Server; from mcpio.trio import serve_stdio",
    SDK: "import mcp",
    FASTMCP: "import fastmcp",
}
TIME_TARGETS = {"import mcpio": 10.0, CONVERSATION: 4.0, TRIO: 4.0}
MEMORY_TARGET = 3.0

PROGRAM = f"""
import json, sys, time
sys.path.append({str(HERE)!r})
def resident():
    with open("/proc/self/status") as status:
        return int(status.read().partition("VmRSS:")[2].split()[0]) / 1024
modules, memory, cpu, began = len(sys.modules), resident(), time.process_time(), time.perf_counter()
%s
ended, cpu, memory = time.perf_counter(), time.process_time() - cpu, resident() - memory
found = {{"ms": (ended - began) * 1000, "CPU": cpu * 1000, "MiB": memory, "modules": len(sys.modules) - modules}}
print(json.dumps(found))
"""


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__, rounds=15).parse_args()
    rounds = Rounds()
    for _ in range(options.rounds):
        for name, statement in CASES.items():
            rounds.add(name, run_program(["-P", "-c", PROGRAM % statement]))
    rounds.show("over a bare interpreter", {"ms": "ms", "CPU, ms": "CPU", "MiB": "MiB", "modules": "modules"})
    for name, target in TIME_TARGETS.items():
        rounds.compare(name, SDK, "ms", target, name=name, witness="CPU")
    rounds.compare("memory of import mcpio", SDK, "MiB", MEMORY_TARGET, name="import mcpio")
    return rounds.verdict(options)


if __name__ == "__main__":
    sys.exit(main())
