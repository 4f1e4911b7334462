"""Secret texts, hidden from logs, tracebacks and representations."""

from __future__ import annotations

import hmac
from typing import NoReturn, final

__all__ = ["Secret", "as_secret"]


@final
class Secret:
    """A secret text: a token, a password, a code verifier.

    `reveal` is the only way to the text: ``repr``, ``str`` and string formatting hide it, and pickling raises
    TypeError, so that a secret reaches a file or another process only where a program writes `reveal`. Two secrets
    are equal if their texts are; the comparison takes the same time wherever they differ. Raises TypeError for what is
    not a str.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            # Without the value: it is likely to be a secret.
            raise TypeError(f"a Secret takes a str, not {type(text).__name__}")
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # Bytes, because compare_digest takes only ASCII as text; a peer may have sent a lone surrogate.
        mine, theirs = (each.reveal().encode("utf-8", "surrogatepass") for each in (self, other))
        return hmac.compare_digest(mine, theirs)

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: pickle what reveal() returns, where that is meant")


def as_secret(value: str | Secret | None) -> Secret | None:
    """Return a text as a secret; a `Secret` or ``None`` unchanged."""
    return value if value is None or isinstance(value, Secret) else Secret(value)
