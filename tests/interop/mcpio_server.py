"""A server that offers something of every kind, for the SDK's client.

Its arguments are the newest revision to speak, how it is served and, but for ``stdio``, the descriptor of a socket that
listens: ``http`` is through h11, ``http2`` through h2, ``asgi`` under uvicorn, and ``-alone`` after any is without
sessions. ``ws`` is over WebSocket, and the origins of pages that are welcome may come before the descriptor.
"""

from __future__ import annotations

import socket
import sys

import trio

from mcpio import Context, Revision, Server, ToolError
from mcpio.app.server_session import ServerSession
from mcpio.engine.options import Options
from mcpio.http.model import HostPolicy, HttpOptions
from mcpio.revisions import HANDSHAKE_REVISIONS
from mcpio.trio import serve_http, serve_stdio
from mcpio.types import (
    Annotations,
    AudioContent,
    CreateMessageRequest,
    ElicitFormRequest,
    ElicitSchema,
    EmbeddedResource,
    ImageContent,
    ModelPreferences,
    PingRequest,
    ResourceLink,
    RootsListChangedNotification,
    SamplingMessage,
    StringSchema,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

newest = Revision.parse(sys.argv[1])
server = Server(
    "mcpio",
    "1.2.3",
    title="The server of mcpio",
    instructions="Be kind.",
    page_size=3,
    options=Options(revisions=tuple(revision for revision in HANDSHAKE_REVISIONS if newest and revision <= newest)),
)

seen: list[str] = []
"""What happened, for the client to ask about."""


# Tools


@server.tool(annotations=ToolAnnotations(read_only_hint=True), title="Sum")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def echo(text: str) -> str:
    return text


@server.tool
def mixed() -> list[TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource]:
    return [
        TextContent("text", annotations=Annotations(("user",), 0.5)),
        ImageContent("aW1hZ2U=", "image/png"),
        AudioContent("YXVkaW8=", "audio/wav"),
        ResourceLink("notes://first", "first"),
        EmbeddedResource(TextResourceContents("notes://first", "within", "text/plain")),
    ]


@server.tool
def fail() -> str:
    raise ToolError("as it should")


@server.tool
async def count(to: int, ctx: Context) -> str:
    for number in range(1, to + 1):
        ctx.progress(number, to, f"step {number}")
    return "done"


@server.tool
def log(ctx: Context) -> None:
    ctx.debug("too little")
    ctx.info({"some": "data"})
    ctx.error("much", "a.logger")


@server.tool
async def wait(ctx: Context) -> None:
    seen.append("wait began")
    try:
        await ctx.session.driver.runtime.sleep(3600)
    finally:
        seen.append("wait was cancelled")


@server.tool
async def what_happened(ctx: Context) -> list[str]:
    await ctx.session.driver.runtime.sleep(0.01)
    return seen


@server.tool
async def ask_model(ctx: Context) -> str:
    question = SamplingMessage("user", TextContent("2+2?"))
    result = await ctx.sample(
        CreateMessageRequest((question,), 10, "You count.", ModelPreferences(speed_priority=0.5), temperature=0.1)
    )
    assert isinstance(result.content, TextContent)
    return f"{result.model}: {result.content.text}"


@server.tool
async def ask_user(ctx: Context) -> str:
    form = ElicitSchema({"name": StringSchema(min_length=1)}, ("name",))
    result = await ctx.elicit(ElicitFormRequest("Who are you?", form))
    return f"{result.action} {(result.content or {}).get('name')}"


@server.tool
async def ask_roots(ctx: Context) -> str:
    return " ".join(f"{root.uri}={root.name}" for root in await ctx.roots())


@server.tool
async def ping_back(ctx: Context) -> str:
    await ctx.session.request(PingRequest())
    assert ctx.session.connection.peer is not None
    return ctx.session.connection.peer.info.name


@server.tool
def grow() -> None:
    """Offer one more of everything."""
    server.tool(name="grown")(echo)
    server.resource("grown://")(first)
    server.prompt(name="grown")(hello)


@server.tool
def touch(uri: str) -> int:
    return server.notify_resource_updated(uri)


# Resources, prompts, completion


@server.resource("notes://first", mime_type="text/plain", title="The first")
def first() -> str:
    return "the first note"


@server.resource("data://blob", mime_type="application/octet-stream")
def blob() -> bytes:
    return bytes(range(256))


@server.resource("notes://{name}", mime_type="text/plain")
def note(name: str) -> str:
    return f"the note {name}"


for number in range(5):
    server.resource(f"page://{number}", name=f"page {number}")(first)


@server.prompt(title="Hello")
def hello(name: str, style: str = "plain") -> list[str]:
    """Greet somebody."""
    return [f"Say hello to {name}.", f"Be {style}."]


@server.completion("name", prompt="hello")
def names(value: str) -> list[str]:
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]


@server.completion("name", resource="notes://{name}")
def note_names(value: str) -> list[str]:
    return [f"{value}{number}" for number in range(150)]


def roots_changed(session: ServerSession, _: RootsListChangedNotification) -> None:
    seen.append("the roots changed")


server.notification_handlers["notifications/roots/list_changed"] = roots_changed


def serve_alone(listening: socket.socket, options: HttpOptions, http2: bool = False) -> None:
    """Serve without a web server."""

    async def main() -> None:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        await serve_http(server, listeners=[listener], options=options, http2=http2)

    trio.run(main)


def serve_http2(listening: socket.socket, options: HttpOptions) -> None:
    """Serve through h2 for those who ask for it."""
    serve_alone(listening, options, http2=True)


def serve_ws(listening: socket.socket, _: HttpOptions) -> None:
    """Serve over WebSocket, with compression for those who want it."""
    from mcpio.trio import serve_websocket
    from mcpio.websocket import WebSocketOptions

    async def main() -> None:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        policy = HostPolicy.for_address(*listening.getsockname(), origins=sys.argv[3:-1])
        options = WebSocketOptions(compression=True)
        await serve_websocket(server, listeners=[listener], options=options, policy=policy, handle_signals=True)

    trio.run(main)


def serve_asgi(listening: socket.socket, options: HttpOptions) -> None:
    """Serve under uvicorn."""
    import uvicorn

    from mcpio.asgi import app

    config = uvicorn.Config(app(server, options=options), log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    how, _, alone = sys.argv[2].partition("-")
    if how == "stdio":
        trio.run(serve_stdio, server)
    else:
        serve = {"http": serve_alone, "http2": serve_http2, "asgi": serve_asgi, "ws": serve_ws}[how]
        listening = socket.socket(fileno=int(sys.argv[-1]))
        listening.setblocking(False)
        serve(listening, HttpOptions(sessions=not alone))
