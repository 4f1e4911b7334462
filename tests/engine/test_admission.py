"""The table of the requests that a connection admits."""

from __future__ import annotations

import pytest
from declared import EVERYTHING, other

from mcpio.engine.gates import NOT_FOUND, admission, offered, why_not_sent
from mcpio.engine.table import Role
from mcpio.methods import METHODS, Kind
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    Revision,
)
from mcpio.types.features import ResourcesCapability, ServerCapabilities, ToolsCapability


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
def test_a_role_serves_the_requests_that_the_other_may_send(role: Role, revision: Revision) -> None:
    table = admission(role, (revision,), offered(role, revision, EVERYTHING[role]))
    for method in METHODS.values():
        fault = why_not_sent(method, other(role), revision, EVERYTHING[other(role)], EVERYTHING[role])
        sendable = method.kind is Kind.REQUEST and fault is None and method.name not in ("ping", "initialize")
        assert (method.name in table) == sendable, method.name
        if sendable:
            assert (table[method.name].method, table[method.name].refusal) == (method, None)


def test_equal_connections_share_one_table() -> None:
    first, second = (
        admission(Role.SERVER, (REV_2025_11_25,), offered(Role.SERVER, REV_2025_11_25, ServerCapabilities(logging={})))
        for _ in range(2)
    )
    assert first is second


def test_a_method_without_its_capability_is_not_found() -> None:
    table = admission(Role.SERVER, (REV_2025_11_25,), frozenset({"tools/list"}))
    assert table["tools/list"].refusal is None
    assert table["prompts/list"].refusal == NOT_FOUND
    assert "no/such" not in table


def test_a_phase_that_serves_nothing_refuses_every_known_method() -> None:
    custom = frozenset({"custom/x", "ping"})
    table = admission(Role.SERVER, HANDSHAKE_REVISIONS, custom=custom, refusal="closing")
    assert {row.refusal for row in table.values()} == {"closing"}
    assert table["custom/x"].method is None
    assert "ping" not in table


def test_requests_of_other_revisions_have_no_row() -> None:
    assert "server/discover" not in admission(Role.SERVER, (REV_2025_11_25,))
    assert "server/discover" in admission(Role.SERVER, (REV_2026_07_28,))
    assert "elicitation/create" not in admission(Role.CLIENT, (REV_2025_03_26,))
    assert "elicitation/create" in admission(Role.CLIENT, (REV_2025_06_18,))


@pytest.mark.req("CAP-01", "CAP-07")
@pytest.mark.parametrize(
    ("own", "name", "declared"),
    [
        (ServerCapabilities(), "tools/call", False),
        (ServerCapabilities(tools=ToolsCapability()), "tools/call", True),
        (ServerCapabilities(logging={}), "logging/setLevel", True),
        (ServerCapabilities(resources=ResourcesCapability()), "resources/subscribe", False),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=False)), "resources/subscribe", False),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=True)), "resources/subscribe", True),
    ],
)
def test_an_empty_object_declares_and_absence_or_false_does_not(
    own: ServerCapabilities, name: str, declared: bool
) -> None:
    assert (name in offered(Role.SERVER, REV_2025_11_25, own)) is declared
