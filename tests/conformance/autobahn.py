"""Runs the Autobahn test suite against both roles of our WebSocket machine, and says what did not pass.

    python tests/conformance/autobahn.py PYTHON2 DIRECTORY [CASES...]

``PYTHON2`` is an interpreter of Python 2.7 with pip, for which the suite is written; it is installed into
``DIRECTORY``, where its reports go too. ``CASES`` are patterns such as ``6.*``; without any, all run that have no
binary messages, which takes some minutes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SUITE = "autobahntestsuite==25.10.1"
ECHO = Path(__file__).with_name("websocket_echo.py")
BINARY = ("1.2.*", "9.2.*", "9.4.*", "9.6.*", "9.8.*", "12.2.*", "12.3.*", "12.5.*")
"""The cases with binary messages, which are refused."""
LEFT_OUT = {"server": BINARY, "client": (*BINARY, "13.3.*", "13.4.*", "13.5.*", "13.6.*")}
"""Four rows of compression want a client to take a window of the server's choice, and ours does not offer to."""
PASSED = {"OK", "INFORMATIONAL", "NON-STRICT"}


def main(python2: str, directory: str, *cases: str) -> int:
    """Install, run and report; return the status to exit with."""
    place = Path(directory)
    _install(python2, place / "suite")
    status = 0
    for role in ("server", "client"):
        report = place / role
        _run(role, [python2, "-m", "autobahntestsuite.wstest"], place, report, cases)
        results: dict[str, Any] = next(iter(json.loads((report / "index.json").read_text()).values()))
        failed = {
            case: (result["behavior"], result["behaviorClose"])
            for case, result in sorted(results.items())
            if not {result["behavior"], result["behaviorClose"]} <= PASSED
        }
        print(f"{role}: {len(results) - len(failed)} of {len(results)} cases passed")
        for case, why in failed.items():
            print(f"  {case}: {', '.join(why)}")
        status |= bool(failed) or not results
    return status


def _install(python2: str, suite: Path) -> None:
    if not suite.exists():
        subprocess.run([python2, "-m", "pip", "install", "--quiet", "--target", str(suite), SUITE], check=True)
        (suite / "zope" / "__init__.py").touch()  # what pip leaves out where it is told the directory


def _run(role: str, suite: list[str], place: Path, report: Path, cases: tuple[str, ...]) -> None:
    """Have the suite talk with our server, or with our client, and write its report."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"ws://127.0.0.1:{port}"
    spec: dict[str, Any] = {
        "outdir": str(report),
        "cases": list(cases or ["*"]),
        "exclude-cases": LEFT_OUT[role],
        "exclude-agent-cases": {},
    }
    spec |= {"servers": [{"agent": "mcpio", "url": url}]} if role == "server" else {"url": url}
    mode = "fuzzingclient" if role == "server" else "fuzzingserver"
    file = place / f"{role}.json"
    file.write_text(json.dumps(spec))
    wstest = [*suite, "-m", mode, "-s", str(file)] + (["-u", "0"] if role == "client" else [])
    echo = [sys.executable, str(ECHO), role, str(port)]
    listens, calls = (echo, wstest) if role == "server" else (wstest, echo)
    environment = {**os.environ, "PYTHONPATH": str(place / "suite")}
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (place / f"{role}.log").open("wb") as log:
        server = subprocess.Popen(listens, env=ours if role == "server" else environment, stdout=log, stderr=log)
        try:
            _wait_for(port)
            subprocess.run(calls, env=environment if role == "server" else ours, stdout=log, stderr=log, check=True)
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
