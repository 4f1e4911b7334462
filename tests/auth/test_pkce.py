from __future__ import annotations

import re

import pytest

from mcpio.auth import Secret
from mcpio.auth.keys import code_challenge, new_state, new_verifier


@pytest.mark.req("AUTH-25")
def test_the_challenge_is_that_of_rfc_7636() -> None:
    verifier = Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    assert code_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.req("AUTH-25", "AUTH-27")
def test_verifier_and_state_have_their_entropy() -> None:
    asked: list[int] = []

    def entropy(count: int) -> bytes:
        asked.append(count)
        return b"\xff" * count

    assert re.fullmatch(r"[\w-]{43}", new_verifier(entropy).reveal())
    assert re.fullmatch(r"[\w-]{22}", new_state(entropy))
    assert asked == [32, 16]
