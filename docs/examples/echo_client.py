"""A client of ``echo_server.py``, which it starts as a child process and brings to its end."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from mcpio import RequestError
from mcpio.trio import open_stdio
from mcpio.types import LoggingMessageNotification

SERVER = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]


def on_progress(progress: float, total: float | None, message: str | None) -> None:
    print(f"  {progress} of {total}: {message}")


def on_log(log: LoggingMessageNotification) -> None:
    print(f"  {log.level}: {log.data}")


async def main() -> None:
    async with open_stdio(SERVER, on_log=on_log) as client:
        print(f"{client.server.info.name} speaks {client.connection.revision}")
        async for tool in client.tools():
            print(f"- {tool.name}: {tool.description}")

        result = await client.call_tool("echo", {"text": "hello"})
        print(result.text)
        result = await client.call_tool(
            "echo_slowly", {"text": "hello"}, on_progress=on_progress
        )
        print(result.text)

        with trio.move_on_after(0.05) as scope:
            await client.call_tool("echo_slowly", {"text": "hello", "pause": 60})
        print(f"given up: {scope.cancelled_caught}")

        result = await client.call_tool("echo", {"text": 5})
        print(f"is_error: {result.is_error}, {result.text}")
        try:
            await client.get_prompt("no such prompt")
        except RequestError as error:
            print(error)


if __name__ == "__main__":
    trio.run(main)
