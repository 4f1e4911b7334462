"""What may be sent and what is served: direction, revision and capability of a method (CAP-05, LIFE-14)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mcpio.engine.table import Role
from mcpio.methods import METHODS, Direction, Kind, Method, declares
from mcpio.revisions import REV_2025_11_25, Revision
from mcpio.types.lifecycle import ClientCapabilities, ServerCapabilities

__all__ = ["Capabilities", "addressed_to", "offers", "receivable", "why_no_task", "why_not_sent"]

Capabilities = ClientCapabilities | ServerCapabilities


def why_not_sent(
    method: Method, role: Role, revision: Revision, own: Capabilities, peer: Capabilities | None
) -> str | None:
    """Return what forbids a message of our own, or ``None``. ``peer`` is ``None`` before the peer declared anything."""
    if not addressed_to(method, Role.SERVER if role is Role.CLIENT else Role.CLIENT):
        return f"{method.name} is not for a {role.value} to send"
    if not method.exists_in(revision):
        return f"{method.name} does not exist in revision {revision}"
    path = method.capability_in(revision)
    if path:
        holder, whose = (own, "this side") if method.holder == "sender" else (peer, "the peer")
        if holder is None or not declares(holder, path):
            return f"{method.name} needs the capability {'.'.join(path)}, which {whose} did not declare"
    return None


def why_no_task(method: Method, revision: Revision, peer: Capabilities | None) -> str | None:
    """Return what forbids a request of our own to ask for a task, or ``None`` (TASK-02, TASK-05)."""
    if revision is not REV_2025_11_25:
        return f"{method.name} can be a task in revision {REV_2025_11_25} only, not in {revision}"
    if peer is None or not declares(peer, method.task_capability):
        needed = ".".join(method.task_capability)
        return f"{method.name} as a task needs the capability {needed}, which the peer did not declare"
    return None


@cache
def receivable(role: Role, revision: Revision) -> Mapping[str, tuple[Method, tuple[str, ...]]]:
    """Return the requests that a role may receive in a revision: by name, the method and the capability it needs."""
    return {
        name: (method, method.capability_in(revision))
        for name, method in METHODS.items()
        if method.kind is Kind.REQUEST and addressed_to(method, role) and method.exists_in(revision)
    }


def offers(own: Capabilities, path: tuple[str, ...]) -> bool:
    """Whether this side declared what ``path`` leads to. Like ``declares``, made for the one step that most have."""
    if len(path) == 1:
        value = getattr(own, path[0], None)
        return value is not None and value is not False
    return not path or declares(own, path)


def addressed_to(method: Method, role: Role) -> bool:
    """Whether a message of that method is for this role to receive."""
    return method.direction is Direction.BOTH or (method.direction is Direction.TO_SERVER) == (role is Role.SERVER)
