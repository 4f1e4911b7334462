"""What a server carries through its client: sealed, bound to one call, and of bounded size."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.app.rounds import HmacSealer, RequestStates, Sealer, StateRejected, call_of
from mcpio.errors import RequestError
from mcpio.events import IncomingId, RequestContext, RequestReceived
from mcpio.revisions import REV_2026_07_28, Era
from mcpio.seals import AeadSealer
from mcpio.types import CallToolRequest, ClientCapabilities, Implementation

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))
MAKERS: list[Callable[[list[bytes]], Sealer]] = [HmacSealer, AeadSealer]
sealers = pytest.mark.parametrize("sealer", MAKERS, ids=["hmac", "aead"])
CARRIED = {"r": {"name": {"action": "accept"}}, "f": "1f"}


def event(method: str = "tools/call", principal: Any = None, **params: Any) -> RequestReceived:
    raw = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "book", "arguments": {"a": 1}, **params}}
    context = RequestContext(
        Era.STATELESS, REV_2026_07_28, ClientCapabilities(), Implementation("c", "1"), None, principal, None
    )
    return RequestReceived(IncomingId(1), CallToolRequest("book"), context, raw, reused_id=False)


def no_entropy(_: int) -> bytes:
    raise AssertionError("a key was given")


def sealed(states: RequestStates, of: RequestReceived, now: float = 1000.0, audience: str = "shop") -> str:
    return states.seal(CARRIED, call_of(of, audience), now, no_entropy)


@sealers
@pytest.mark.req("MRTR-09", "MRTR-10")
def test_state_opens_for_the_same_call(sealer: Callable[[list[bytes]], Sealer]) -> None:
    states = RequestStates(sealer=sealer([KEY]))
    again = event(inputResponses={"x": {}}, requestState="any", _meta={"progressToken": 2})
    assert states.open(sealed(states, event()), call_of(again, "shop"), 1001.0) == CARRIED


@sealers
@pytest.mark.req("MRTR-09")
def test_each_flipped_bit_is_rejected(sealer: Callable[[list[bytes]], Sealer]) -> None:
    states, call = RequestStates(sealer=sealer([KEY])), call_of(event(), "shop")
    text = sealed(states, event())
    for place, character in enumerate(text):
        for bit in range(8):
            forged = text[:place] + chr(ord(character) ^ 1 << bit) + text[place + 1 :]
            with pytest.raises(StateRejected):
                states.open(forged, call, 1000.0)


@sealers
@given(text=st.text() | st.text(alphabet="ve1.0abc", max_size=20))
def test_any_text_is_rejected(sealer: Callable[[list[bytes]], Sealer], text: str) -> None:
    with pytest.raises(StateRejected):
        RequestStates(sealer=sealer([KEY])).open(text, {}, 0.0)


@sealers
def test_short_texts_under_the_right_key_are_rejected(sealer: Callable[[list[bytes]], Sealer]) -> None:
    made = sealer([KEY])
    head = made.seal(b"").rsplit(".", 1)[0]
    for text in (f"{head}.", f"{head}.A", f"{head}.AA", f"{head}.AA==", f"{head}.\u00e9", f"{head}.AAAA AAAA"):
        with pytest.raises(ValueError, match=r"it |signature|base64"):
            made.open(text)


ELSEWHERE = [
    ("method", event("prompts/get"), "shop"),
    ("tool, prompt or resource", event(name="cancel"), "shop"),
    ("set of arguments", event(arguments={"a": 2}), "shop"),
    ("set of arguments", event(arguments={"a": 1, "b": None}), "shop"),
    ("principal", event(principal="ada"), "shop"),
    ("principal", event(principal=("ada", 1)), "shop"),
    ("server", event(), "bank"),
]


@pytest.mark.req("MRTR-10")
@pytest.mark.parametrize(("what", "of", "audience"), ELSEWHERE, ids=[row[0] for row in ELSEWHERE])
def test_state_of_another_call_is_rejected(what: str, of: RequestReceived, audience: str) -> None:
    states = RequestStates([KEY])
    with pytest.raises(StateRejected, match=f"it belongs to another {what}"):
        states.open(sealed(states, of, audience=audience), call_of(event(), "shop"), 1000.0)


def test_state_of_a_resource_names_its_uri() -> None:
    raw = {"method": "resources/read", "params": {"uri": "a:b"}}
    assert call_of(attrs.evolve(event(), raw=raw), "shop")["t"] == "a:b"


def test_order_of_members_does_not_matter() -> None:
    states = RequestStates([KEY])
    one, other = event(arguments={"a": [{"b": 1, "c": 2}], "d": 3}), event(arguments={"d": 3, "a": [{"c": 2, "b": 1}]})
    assert states.open(sealed(states, one), call_of(other, "shop"), 1000.0) == CARRIED


@pytest.mark.req("MRTR-10")
def test_state_expires() -> None:
    states, call = RequestStates([KEY], ttl=100), call_of(event(), "shop")
    text = sealed(states, event(), now=1000.0)
    assert states.open(text, call, 1160.0) == CARRIED  # clocks may differ by a minute
    with pytest.raises(StateRejected, match="it expired 61 seconds ago"):
        states.open(text, call, 1161.0)
    assert states.open(text, call, 940.0) == CARRIED
    with pytest.raises(StateRejected, match="it is from the future"):
        states.open(text, call, 939.0)


@sealers
def test_all_keys_of_a_ring_open_and_the_first_seals(sealer: Callable[[list[bytes]], Sealer]) -> None:
    old, both, new = (RequestStates(sealer=sealer(ring)) for ring in ([KEY], [OTHER_KEY, KEY], [OTHER_KEY]))
    call = call_of(event(), "shop")
    assert both.open(sealed(old, event()), call, 1000.0) == CARRIED
    assert new.open(sealed(both, event()), call, 1000.0) == CARRIED
    with pytest.raises(StateRejected, match="an unknown key"):
        new.open(sealed(old, event()), call, 1000.0)


def test_only_encryption_conceals() -> None:
    assert [RequestStates(sealer=make([KEY])).conceals for make in MAKERS] == [False, True]
    assert not RequestStates().conceals
    hidden = sealed(RequestStates(sealer=AeadSealer([KEY])), event())
    readable = sealed(RequestStates(sealer=HmacSealer([KEY])), event())
    assert b"tools/call" in b64decode(readable.split(".")[2] + "==", altchars=b"-_")
    assert b"tools/call" not in b64decode(hidden.split(".")[2] + "==", altchars=b"-_")


def test_encrypted_state_differs_each_time() -> None:
    states = RequestStates(sealer=AeadSealer([KEY]))
    assert sealed(states, event()) != sealed(states, event())


def test_key_is_drawn_when_it_is_first_needed() -> None:
    states, call, drawn = RequestStates(), call_of(event(), "shop"), list[int]()

    def entropy(size: int) -> bytes:
        drawn.append(size)
        return KEY

    with pytest.raises(StateRejected, match="this process has sealed none"):
        states.open("v1.x.y.z", call, 0.0)
    text = states.seal(CARRIED, call, 0.0, entropy)
    states.seal(CARRIED, call, 0.0, entropy)
    assert (drawn, states.is_shared) == ([32], False)
    assert states.open(text, call, 0.0) == CARRIED
    assert RequestStates([KEY]).is_shared


@pytest.mark.req("MRTR-09")
def test_state_that_is_too_long_fails_the_call() -> None:
    states = RequestStates([KEY], most=300)
    with pytest.raises(RequestError, match="characters, and at most 300 are sent") as caught:
        states.seal({"o": {"key": "x" * 300}}, call_of(event(), "shop"), 0.0, no_entropy)
    assert caught.value.code == -32603
    assert "keep the data in a store" in caught.value.data["hint"]


def test_oversized_state_is_rejected_unread() -> None:
    class Unread:
        conceals = False

        def seal(self, payload: bytes) -> str:
            return payload.decode()

        def open(self, text: str) -> bytes:
            raise AssertionError("it was read")

    with pytest.raises(StateRejected, match="it has 401 characters, and at most 100 are sent"):
        RequestStates(sealer=Unread(), most=100).open("x" * 401, {}, 0.0)


WRONG = [
    ({"keys": []}, ValueError, "at least one key"),
    ({"keys": [b"short"]}, ValueError, r"keys\[0\] must have at least 32 bytes, not 5"),
    ({"keys": [KEY, "x" * 32]}, TypeError, r"keys\[1\] must be bytes, not str"),
    ({"keys": KEY}, TypeError, "a list of keys"),
    ({"keys": [KEY], "sealer": HmacSealer([KEY])}, TypeError, "not both"),
    ({"ttl": 0}, ValueError, "ttl must be"),
    ({"ttl": "600"}, ValueError, "ttl must be"),
    ({"most": 0}, ValueError, "most must be"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG)
def test_wrong_option_is_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        RequestStates(**options)


def test_encryption_without_its_package_names_the_extra_to_install() -> None:
    program = "import sys; sys.modules['cryptography'] = None; import mcpio.seals"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "mcpio.seals needs cryptography: install mcpio[seal]" in run.stderr


def test_call_is_digested_only_once_the_seal_is_right() -> None:
    states = RequestStates(keys=[KEY])
    digested: list[int] = []

    def call() -> dict[str, Any]:
        digested.append(1)
        return call_of(event(), "shop")

    text = sealed(states, event())
    with pytest.raises(StateRejected):
        states.open(text[:-1] + ("A" if text[-1] != "A" else "B"), call, 1000.0)
    assert digested == []
    assert states.open(text, call, 1000.0) == CARRIED
    assert digested == [1]
