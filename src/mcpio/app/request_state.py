"""Request state: what a stateless server carries through its client, bound to one call (MRTR-09, MRTR-10).

The client is not trusted: it returns a state when it likes, as often as it likes, with any other request, or altered.
So a state is sealed, says when it expires, and names the call that it belongs to. It is not a single-use token:
whatever must happen once is recorded in a store of the server's own.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpio._checks import is_amount, is_count
from mcpio.auth.grant import Grant
from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import json

if TYPE_CHECKING:
    from mcpio.events import RequestReceived

__all__ = ["HmacSealer", "RequestStates", "Sealer", "StateRejected", "call_of", "canonical", "invalid_request_state"]


class Sealer(Protocol):
    """Turns bytes into a text for the client, and back."""

    @property
    def conceals(self) -> bool:
        """Whether the content is hidden from the client."""

    def seal(self, payload: bytes) -> str:
        """Return the text for the client: ASCII, without spaces."""

    def open(self, text: str) -> bytes:
        """Return what ``seal`` was given. Raises ValueError, with the reason for the operator, for any other text."""


class StateRejected(ValueError):
    """A request state is invalid. The message is for the operator; the client only learns that it is invalid."""


class HmacSealer:
    """Seals with HMAC-SHA256: only holders of the keys can make or alter a state, but **the client can read it**.

    ``keys`` are at least one, each of 32 bytes or more, and secret. The first one seals, all of them open: to change
    the key, put the new one first, and remove the old one when its states have expired.
    """

    __slots__ = ("_first", "_keys")

    conceals: bool = False
    """False: the client can read the content."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        ring = check_keys(keys)
        # A key of the program's may serve other purposes as well, so what signs is derived from it.
        self._keys = {key_id(key): _derived(key, b"seal") for key in ring}
        self._first = key_id(ring[0])

    def seal(self, payload: bytes) -> str:
        """Return ``v1.<key>.<payload>.<signature>``."""
        signed = f"v1.{self._first}.{encode64(payload)}"
        return f"{signed}.{self._signature(self._first, signed)}"

    def open(self, text: str) -> bytes:
        """Return the payload. Raises StateRejected."""
        signed, _, signature = text.rpartition(".")
        version, name, body = [*signed.split("."), "", ""][:3]
        if version != "v1" or name not in self._keys:
            raise StateRejected("it was sealed with an unknown key, or is not a state")
        # Compared as texts, so that no bit can change: the last digits of base64 have some that decode to nothing.
        if not hmac.compare_digest(self._signature(name, signed).encode(), signature.encode()):
            raise StateRejected("its signature is wrong")
        return decode64(body)

    def _signature(self, name: str, signed: str) -> str:
        return encode64(hmac.digest(self._keys[name], signed.encode(), "sha256"))


def check_keys(keys: Any) -> tuple[bytes, ...]:
    """Return the keys of a ring. Raises TypeError or ValueError for an empty ring, or a key under 32 bytes."""
    if isinstance(keys, bytes | str):
        raise TypeError("keys= takes a list of keys, not one key: [key]")
    ring = tuple(keys)
    if not ring:
        raise ValueError("keys= takes at least one key: secrets.token_bytes(32) makes one")
    for number, key in enumerate(ring):
        if not isinstance(key, bytes):
            raise TypeError(f"keys[{number}] is bytes, not {type(key).__name__}: bytes.fromhex reads a key from text")
        if len(key) < 32:
            raise ValueError(f"keys[{number}] has {len(key)} bytes, and a key has at least 32")
    return ring


def key_id(key: bytes) -> str:
    """Return the public name of a key: eight hexadecimal digits, which reveal nothing about the key."""
    return _derived(key, b"name").hex()[:8]


