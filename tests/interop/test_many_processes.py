"""``docs/examples/balanced_server.py``: three processes behind nginx, which share what they need on Redis."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest
import trio
from redis_server import redis_server
from tree import PYTHON, ROOT

from mcpio import Client, McpError
from mcpio.app.listening import Listening, Missed
from mcpio.trio import open_http
from mcpio.types import ElicitResult, ResourceUpdatedNotification, TextResourceContents

pytestmark = pytest.mark.timeout(300)  # on a busy machine a process takes seconds to start

EXAMPLES = ROOT / "docs" / "examples"
KEYS = ["11" * 32, "22" * 32]
LEASE = 2.0
COUNTER = "bakery://counter"

NGINX = """
daemon off;
master_process off;
pid nginx.pid;
events {}
http {
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    log_format brief "$http_mcp_method $upstream_addr $status";
    access_log access.log brief;
%s
}
"""


class Site:
    """The processes, and what they share. ``port`` is the balancer's, ``ports`` are theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.redis_port, self.port, *self.ports = free_ports(5)
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.keys = KEYS
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closing = ExitStack()
        self._redis = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._redis.enter_context(redis_server(self.redis_port))
            opened.callback(self._redis.close)
            for port in self.ports:
                opened.callback(self.kill, port)
                self.start(port)
            nginx = self._start_nginx()
            opened.callback(nginx.wait)
            opened.callback(nginx.terminate)
            for port in [*self.ports, self.port]:
                wait_for(port)
            self._closing = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def start(self, port: int) -> None:
        """Start one of the servers. ``wait_for`` its port."""
        environment = os.environ | {
            "STATE_KEYS": " ".join(self.keys),
            "REDIS_URL": f"redis://127.0.0.1:{self.redis_port}",
            "PUBLIC_HOST": f"127.0.0.1:{self.port}",
            "LEASE": str(LEASE),
        }
        command = [PYTHON, str(EXAMPLES / "balanced_server.py"), str(port)]
        self._processes[port] = subprocess.Popen(command, env=environment)

    def pid(self, port: int) -> int:
        return self._processes[port].pid

    def kill(self, port: int, number: signal.Signals = signal.SIGKILL) -> None:
        """End one of the servers."""
        process = self._processes.get(port)
        if process is not None:
            process.send_signal(number)
            process.wait(20)

    def port_of(self, pid: int) -> int:
        return next(port for port, process in self._processes.items() if process.pid == pid)

    def restart_redis(self) -> None:
        """End Redis, which keeps nothing, and start it again."""
        self._redis.close()
        self._redis.enter_context(redis_server(self.redis_port))

    def said(self, method: str) -> list[tuple[int, int]]:
        """Return the port of the server that answered, and the status, of each request with a method so far."""
        found = re.findall(rf"^{method} .*:(\d+) (\d+)$", (self.folder / "access.log").read_text(), re.MULTILINE)
        return [(int(port), int(status)) for port, status in found]

    def _start_nginx(self) -> subprocess.Popen[bytes]:
        program = shutil.which("nginx")
        assert program is not None, "there is no nginx: Debian's package nginx has it"
        site = (EXAMPLES / "balanced.conf").read_text()
        for shown, port in zip((8000, 8001, 8002, 8003), (self.port, *self.ports), strict=True):
            site = site.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{port}")
        # If nginx leaves out what failed, it is for longer than a restart takes, however slow this machine is.
        site = re.sub(r"(server \S+ max_fails=\d+)[^;]*;", r"\1 fail_timeout=60s;", site)
        (self.folder / "nginx.conf").write_text(NGINX % site)
        return subprocess.Popen([program, "-p", str(self.folder), "-c", "nginx.conf", "-e", "error.log"])


