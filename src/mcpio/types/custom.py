"""Requests and notifications outside the protocol, named by their method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mcpio.types._fields import EMPTY

__all__ = ["CustomNotification", "CustomRequest"]


@attrs.frozen
class CustomRequest:
    """A request of an extension. ``params`` go out as they are, with ``_meta`` in them if there is to be any."""

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class CustomNotification:
    """A notification of an extension. ``params`` go out as they are."""

    method: str
    params: Mapping[str, Any] = EMPTY
