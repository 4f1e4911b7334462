"""What is left of a client's servers when the client is killed, at any moment: nothing that honours its input's end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

ECHO = [sys.executable, "-c", "import os\nwhile data := os.read(0, 65536): os.write(1, data)"]

CLIENT = """
import os, sys, trio
from mcpio.trio._stdio import open_process_stream

async def main():
    async with open_process_stream(sys.argv[2:], die_with_parent=sys.argv[1] == "tied") as child:
        print("started", flush=True)
        await child.stream.send_all(b"hello")
        print("sent", flush=True)
        while await child.stream.receive_some():
            print("received", flush=True)

trio.run(main)
"""

IGNORE_EVERYTHING = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"x")
while True:
    time.sleep(60)
"""

NEVER_ENDS = [sys.executable, "-c", IGNORE_EVERYTHING]


@pytest.fixture
def killed_client() -> Iterator[Callable[[str, list[str], str], None]]:
    """Give a function that kills a client at a moment and waits until nothing that it started is left."""
    processes: list[subprocess.Popen[bytes]] = []

    def kill(option: str, server: list[str], moment: str) -> None:
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, option, *server], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        processes.append(client)
        wait_for(client, moment)
        client.kill()
        client.wait()
        expect_end(client)

    yield kill
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(client: subprocess.Popen[bytes], moment: str) -> None:
    assert client.stdout is not None
    if moment.isdigit():
        time.sleep(int(moment) / 1000)
        return
    for line in client.stdout:
        if line.decode().strip() == moment:
            return
    pytest.fail(f"the client never came to {moment!r}")


def expect_end(client: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the standard error that all of them inherit: the last holder is gone then."""
    assert client.stderr is not None
    while True:
        ready, _, _ = select.select([client.stderr], [], [], 20)
        assert ready
        if not os.read(client.stderr.fileno(), 65536):
            break


MOMENTS = ["started", "sent", "received", *(str(milliseconds) for milliseconds in range(60, 180, 40))]


@pytest.mark.req("STDIO-08")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_client_leaves_no_child_that_honours_the_end_of_its_input(
    killed_client: Callable[[str, list[str], str], None], moment: str
) -> None:
    killed_client("untied", ECHO, moment)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_client_leaves_no_tied_child_at_all(
    killed_client: Callable[[str, list[str], str], None], moment: str
) -> None:
    killed_client("tied", NEVER_ENDS, moment)
