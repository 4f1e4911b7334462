"""The questions that a handler may ask a client: forms and addresses, sampling, roots."""

from __future__ import annotations

import re
import typing
import warnings
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from enum import EnumMeta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

import attrs

from mcpio._checks import is_count, required
from mcpio.app.reporting import failed
from mcpio.app.rounds import canonical, digest
from mcpio.app.runtime import OneShot, is_awaitable
from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.constraints import check_format
from mcpio.app.schema.values import Fault, expected, plain, read_value, record_for
from mcpio.codec import codec
from mcpio.errors import (
    InvalidMessage,
    LocalProtocolError,
    NoBackChannel,
    Refusal,
    RequestError,
    escape_surrogates,
)
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.types._fields import Payload
from mcpio.types.asking import (
    BooleanSchema,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    ElicitValue,
    LegacyTitledEnumSchema,
    NumberSchema,
    SamplingMessage,
    StringSchema,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
    UnknownSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
)
from mcpio.types.features import CallToolRequest
from mcpio.web_address import WebAddress, web_address

if TYPE_CHECKING:
    from mcpio.app.context import Context
    from mcpio.app.contracts import AskOptions
    from mcpio.app.registry.tools import Tools
    from mcpio.revisions import Revision
    from mcpio.types.asking import (
        CreateMessageRequest,
        CreateMessageResult,
        ListRootsResult,
        ModelPreferences,
        PrimitiveSchema,
        Root,
    )

__all__ = ["WebAddress", "web_address"]


# ---------------------------------------------------------------------------------------------------------------- forms
# Forms from classes: the schema of the form, and its content as a value of the class.
# The schema comes from the same annotations as that of a tool (``mcpio.app.schema.builder``), and is restricted to what
# a form may contain (SCHEMA-08, ELIC-04 to ELIC-08).

T = TypeVar("T")

_ADVICE: Final = (
    "a form is flat, and its fields are texts, dates, numbers, booleans, and choices among texts (Literal, Enum, a "
    "list or a tuple of those); limits are ge, le, min_length, max_length and format"
)


class Form(Generic[T]):
    """The form of a class: an attrs class, a dataclass, a TypedDict or a NamedTuple.

    ``Context.elicit`` takes the class as well, and makes the form once. Make it beside the class to find mistakes when
    the program starts. Raises TypeError, with the field and the reason, if the class cannot be a form; warns about a
    field that seems to ask for a secret (ELIC-13).

    An Enum whose members have a ``title`` shows the titles, and yields the member. A field with a default, ``None``
    included, may be left empty.
    """

    __slots__ = ("_converter", "kind", "schema")

    kind: type[T]
    """The class."""
    schema: ElicitSchema
    """The form as 2025-11-25 expresses it. For an older client it is translated, or refused."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        builder = SchemaBuilder("the form")
        self._converter = builder.converter(kind)
        self.schema = _schema_of(kind, builder.complete(self._converter.schema))
        warn_of_secrets(self.schema, level=3)

    def read(self, content: Mapping[str, ElicitValue] | None) -> T:
        """Return a value of the class from a form's content. Raises InvalidMessage if it does not fit (ELIC-12)."""
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in (content or {}).items()
            if name in self.schema.properties
        }
        value: T = read_value(self._converter.convert, values, "content")
        return value


def form_of(kind: type[T]) -> Form[T]:
    """Return the form of a class, cached."""
    anything: Any = kind
    form: Form[T] = _made(anything)
    return form


def warn_of_secrets(form: ElicitSchema, *, level: int) -> None:
    """Warn of fields that seem to ask for secrets (ELIC-13). ``level`` is the ``stacklevel``."""
    if names := secrets_in(form):
        text = f"a form must not ask for secrets: {', '.join(names)}; send the user to a web address (elicit_url)"
        warnings.warn(text, stacklevel=level)


_made: Any = lru_cache(maxsize=256)(Form)


def _schema_of(kind: Any, schema: dict[str, Any]) -> ElicitSchema:
    """Return the form of a class's JSON Schema. Raises TypeError if a form cannot express it."""
    where = f"the form, {getattr(kind, '__name__', kind)}"
    if schema.get("type") != "object" or "properties" not in schema:
        raise TypeError(f"{where}: it has no fields; {_ADVICE}")
    titles = _titles_of(kind)
    required = schema.get("required", [])
    fields = {
        name: _field(part, titles.get(name, {}), optional=name not in required)
        for name, part in schema["properties"].items()
    }
    raw = {"type": "object", "properties": fields, "required": required}
    try:
        form = codec(REV_2025_11_25).decode(raw, ElicitSchema)
    except InvalidMessage as error:
        raise TypeError(f"{where}: {error.path}: {error.reason}; {_ADVICE}") from None
    for name, field in form.properties.items():
        if (fault := _too_much(field)) is not None:
            raise TypeError(f"{where}, member {name!r}: {fault}; {_ADVICE}")
    return form


