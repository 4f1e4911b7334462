"""A call as text to take elsewhere: a test in Python, a conversation script, and its messages in either era."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from mcpio.codec import codec
from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import McpError
from mcpio.framing.json import dumps, loads
from mcpio.methods import METHODS
from mcpio.revisions import LATEST_HANDSHAKE, REV_2026_07_28, Era, Revision
from mcpio.testing.engine_pair import pair
from mcpio.types.base import CustomRequest
from mcpio.types.features import ClientCapabilities, DiscoverResult, Implementation, ServerCapabilities

__all__ = ["as_conversation", "as_test", "in_era"]

_EVERYTHING: Final[dict[str, Any]] = {
    "tools": {},
    "resources": {"subscribe": True},
    "prompts": {},
    "logging": {},
    "completions": {},
}
_ASKED: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def as_test(imports: Iterable[str], opener: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a test that makes a call of a tool, with a client that ``opener`` opens, which is Python."""
    called = "".join(each if each.isalnum() and each.isascii() else "_" for each in name)[:60].strip("_").lower()
    first = "\n".join(imports)
    return f"""{first}


def test_{called or "tool"}_answers() -> None:
    async def main() -> None:
        async with {opener} as client:
            result = await client.call_tool({name!r}, {dict(arguments)!r})
        assert not result.is_error, result.text

    trio.run(main)
"""


def as_conversation(texts: Iterable[tuple[str, str]], revision: Revision) -> str:
    """Return a conversation script of an exchange: its messages with their senders, the client's request first.

    ``mcpio.testing.play`` plays it with a client, whose request must be the same and whose reading is checked.
    """
    messages = [(sender, loads(text)) for sender, text in texts]
    is_stateless = revision.era is Era.STATELESS
    first = messages[0][1]
    own, new = first["id"], 1 if is_stateless else 2
    params = _without_envelope(first.get("params", {}))
    token = params.get("_meta", {}).pop("progressToken", None)
    if not params.get("_meta", True):
        del params["_meta"]
    lines = [
        "# A call that was made with mcpio inspect.",
        "run: client",
        f"revision: {revision.name}",
        f"client: {_text(_ASKED)}",
        f"server: {_text(_EVERYTHING)}",
        "",
        f"client adopt {_text({'supportedVersions': [revision.name], 'capabilities': _EVERYTHING})}"
        if is_stateless
        else "handshake",
        f"client request {first['method']} {_text(params)} cookie=a{' progress=true' if token is not None else ''}",
    ]
    if token is not None:
        params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": new}}
    lines.append(f"{'C=>' if is_stateless else 'C>'} {_text({**first, 'id': new, 'params': params})}")
    for sender, message in messages[1:]:
        if sender == "client":
            if "result" in message:
                lines.append(f"client answer {_text(message['id'])} {_text(message['result'])}")
            elif "error" in message:
                said = message["error"]
                lines.append(f"client error {_text(message['id'])} {said['code']} {_text(said['message'])}")
            lines.append(f"C> {_text(message)}")
            continue
        if message.get("id") == own and "method" not in message:
            message["id"] = new
        if message.get("method") == "notifications/progress":
            message["params"] = {**message["params"], "progressToken": new}
        lines.append(f"S> {_text(message)}")
    outcome = "ResponseReceived" if "result" in messages[-1][1] else "RequestFailed"
    if messages[-1][0] == "server":
        lines.append(f"event client {outcome} cookie=a")
    return "\n".join(line.replace('"jsonrpc":"2.0",', "", 1) for line in lines) + "\n"


def in_era(era: Literal["handshake", "stateless"], method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return what a client sends for a request in one era, as an engine makes it: the opening, and the request.

    ``why`` says why the era cannot express it.
    """
    revision = LATEST_HANDSHAKE if era == "handshake" else REV_2026_07_28
    found: dict[str, Any] = {"era": era, "revision": revision.name, "opening": [], "request": None, "why": None}
    declared = codec(revision).decode(_EVERYTHING, ServerCapabilities)
    asked = codec(revision).decode(_ASKED, ClientCapabilities)
    client = ClientConnection(Implementation("mcpio", "1"), asked, options=Options(era=era))
    link = pair(client, ServerConnection(Implementation("server", "1"), declared))
    if era == "handshake":
        link.handshake()
    else:
        client.adopt(REV_2026_07_28, DiscoverResult((revision.name,), declared))
    found["opening"] = [text for each in link.tap for text in _lines(each.data)]
    known = METHODS.get(method)
    try:
        clean = _without_envelope(params)
        request = CustomRequest(method, clean) if known is None else codec(revision).decode(clean, known.params_type)
        client.send_request(request, now=0.0)
        found["request"] = "".join(text for chunk in client.data_to_send() for text in _lines(chunk))
    except McpError as error:
        found["why"] = str(error)
    return found


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode().splitlines()


def _without_envelope(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return params without what each request of the stateless era carries."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping):
        return dict(params)
    kept = {key: each for key, each in meta.items() if not key.startswith("io.modelcontextprotocol/")}
    return {**{key: each for key, each in params.items() if key != "_meta"}, **({"_meta": kept} if kept else {})}


def _text(value: Any) -> str:
    return dumps(value).decode()
