"""Requests and notifications that are named by their method: those outside the protocol, and any that is passed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mcpio.types._fields import EMPTY

__all__ = ["CustomNotification", "CustomRequest", "RawNotification", "RawRequest"]


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


@attrs.frozen
class RawRequest:
    """A request of any method, for gateways that pass on what somebody else wrote (P8).

    ``params`` go out as they are: neither the members nor the keys of ``_meta`` are checked, as this side did not
    choose them (META-07). What the phase, the revision and the capabilities forbid is refused all the same. A progress
    token in ``_meta`` is replaced by our own where ``progress=True`` asks for progress, and refused otherwise.
    """

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class RawNotification:
    """A notification of any method, for gateways. ``params`` go out as they are: see ``RawRequest``."""

    method: str
    params: Mapping[str, Any] = EMPTY
