"""Elicitation: asking the client's user by a form or at a web address, and checking the answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

import attrs

from mcpio._checks import required
from mcpio.app.runtime import OneShot
from mcpio.app.schema.constraints import check_format
from mcpio.app.schema.faults import Fault, expected
from mcpio.errors import LocalProtocolError, NoBackChannel
from mcpio.revisions import REV_2025_11_25
from mcpio.types.elicitation import (
    BooleanSchema,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    LegacyTitledEnumSchema,
    NumberSchema,
    StringSchema,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UnknownSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
)
from mcpio.web_address import WebAddress, web_address

if TYPE_CHECKING:
    from mcpio.app.forms import Form
    from mcpio.revisions import Revision
    from mcpio.types.elicitation import ElicitResult, ElicitValue, PrimitiveSchema

__all__ = [
    "MOST_URL_ELICITATIONS",
    "Accepted",
    "Cancelled",
    "Declined",
    "ElicitAnswer",
    "UrlElicitations",
    "WebAddress",
    "answer_of",
    "ask_by_form",
    "ask_by_url",
    "ask_user",
    "check_content",
    "defaults_of",
    "fault_in_elicited",
    "lint_address",
    "lowered",
    "web_address",
]


T = TypeVar("T")


@attrs.frozen
class Accepted(Generic[T]):
    """The user agreed. ``value`` is the form as they filled it in.

    After ``Context.elicit_url`` it is the elicitation's id: they agreed to go there, and are not done yet (ELIC-15).
    """

    action: ClassVar[Literal["accept"]] = "accept"

    value: T


@attrs.frozen
class Declined:
    """The user refused: continue without, or offer an alternative."""

    action: ClassVar[Literal["decline"]] = "decline"


@attrs.frozen
class Cancelled:
    """The user closed the question without an answer. They may be asked again later."""

    action: ClassVar[Literal["cancel"]] = "cancel"


ElicitAnswer: TypeAlias = Accepted[T] | Declined | Cancelled
"""Match on the class, or compare ``action``."""


def answer_of(result: ElicitResult, read: Callable[[Any], T]) -> ElicitAnswer[T]:
    """Return the answer in a result; ``read`` makes the value from its content."""
    if result.action == "accept":
        return Accepted(read(result.content))
    return Declined() if result.action == "decline" else Cancelled()


Ask = Callable[[Any, Callable[[Any], Any]], Coroutine[Any, Any, Any]]
"""Asks the client, and returns a function's conversion of the result. The function raises InvalidMessage if the result
does not fit."""


def ask_user(
    request: ElicitFormRequest | ElicitURLRequest, ask: Ask, known: UrlElicitations | None, revision: Revision
) -> Coroutine[Any, Any, ElicitResult]:
    """Send a request of the author's own, and check the result against it (ELIC-12).

    Raises TypeError if it is not such a request, and ValueError if its address is not a web address (ELIC-14).
    """
    if isinstance(request, ElicitURLRequest):
        _check_address(request.url)
        return _visited(ask(request, _without_content), request.elicitation_id, known)
    if not isinstance(request, ElicitFormRequest):
        raise TypeError(f"give a request, or a message and the class of the form, not {request!r:.100}")
    for name, field in request.requested_schema.properties.items():
        if isinstance(field, UnknownSchema):
            raise TypeError(f"the field {name!r:.100} is not one of the fields of a form (ELIC-04): {field.raw!r:.100}")
    from mcpio.app.forms import warn_of_secrets

    warn_of_secrets(request.requested_schema, level=4)
    form = lowered(request.requested_schema, revision)
    return ask(attrs.evolve(request, requested_schema=form), partial(_filled_in, request))


def ask_by_form(
    message: str, kind: type[T] | Form[T], ask: Ask, revision: Revision
) -> Coroutine[Any, Any, ElicitAnswer[T]]:
    """Ask by the form of a class. Raises TypeError if the class cannot be a form."""
    from mcpio.app.forms import Form, form_of

    if not isinstance(kind, Form | type):
        raise TypeError(f"form= takes a class or a Form, not {kind!r:.100}")
    form = kind if isinstance(kind, Form) else form_of(kind)
    request = ElicitFormRequest(message, lowered(form.schema, revision))
    return ask(request, lambda result: answer_of(result, form.read))


def ask_by_url(
    message: str, url: str | Callable[[str], str], id: str, ask: Ask, known: UrlElicitations | None
) -> Coroutine[Any, Any, ElicitAnswer[str]]:
    """Ask to visit a web address, or one made from the elicitation's id. Raises ValueError if it is not one."""
    address = required("url", url(id) if callable(url) else url, str)
    _check_address(address)
    asked = ask(ElicitURLRequest(message, address, id), lambda result: answer_of(result, lambda _: id))
    return _visited(asked, id, known)


