"""Signatures of handlers: parameters, what is injected into them, and how arguments are bound."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.values import NO_DEFAULT, Fault, Field, evaluate, expected, parse_docstring, read_value

if TYPE_CHECKING:
    from mcpio.app.schema.builder import Converter


# -------------------------------------------------------------------------------------------------------------- depends
# Marks parameters that a function fills in: ``Annotated[Session, Depends(open_session)]``.


class Dependency:
    """The function that gives a parameter its value."""

    __slots__ = ("function",)

    function: Callable[..., Any]
    """The function that makes the value."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"Depends({getattr(self.function, '__qualname__', self.function)})"


def Depends(function: Callable[..., Any]) -> Any:  # noqa: N802  the name that other frameworks have for it
    """Name the function that gives a parameter its value: ``Annotated[Session, Depends(open_session)]``.

    It may also stand as the default: ``session: Session = Depends(open_session)``. The function is plain or async, or
    yields the value once and cleans up afterwards. Its own parameters are a ``Context`` and other dependencies. It is
    called once for a request, whoever depends on it; clients do not see it. Raises TypeError if it cannot be called.
    """
    if not callable(function):
        raise TypeError(f"Depends() must get a function, not its result: Depends(make), not {function!r:.100}")
    return Dependency(function)


# ------------------------------------------------------------------------------------------------------------ signature
# Signatures of functions: the schema of their arguments, and JSON arguments bound to their parameters.

_PLAIN: Final = (str, int, float, bool)
"""The types of defaults that are checked. ``None`` and objects of other types often stand for a value left out."""
_CONTEXT_NAMES: Final = ("ctx", "context")
_NONE: Final[Mapping[str, Callable[..., Any]]] = types.MappingProxyType({})


class Parameter:
    """A parameter that callers see, with its description and JSON Schema.

    ``description`` is ``None`` if there is none. The schema may refer to definitions of the ``Binder``'s schema.
    """

    __slots__ = ("description", "name", "required", "schema")

    def __init__(self, name: str, schema: dict[str, Any], *, required: bool) -> None:
        self.name: str = name
        self.schema: dict[str, Any] = schema
        self.required: bool = required
        self.description: str | None = schema.get("description")