def free_ports(number: int) -> list[int]:
    """Return ports that are free at the moment, all different."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in taken]


def wait_for(port: int) -> None:
    """Wait until something accepts connections at a port."""
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            assert time.monotonic() < deadline, f"nothing serves on port {port}"
            time.sleep(0.02)
        else:
            return


def wait_for_health(site: Site, port: int) -> None:
    """Wait until a server answers ``/health``, as a rolling restart does."""
    wait_for(port)
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/health", headers={"Host": f"127.0.0.1:{site.port}"})
        assert connection.getresponse().status == 200


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as site:
        yield site


def with_client(site: Site, body: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        with trio.fail_after(300):
            async with open_http(site.url, era="stateless", **options) as client:
                await until_all_serve(site, client)
                await body(client)

    trio.run(main)


async def until_all_serve(site: Site, client: Client) -> None:
    """Wait until the balancer passes requests to each process: it leaves out those that were away a moment ago."""
    seen: set[str] = set()
    while not {str(site.pid(port)) for port in site.ports} <= seen:
        seen.add((await client.call_tool("process")).text)


async def shown(client: Client) -> str:
    (contents,) = (await client.read_resource(COUNTER)).contents
    assert isinstance(contents, TextResourceContents)
    return contents.text


# Requests that any process answers


def test_each_round_of_questions_may_meet_another_process(site: Site) -> None:
    def answer(scope: Any, request: Any) -> ElicitResult:
        return ElicitResult("accept", {"loaves": 3} if "How many" in request.message else {"sure": True})

    async def body(client: Client) -> None:
        assert (await client.call_tool("order", {"cake": "rye"})).text == "3 rye ordered"
        assert {port for port, _ in site.said("tools/call")[-3:]} == set(site.ports)

    with_client(site, body, elicitation=answer)


def test_change_in_any_process_reaches_every_listener(site: Site) -> None:
    async def body(client: Client) -> None:
        async with trio.open_nursery() as nursery:
            heard: list[tuple[int, str]] = []

            async def listen(number: int, changes: Listening) -> None:
                async for change in changes:
                    assert isinstance(change, ResourceUpdatedNotification)
                    heard.append((number, await shown(client)))

            def all_heard(cake: str) -> bool:
                return {number for number, seen in heard if seen == cake} == {0, 1, 2}

            listenings = [client.listen(uris=[COUNTER]) for _ in site.ports]
            for number, listening in enumerate(listenings):
                await listening.__aenter__()
                nursery.start_soon(listen, number, listening)
            for cake in ("tart", "bun", "pie"):
                await client.call_tool("put_out", {"cake": cake})
                await until(partial(all_heard, cake))
            for listening in listenings:
                listening.close()

    before = len(site.said("subscriptions/listen"))
    with_client(site, body)
    trio.run(until, lambda: len(site.said("subscriptions/listen")) == before + 3)
    assert len({port for port, _ in site.said("subscriptions/listen")[before:]}) > 1


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes bring about."""
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110  # they do it when they want to
            await trio.sleep(0.01)


# Tasks, by plain requests


_ids = count(1)


