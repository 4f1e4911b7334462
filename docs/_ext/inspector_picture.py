"""The picture of mcpio inspect: its page in Chromium, after a call of the server that the tests inspect.

python docs/_ext/inspector_picture.py

Its times and bytes differ from run to run, so it is made when the page changes, and no test compares it.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["FILE", "draw", "main"]

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docs" / "_static" / "inspect.png"
CHROMIUM: Final = "/usr/bin/chromium"
SIZE: Final = {"width": 1180, "height": 680}
COLOURS: Final = 128


def draw(browser: Any) -> bytes:
    """Return the picture as a PNG."""
    command = [sys.executable, "-m", "mcpio", "inspect", "-q", "inspected_server.py:server"]
    place = ROOT / "tests" / "interop"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=place) as process:  # noqa: S603  no input
        assert process.stdout is not None
        context = browser.new_context(viewport=SIZE, color_scheme="light")
        context.set_default_timeout(90_000)  # on a busy machine
        try:
            page = context.new_page()
            page.goto(process.stdout.readline().strip())
            page.locator(".choices button", has_text="bake").first.click()
            page.get_by_label("count", exact=True).fill("3")
            page.get_by_role("button", name="Call", exact=True).click()
            page.get_by_role("button", name="Show in the ladder").click()
            page.get_by_label("The chosen message").wait_for()
            page.mouse.move(0, 0)
            page.locator("#main").evaluate("main => main.scrollTo(0, 0)")
            return with_palette(page.screenshot(animations="disabled"))
        finally:
            context.close()
            process.terminate()


def with_palette(png: bytes) -> bytes:
    """Return a PNG of 8-bit RGB with a palette of its most frequent colours, which takes a third of the bytes."""
    width, height = struct.unpack_from(">II", png, 16)
    data = zlib.decompress(b"".join(each for kind, each in _chunks(png) if kind == b"IDAT"))
    rows: list[bytes] = []
    for start in range(0, len(data), 3 * width + 1):
        rows.append(_unfiltered(data[start], data[start + 1 : start + 3 * width + 1], rows[-1] if rows else None))
    pixels = [[row[at : at + 3] for at in range(0, 3 * width, 3)] for row in rows]
    counts = Counter(pixel for row in pixels for pixel in row)
    palette = [colour for colour, _ in counts.most_common(COLOURS)]
    place = {
        each: min(range(len(palette)), key=lambda at: sum((a - b) ** 2 for a, b in zip(palette[at], each, strict=True)))
        for each in counts
    }
    body = b"".join(b"\0" + bytes(place[pixel] for pixel in row) for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(body, 9)), (b"IEND", b"")]
    return png[:8] + b"".join(
        struct.pack(">I", len(each)) + kind + each + struct.pack(">I", zlib.crc32(kind + each)) for kind, each in parts
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += size + 12


def _unfiltered(kind: int, row: bytes, above: bytes | None) -> bytes:
    """Undo the filter of a row, as the specification of PNG numbers them."""
    up = above or bytes(len(row))
    out = bytearray(3) + row
    for at, old in enumerate(row, 3):
        left, over, corner = out[at - 3], up[at - 3], up[at - 6] if at >= 6 else 0
        guess = left + over - corner
        _, _, nearest = min((abs(guess - each), at, each) for at, each in enumerate((left, over, corner)))
        out[at] = (old + (0, left, over, (left + over) // 2, nearest)[kind]) & 255
    return bytes(out[3:])


def main() -> None:
    """Write the picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        FILE.write_bytes(draw(browser))
        browser.close()


if __name__ == "__main__":
    main()
