"""Values of messages in HTTP header fields: as they are where that is possible, else in Base64 (HDR-08)."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final

__all__ = ["decode_field", "encode_field"]

_START: Final = "=?base64?"
_END: Final = "?="
_PLAIN: Final = re.compile(r"[!-~]([ -~]*[!-~])?|")
"""Visible ASCII, with spaces inside only: anything else may be changed or refused on the way."""


def encode_field(text: str) -> str:
    """Return a text as the value of a header field.

    Texts that are not plain, and those that look like the encoded form, are encoded as ``=?base64?…?=`` of the UTF-8.
    """
    if _PLAIN.fullmatch(text) and not (text.startswith(_START) and text.endswith(_END)):
        return text
    return _START + b64encode(text.encode("utf-8")).decode("ascii") + _END


def decode_field(value: str) -> str:
    """Return the text of a header field's value. Raises ValueError for a malformed one.

    Only what has both markers, exactly, is encoded. The Base64 must be the canonical one of valid UTF-8.
    """
    if _PLAIN.fullmatch(value) is None:
        raise ValueError("not visible ASCII")
    if not (value.startswith(_START) and value.endswith(_END)) or len(value) < len(_START) + len(_END):
        return value
    inner = value[len(_START) : -len(_END)]
    data = b64decode(inner, validate=True)
    if b64encode(data).decode("ascii") != inner:
        raise ValueError("not canonical Base64")
    return data.decode("utf-8")
