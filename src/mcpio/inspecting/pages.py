"""The files of the inspector's page, how they are served, and the page that holds a recording."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from itertools import chain
from typing import Any, Final
from urllib.parse import parse_qs

import trio

from mcpio.app.server import Server
from mcpio.engine.connection import Connection
from mcpio.framing.json import dumps
from mcpio.http.model import Denied, HttpOptions, Page, RequestHead
from mcpio.inspecting.ladder import Ladder, LadderTap, Sender
from mcpio.observe.recording import Replay
from mcpio.observe.relayed import is_relayed, read_relayed
from mcpio.observe.tap import Redactor
from mcpio.trio import serve_http
from mcpio.websocket.frames import WebSocketOptions

HOST: Final = "127.0.0.1"
ENDPOINT: Final = "/mcp"
KINDS: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}

MODULES_OF_TRACE: Final = ("dom.js", "ladder.js", "trace.js")
"""The modules of a page that stands alone; each imports only from those before it."""

POLICY: Final = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; connect-src {connect}; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


async def serve_page(
    server: Server,
    port: int,
    *,
    token: str | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the page and its backend on the loopback address, until cancelled.

    ``nursery.start`` returns the address to open. Its fragment, which a browser never sends, has the secret without
    which the backend refuses. Raises OSError if the port is taken.
    """
    secret = secrets.token_urlsafe(24) if token is None else token
    listeners = await trio.open_tcp_listeners(port, host=HOST)
    bound = listeners[0].socket.getsockname()[1]
    address = f"http://{HOST}:{bound}/#{secret}"

    def principal(head: RequestHead, peer: Any) -> str | Denied:
        query = head.target.partition("?")[2]  # urlsplit raises for targets such as //[/mcp
        token_sent = parse_qs(query).get("token", [""])[0]
        is_right = hmac.compare_digest(token_sent.encode(), secret.encode())
        return "inspector" if is_right else Denied(403, "open the address that mcpio inspect printed")

    serve = partial(
        serve_http,
        server,
        listeners=listeners,
        principal=principal,
        options=HttpOptions(path=ENDPOINT, pages=_pages(f"ws://{HOST}:{bound}")),
        websocket=WebSocketOptions(),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        task_status.started(address)


def page_of(described: dict[str, Any]) -> str:
    """Return a page with a recorded ladder that needs no server: it opens from a file.

    ``described`` has ``title``, ``entries`` and ``texts``.
    """
    # Nothing in a script of this type runs, and without "<" nothing can end it.
    data = dumps(described).decode().replace("<", "\\u003c")
    script = "\n".join(_joined(_text(name)) for name in MODULES_OF_TRACE)
    style = _text("style.css")
    policy = POLICY.format(scripts=_hash(script), styles=_hash(style), connect="'none'")
    return (
        _text("trace.html")
        .replace("{policy}", policy)
        .replace("{style}", style)
        .replace("{script}", script)
        .replace("{data}", data)
    )


def _pages(backend: str) -> dict[str, Page]:
    policy = POLICY.format(scripts="'self'", styles="'self'", connect=backend) + "; frame-ancestors 'none'"
    pages = {}
    for name in sorted(each.name for each in files(__package__).joinpath("page").iterdir()):
        ending = name.rpartition(".")[2]
        if name in ("trace.html", "trace.js") or ending not in KINDS:
            continue
        headers = (
            (b"content-type", f"{KINDS[ending]}; charset=utf-8".encode()),
            (b"content-security-policy", policy.encode()),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
        )
        pages["/" if name == "index.html" else f"/{name}"] = Page(_text(name).encode(), headers)
    return pages


def _text(name: str) -> str:
    return files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _joined(module: str) -> str:
    """Return a module without its imports and exports, for one script of several."""
    return re.sub(r"^export (?=\S)", "", re.sub(r"^import [^;]*;\n", "", module, flags=re.M), flags=re.M)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ----------------------------------------------------------------------------------------------------------- recordings


MAX_ENTRIES: Final = 100_000
MAX_BYTES: Final = 64 << 20
TEXT_BYTES: Final = 1 << 20


def traced(lines: Iterable[str], *, title: str) -> dict[str, Any]:
    """Return what ``page_of`` takes, from the lines of a recording.

    A fresh engine replays it, except that of a relay, which had no engine. Likely secrets are removed. Raises
    LocalProtocolError for a malformed recording.
    """
    lines = iter(lines)
    first = next(lines, "")
    lines = chain([first], lines)
    ladder = Ladder(lambda: 0.0, max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES, text_bytes=TEXT_BYTES)
    recorder = _add_passages(ladder, lines) if is_relayed(first) else _add_calls(ladder, lines)
    entries = ladder.after(0, ladder.last)
    return {
        "title": title,
        "facts": f"recorded by {recorder}",
        "entries": entries,
        "texts": [ladder.text(entry["n"]) for entry in entries],
        "dropped": ladder.dropped,
    }


def _add_calls(ladder: Ladder, lines: Iterable[str]) -> str:
    """Replay a recording into a ladder, and return who recorded it."""
    replay = Replay(lines, tap=LadderTap(ladder, also=partial(_note_next, ladder), redactor=Redactor()))
    for call in replay:
        if call.differs is not None:
            ladder.note(f"line {call.line}: {call.verb}: {call.differs}", call.at, sender=replay.role.value)
    return f"the {replay.role.value}"


def _note_next(ladder: Ladder, connection: Connection, now: float) -> None:
    """Add a line before each connection but the first."""
    if ladder.last:
        ladder.note("a new connection", now, sender=connection.role.value)


def _add_passages(ladder: Ladder, lines: Iterable[str]) -> str:
    """Add what a relay recorded to a ladder, and return who recorded it. It wrote no secrets."""
    scopes: dict[Any, str] = {}
    for each in read_relayed(lines):
        sender: Sender = "client" if each.from_client else "server"
        if each.text is not None:
            ladder.message(sender, each.text, each.at, via=each.via, scope=scopes.get(each.via, ""))
        elif each.http is not None and each.from_client:
            # Ids are unique within a session. Without one, each exchange stands for itself.
            in_session = "mcp-session-id" in each.http.get("headers", {})
            scopes[each.via] = "" if in_session else f" {each.via}"
            if each.http.get("method") != "POST":
                ladder.note(f"{each.http.get('method')} {each.http.get('target')}", each.at, sender=sender)
        elif each.http is not None:
            if each.http.get("status") not in (200, 202):
                ladder.note(f"HTTP {each.http.get('status')}", each.at, sender=sender)
        elif each.note is not None:
            ladder.note(each.note, each.at, sender=sender)
        else:
            ladder.note(f"a message of over {each.overlong} bytes", each.at, sender=sender, kind="long")
    return "a relay"
