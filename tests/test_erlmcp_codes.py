from __future__ import annotations

import pytest

from mcpio.erlmcp_codes import ErlmcpCode, ErlmcpExperimentalCode
from mcpio.errors import ErrorCode
from mcpio.refusals import LAST_REFUSAL


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
def test_a_code_is_found_by_its_number(name: str, code: int) -> None:
    assert ErlmcpCode(code).name == name


def test_e10_where_a_code_means_another_thing_in_the_protocol() -> None:
    assert ErlmcpCode(ErrorCode.RESOURCE_NOT_FOUND) is ErlmcpCode.TOOL_NOT_FOUND
    assert ErlmcpCode(ErrorCode.URL_ELICITATION_REQUIRED) is ErlmcpCode.URL_ELICITATION_REQUIRED