class Binder:
    """The signature of a function, and arguments bound to it.

    ``context`` is the class of the parameter that callers do not see; ``context_parameter`` is its name, or ``None``,
    for the caller of the function to fill in. So are the parameters in ``dependencies``, each with the function that
    gives its value. ``namespace`` adds names for annotations that are strings, such as local classes.

    ``input_schema`` is the JSON Schema of the arguments (TOOL-05), ``parameters`` are the same one by one,
    ``description`` is the docstring before its first section, ``summary`` its first paragraph, and
    ``return_annotation`` the type of the result (``Any`` without one). Raises TypeError, with the function, the
    parameter and advice, if the function cannot be called with named JSON values.
    """

    __slots__ = (
        "_defaults",
        "_members",
        "context_parameter",
        "dependencies",
        "description",
        "input_schema",
        "name",
        "parameters",
        "return_annotation",
        "summary",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        context: type | None = None,
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        self.name: str = name_of(function)
        source = _Source(function, self.name, namespace or {})
        documented = parse_docstring(source.documentation)
        self.summary: str | None = documented.summary
        self.description: str | None = documented.description
        self.context_parameter: str | None = None
        self.dependencies: Mapping[str, Callable[..., Any]] = _NONE
        self._defaults: Mapping[str, Callable[[], Any]] = _NONE
        fields = []
        extra: Any = NO_DEFAULT
        for parameter in source.parameters():
            if context is not None and source.is_context(parameter.annotation, context):
                self._take_context(parameter.name)
            elif (depends := source.dependency(parameter)) is not None:
                self.dependencies = {**self.dependencies, parameter.name: depends}
            elif parameter.kind is parameter.VAR_KEYWORD:
                extra = source.annotation(parameter)
            else:
                field = Field(
                    parameter.name,
                    source.annotation(parameter),
                    required=parameter.default is NO_DEFAULT,
                    default=parameter.default,
                )
                field.description = documented.parameters.get(parameter.name)
                if _is_pydantic_field(parameter.default):
                    self._take_pydantic_field(field)
                fields.append(field)
        # One builder for all parameters: types that several of them name stand once in the schema, under ``$defs``.
        builder = SchemaBuilder(f"{self.name}()", namespace=namespace)
        schema, self._members = builder.members(fields, noun="argument", extra=extra)
        # Defaults are checked by the converters of the members, so only now.
        for field in fields:
            self._check_default(field)
        self.input_schema: dict[str, Any] = builder.complete(schema)
        properties = self.input_schema.get("properties", {})
        self.parameters: tuple[Parameter, ...] = tuple(
            Parameter(field.name, properties[field.name], required=field.required) for field in fields
        )
        self.return_annotation: Any = source.return_annotation()

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for the function, converted from JSON to the annotated types.

        Conversion is strict: no value is converted from another type, but an integer is a number and ``1.0`` is an
        integer. Omitted parameters keep their defaults. Raises InvalidMessage for unknown, missing and invalid
        arguments; its path starts with ``arguments`` (``arguments.items[0].size``).
        """
        bound = read_value(self._members.convert, arguments, "arguments")
        return self._with_defaults(bound) if self._defaults else bound

    def bind_text(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Bind arguments that came as text: those of prompts, and variables of a URI (PROM-03).

        A text that the parameter does not accept is parsed as JSON: ``"5"`` fits an ``int``, ``"[1, 2]"`` a
        ``list[int]``, and so do the texts of ``{name*}`` one by one. Otherwise as ``bind``.
        """
        bound = read_value(self._from_texts, arguments, "arguments")
        return self._with_defaults(bound) if self._defaults else bound

    def _from_texts(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        get = self._members.converters.get
        return self._members.convert({name: _from_text(get(name), name, value) for name, value in arguments.items()})

    def _take_pydantic_field(self, field: Field) -> None:
        """Read a parameter whose default is a pydantic ``Field``: what it says of the type, and its own default."""
        pydantic_field = field.default
        field.annotation = typing.Annotated[Any if field.annotation is NO_DEFAULT else field.annotation, pydantic_field]
        field.required = pydantic_field.is_required()
        field.default = (
            NO_DEFAULT if field.required or pydantic_field.default_factory is not None else pydantic_field.default
        )
        if not field.required:
            default = functools.partial(pydantic_field.get_default, call_default_factory=True)
            self._defaults = {**self._defaults, field.name: default}

    def _with_defaults(self, bound: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with defaults for the omitted ones, where the function's own default is a ``Field``."""
        return {name: default() for name, default in self._defaults.items() if name not in bound} | bound

    def _check_default(self, field: Field) -> None:
        """Raise TypeError for a default that the function would never get from a caller, such as ``x: int = "z"``."""
        kind, converter = type(field.default), self._members.converters.get(field.name)
        kinds = None if converter is None else converter.kinds
        if kind in _PLAIN and converter is not None and kinds is not None and kind not in kinds:
            raise TypeError(
                f"{self.name}(), parameter {field.name!r}: default must be {converter.name}, not {field.default!r:.60}"
            )

    def _take_context(self, name: str) -> None:
        if self.context_parameter is not None:
            raise TypeError(
                f"{self.name}(): both {self.context_parameter!r} and {name!r} ask for the context; keep one"
            )
        self.context_parameter = name


def injected_parameters(
    function: Callable[..., Any], context: type
) -> tuple[str | None, Mapping[str, Callable[..., Any]]]:
    """Return the parameter of a dependency's function that takes the context, and its own dependencies.

    Raises TypeError if another parameter has no default: nothing could be given for it.
    """
    name = name_of(function)
    source = _Source(function, name, {})
    context_parameter: str | None = None
    dependencies: dict[str, Callable[..., Any]] = {}
    for parameter in source.parameters():
        if source.is_context(parameter.annotation, context):
            context_parameter = parameter.name
        elif (depends := source.dependency(parameter)) is not None:
            dependencies[parameter.name] = depends
        elif not source.can_omit(parameter):
            raise TypeError(
                f"{name}(), parameter {parameter.name!r}: a dependency takes a Context and other dependencies, "
                f"Annotated[<type>, Depends(<function>)]; give any other parameter a default"
            )
    return context_parameter, dependencies


def _from_text(converter: Converter | None, name: str, value: Any) -> Any:
    if converter is not None and isinstance(value, list):
        return _items_from_text(converter, value)
    if converter is None or not isinstance(value, str) or converter.kinds is None or str in converter.kinds:
        return value
    from mcpio.framing.json import JsonError, loads

    try:
        return loads(value)
    except JsonError:
        fault = expected(converter.name, value)
        fault.steps.append(name)
        raise fault from None


def _items_from_text(converter: Converter, texts: list[str]) -> list[Any]:
    """Return the values of a variable with ``*``: texts if the parameter takes them, otherwise each parsed as JSON."""
    # Of a list of strings the error is to show the texts as they came.
    if converter.schema.get("items", {}).get("type") == "string":
        return texts
    from mcpio.framing.json import JsonError, loads

    try:
        converter.convert(texts)
    except Fault:
        items: list[Any] = []
        for text in texts:
            try:
                items.append(loads(text))
            except JsonError:
                items.append(text)
        return items
    return texts


# Inspecting a function


class _Source:
    """The signature of a function, with its annotations evaluated."""

    def __init__(self, function: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> None:
        self._name = name
        self._namespace = namespace
        self._function = _innermost(function)
        try:
            self._signature = inspect.signature(function)
        except ValueError as error:
            raise TypeError(f"{name}(): {error}; wrap it in a function with a signature") from error
        self.documentation: str | None = self._function.__doc__

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters. Raises TypeError if one cannot be given by name."""
        parameters = list(self._signature.parameters.values())
        for parameter in parameters:
            where = f"{self._name}(), parameter {parameter.name!r}"
            if parameter.name in _CONTEXT_NAMES and parameter.annotation is NO_DEFAULT is parameter.default:
                raise TypeError(
                    f"{where}: callers would have to give it; annotate it with Context, or with the type of an argument"
                )
            if _is_foreign_dependency(parameter.default):
                raise TypeError(f"{where}: the default is a Depends() of another library; import that of mcpio.app")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(f"{where}: arguments are given by name; remove the '/' after it")
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise TypeError(f"{where}: arguments are given by name; take a list instead of *{parameter.name}")
        if parameters and parameters[0].name == "self" and parameters[0].annotation is NO_DEFAULT:
            raise TypeError(f"{self._name}(): a method needs its object; register the method of an instance")
        return parameters

    def annotation(self, parameter: inspect.Parameter) -> Any:
        return self._evaluated(parameter.annotation, f"{self._name}(), parameter {parameter.name!r}")

    def dependency(self, parameter: inspect.Parameter) -> Callable[..., Any] | None:
        """Return the function that supplies a parameter's value; ``None`` if the caller supplies it."""
        if isinstance(parameter.default, Dependency):
            return parameter.default.function
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = self.annotation(parameter)
        annotation = getattr(annotation, "__value__", annotation)  # of ``type Database = Annotated[...]``
        for mark in getattr(annotation, "__metadata__", ()):
            if isinstance(mark, Dependency):
                return mark.function
        return None

    def can_omit(self, parameter: inspect.Parameter) -> bool:
        """Whether the function can be called without an argument for a parameter."""
        if parameter.kind is parameter.VAR_KEYWORD:
            return True
        return parameter.default is not NO_DEFAULT and not _is_pydantic_field(parameter.default)

    def return_annotation(self) -> Any:
        annotation = self._signature.return_annotation
        if annotation is NO_DEFAULT:
            return Any
        return self._evaluated(annotation, f"{self._name}(), the result")

    def is_context(self, annotation: Any, context: type) -> bool:
        """Whether a parameter takes the context, even if its class is imported only for type checkers."""
        try:
            evaluated = self._evaluated(annotation, "")
        except TypeError:
            return isinstance(annotation, str) and _names(annotation, context.__name__)
        return any(isinstance(kind, type) and issubclass(kind, context) for kind in _parts(evaluated))

    def _evaluated(self, annotation: Any, where: str) -> Any:
        if annotation is NO_DEFAULT:
            return annotation
        names = getattr(self._function, "__globals__", None)
        if names is None:  # a class: the annotations of its constructor
            names = vars(sys.modules[self._function.__module__])
        try:
            return evaluate({"it": annotation}, names, self._namespace)["it"]
        except Exception as error:  # an annotation may be any expression
            raise TypeError(
                f"{where}: cannot evaluate the annotation {annotation!r}: {error}; what it names is needed at run "
                "time and in the module, so import it there and outside 'if TYPE_CHECKING'"
            ) from error


def _is_pydantic_field(default: Any) -> bool:
    return type(default).__name__ == "FieldInfo"


def _is_foreign_dependency(default: Any) -> bool:
    kind = type(default)
    return kind is not Dependency and kind.__name__.lstrip("_") in ("Depends", "Dependency", "FunctionDependency")


def _innermost(function: Callable[..., Any]) -> Any:
    """Return the function itself: without partial(), wrappers, and the object whose ``__call__`` it is."""
    inner = _without_partial(function)
    if isinstance(inner, type):
        return inner
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    return inspect.unwrap(inner)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function for error messages."""
    named = _without_partial(function)
    return str(getattr(named, "__qualname__", None) or type(named).__qualname__)


def _without_partial(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _names(annotation: str, name: str) -> bool:
    """Whether an annotation that cannot be evaluated names a class, alone or in a union."""
    parts = [part.strip().partition("[")[0].rpartition(".")[2] for part in annotation.split("|")]
    return name in parts


def _parts(annotation: Any) -> list[Any]:
    """Return the classes in an annotation, to find the context among them."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _parts(annotation.__origin__)
    if origin is typing.Union or origin is types.UnionType:
        return [part for argument in annotation.__args__ for part in _parts(argument)]
    return [origin or annotation]
