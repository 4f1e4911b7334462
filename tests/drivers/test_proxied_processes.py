"""A proxy in front of a child process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio import Options
from mcpio.app import ServerEntry
from mcpio.errors import ErrorCode, RequestError, URLElicitationRequired
from mcpio.types import ClientCapabilities, ElicitationCapability

ASKS_FOR_A_VISIT = """
from mcpio import Server
from mcpio.errors import URLElicitationRequired
from mcpio.trio import serve_stdio
from mcpio.types import ElicitURLRequest
import trio

server = Server("behind", "1")

@server.tool
def pay() -> str:
    raise URLElicitationRequired([ElicitURLRequest("Pay", "https://example.com/pay", "e1")], "Please pay first")

trio.run(serve_stdio, server)
"""


@pytest.mark.parametrize("visits", [True, False])
def test_url_that_a_child_requires_passes_the_proxy(each_loop: EachLoop, tmp_path: Path, visits: bool) -> None:
    (tmp_path / "behind.py").write_text(ASKS_FOR_A_VISIT)
    entry = ServerEntry(command=(sys.executable, str(tmp_path / "behind.py")))
    options: dict[str, Any] = {"options": Options(era="handshake")}
    if visits:
        options |= {
            "elicitation": lambda scope, request: None,
            "capabilities": ClientCapabilities(elicitation=ElicitationCapability(url={})),
        }

    async def main(here: Here) -> None:
        async with here.drivers.memory_client(here.drivers.proxy(entry), **options) as client:
            if visits:
                with pytest.raises(URLElicitationRequired, match="Please pay first") as required:
                    await client.call_tool("pay")
                assert required.value.code == ErrorCode.URL_ELICITATION_REQUIRED
                (request,) = required.value.elicitations
                assert (request.message, request.url, request.elicitation_id) == (
                    "Pay",
                    "https://example.com/pay",
                    "e1",
                )
            else:
                with pytest.raises(RequestError, match=r"Please pay first \(this needs .* elicitation\.url"):
                    await client.call_tool("pay")

    each_loop.run(main)
