"""The benchmarks run: each once, for as short as it can be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    "command",
    [
        "import_time.py --rounds 1",
        "process_start.py --rounds 1",
        "engine.py --rounds 1 --seconds 0.001",
        "entries.py",
        "framing.py --rounds 1",
        "stdio_server.py --rounds 1 --seconds 0.01",
        "stdio_client.py --rounds 1 --seconds 0.01",
        "in_memory.py --rounds 1 --seconds 0.01",
        "http_server.py --rounds 1 --seconds 0.01 --sessions 100 --durable",
        "http_stateless.py --rounds 1 --seconds 0.01",
        "http_processes.py --rounds 1 --seconds 0.01",
        "http_client.py --rounds 1 --seconds 0.01",
        "socket_server.py --rounds 1 --seconds 0.01",
        "shares.py --rounds 1 --seconds 0.01",
        "large_messages.py --calls 5 --size 1000",
        pytest.param(
            "inspector_page.py --rounds 1 --seconds 0.01 --loads 1",
            marks=pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="there is no Chromium"),
        ),
    ],
)
def test_a_benchmark_gives_its_figures_and_a_verdict(command: str) -> None:
    program, *options = command.split()
    # What is slow today may be reported on standard error.
    done = subprocess.run([sys.executable, BENCHMARKS / program, *options], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("verdict: ")


def test_record_keeps_every_round_with_the_versions(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    argv = [sys.executable, str(BENCHMARKS / "record.py"), "--short", "--only", "in_memory", "--file", str(file)]
    assert subprocess.run(argv, stdout=subprocess.DEVNULL).returncode == 0
    records = json.loads(file.read_text())
    assert records["about"]["versions"].keys() >= {"mcpio", "mcp", "fastmcp"}
    assert records["runs"].keys() == {"in_memory.py"}
    assert len(records["runs"]["in_memory.py"]["figures"]["mcpio"]["64/s"]) == 1


def test_the_comparison_of_json_libraries_runs() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / "json_libraries.py", "corners"], stdout=subprocess.PIPE)
    assert done.returncode == 0


def test_unknown_transport_of_the_echo_server_is_refused() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / "echo_server.py", "--pigeon"], capture_output=True)
    assert done.returncode == 2
