"""The header fields of stateless requests, which repeat what stands in the body (HDR-01, HDR-02)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from mcpio.framing import jsonrpc
from mcpio.framing.headers import encode_field
from mcpio.http.model import Headers
from mcpio.http.param_headers import ParamHeader, param_fields
from mcpio.http.stateless import mirrored_name
from mcpio.types.meta import META_PROTOCOL_VERSION

__all__ = ["Mirrored", "ParamHeaders", "mirrored"]

ParamHeaders: TypeAlias = Callable[[str], tuple[ParamHeader, ...]]
"""Returns the annotated arguments of a tool, as far as they are known."""


@attrs.frozen
class Mirrored:
    """The parts of a stateless message that its header fields repeat."""

    method: str
    revision: str
    fields: Headers


def mirrored(text: bytes, param_headers: ParamHeaders) -> Mirrored | None:
    """Return the parts of a message that header fields repeat; ``None`` for a message of the handshake era."""
    message = jsonrpc.parse(text, len(text))  # our own, without limits
    if not isinstance(message, jsonrpc.Request):
        return None
    params: Mapping[str, Any] = message.params or {}
    meta = params.get("_meta")
    revision = meta.get(META_PROTOCOL_VERSION) if isinstance(meta, Mapping) else None
    if not isinstance(revision, str):
        return None
    fields = [(b"mcp-method", encode_field(message.method).encode())]
    name = mirrored_name(message.method, params)
    if name is not None:
        fields.append((b"mcp-name", encode_field(name).encode()))
        if message.method == "tools/call":
            fields += param_fields(param_headers(name), params.get("arguments"))
    return Mirrored(message.method, revision, fields)
