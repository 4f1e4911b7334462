"""The page of mcpio inspect in Chromium: its size, until it is ready, and from a message to its line in the ladder.

A page is ready when it shows the tools of a server that is connected already. Each load has a fresh profile, and counts
from the start of the navigation. A message counts from just before the server writes it until a frame is drawn with a
ladder that has it, at 1,000 messages a second or --rate. All messages count, also those that are scrolled past. Needs
Debian's chromium and playwright, and a quiet machine: the load is printed beside the figures.

python benchmarks/inspector_page.py
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import ENVIRONMENT, OURS, Figures, Rounds, arguments

CHROMIUM = "/usr/bin/chromium"
PATIENCE = 120_000
BUDGET = {"page, kB": 100, "ready, p95 ms": 600, "ladder, p95 ms": 60}
# A message of a channel is handled after the frame that is under way was drawn.
READY = """window.ready = new Promise((is_ready) => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector(".choices button")) return;
    observer.disconnect();
    requestAnimationFrame(() => {
      const drawn = new MessageChannel();
      drawn.port1.onmessage = () => is_ready(performance.now());
      drawn.port2.postMessage(null);
    });
  }).observe(document, { childList: true, subtree: true });
});"""
WATCH = """(count) => {
  const rows = document.querySelector(".rows");
  const drawn = new MessageChannel();
  const found = [];
  let newest = -1;
  window.drawn = new Promise((is_drawn) => {
    drawn.port1.onmessage = () => {
      found.push([newest, Date.now()]);
      if (newest === count - 1) is_drawn(found);
    };
  });
  new MutationObserver(() => {
    newest = Math.max(newest, ...[...rows.textContent.matchAll(/"number":(\\d+)/g)].map((each) => Number(each[1])));
    drawn.port2.postMessage(null);
  }).observe(rows, { childList: true, characterData: true, subtree: true });
}"""


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__, rounds=5, seconds=5.0)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second")
    parser.add_argument("--loads", type=int, default=10, help="how often a round loads the page")
    parser.add_argument("--pour", nargs=3, metavar=("FILE", "COUNT", "RATE"), help="be the server that is inspected")
    options = parser.parse_args()
    if options.pour is not None:
        return pour(Path(options.pour[0]), *map(int, options.pour[1:]))
    from playwright.sync_api import sync_playwright

    rounds = Rounds()
    print(f"load before: {_load()}")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _ in range(options.rounds):
            count = max(1, int(options.rate * options.seconds))
            with (
                tempfile.TemporaryDirectory() as directory,
                inspected(Path(directory, "sent"), count, options.rate) as it,
            ):
                rounds.add(OURS, load(browser, it[0], options.loads) | watch(browser, *it, count))
            rounds.add("budget", {key: float(most) for key, most in BUDGET.items()})
        browser.close()
    print(f"load after: {_load()}\n")
    names = [
        "page, kB",
        *(f"{what}, {which} ms" for what in ("ready", "ladder") for which in ("median", "p95", "most")),
    ]
    for name in [*names, "sent/s", "processor, us a message"]:
        print(f"{name:<25}{rounds.median(OURS, name):>10,.1f}{f'   (budget {BUDGET[name]})' if name in BUDGET else ''}")
    print()
    for name in BUDGET:
        rounds.compare(name, "budget", name, 1)
    return rounds.verdict(options)


def _load() -> str:
    return " ".join(f"{each:.2f}" for each in os.getloadavg())


@contextmanager
def inspected(file: Path, count: int, rate: int) -> Iterator[tuple[str, Path, int]]:
    """Inspect the server below; yield the address of the page, the file with the times, and the inspector's process."""
    server = [sys.executable, __file__, "--pour", str(file), str(count), str(rate)]
    command = [sys.executable, "-m", "mcpio", "inspect", "-q", "--", *server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), file, process.pid
        finally:
            process.terminate()


def load(browser: Any, address: str, times: int) -> Figures:
    """Load the page several times after a first time, in which the server starts."""
    taken: list[float] = []
    sizes: dict[str, int] = {}
    for _ in range(times + 1):
        context = browser.new_context(viewport={"width": 1400, "height": 850})
        context.set_default_timeout(PATIENCE)
        context.add_init_script(READY)
        page = context.new_page()
        page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
        page.goto(address)
        taken.append(page.evaluate("window.ready"))
        context.close()
    return {"page, kB": sum(sizes.values()) / 1_000} | _spread("ready", taken[1:])


def watch(browser: Any, address: str, file: Path, pid: int, count: int) -> Figures:
    """Have the server write its messages, and note when each is in the ladder."""
    context = browser.new_context(viewport={"width": 1400, "height": 850})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(address)
    page.locator(".choices button").first.click()
    page.evaluate(WATCH, count)
    began = _processor_time(pid)
    page.get_by_role("button", name="Call", exact=True).click()
    page.locator(".outcome").get_by_text("poured").first.wait_for()
    newest, drawn_at = zip(*page.evaluate("window.drawn"), strict=True)
    used = _processor_time(pid) - began
    context.close()
    sent = json.loads(file.read_text(encoding="utf-8"))
    delays = [drawn_at[bisect_left(newest, number)] - at * 1_000 for number, at in enumerate(sent)]
    rate = (count - 1) / (sent[-1] - sent[0]) if count > 1 else 0.0
    return _spread("ladder", delays) | {"sent/s": rate, "processor, us a message": used / count * 1e6}


def _processor_time(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)  # how Linux numbers the clock of another process


def _spread(what: str, figures: Sequence[float]) -> Figures:
    ordered = sorted(figures)
    nearly_all = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {
        f"{what}, median ms": statistics.median(ordered),
        f"{what}, p95 ms": nearly_all,
        f"{what}, most ms": ordered[-1],
    }


def pour(file: Path, count: int, rate: int) -> int:
    """Be a server on standard input and output whose tool sends numbered messages, and write when each was sent."""
    result: dict[str, Any]
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
                result = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": capabilities,
                    "serverInfo": {"name": "pour", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": "pour", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                file.write_text(json.dumps(_poured(count, rate)), encoding="utf-8")
                result = {"content": [{"type": "text", "text": "poured"}]}
            case "server/discover":
                _say({"id": message["id"], "error": {"code": -32601, "message": "method not found"}})
                continue
            case _:
                continue
        _say({"id": message["id"], "result": result})
    return 0


def _poured(count: int, rate: int) -> list[float]:
    sent: list[float] = []
    began = time.perf_counter()
    while len(sent) < count:
        due = min(count, int((time.perf_counter() - began) * rate) + 1)
        while len(sent) < due:
            params = {"level": "info", "data": {"number": len(sent), "text": "x" * 100}}
            sent.append(time.time())
            _say({"method": "notifications/message", "params": params})
        time.sleep(1 / rate)
    return sent


def _say(message: dict[str, Any]) -> None:
    text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