def _too_much(field: Any) -> str | None:
    """Return the part of a field's type that a form cannot express, or ``None``."""
    if isinstance(field, UnknownSchema):
        kind = field.raw.get("type", "of several types")
        return "an object" if "$ref" in field.raw else f"a field that is {kind}"
    parts = [field, *(part for part in (getattr(field, "items", None),) if isinstance(part, Payload))]
    unknown = [name for part in parts for name in part.extra]
    return f"{', '.join(unknown)} cannot be said" if unknown else None


def _field(schema: Mapping[str, Any], titles: Mapping[str, str], *, optional: bool) -> dict[str, Any]:
    """Return the schema of one field as forms express it."""
    field = dict(schema)
    if optional:
        _without_null(field)
    if isinstance(items := field.get("items"), dict) and not items.keys().isdisjoint(("const", "enum")):
        field.pop("uniqueItems", None)  # each choice can be selected only once anyway
        field["items"] = _choices(items, titles, "anyOf")
    return _choices(field, titles, "oneOf")


def _without_null(field: dict[str, Any]) -> None:
    """Remove null from the values of an optional field, where null means that nothing was entered."""
    others = [part for part in field.get("anyOf", ()) if part.get("type") != "null"]
    if len(others) == 1:
        del field["anyOf"]
        for name, value in others[0].items():
            field.setdefault(name, value)
    elif None in (values := field.get("enum", ())):
        # Literal["a", None]: the schema has no type that fits all of them.
        field["enum"] = [value for value in values if value is not None]
        field["type"] = "string"
    if field.get("default", ()) is None:
        del field["default"]


def _choices(schema: Mapping[str, Any], titles: Mapping[str, str], keyword: str) -> dict[str, Any]:
    """Return a schema with its choices as forms express them, under ``keyword`` if they have titles."""
    field = dict(schema)
    if "const" in field:
        field["enum"] = [field.pop("const")]
    if titles and "enum" in field:
        field[keyword] = [{"const": value, "title": titles[value]} for value in field.pop("enum")]
        if keyword == "anyOf":
            del field["type"]
    return field


def _titles_of(kind: Any) -> dict[str, dict[str, str]]:
    """Return the titles of choices: by field, by value. Classes of other libraries have none."""
    record = record_for(typing.get_origin(kind) or kind, {})
    fields = () if record is None else record.fields
    return {field.name: _titles_in(field.annotation) for field in fields}


def _titles_in(annotation: Any) -> dict[str, str]:
    """Return the titles of the Enum in an annotation, if all of its members have one."""
    if isinstance(annotation, EnumMeta):
        members: list[Any] = list(annotation)
        # Every str has a method ``title``, so its type is checked.
        has_titles = all(isinstance(getattr(member, "title", None), str) for member in members)
        return {plain(member): member.title for member in members} if has_titles else {}
    for part in typing.get_args(annotation):
        if titles := _titles_in(part):
            return titles
    return {}


def secrets_in(form: ElicitSchema) -> list[str]:
    """Return the names of the fields that seem to ask for secrets (ELIC-13)."""
    return [name for name, field in form.properties.items() if _SECRET.search(_words(name)) or _hides(field)]


_SECRET: Final = re.compile(
    r"\b(?:passwords?|passwd|pwd|passphrase|passcode|pin|secrets?|token|credentials?|otp|cvv|cvc|iban|ssn"
    r"|(?:api|access|private|secret|signing) ?keys?|apikeys?|credit ?cards?|card ?number|security ?code"
    r"|account ?number|social ?security)\b"
)
"""Words that name credentials or means of payment."""


