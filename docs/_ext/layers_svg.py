"""Drawing the layers of the library: what each is for, its public modules, and where a program may enter."""

from __future__ import annotations

from typing import Final, NamedTuple

from picture import picture, text

__all__ = ["LAYERS", "draw_layers"]

WIDTH: Final = 800
ROW: Final = 62
LABEL: Final = 150
"""Width of the column with the names of the layers. All lengths are in SVG's user units."""
ENTRY: Final = 178
"""Width of the column that says who enters there."""


class Layer(NamedTuple):
    """One row of the picture, from the top. ``modules`` are public modules, without ``mcpio.``."""

    name: str
    modules: tuple[str, ...]
    entry: str = ""
    waits: bool = False


LAYERS: Final = (
    Layer("tools", ("cli", "testing", "testing.simulation", "testing.transport_kit"), "the command mcpio", waits=True),
    Layer("drivers", ("trio", "asyncio", "asgi", "stores"), "clients, and serving", waits=True),
    Layer("extras", ("files", "skill_cache", "view_pages", "telemetry", "seals"), "", waits=True),
    Layer("application", ("app",), "tools as functions"),
    Layer("machines", ("http", "websocket", "auth", "observe", "apps"), "your own HTTP server"),
    Layer("engine", ("engine",), "your own event loop"),
    Layer("vocabulary", ("codec", "methods", "types", "events", "errors"), "messages as values"),
    Layer("policies", ("revisions", "profiles", "restarts", "backoff", "refusals"), ""),
)
"""The layers: each calls those below it, and none calls upwards."""


def draw_layers() -> str:
    """Return an ``<svg>`` element."""
    body, y, is_pure = [], 6, False
    for layer in LAYERS:
        if not layer.waits and not is_pure:
            is_pure = True
            body += _boundary(y + 12)
            y += 40
        body += _layer(layer, y)
        y += ROW
    title = "The layers of mcpio: each calls those below it, and nothing below the drivers waits"
    return picture(title, WIDTH, y, body)


def _layer(layer: Layer, y: int) -> list[str]:
    left, right, height = LABEL, WIDTH - ENTRY, ROW - 14
    middle = y + height // 2 + 5
    width = (right - left - 8) // len(layer.modules)
    body = [text(layer.name, 6, middle, "start", bold=True)]
    for number, module in enumerate(layer.modules):
        x = left + number * width
        body.append(f'<rect x="{x}" y="{y}" width="{width - 8}" height="{height}" rx="7"/>')
        body.append(text(module.rpartition(".")[2], x + (width - 8) // 2, middle, "middle"))
    if layer.entry:
        x, line = right - 6, y + height // 2
        body.append(f'<path d="M{x + 24} {line} H{x} M{x + 7} {line - 5} L{x} {line} L{x + 7} {line + 5}"/>')
        body.append(text(layer.entry, x + 32, middle, "start"))
    return body


def _boundary(y: int) -> list[str]:
    return [
        f'<path stroke-dasharray="6 5" d="M6 {y} H{WIDTH - 6}"/>',
        text(
            "nothing below this line waits, reads a clock, or touches sockets, files and processes", 6, y + 16, "start"
        ),
    ]