def ask(port: int, method: str, **params: Any) -> Any:
    """Return the result of one request, in a connection of its own."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    message = {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": {**params, "_meta": meta}}
    fields = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": str(params.get("name", params.get("taskId"))),
    }
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/mcp", json.dumps(message), fields)
        said = json.loads(connection.getresponse().read())
    assert "result" in said, said
    return said["result"]


def state_of(site: Site, id: str) -> Any:
    return ask(site.port, "tasks/get", taskId=id)


def ended(site: Site, id: str) -> Any:
    """Return a task when it is over."""
    deadline = time.monotonic() + 30
    while (state := state_of(site, id))["status"] == "working":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    return state


def test_any_process_answers_for_a_task(site: Site) -> None:
    id = ask(site.ports[0], "tools/call", name="bake", arguments={"seconds": 0.5})["taskId"]
    assert {ask(port, "tasks/get", taskId=id)["status"] for port in site.ports} == {"working"}
    assert ended(site, id)["result"]["content"] == [{"type": "text", "text": "baked"}]
    id = ask(site.ports[0], "tools/call", name="bake", arguments={"seconds": 60})["taskId"]
    ask(site.ports[1], "tasks/cancel", taskId=id)
    assert ask(site.ports[2], "tasks/get", taskId=id)["status"] == "cancelled"


def test_any_process_reports_a_task_to_a_listening_client(site: Site) -> None:
    async def body(client: Client) -> None:
        before = {method: len(site.said(method)) for method in ("tasks/get", "subscriptions/listen")}
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.call_tool, "bake", {"seconds": 3})
        # One look at each task once the client listens, where polls would be fifteen each.
        assert len(site.said("tasks/get")) - before["tasks/get"] <= 9
        await until(lambda: len(site.said("subscriptions/listen")) > before["subscriptions/listen"])

    with_client(site, body)


# Processes that end


def test_process_that_starts_without_redis_says_so_and_exits() -> None:
    (nowhere,) = free_ports(1)
    environment = os.environ | {"STATE_KEYS": KEYS[0], "REDIS_URL": f"redis://127.0.0.1:{nowhere}"}
    command = [PYTHON, str(EXAMPLES / "balanced_server.py"), "0"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"Redis at redis://127.0.0.1:{nowhere} cannot be used: ")
    assert (ended.returncode, ended.stdout) == (1, "")


def test_killed_process_loses_only_its_own_requests(site: Site) -> None:
    victim, *others = site.ports
    baking, delivering = (
        ask(victim, "tools/call", name=name, arguments={"seconds": 4 * LEASE})["taskId"] for name in ("bake", "deliver")
    )
    safe = ask(others[0], "tools/call", name="deliver", arguments={"seconds": 8 * LEASE})["taskId"]
    pid = site.pid(victim)

    async def body(client: Client) -> None:
        outcomes: Counter[str] = Counter()
        before = len(site.said("tools/call"))

        async def call() -> None:
            try:
                outcomes[(await client.call_tool("process", {"seconds": 2})).text] += 1
            except McpError as error:
                outcomes[type(error).__name__] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(call)
            await until(lambda: serving(client) == 6)
            await trio.sleep(0.5)  # they are under way
            site.kill(victim)
        assert len(site.said("tools/call")) == before + 6
        assert sum(outcomes[str(site.pid(port))] for port in others) >= 4
        assert str(pid) not in outcomes
        for _ in range(6):
            assert (await client.call_tool("process")).text != str(pid)

    with_client(site, body)
    assert ended(site, delivering)["status"] == "failed"
    assert ended(site, baking)["result"]["content"][0]["text"] == "baked, at the second attempt"
    assert ended(site, safe)["result"]["content"][0]["text"] == "delivered"
    site.start(victim)
    wait_for(victim)


def serving(client: Client) -> int:
    return len(client.connection.pending.outgoing)


def test_listener_of_a_killed_process_listens_again_and_refetches(site: Site) -> None:
    async def body(client: Client) -> None:
        await check_listeners(site, client, partial(site.kill, site.ports[0]))

    with_client(site, body)
    site.start(site.ports[0])
    wait_for(site.ports[0])


def test_rolling_restarts_lose_no_call(site: Site) -> None:
    outcomes: Counter[str] = Counter()
    is_over = threading.Event()

    def call_on(number: int) -> None:
        while not is_over.is_set():
            try:
                ask(site.port, "tools/call", name="process", arguments={"seconds": number % 3 / 50})
                outcomes["answered"] += 1
            except (AssertionError, OSError, HTTPException, ValueError) as error:
                outcomes[repr(error)] += 1

    before = len(site.said("tools/call"))
    callers = [threading.Thread(target=call_on, args=[number]) for number in range(6)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(2):
            for port in site.ports:
                site.kill(port, signal.SIGTERM)
                site.start(port)
                wait_for_health(site, port)
    finally:
        is_over.set()
        for caller in callers:
            caller.join(60)
    assert set(outcomes) == {"answered"}, outcomes
    assert {status for _, status in site.said("tools/call")[before:]} == {200}  # none was tried twice
    assert outcomes["answered"] > 100


def test_rolling_restart_loses_no_request_and_no_listener(site: Site) -> None:
    async def restart() -> None:
        for port in site.ports:
            await trio.to_thread.run_sync(site.kill, port, signal.SIGTERM)
            site.start(port)
            await trio.to_thread.run_sync(wait_for, port)

    async def body(client: Client) -> None:
        answered: list[str] = []

        async def call_on() -> None:
            while True:
                answered.append((await client.call_tool("process", {"seconds": 0.02})).text)

        async def restart_under_load() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(call_on)
                await restart()
                await until(lambda: {str(site.pid(port)) for port in site.ports} <= set(answered))
                nursery.cancel_scope.cancel()

        # The keys are turned round at the same time: while both are there, either may be the first.
        site.keys = KEYS[::-1]
        await check_listeners(site, client, restart_under_load)

    with_client(site, body)


async def check_listeners(site: Site, client: Client, fault: Callable[[], Any]) -> None:
    """Check that each listener knows what is on the counter after a fault, with what changed during it."""
    seen: dict[int, str] = {}
    missed: set[int] = set()

    async def listen(number: int, changes: Listening) -> None:
        async for change in changes:
            if isinstance(change, Missed):
                missed.add(number)
            seen[number] = await shown(client)

    def all_saw(cake: str) -> bool:
        return seen == {0: cake, 1: cake, 2: cake}

    async with trio.open_nursery() as nursery:
        listenings = [client.listen(uris=[COUNTER], keep=True) for _ in site.ports]
        for number, listening in enumerate(listenings):
            await listening.__aenter__()
            nursery.start_soon(listen, number, listening)
        found = fault()
        if found is not None:
            await found
        for cake in ("waffle", "scone"):
            await client.call_tool("put_out", {"cake": cake})
            await until(partial(all_saw, cake))
        assert missed
        for listening in listenings:
            assert listening.ended is None
            listening.close()


def test_bus_works_again_after_redis_restarts(site: Site) -> None:
    async def body(client: Client) -> None:
        async with client.listen(uris=[COUNTER], keep=True) as changes:
            await trio.to_thread.run_sync(site.restart_redis)
            for cake in ("rusk", "rye"):
                # While a process cannot hear the bus changes are lost to it, but then it says that anything may be new.
                await client.call_tool("put_out", {"cake": cake})
                with trio.fail_after(60):
                    async for _ in changes:
                        if await shown(client) == cake:
                            break

    with_client(site, body)