def _check_address(url: str) -> None:
    """Warn of an address that users should not be sent to (ELIC-19)."""
    if faults := lint_address(web_address(url)):
        warnings.warn(f"the web address {url!r:.100}: {', and '.join(faults)}", stacklevel=4)


def _filled_in(request: ElicitFormRequest, result: ElicitResult) -> ElicitResult:
    result = _without_stray_content(result)
    if result.action == "accept":
        check_content(request.requested_schema, result.content or {})
    return result


async def _visited(asked: Coroutine[Any, Any, T], id: str | None, known: UrlElicitations | None) -> T:
    # Recorded before it is sent: the user may be done there before their client answers.
    is_news = id is not None and known is not None and known.begin(id)
    try:
        return await asked
    except (LocalProtocolError, NoBackChannel):
        if known is not None and is_news:
            known.withdraw(str(id))
        raise


def _without_content(result: ElicitResult) -> ElicitResult:
    return attrs.evolve(result, content=None)


def _without_stray_content(result: ElicitResult) -> ElicitResult:
    """Drop content that came with a refusal: the user did not agree to send it (ELIC-10)."""
    return result if result.action == "accept" or result.content is None else attrs.evolve(result, content=None)


def defaults_of(form: ElicitSchema) -> dict[str, ElicitValue]:
    """Return the initial values of a form's fields, by name (ELIC-09)."""
    defaults = {}
    for name, field in form.properties.items():
        default = field.raw.get("default") if isinstance(field, UnknownSchema) else field.default
        if default is not None:
            defaults[name] = default
    return defaults


def check_content(form: ElicitSchema, content: Mapping[str, Any]) -> None:
    """Check content against a form. Raises InvalidMessage with the field and the reason.

    Members that are not fields of the form are ignored.
    """
    missing = [name for name in form.required if name not in content]
    if missing:
        raise Fault(f"missing: {', '.join(missing)}").as_invalid("content")
    for name, field in form.properties.items():
        if name in content:
            try:
                _check(field, content[name])
            except Fault as fault:
                fault.steps.append(name)
                raise fault.as_invalid("content") from None


def lowered(form: ElicitSchema, revision: Revision) -> ElicitSchema:
    """Return a form as a revision can express it: 2025-06-18 has titles of choices in its own way."""
    if revision >= REV_2025_11_25:
        return form
    fields = {name: _lowered(field) for name, field in form.properties.items()}
    return attrs.evolve(form, properties=fields)


def _check(field: PrimitiveSchema, value: Any) -> None:
    match field:
        case StringSchema():
            _check_text(field, value)
        case NumberSchema():
            _check_number(field, value)
        case BooleanSchema():
            if not isinstance(value, bool):
                raise expected("true or false", value)
        case UntitledSingleSelectEnumSchema() | LegacyTitledEnumSchema():
            _check_choice(field.enum, value)
        case TitledSingleSelectEnumSchema():
            _check_choice([choice.const for choice in field.one_of], value)
        case UntitledMultiSelectEnumSchema():
            _check_choices(field, field.items.enum, value)
        case TitledMultiSelectEnumSchema():
            _check_choices(field, [choice.const for choice in field.items.any_of], value)
        case _:
            pass  # a field of an unknown kind may hold anything


def _check_text(field: StringSchema, value: Any) -> None:
    if not isinstance(value, str):
        raise expected("a string", value)
    _check_count(len(value), field.min_length, field.max_length, "characters")
    if field.format is not None:
        check_format(field.format, value)