def _derived(key: bytes, purpose: bytes) -> bytes:
    """Return the key for one purpose (HKDF, RFC 5869, with an output of one block)."""
    extracted = hmac.digest(b"mcpio request state", key, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def encode64(data: bytes) -> str:
    """Return base64 for URLs, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode64(text: str) -> bytes:
    """Return what ``encode64`` was given."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class RequestStates:
    """How a server seals the state of a call between its rounds.

    ::

        server = Server("shop", states=RequestStates(keys=[bytes.fromhex(os.environ["STATE_KEY"])]))

    Without keys, one is drawn when it is first needed: then only this process can open its states, so calls with more
    than one round of questions fail after a restart, and behind a balancer.
    """

    ttl: float
    """How many seconds a state is valid: the time that a client and its user have for one round."""
    most: int
    """The length of the longest state that is sent, in characters."""

    def __init__(
        self,
        keys: Iterable[bytes] | None = None,
        *,
        ttl: float = 600.0,
        sealer: Sealer | None = None,
        most: int = 16 * 1024,
    ) -> None:
        """Configure the sealing.

        Args:
            keys: Secrets of 32 bytes or more, the same in all processes that serve one address. The first one seals,
                all of them open.
            ttl: How many seconds a state is valid. Processes may disagree about the time by a minute.
            sealer: Replaces the signature by something else, such as ``mcpio.seals.AeadSealer``, which encrypts.
            most: The length of the longest state, in characters. A longer one fails the call: keep the data in a store,
                and carry its key.

        Raises:
            TypeError: ``keys`` and ``sealer`` are both given, or a key is not bytes.
            ValueError: A key is shorter than 32 bytes, or ``ttl`` or ``most`` is not a positive number.

        """
        if keys is not None and sealer is not None:
            raise TypeError("give keys=, or a sealer= that has keys of its own, not both")
        if not is_amount(ttl) or ttl == 0:
            raise ValueError(f"ttl= takes a number of seconds, more than 0, not {ttl!r:.100}")
        if not is_count(most, 1):
            raise ValueError(f"most= takes a number of characters, more than 0, not {most!r:.100}")
        self.ttl = ttl
        self.most = most
        self._sealer: Sealer | None = HmacSealer(keys) if keys is not None else sealer
        self._is_shared = self._sealer is not None

    @property
    def is_shared(self) -> bool:
        """Whether other processes, and this one after a restart, can open the states: keys or a sealer were given."""
        return self._is_shared

    @property
    def conceals(self) -> bool:
        """Whether clients cannot read their states."""
        return self._sealer is not None and self._sealer.conceals

    def seal(
        self, carried: Mapping[str, Any], call: Mapping[str, Any], now: float, entropy: Callable[[int], bytes]
    ) -> str:
        """Return a state for a call (``call_of``) at a wall-clock time. Raises RequestError if it is too long."""
        if self._sealer is None:
            self._sealer = HmacSealer([entropy(32)])
        payload = {"exp": math.ceil(now + self.ttl), **call, **carried}
        text = self._sealer.seal(json.dumps(payload))
        if len(text) > self.most:
            message = f"The request state has {len(text):,} characters, and at most {self.most:,} are sent"
            advice = "keep the data in a store, and carry its key (RequestStates.most)"
            raise RequestError(ErrorCode.INTERNAL_ERROR, message, {"reason": "request_state_too_large", "hint": advice})
        return text

    def open(self, text: str, call: Mapping[str, Any] | Callable[[], Mapping[str, Any]], now: float) -> dict[str, Any]:
        """Return the state of this call. Raises StateRejected for a state of another call, or an altered one.

        A function for ``call`` is called once the seal was found right: a digest of many arguments takes time.
        """
        if len(text) > 4 * self.most:
            raise StateRejected(f"it has {len(text):,} characters, and at most {self.most:,} are sent")
        if self._sealer is None:
            raise StateRejected("this process has sealed none, and was given no keys (RequestStates(keys=[...]))")
        try:
            payload = json.loads(self._sealer.open(text))
        except ValueError as error:
            raise StateRejected(str(error)) from None
        expires = payload.pop("exp")
        if now > expires + _SKEW:
            raise StateRejected(f"it expired {now - expires:.0f} seconds ago")
        if expires > now + self.ttl + _SKEW:
            raise StateRejected("it is from the future: the clocks of two processes differ, or ttl= does")
        for member, expected in (call() if callable(call) else call).items():
            if payload.pop(member, None) != expected:
                raise StateRejected(f"it belongs to another {_FACTS[member]}")
        carried: dict[str, Any] = payload
        return carried


_SKEW: Final = 60.0
"""Seconds by which the clocks of two processes may differ."""

_FACTS: Final = {
    "v": "version of the format",
    "aud": "server",
    "m": "method",
    "t": "tool, prompt or resource",
    "a": "set of arguments",
    "p": "principal",
}
"""The members of ``call_of``, in the order in which they are compared."""


def call_of(event: RequestReceived, audience: str) -> dict[str, Any]:
    """Return the values that bind a state: server, method, target, arguments, and principal."""
    params = event.raw.get("params") or {}
    said = {name: value for name, value in params.items() if name not in _CHANGING}
    return {
        "v": 1,
        "aud": audience,
        "m": event.raw["method"],
        "t": params.get("name", params.get("uri")),
        "a": digest(canonical(said)),
        "p": digest(_principal_text(event.context.principal).encode()),
    }


_CHANGING: Final = frozenset(["_meta", "inputResponses", "requestState"])
"""The members of params that change from round to round (MRTR-06)."""


def canonical(value: Any) -> bytes:
    """Return JSON with sorted members, so that equal values have equal bytes."""
    return json.dumps_sorted(value)


def digest(data: bytes) -> str:
    """Return a digest of 128 bits as text."""
    return encode64(hashlib.sha256(data).digest()[:16])


def _principal_text(principal: Any) -> str:
    """Return the principal as text, the same in all processes."""
    # Of a grant only the identity counts: its scopes and claims change with each token.
    return repr(principal.key if isinstance(principal, Grant) else principal)


def invalid_request_state() -> RequestError:
    """Return the one answer to every state that is rejected: its cause would help only those who forge states."""
    return RequestError(ErrorCode.INVALID_PARAMS, "Invalid request state", {"reason": "invalid_request_state"})