def _words(name: str) -> str:
    """Return a name in words: ``apiKey``, ``API_KEY`` and ``api-key`` are "api key"."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", " ", name)
    return apart.lower()


def _hides(field: PrimitiveSchema) -> bool:
    return isinstance(field, UnknownSchema) and field.raw.get("format") == "password"


# ---------------------------------------------------------------------------------------------------------- elicitation
# Elicitation: asking the client's user by a form or at a web address, and checking the answers.


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
    request: ElicitFormRequest | ElicitURLRequest, ask: Ask, elicitations: UrlElicitations | None, revision: Revision
) -> Coroutine[Any, Any, ElicitResult]:
    """Send a request of the author's own, and check the result against it (ELIC-12).

    Raises TypeError if it is not such a request, and ValueError if its address is not a web address (ELIC-14).
    """
    if isinstance(request, ElicitURLRequest):
        _check_address(request.url)
        return _await_visit(ask(request, _without_content), request.elicitation_id, elicitations)
    if not isinstance(request, ElicitFormRequest):
        raise TypeError(f"request must be a request, or a message with the class of its form, not {request!r:.100}")
    for name, field in request.requested_schema.properties.items():
        if isinstance(field, UnknownSchema):
            raise TypeError(f"the field {name!r:.100} is not one of the fields of a form (ELIC-04): {field.raw!r:.100}")

    warn_of_secrets(request.requested_schema, level=4)
    form = lowered(request.requested_schema, revision)
    return ask(attrs.evolve(request, requested_schema=form), partial(_filled_in, request))


def ask_by_form(
    message: str, kind: type[T] | Form[T], ask: Ask, revision: Revision
) -> Coroutine[Any, Any, ElicitAnswer[T]]:
    """Ask by the form of a class. Raises TypeError if the class cannot be a form."""
    if not isinstance(kind, Form | type):
        raise TypeError(f"form must be a class or a Form, not {kind!r:.100}")
    form = kind if isinstance(kind, Form) else form_of(kind)
    request = ElicitFormRequest(message, lowered(form.schema, revision))
    return ask(request, lambda result: answer_of(result, form.read))


def ask_by_url(
    message: str, url: str | Callable[[str], str], id: str, ask: Ask, elicitations: UrlElicitations | None
) -> Coroutine[Any, Any, ElicitAnswer[str]]:
    """Ask to visit a web address, or one made from the elicitation's id. Raises ValueError if it is not one."""
    address = required("url", url(id) if callable(url) else url, str)
    _check_address(address)
    question = ask(ElicitURLRequest(message, address, id), lambda result: answer_of(result, lambda _: id))
    return _await_visit(question, id, elicitations)


def _check_address(url: str) -> None:
    """Warn of an address that users should not be sent to (ELIC-19)."""
    if faults := lint_address(web_address(url)):
        warnings.warn(f"the web address {url!r:.100}: {', and '.join(faults)}", stacklevel=4)


def _filled_in(request: ElicitFormRequest, result: ElicitResult) -> ElicitResult:
    result = _without_stray_content(result)
    if result.action == "accept":
        check_content(request.requested_schema, result.content or {})
    return result


async def _await_visit(question: Coroutine[Any, Any, T], id: str | None, elicitations: UrlElicitations | None) -> T:
    # Recorded before it is sent: the user may be done there before their client answers.
    is_news = id is not None and elicitations is not None and elicitations.begin(id)
    try:
        return await question
    except (LocalProtocolError, NoBackChannel):
        if elicitations is not None and is_news:
            elicitations.withdraw(str(id))
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

    __slots__ = ("_elicitations",)

    def __init__(self) -> None:
        self._elicitations: dict[str, _Elicitation] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._elicitations

    def is_done(self, id: str) -> bool:
        """Whether it is complete. Raises KeyError for an unknown id."""
        return self._elicitations[id].is_done

    def begin(self, id: str) -> bool:
        """Record that the user was asked; return False if the id is known, which then stays as it is."""
        if id in self._elicitations:
            return False
        if len(self._elicitations) >= MOST_URL_ELICITATIONS:
            self._forget_one()
        self._elicitations[id] = _Elicitation()
        return True

    def withdraw(self, id: str) -> None:
        """Forget an elicitation that could not be sent."""
        self._elicitations.pop(id, None)

    def finish(self, id: str) -> bool:
        """Record that it is complete, and wake its waiters; return False if it was not pending (ELIC-16)."""
        each = self._elicitations.get(id)
        if each is None or each.is_done:
            return False
        each.is_done = True
        for waiter in each.waiters:
            waiter.set(None)
        return True

    async def wait_for(self, id: str, waiter: OneShot) -> None:
        """Wait until it is complete, or raise the error of ``fail_waiters``. Raises KeyError for an unknown id."""
        waiters = self._elicitations[id].waiters
        waiters[waiter] = None
        try:
            error = await waiter.wait()
        finally:
            waiters.pop(waiter, None)
        if error is not None:
            raise error

    def save(self) -> dict[str, bool]:
        """Return the known ids, oldest first, and whether each is complete."""
        return {id: each.is_done for id, each in self._elicitations.items()}

    def fail_waiters(self, error: Exception) -> None:
        """Wake all waiters with an error, since no report can come any more."""
        for each in self._elicitations.values():
            for waiter in each.waiters:
                waiter.set(error)

    def _forget_one(self) -> None:
        for id, each in self._elicitations.items():
            if not each.waiters:
                del self._elicitations[id]
                return


