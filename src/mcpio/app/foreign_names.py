"""Names that fastmcp and the official SDK have for what is here: the AttributeError for one says what to use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["OF_CLIENTS", "OF_CONTEXTS", "OF_SERVERS", "no_attribute"]

_SERVE: Final = "await serve_stdio(server) of mcpio.trio or mcpio.asyncio, or the command `mcpio serve FILE.py`"
_SERVE_HTTP: Final = (
    "await serve_http(server) of mcpio.trio, mcpio.asgi.app(server), or `mcpio serve FILE.py --http 8000`"
)
_ASGI: Final = "mcpio.asgi.app(server)"

_STATE: Final = (
    "a dictionary of your own by ctx.peer.principal; ctx.state is one object for all clients, and ctx.session may be "
    'one (see "State of a user" in the guide to servers)'
)

OF_SERVERS: Final = {
    "run": _SERVE,
    "run_async": _SERVE,
    "run_stdio_async": _SERVE,
    "run_http_async": _SERVE_HTTP,
    "run_streamable_http_async": _SERVE_HTTP,
    "http_app": _ASGI,
    "streamable_http_app": _ASGI,
    "sse_app": _ASGI,
    "custom_route": "HttpOptions(health=…), or other routes beside mcpio.asgi.app(server)",
    "add_tool": "server.tool(function)",
    "add_resource": "server.resource(uri)(function)",
    "add_prompt": "server.prompt(function)",
    "add_middleware": "server.middleware(function)",
    "import_server": "server.mount(other, prefix)",
    "as_proxy": "proxy(target) of mcpio.trio or mcpio.asyncio",
    "from_openapi": "a tool for each operation that a model needs",
    "list_tools": "@server.tool, which lists the tool too",
    "call_tool": "@server.tool, or memory_client(server) to call one",
    "list_resources": "@server.resource, which lists the resource too",
    "read_resource": "@server.resource, or memory_client(server) to read one",
    "list_prompts": "@server.prompt, which lists the prompt too",
    "get_prompt": "@server.prompt, or memory_client(server) to get one",
}
OF_CONTEXTS: Final = {
    "report_progress": "ctx.progress(done, total)",
    "lifespan_context": "ctx.state",
    "request_context": "ctx.state, the value of the lifespan",
    "request_id": "ctx.id",
    "client_id": "ctx.grant",
    "get_state": _STATE,
    "set_state": _STATE,
    "fastmcp": "the server, which a handler knows from its module",
    "list_roots": "await ctx.roots()",
}
OF_CLIENTS: Final = {
    "is_connected": "the block itself: a client is connected from its beginning to its end",
    "list_tools_mcp": "await client.list_tools()",
    "call_tool_mcp": "await client.call_tool(name, arguments)",
    "set_logging_level": "await client.set_log_level(level)",
    "send_ping": "await client.ping()",
    "send_request": "await client.request(request)",
    "send_notification": "client.notify(notification)",
    "subscribe_to_resource": "await client.subscribe_resource(uri)",
}


def no_attribute(owner: object, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object lacks, with what to use in its place if that is known."""
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    use = elsewhere.get(name)
    return AttributeError(message if use is None else f"{message}: use {use}", name=name, obj=owner)
