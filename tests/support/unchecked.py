"""Payloads with members of the wrong kind, which the classes refuse: what a careless caller could still make."""

from __future__ import annotations

from typing import TypeVar

P = TypeVar("P")


def unchecked(payload: P, **members: object) -> P:
    """Return ``payload`` itself with members that its class would refuse."""
    for name, value in members.items():
        object.__setattr__(payload, name, value)
    return payload