class _Elicitation:
    __slots__ = ("is_done", "waiters")

    def __init__(self) -> None:
        self.is_done = False
        self.waiters: dict[OneShot, None] = {}


def lint_address(address: WebAddress) -> list[str]:
    """Return the reasons not to send users to an address (ELIC-19)."""
    reasons = []
    if address.has_user_info:
        reasons.append("it carries credentials")
    if not address.is_https and not address.is_local:
        reasons.append("it is not https")
    credentials = [name for name, _ in parse_qsl(urlsplit(address.url).query) if name.lower() in _GIVES_ACCESS]
    if credentials:
        reasons.append(f"it seems to give access to anyone who has it ({', '.join(credentials)})")
    return reasons


_GIVES_ACCESS: Final = frozenset(
    ["access_token", "api_key", "apikey", "auth", "id_token", "password", "refresh_token", "secret", "session", "token"]
)


def fault_in_elicited(result: ElicitResult, request: Any) -> str | None:
    """Return the fault of an answer, or ``None``. Only an accepted form has content (ELIC-10)."""
    if result.content is not None and (result.action != "accept" or request.mode != "form"):
        return "content comes with the action accept of a form, and with nothing else"
    return None


# ------------------------------------------------------------------------------------------------------------- sampling
# Sampling: a model that works with tools, the choice of a model, and checks of its messages.

Remember: TypeAlias = Callable[[str, Callable[[], Any]], Awaitable[Any]]
"""Calls a function by a name, unless that was done in an earlier round, and returns its result."""


async def sample_with_tools(
    scope: Context,
    request: CreateMessageRequest,
    tools: Tools,
    rounds: int,
    options: AskOptions,
    remember: Remember | None = None,
) -> CreateMessageResult:
    """Return the model's final message. See ``Context.sample_with_tools``.

    ``remember`` is ``Context.once``, for a handler that is run again with the answers: its tools are not.
    """
    if not is_count(rounds, 1):
        raise ValueError(
            f"rounds must be an integer of 1 or more, since a model gets one round with its tools, not {rounds!r:.60}"
        )
    request = attrs.evolve(request, tools=tuple(tools.page(None, None).items))
    key = options.get("key")
    requests_sent = 0
    while True:
        if requests_sent == rounds:
            request = attrs.evolve(request, tool_choice=ToolChoice("none"))
        if key is not None:
            options["key"] = f"{key}.{requests_sent}"
        result = await scope.sample(request, **options)
        uses = [block for block in result.blocks if isinstance(block, ToolUseContent)]
        if not uses:
            return result
        call = partial(_use_tool, scope, tools)
        if remember is not None:
            call = partial(_use_tool_once, remember, call, _name_of(request, result))
        results = tuple([await call(use) for use in uses])
        turn = (SamplingMessage("assistant", result.content), SamplingMessage("user", results))
        # A tool choice of "required" applies to the first request only; repeating it would force a tool call each
        # round.
        request = attrs.evolve(request, messages=(*request.messages, *turn), tool_choice=None)
        requests_sent += 1


async def _use_tool(scope: Context, tools: Tools, use: ToolUseContent) -> ToolResultContent:
    """Call a tool for the model. A failure becomes a result that tells the model."""
    try:
        result = tools.call(scope, CallToolRequest(use.name, use.input))
        if is_awaitable(result):
            result = await result
    except (RequestError, Refusal) as error:
        result = failed(escape_surrogates(error.message))
    given_members = ("structured_content",) if result.has_structured_content else ()
    return ToolResultContent(
        use.id, result.content, result.structured_content, is_error=result.is_error, given=given_members
    )


async def _use_tool_once(
    remember: Remember, call: Callable[[ToolUseContent], Awaitable[ToolResultContent]], name: str, use: ToolUseContent
) -> ToolResultContent:
    """Call a tool for the model in the first pass that comes here, and return the same result in later ones."""
    own = codec(REV_2026_07_28)

    async def called() -> dict[str, Any]:
        return own.encode(await call(use))

    return own.decode(await remember(f"{name}.{use.id}", called), ToolResultContent)


