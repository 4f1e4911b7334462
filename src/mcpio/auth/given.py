"""Credentials that the program has already: tokens from elsewhere, and API keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import attrs

from mcpio.auth.challenges import Challenge
from mcpio.auth.credentials import Credentials
from mcpio.auth.effects import Flow, FlowContext, NeedAssertion
from mcpio.auth.errors import AuthorizationError
from mcpio.auth.options import AuthorizationOptions
from mcpio.auth.secret import Secret, as_secret
from mcpio.auth.tokens import TokenSet

__all__ = ["ApiKey", "AssertionSource", "BearerToken"]

AssertionSource = str | Secret | Callable[[NeedAssertion], object] | None
"""A JWT or token, or a function that returns one or can be awaited for it. It is called each time one is needed."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@attrs.frozen
class BearerToken(AuthorizationOptions):
    """A token from elsewhere, such as a vault or another login.

    ``assertion`` is the token, or a function that is called for it: at the first call, and after a 401.
    """

    assertion: str | Secret | Callable[[NeedAssertion], object] = attrs.field(repr=False, kw_only=False)
    """The token, or what to call for one."""

    @assertion.validator
    def _check_assertion(self, _: object, value: object) -> None:
        if not isinstance(value, str | Secret) and not callable(value):
            raise TypeError(f"BearerToken takes a token or a function, not a {type(value).__name__}")

    def obtain(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[Credentials]:
        """Ask the driver for the token and return ``credentials`` with it."""
        found: Secret = yield NeedAssertion(kind="access_token", audience=context.server_url)
        text = found.reveal()
        if not (text and text.isascii() and text.isprintable()) or " " in text:
            raise AuthorizationError("the token that was given cannot stand in a header field")
        token = TokenSet(found, "", context.server_url, "", context.now)
        return attrs.evolve(credentials or Credentials(), token=token)


@attrs.frozen
class ApiKey:
    """A key in a header field of every request. Raises ValueError for a key that is not a valid field value."""

    header: str
    """The name of the field, such as ``"x-api-key"``."""
    key: Secret = attrs.field(converter=as_secret)
    """The key."""

    def __attrs_post_init__(self) -> None:
        text = self.key.reveal()
        if _NAME.fullmatch(self.header) is None:
            raise ValueError(f"ApiKey: {self.header!r:.60} is not a valid header name")
        if not (text and text.isascii() and text.isprintable()) or text != text.strip():
            raise ValueError("ApiKey: the key must be printable ASCII without surrounding space")
