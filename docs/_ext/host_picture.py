"""The pictures of a server in a host: the kitchen of the quickstart in the MCP Inspector, after a call, light and dark.

    npm install --prefix DIR @modelcontextprotocol/inspector
    python docs/_ext/host_picture.py DIR

Needs Debian's Chromium with ``fonts-symbola``, and in ``PATH`` a ``node`` that the Inspector accepts: 22.19 or newer
for its version 2. Each version of the Inspector looks a little different, so no test compares the pictures.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from inspector_picture import CHROMIUM, ROOT, with_palette

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FILES", "draw", "main"]

STATIC: Final = ROOT / "docs" / "_static"
FILES: Final = {"light": STATIC / "host.png", "dark": STATIC / "host-dark.png"}
SIZE: Final = {"width": 1280, "height": 700}
LAUNCHER: Final = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@contextmanager
def inspector(installed: Path, directory: Path) -> Iterator[str]:
    """Run the Inspector with the configuration that ``mcpio config`` prints, and yield its address."""
    quickstart = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    server = re.search(r"```python\n(# kitchen\.py\n.*?)```", quickstart, re.DOTALL)
    assert server is not None
    (directory / "kitchen.py").write_text(server[1], encoding="utf-8")
    command = [sys.executable, "-m", "mcpio", "config", "kitchen.py"]
    printed = subprocess.run(command, cwd=directory, check=True, capture_output=True)  # noqa: S603  our own command
    config = json.loads(printed.stdout)
    config["mcpServers"]["kitchen"]["protocolEra"] = "auto"  # without it the Inspector speaks 2025-11-25
    (directory / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
    variables = {"HOME": str(directory), "MCP_AUTO_OPEN_ENABLED": "false", "MCP_INSPECTOR_SECRET_STORE": "memory"}
    command = ["node", str(installed.resolve() / LAUNCHER), "--web", "--config", "mcp.json"]
    with subprocess.Popen(  # noqa: S603  the command is the line above
        command, cwd=directory, env=os.environ | variables, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if address := re.search(r"http://\S+API_TOKEN=\S+", line):
                    yield address[0]
                    return
            raise RuntimeError("the Inspector ended without an address: its messages are above")
        finally:
            process.terminate()


def draw(browser: Any, address: str, scheme: str) -> bytes:
    """Return the picture in a colour scheme as a PNG."""
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    context.set_default_timeout(90_000)  # on a busy machine
    try:
        page = context.new_page()
        page.goto(address)
        connect = page.get_by_label('Connect or disconnect "kitchen"')
        connect.wait_for(state="attached")
        if not connect.is_checked():  # the second page joins the connection of the first
            connect.dispatch_event("click")  # the switch that is drawn covers the one that a pointer would hit
        tools = page.get_by_role("radio", name="Tools", exact=True)
        tools.wait_for(state="attached")
        tools.dispatch_event("click")
        page.get_by_role("radio", name="Protocol", exact=True).dispatch_event("click")
        page.get_by_text("to_millilitres").first.click()
        page.get_by_label("amount").fill("2")
        page.get_by_label("unit").first.click()
        page.get_by_role("option", name="cup").click()
        page.get_by_role("button", name="Execute Tool").click()
        page.get_by_text("480").first.wait_for()
        page.get_by_role("button", name="Expand", exact=True).first.click()  # the newest message, which is the call
        page.get_by_text('"amount": 2').wait_for()
        page.mouse.move(0, 0)
        return with_palette(page.screenshot(animations="disabled"))
    finally:
        context.close()


def main() -> None:
    """Write the pictures."""
    from playwright.sync_api import sync_playwright

    with (
        TemporaryDirectory() as directory,
        inspector(Path(sys.argv[1]), Path(directory)) as address,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme, file in FILES.items():
            file.write_bytes(draw(browser, address, scheme))
        browser.close()


if __name__ == "__main__":
    main()