def _name_of(request: CreateMessageRequest, result: CreateMessageResult) -> str:
    """Return an id for a tool use that is unique in a conversation, since models may reuse ids in each message."""
    own = codec(REV_2026_07_28)
    return digest(canonical([own.encode(request), own.encode(result)]))


def choose_model(preferences: ModelPreferences | None, names: Iterable[str]) -> str | None:
    """Return the first model that matches a hint, by the order of the hints, or ``None`` if none does (SAMP-18).

    ``names`` are the client's models, preferred ones first; the comparison ignores case, and a hint matches as a part
    of a name. If none matches, the priorities or the client decide: hints are advice.
    """
    available = list(names)
    for hint in () if preferences is None else preferences.hints:
        if hint.name:
            part = hint.name.casefold()
            for name in available:
                if part in name.casefold():
                    return name
    return None


def fault_in_sampled(result: CreateMessageResult, request: CreateMessageRequest) -> str | None:
    """Return the fault of a model's message, or ``None``. Tools must be used as ``tool_choice`` says (SAMP-08)."""
    mode = (request.tool_choice.mode if request.tool_choice is not None else None) or "auto"
    uses = any(isinstance(block, ToolUseContent) for block in result.blocks)
    if any(isinstance(block, ToolResultContent) for block in result.blocks):
        return "a model has no tool results to give"
    if uses and (mode == "none" or not request.tools):
        return "the model uses a tool where it may use none"
    if mode == "required" and not uses and result.stop_reason != "maxTokens":
        return "the model uses no tool where it must"
    return None


# ---------------------------------------------------------------------------------------------------------------- roots
# The client's roots, as its server caches them and compares paths with them.
# The file system is not used: paths are compared as text. Resolve symbolic links first, and open the path that was
# compared (ROOT-05).


def root_of(target: str, roots: Iterable[Root]) -> Root | None:
    """Return the root that contains a ``file://`` URI or an absolute path, the innermost of several; else ``None``.

    Percent-encoding is decoded, and ``.`` and ``..`` are resolved, as text. No root contains a relative path, a URI of
    another scheme, one with a query, or one that encodes ``/`` or NUL. Paths with a drive letter are compared without
    regard to case.
    """
    target_parts = _path_names(target) or ()
    best: Root | None = None
    depth = 0
    for root in roots:
        parts = (_path_names(root.uri) if root.uri.startswith(_SCHEME) else None) or ()
        if len(parts) > depth and target_parts[: len(parts)] == parts:
            best, depth = root, len(parts)
    return best


class RootList:
    """The cached roots of a client that reports changes."""

    __slots__ = ("_roots", "_version")

    def __init__(self) -> None:
        self._roots: tuple[Root, ...] | None = None
        self._version = 0

    @property
    def current(self) -> tuple[Root, ...] | None:
        """The cached roots; ``None`` if the client has to be asked."""
        return self._roots

    def forget(self) -> None:
        """Drop the cache, since the roots changed."""
        self._roots = None
        self._version += 1

    async def fill(self, answer: Awaitable[ListRootsResult]) -> tuple[Root, ...]:
        """Await the client's answer, and cache it unless a change came in between."""
        version = self._version
        roots = (await answer).roots
        if version == self._version:
            self._roots = roots
        return roots


_SCHEME: Final = "file://"
_DRIVE: Final = re.compile(r"/?([A-Za-z]):(?=[/\\]|$)")


def _path_names(target: str) -> tuple[str, ...] | None:
    """Return the host or drive of a path or URI, then the names on the way; ``None`` if it is not absolute."""
    host, path = "", target
    if target.startswith(_SCHEME):
        try:
            host, path = _parts(target)
        except ValueError:
            return None
    if "\0" in path:
        return None
    drive = _DRIVE.match(path)
    if drive is not None:
        path = path[drive.end() :].replace("\\", "/").lower()
        start = drive[1].lower() + ":"
    elif path.startswith("/") or host:
        start = "" if host == "localhost" else host
    else:
        return None
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return start, *names


def _parts(uri: str) -> tuple[str, str]:
    """Return the host and path of a URI. Raises ValueError if two programs might read it differently."""
    parts = urlsplit(uri)
    if _AMBIGUOUS.search(uri) or parts.query or parts.fragment:
        raise ValueError("not one path")
    return parts.hostname or "", unquote_to_bytes(parts.path).decode()


# Encoded separators and NUL, and characters that some URL parsers drop or cut at.
_AMBIGUOUS: Final = re.compile(r"%(?:2[fF]|5[cC]|00)|[\x00-\x1f\x7f]")
