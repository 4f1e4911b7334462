"""Servers over HTTP: calls a second, latency, processor time a call, and the memory of idle sessions.

    python benchmarks/http_server.py

Each of N clients has a session and a connection of its own, and asks again as soon as it is answered. The servers have
the event loop that they come with, and h11 for a parser unless said otherwise. With ``--pin`` the server and what
drives it each have a processor of their own. Our server is measured open, and protected with a JWT in each request; and
with ``--durable`` also with its sessions in a file.

The SDK for TypeScript is there where ``MCPIO_PEERS_DIR`` names the directory in which npm has installed what
``tests/peers/package.json`` names.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from echo_server import ISSUER, RESOURCE
from harness import FASTMCP, LOW_LEVEL, OURS, TYPESCRIPT, Figures, Rounds, arguments, pinned, typescript
from http_load import HttpClient, HttpServer, drive

from mcpio.auth import load_signer, signed_jwt
from mcpio.auth.keys import new_key

HTTPTOOLS = f"{OURS}, httptools"
SDK_HTTPTOOLS = "mcp, httptools"
PROTECTED = f"{OURS}, protected"
KEYS = "the path of a key set"
"""Stands for one whose key signed the tokens of the clients."""
DURABLE = f"{OURS}, durable"
STORE = "the path of a file"
"""Stands for one that is new in each measurement."""
CONNECTIONS = (1, 16, 64)
MODES: dict[str, tuple[int, ...]] = {"JSON": CONNECTIONS, "SSE": (16,)}
LOADS = [f"{mode}, {count}" for mode, numbers in MODES.items() for count in numbers]
SESSIONS: dict[str, tuple[int, ...]] = {OURS: (1_000, 10_000), LOW_LEVEL: (1_000,)}
SERVERS = {
    OURS: ["echo_server.py"],
    HTTPTOOLS: ["echo_server.py", "--parser", "httptools"],
    PROTECTED: ["echo_server.py", "--jwks", KEYS],
    LOW_LEVEL: ["peers/sdk_low_level.py"],
    SDK_HTTPTOOLS: ["peers/sdk_low_level.py", "--parser", "httptools"],
    FASTMCP: ["peers/fastmcp_server.py"],
}
TARGETS = {"JSON, 1": 1.8, "JSON, 16": 2.8, "JSON, 64": 3.0, "SSE, 16": 4.0}
HTTPTOOLS_TARGET = 6.0
TYPESCRIPT_TARGET = 3.0
PROTECTED_TARGET = 0.9
P99_TARGET = 5.0
SESSION_TARGET = 10.0
"""How many times less memory an idle session takes."""


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__, rounds=5, seconds=1.0)
    parser.add_argument("--pin", action="store_true", help="run the server and this process on a processor each")
    parser.add_argument("--durable", action="store_true", help="measure our server with sessions in a file, too")
    parser.add_argument("--sessions", type=int, default=max(SESSIONS[OURS]), help="the most idle sessions to measure")
    options = parser.parse_args()
    cpu = pinned() if options.pin else None
    servers = _servers(is_durable=options.durable)
    rounds = Rounds()
    for _ in range(options.rounds):
        for name, argv in servers.items():
            with tempfile.TemporaryDirectory() as directory:
                rounds.add(name, _measure(argv, cpu, options.seconds, Path(directory)))
    _show(rounds)
    memory = _sessions(cpu, options.sessions)
    _compare(rounds, has_typescript=TYPESCRIPT in servers)
    memory.compare("memory of an idle session", LOW_LEVEL, "1000 sessions", SESSION_TARGET)
    return rounds.verdict(options) | memory.verdict(options)


def _servers(*, is_durable: bool) -> dict[str, list[str]]:
    """Return those that can be measured here."""
    servers = dict(SERVERS)
    if is_durable:
        servers[DURABLE] = ["echo_server.py", "--store", STORE]
    return servers | typescript(TYPESCRIPT, "@modelcontextprotocol/sdk", "typescript_sdk.cjs")


def _measure(argv: list[str], cpu: int | None, seconds: float, directory: Path) -> Figures:
    figures: Figures = {}
    fields = _authorize(directory / "keys") if KEYS in argv else b""
    for mode, numbers in MODES.items():
        paths = {STORE: str(directory / mode), KEYS: str(directory / "keys")}
        command = [paths.get(word, word) for word in argv]
        with HttpServer([*command, "--sse"] if mode == "SSE" else command, cpu=cpu, fields=fields) as server:
            for count in numbers:
                figures |= _load(server, f"{mode}, {count}", count, seconds)
    return figures


def _authorize(path: Path) -> bytes:
    """Write a new key set, and return the header field with a token by its key."""
    signer = load_signer(new_key(os.urandom).reveal(), key_id="k")
    path.write_text(json.dumps({"keys": [{**signer.public_jwk, "kid": "k"}]}))
    claims = {
        "iss": ISSUER,
        "sub": "ada",
        "client_id": "app",
        "aud": RESOURCE,
        "exp": time.time() + 3600,
        "scope": "a b",
    }
    return b"authorization: Bearer %b\r\n" % signed_jwt(signer, claims, "at+jwt").encode()


def _load(server: HttpServer, load: str, count: int, seconds: float) -> Figures:
    drive(server, count, seconds / 5)  # to warm up
    run = drive(server, count, seconds)
    return {
        f"{load}/s": run.rate,
        f"{load} CPU": run.cpu_us,
        f"{load} busy": run.busy,
        f"{load} p50": run.p50_us,
        f"{load} p99": run.p99_us,
    }


def _show(rounds: Rounds) -> None:
    rounds.show("calls a second", {load: f"{load}/s" for load in LOADS})
    rounds.show("server's CPU, us a call", {load: f"{load} CPU" for load in LOADS})
    rounds.show("clients' share of a CPU", {load: f"{load} busy" for load in LOADS})
    rounds.show("median, us", {load: f"{load} p50" for load in LOADS})
    rounds.show("99 in 100 within, us", {load: f"{load} p99" for load in LOADS})


def _compare(rounds: Rounds, *, has_typescript: bool) -> None:
    for load, target in TARGETS.items():
        rounds.compare(load, LOW_LEVEL, f"{load}/s", target, witness=f"{load} CPU")
    title = "httptools, JSON, 16"
    rounds.compare(title, LOW_LEVEL, "JSON, 16/s", HTTPTOOLS_TARGET, name=HTTPTOOLS, witness="JSON, 16 CPU")
    rounds.compare("protected, JSON, 16", OURS, "JSON, 16/s", PROTECTED_TARGET, name=PROTECTED, witness="JSON, 16 CPU")
    rounds.compare("p99 of JSON, 16", LOW_LEVEL, "JSON, 16 p99", P99_TARGET)
    for load in LOADS if has_typescript else ():
        rounds.compare(load, TYPESCRIPT, f"{load}/s", TYPESCRIPT_TARGET, witness=f"{load} CPU")


def _sessions(cpu: int | None, most: int) -> Rounds:
    """Measure what an idle session takes of the server's memory, in KiB, after one call in each."""
    rounds = Rounds()
    for name, counts in SESSIONS.items():
        figures: Figures = {}
        for count in counts:
            with HttpServer(SERVERS[name], cpu=cpu) as server, HttpClient(server) as client:
                for _ in range(20):
                    client.initialize()
                    client.call()
                before = server.resident_mib
                made = min(count, most)
                for _ in range(made):
                    client.initialize()
                    client.call()
                figures[f"{count} sessions"] = max(0.01, (server.resident_mib - before) * 1024 / made)
        rounds.add(name, figures)
    rounds.show("KiB an idle session", {"at 1,000": "1000 sessions"})
    print(f"{OURS} at 10,000: {rounds.median(OURS, '10000 sessions'):.2f} KiB\n")
    return rounds


if __name__ == "__main__":
    sys.exit(main())
