"""Failures of authorization on the client's side."""

from __future__ import annotations

from collections.abc import Iterable

from mcpio._printable import printable
from mcpio.errors import AuthorizationRequired

__all__ = ["AuthorizationError", "EffectFailed", "FlowAbandoned", "quoted"]


class AuthorizationError(AuthorizationRequired):
    """Authorization was tried and failed.

    ``code`` is the OAuth error code where the authorization server gave one (``"access_denied"``), else ``None``.
    ``option`` names the option that lets the same attempt pass, else ``None``. ``url`` is where a person can go on,
    where the flow needs one and interaction is not allowed.
    ``temporary`` tells whether the same attempt may succeed later with nothing changed: the network failed, or a server
    was busy. No text of it shows a secret.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        option: str | None = None,
        url: str | None = None,
        temporary: bool = False,
        status: int = 401,
        challenges: Iterable[str] = (),
    ) -> None:
        hint = f"; the option {option} lets it pass" if option else ""
        super().__init__(message + hint, status=status, challenges=challenges)
        self.code = code
        self.option = option
        self.url = url
        self.temporary = temporary


class EffectFailed(AuthorizationError):
    """An effect failed: no answer came, or the store raised. ``temporary`` is true."""

    def __init__(self, message: str) -> None:
        super().__init__(message, temporary=True)


class FlowAbandoned(EffectFailed):
    """Nothing is done for a flow any more. It may yield effects without an answer, to clean up."""

    def __init__(self) -> None:
        super().__init__("it was cancelled")


def quoted(text: str, limit: int = 200) -> str:
    """Return a peer's text in quotation marks, cut to ``limit`` characters, with invisible characters escaped."""
    return repr(printable(text[:limit]).replace("\n", " ").replace("\t", " "))
