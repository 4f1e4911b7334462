"""Foreign types: models of other libraries, and types that a program registers."""

from __future__ import annotations

from typing import Any, Protocol

from mcpio.app.schema.faults import Fault

__all__ = ["ForeignType", "foreign_for", "read_foreign", "register_type", "write_foreign"]


class ForeignType(Protocol):
    """Converts the values of some types: see ``register_type``."""

    def matches(self, kind: Any) -> bool:
        """Whether an annotation, or the class of a value, is one of these types."""

    def schema(self, kind: Any, *, output: bool) -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of values read, or with ``output`` written.

        It may contain ``$defs`` and refer to them as ``#/$defs/Name``.
        """

    def read(self, kind: Any, value: Any) -> Any:
        """Return the Python value for a JSON value. Raises ValueError with the reason if it does not fit."""

    def write(self, kind: Any, value: Any) -> Any:
        """Return the JSON value for a Python value. Raises ValueError with the reason if it does not fit."""


def register_type(foreign: ForeignType) -> None:
    """Register types that mcpio does not know, for use in annotations. The last one registered is asked first.

    It applies to all servers of the process. Register types before the functions that use them.
    """
    _registered.insert(0, foreign)


def foreign_for(kind: Any) -> ForeignType | None:
    """Return the converter of a foreign type, or ``None``."""
    return next((foreign for foreign in _registered if foreign.matches(kind)), None)


def read_foreign(foreign: ForeignType, kind: Any, value: Any) -> Any:
    """Read a value, turning its ValueError into a Fault."""
    try:
        return foreign.read(kind, value)
    except ValueError as error:
        raise Fault(str(error)) from error


def write_foreign(foreign: ForeignType, kind: Any, value: Any) -> Any:
    """Write a value, turning its ValueError into a Fault."""
    try:
        return foreign.write(kind, value)
    except ValueError as error:
        raise Fault(str(error)) from error


class _Models:
    """Classes with pydantic's methods, recognized by them, so that pydantic need not be installed."""

    def matches(self, kind: Any) -> bool:
        return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")

    def schema(self, kind: Any, *, output: bool) -> dict[str, Any]:
        found: dict[str, Any] = kind.model_json_schema(mode="serialization" if output else "validation")
        return found

    def read(self, kind: Any, value: Any) -> Any:
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise _first_of(error) from None

    def write(self, kind: Any, value: Any) -> Any:
        # A dict where a model is declared is validated like input.
        model = value if isinstance(value, kind) else self.read(kind, value)
        return model.model_dump(mode="json", by_alias=True)


def _first_of(error: ValueError) -> Fault:
    errors = getattr(error, "errors", None)
    found = errors() if callable(errors) else []
    if not found:
        return Fault(str(error))
    return Fault(found[0]["msg"], *reversed(found[0]["loc"]))


_registered: list[ForeignType] = [_Models()]
