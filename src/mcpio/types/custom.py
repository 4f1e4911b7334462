"""Requests and notifications named by their method: those of extensions, and those that a gateway forwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mcpio.types._fields import EMPTY

__all__ = ["CustomNotification", "CustomRequest", "RawNotification", "RawRequest"]


@attrs.frozen
class CustomRequest:
    """A request of an extension. ``params`` are sent unchanged and include ``_meta``, if any."""

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class CustomNotification:
    """A notification of an extension. ``params`` are sent unchanged."""

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class RawRequest:
    """A request of any method, for gateways that forward requests of others (P8).

    ``params`` are sent unchanged. Neither their members nor the keys of ``_meta`` are checked, since this side did not
    choose them (META-07). A request that the phase, the revision or the capabilities forbid is refused all the same.
    With ``progress=True`` this side's token replaces a progress token in ``_meta``; without it such a token is refused.
    """

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class RawNotification:
    """A notification of any method, for gateways. ``params`` are sent unchanged: see ``RawRequest``."""

    method: str
    params: Mapping[str, Any] = EMPTY
