"""``docs/examples/notes_server.py``: reading, writing, and hearing of what was written."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from tree import PYTHON, ROOT

from mcpio import RequestError
from mcpio.trio import open_stdio
from mcpio.types import ResourceTemplateReference, TextResourceContents

EXAMPLE = ROOT / "docs" / "examples" / "notes_server.py"


@pytest.mark.req("RES-03", "RES-06", "RES-07", "COMP-02")
def test_notes_server_lists_reads_writes_and_notifies() -> None:
    heard: list[str] = []

    def on_notification(notification: Any) -> None:
        heard.append(notification.uri)

    async def main() -> None:
        async with open_stdio([PYTHON, str(EXAMPLE)], on_notification=on_notification, era="handshake") as client:

            async def read(uri: str) -> str:
                (contents,) = (await client.read_resource(uri)).contents
                assert isinstance(contents, TextResourceContents)
                return contents.text

            assert await read("notes://all") == "groceries\nwork"
            assert await read("notes://all/work") == "call Ada\n"
            with pytest.raises(RequestError, match="Resource not found"):
                await read("notes://all/none")

            await client.subscribe_resource("notes://all/work")
            result = await client.call_tool("write", {"name": "work", "line": "rest"})
            assert result.text == "written; clients notified: 1"
            result = await client.call_tool("write", {"name": "groceries", "line": "tea"})
            assert result.text == "written; clients notified: 0"
            await client.subscribe_resource("notes://all")
            await client.unsubscribe_resource("notes://all/work")
            await client.call_tool("write", {"name": "new", "line": "x"})
            assert heard == ["notes://all/work", "notes://all/new"]
            assert await read("notes://all/work") == "call Ada\nrest\n"
            assert (await client.call_tool("write", {"name": "a/b", "line": "x"})).is_error

            template = ResourceTemplateReference("notes://all/{name}")
            completion = (await client.complete(template, "name", "wk")).completion
            assert completion.values == ("work",)

    trio.run(main)
