"""The dialects as data: whatever they name exists, and nothing of them is understood or said unless asked for."""

from __future__ import annotations

import pytest

from mcpio.engine.gates import addressed_to
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import ErrorCode
from mcpio.methods import METHODS, Kind
from mcpio.profiles import DIALECTS, Alias, Dialect, ErlmcpCode, ErlmcpExperimentalCode, Profile
from mcpio.refusals import LAST_REFUSAL
from mcpio.types import ClientCapabilities, ServerCapabilities


@pytest.mark.parametrize("profile", Profile)
def test_dialect_names_map_to_protocol_names(profile: Profile) -> None:
    dialect = DIALECTS[profile]
    for name, alias in dialect.notifications.items():
        assert METHODS[alias.method].kind is Kind.NOTIFICATION
        assert name not in METHODS
        assert set(alias.needed) <= set(alias.members)
    assert dialect.cancelling <= dialect.notifications.keys()
    for request in dialect.closing | dialect.tool_calls:
        assert request not in METHODS
    fields = {*ServerCapabilities.__annotations__, *ClientCapabilities.__annotations__}
    assert set(dialect.capabilities.values()) <= fields
    assert set(dialect.codes.values()) <= set(ErlmcpCode)


def test_dialect_notifications_sent_have_the_same_params() -> None:
    assert dict(DIALECTS[Profile.ERLMCP].spoken()) == {
        "notifications/progress": "progress",
        "notifications/resources/updated": "resources/updated",
        "notifications/resources/list_changed": "resources/list_changed",
        "notifications/tools/list_changed": "tools/list_changed",
        "notifications/prompts/list_changed": "prompts/list_changed",
    }
    assert DIALECTS[Profile.LSP_ALIASES].spoken() == {}
    assert Dialect(notifications={"x": Alias("notifications/message")}).spoken() == {"notifications/message": "x"}


def test_no_dialect_lets_a_server_send_initialized() -> None:
    for dialect in DIALECTS.values():
        assert "notifications/initialized" not in dialect.spoken()
        assert not [alias for alias in dialect.notifications.values() if alias.method == "notifications/initialized"]
    assert not addressed_to(METHODS["notifications/initialized"], Role.CLIENT)


def test_options_name_profiles() -> None:
    assert (Options().profiles, Options().emit_profile) == (frozenset(), None)
    assert Options(profiles=frozenset(Profile)).profiles == set(Profile)
    with pytest.raises(ValueError, match="revisions must be one or more of"):
        Options(revisions=(), profiles=frozenset(Profile))


def test_e1_the_codes_by_their_ranges() -> None:
    codes = sorted((int(code) for code in ErlmcpCode.__members__.values()), reverse=True)
    unassigned = {-32041, -32100}
    assert codes == [
        *(code for code in range(-32000, -32105, -1) if code not in unassigned),
        *range(-32110, -32114, -1),
    ]


def test_e8_the_experimental_codes_follow_the_refusals() -> None:
    codes = [int(code) for code in ErlmcpExperimentalCode.__members__.values()]
    assert codes == list(range(LAST_REFUSAL + 1, 1100))


@pytest.mark.parametrize(
    ("name", "code"),
    [("NOT_INITIALIZED", -32005), ("MESSAGE_TOO_LARGE", -32012), ("TOOL_EXECUTION_FAILED", -32031)],
)
def test_code_found_by_number(name: str, code: int) -> None:
    assert ErlmcpCode(code).name == name


def test_e10_code_of_the_protocol_may_have_another_name_in_the_dialect() -> None:
    assert ErlmcpCode(ErrorCode.RESOURCE_NOT_FOUND) is ErlmcpCode.TOOL_NOT_FOUND
    assert ErlmcpCode(ErrorCode.URL_ELICITATION_REQUIRED) is ErlmcpCode.URL_ELICITATION_REQUIRED
