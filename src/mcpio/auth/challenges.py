"""``WWW-Authenticate`` challenges (RFC 9110 §11): parsing those of a server, and writing this library's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from mcpio.auth.scopes import parse_scopes

__all__ = ["Challenge", "bearer_challenge", "parse_challenges"]


@attrs.frozen
class Challenge:
    """One challenge: the credentials that a server accepts in ``Authorization``.

    A challenge has parameters or, in schemes such as ``Negotiate``, one token; never both.
    """

    scheme: str
    """The scheme as it was written; schemes compare without case."""
    params: Mapping[str, str] = attrs.field(factory=dict)
    """The parameters: names in lower case, values without quotation marks. Of two with one name, the first."""
    token68: str | None = None
    """The token of a challenge without parameters."""

    @property
    def is_oauth(self) -> bool:
        """Whether an OAuth access token answers the challenge: the scheme is ``Bearer`` or ``DPoP``."""
        return self.scheme.lower() in ("bearer", "dpop")

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the request needs (AUTH-32)."""
        return parse_scopes(self.params.get("scope", ""))

    def __str__(self) -> str:
        """Return the value of the header field. Raises ValueError for parts that a field cannot carry."""
        if _TOKEN.fullmatch(self.scheme) is None:
            raise ValueError(f"a scheme is a token, not {self.scheme!r:.60}")
        if self.token68 is not None:
            if _BASE64.fullmatch(self.token68) is None:
                raise ValueError(f"the token of a challenge is base64, not {self.token68!r:.60}")
            return f"{self.scheme} {self.token68}"
        return " ".join([self.scheme, ", ".join(_parameter(*each) for each in self.params.items())]).rstrip()


def bearer_challenge(scheme: str = "Bearer", **params: str | None) -> Challenge:
    """Return a challenge of a protected resource (RFC 6750 §3, RFC 9728 §5.1), without parameters that are ``None``."""
    return Challenge(scheme, {name: value for name, value in params.items() if value is not None})


def parse_challenges(fields: Iterable[str]) -> tuple[Challenge, ...]:
    """Return the challenges of all ``WWW-Authenticate`` fields of a response, in order (AUTH-11).

    Takes what RFC 9110 allows, and parameters that are separated by spaces alone, which some servers send. Never
    raises: a field that breaks off gives the challenges in front of the fault.
    """
    return tuple(challenge for field in fields for challenge in _challenges(field))


def _challenges(field: str) -> Iterator[Challenge]:
    place = _SEPARATOR.match(field).end()  # type: ignore[union-attr]  # it matches the empty text too
    while found := _SCHEME.match(field, place):
        scheme, place = found[0], found.end()
        params: dict[str, str] = {}
        # A parameter before a token: "a=b" is both, and only the whole rest up to a comma can be a token.
        if token := _TOKEN68.match(field, place):
            yield Challenge(scheme, token68=token["token"])
            place = token.end()
        else:
            while parameter := _PARAMETER.match(field, place):
                name, plain, text = parameter.group("name", "plain", "text")
                params.setdefault(name.lower(), _ESCAPED.sub(r"\1", text) if plain is None else plain)
                place = parameter.end()
            yield Challenge(scheme, params)
        separator = _SEPARATOR.match(field, place)
        place = separator.end() if separator else place


def _parameter(name: str, value: str) -> str:
    if _TOKEN.fullmatch(name) is None or _LINE.fullmatch(value) is None:
        raise ValueError(f"the parameter {name!r:.60} is not printable ASCII")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'


_LETTERS: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_TOKEN: Final = re.compile(_LETTERS)
_LINE: Final = re.compile(r"[ -~]*")
_SEPARATOR: Final = re.compile(r"[ \t,]*+")
# A name with "=" behind it is a parameter whose challenge broke off, and never a scheme.
_SCHEME: Final = re.compile(_LETTERS + r"(?=[ \t,]|$)(?![ \t]*+=)")
_BASE64: Final = re.compile(r"[A-Za-z0-9\-._~+/]++=*+")
_TOKEN68: Final = re.compile(rf"[ \t]++(?P<token>{_BASE64.pattern})[ \t]*+(?=,|$)(?![ \t]*=)")
# RFC 9110 has URLs in quotation marks, but some servers send them without.
_PARAMETER: Final = re.compile(
    rf'[ \t,]*+(?P<name>{_LETTERS})[ \t]*+=[ \t]*+(?:(?P<plain>[!#-+\--~]++)|"(?P<text>(?:[^"\\]|\\.)*+)")'
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