def _check_number(field: NumberSchema, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected("a number", value)
    if field.type == "integer" and isinstance(value, float) and not value.is_integer():
        raise expected("an integer", value)
    if field.minimum is not None and value < field.minimum:
        raise expected(f"a value at least {field.minimum}", value)
    if field.maximum is not None and value > field.maximum:
        raise expected(f"a value at most {field.maximum}", value)


def _check_choice(choices: Collection[str], value: Any) -> None:
    if value not in choices:
        raise expected("one of " + ", ".join(choices), value)


def _check_choices(
    field: UntitledMultiSelectEnumSchema | TitledMultiSelectEnumSchema, choices: Collection[str], value: Any
) -> None:
    if not isinstance(value, tuple | list):
        raise expected("an array", value)
    _check_count(len(value), field.min_items, field.max_items, "items")
    for index, item in enumerate(value):
        try:
            _check_choice(choices, item)
        except Fault as fault:
            fault.steps.append(index)
            raise


def _check_count(count: int, least: int | None, most: int | None, unit: str) -> None:
    if least is not None and count < least:
        raise Fault(f"expected at least {least} {unit}, got {count}")
    if most is not None and count > most:
        raise Fault(f"expected at most {most} {unit}, got {count}")


def _lowered(field: PrimitiveSchema) -> PrimitiveSchema:
    if not isinstance(field, TitledSingleSelectEnumSchema):
        return field
    return LegacyTitledEnumSchema(
        tuple(choice.const for choice in field.one_of),
        tuple(choice.title for choice in field.one_of),
        title=field.title,
        description=field.description,
        extra=field.extra,
    )


MOST_URL_ELICITATIONS: Final = 1024
"""How many elicitations by web address a session remembers. Beyond, the oldest without a waiter is forgotten (P6)."""


class UrlElicitations:
    """Elicitations at web addresses by id, each pending or complete."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, _Elicitation] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._known

    def is_done(self, id: str) -> bool:
        """Whether it is complete. Raises KeyError for an unknown id."""
        return self._known[id].is_done

    def begin(self, id: str) -> bool:
        """Record that the user was asked; return False if the id is known, which then stays as it is."""
        if id in self._known:
            return False
        if len(self._known) >= MOST_URL_ELICITATIONS:
            self._forget_one()
        self._known[id] = _Elicitation()
        return True

    def withdraw(self, id: str) -> None:
        """Forget an elicitation that could not be sent."""
        self._known.pop(id, None)

    def finish(self, id: str) -> bool:
        """Record that it is complete, and wake its waiters; return False if it was not pending (ELIC-16)."""
        each = self._known.get(id)
        if each is None or each.is_done:
            return False
        each.is_done = True
        for waiter in each.waiters:
            waiter.set(None)
        return True

    async def wait_for(self, id: str, waiter: OneShot) -> None:
        """Wait until it is complete, or raise the error of ``fail_waiters``. Raises KeyError for an unknown id."""
        waiters = self._known[id].waiters
        waiters[waiter] = None
        try:
            error = await waiter.wait()
        finally:
            waiters.pop(waiter, None)
        if error is not None:
            raise error

    def save(self) -> dict[str, bool]:
        """Return the known ids, oldest first, and whether each is complete."""
        return {id: each.is_done for id, each in self._known.items()}

    def fail_waiters(self, error: Exception) -> None:
        """Wake all waiters with an error, since no report can come any more."""
        for each in self._known.values():
            for waiter in each.waiters:
                waiter.set(error)

    def _forget_one(self) -> None:
        for id, each in self._known.items():
            if not each.waiters:
                del self._known[id]
                return


class _Elicitation:
    __slots__ = ("is_done", "waiters")

    def __init__(self) -> None:
        self.is_done = False
        self.waiters: dict[OneShot, None] = {}


def lint_address(address: WebAddress) -> list[str]:
    """Return the reasons not to send users to an address (ELIC-19)."""
    found = []
    if address.has_user_info:
        found.append("it carries credentials")
    if not address.is_https and not address.is_local:
        found.append("it is not https")
    given = [name for name, _ in parse_qsl(urlsplit(address.url).query) if name.lower() in _GIVES_ACCESS]
    if given:
        found.append(f"it seems to give access to anyone who has it ({', '.join(given)})")
    return found


_GIVES_ACCESS: Final = frozenset(
    ["access_token", "api_key", "apikey", "auth", "id_token", "password", "refresh_token", "secret", "session", "token"]
)


def fault_in_elicited(result: ElicitResult, request: Any) -> str | None:
    """Return the fault of an answer, or ``None``. Only an accepted form has content (ELIC-10)."""
    if result.content is not None and (result.action != "accept" or request.mode != "form"):
        return "content comes with the action accept of a form, and with nothing else"
    return None
