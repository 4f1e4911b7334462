"""A call as text to take elsewhere: a test in Python, a conversation script, and its messages in either era."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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

_EVERYTHING: Final[dict[str, Any]] = {
    "tools": {},
    "resources": {"subscribe": True},
    "prompts": {},
    "logging": {},
    "completions": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
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
    """Return a conversation script of a call: its messages with their senders, a request of the client first.

    ``mcpio.testing.play`` plays it with a client, whose request must be the same and whose reading is checked.
    """
    is_stateless = revision.era is Era.STATELESS
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
    ]
    own, new = None, 0 if is_stateless else 1
    for sender, text in texts:
        message = loads(text)
        method, is_answer = message.get("method"), "method" not in message
        if sender == "client" and "id" in message and not is_answer:
            own, new = message["id"], new + 1
            params = _without_envelope(message.get("params", {}))
            token = params.get("_meta", {}).pop("progressToken", None)
            if not params.get("_meta", True):
                del params["_meta"]
            progress = "" if token is None else " progress=true"
            lines.append(f"client request {method} {_text(params)} cookie=c{new}{progress}")
            if token is not None:
                params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": new}}
            lines.append(f"{'C=>' if is_stateless else 'C>'} {_text({**message, 'id': new, 'params': params})}")
        elif sender == "client":
            lines += _of_client(message, new)
        else:
            is_last = is_answer and message.get("id") == own
            if is_last:
                message["id"] = new
            if method == "notifications/progress":
                message["params"] = {**message["params"], "progressToken": new}
            lines.append(f"S> {_text(message)}")
            if is_last:
                outcome = "ResponseReceived" if "result" in message else "RequestFailed"
                lines.append(f"event client {outcome} cookie=c{new}")
    return "\n".join(line.replace('"jsonrpc":"2.0",', "", 1) for line in lines) + "\n"


def _of_client(message: dict[str, Any], id: int) -> Iterator[str]:
    """Yield the lines of an answer of the client, and of what cancels its own request."""
    if "result" in message:
        yield f"client answer {_text(message['id'])} {_text(message['result'])}"
    elif "error" in message:
        error = message["error"]
        yield f"client error {_text(message['id'])} {error['code']} {_text(error['message'])}"
    elif message["method"] == "notifications/cancelled":
        message["params"] = {**message["params"], "requestId": id}
        yield f"client cancel c{id} {_text(message['params'].get('reason', ''))}"
    yield f"C> {_text(message)}"
    if message.get("method") == "notifications/cancelled":
        yield f"event client RequestFailed cookie=c{id}"


def in_era(era: Literal["handshake", "stateless"], method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return what a client sends for a request in one era, as an engine makes it: the opening, and the request.

    ``why`` says why the era cannot express it.
    """
    revision = LATEST_HANDSHAKE if era == "handshake" else REV_2026_07_28
    view: dict[str, Any] = {"era": era, "revision": revision.name, "opening": [], "request": None, "why": None}
    declared = codec(revision).decode(_EVERYTHING, ServerCapabilities)
    capabilities = codec(revision).decode(_ASKED, ClientCapabilities)
    client = ClientConnection(Implementation("mcpio", "1"), capabilities, options=Options(era=era))
    link = pair(client, ServerConnection(Implementation("server", "1"), declared))
    if era == "handshake":
        link.handshake()
    else:
        client.adopt(REV_2026_07_28, DiscoverResult((revision.name,), declared))
    view["opening"] = [text for each in link.tap for text in _lines(each.data)]
    definition = METHODS.get(method)
    try:
        clean = _without_envelope(params)
        request = (
            CustomRequest(method, clean)
            if definition is None
            else codec(revision).decode(clean, definition.params_type)
        )
        client.send_request(request, now=0.0)
        view["request"] = "".join(text for chunk in client.data_to_send() for text in _lines(chunk))
    except McpError as error:
        view["why"] = str(error)
    return view


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode().removesuffix("\n").split("\n")


def _without_envelope(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return params without what each request of the stateless era carries."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping):
        return dict(params)
    own = {key: each for key, each in meta.items() if not key.startswith("io.modelcontextprotocol/")}
    return {**{key: each for key, each in params.items() if key != "_meta"}, **({"_meta": own} if own else {})}


def _text(value: Any) -> str:
    return dumps(value).decode()
