from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import gc
import importlib.util
import json as standard
import math
import subprocess
import sys
import traceback
import types
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from counting import processor_seconds

from mcpio.framing import json
from mcpio.framing.json import MAX_NESTING, Backend, JsonError, backend, check_nesting

HAS_BOTH = importlib.util.find_spec("msgspec") is not None and importlib.util.find_spec("orjson") is not None
NAMES = ["stdlib"] + ["compiled"] * HAS_BOTH
BACKENDS = [backend(name) for name in NAMES]
STDLIB = BACKENDS[0]


@pytest.fixture(params=BACKENDS, ids=NAMES)
def either(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


def nested(depth: int, inside: bytes = b"") -> bytes:
    return b"[" * depth + inside + b"]" * depth


NINES = b"9" * 4300

# Text -> the exact value; repr keeps 1, 1.0, True and -0.0 apart.
ACCEPTED: list[tuple[bytes, Any]] = [
    (b"null", None),
    (b"true", True),
    (b"[false]", [False]),
    (b" \t\r\n1 \t\r\n", 1),
    (b'{"a":1,"a":2}', {"a": 2}),
    (b'{"a":{"b":1},"c":0,"a":2}', {"a": 2, "c": 0}),
    # Integers
    (b"0", 0),
    (b"-0", 0),
    (b"-1", -1),
    (b"9007199254740993", 2**53 + 1),
    (b"9223372036854775808", 2**63),
    (b"-9223372036854775808", -(2**63)),
    (b"-9223372036854775809", -(2**63) - 1),
    (b"18446744073709551615", 2**64 - 1),
    (b"18446744073709551616", 2**64),
    (b'{"id":-99999999999999999999}', {"id": -99999999999999999999}),
    (b"[0.1234567890123456789,1234567890123456789012]", [0.1234567890123456789, 1234567890123456789012]),
    (b"[1234567890123456789012,0.1234567890123456789]", [1234567890123456789012, 0.1234567890123456789]),
    (b"1" + b"0" * 400, 10**400),
    (NINES, 10**4300 - 1),
    (b"-" + NINES, 1 - 10**4300),
    # Floats
    (b"1.0", 1.0),
    (b"-0.0", -0.0),
    (b"-0e5", -0.0),
    (b"1e5", 100000.0),
    (b"1E+5", 100000.0),
    (b"1e-2", 0.01),
    (b"9007199254740993.0", 9007199254740992.0),
    (b"1.7976931348623157e308", sys.float_info.max),
    (b"2.2250738585072011e-308", 2.2250738585072011e-308),
    (b"5e-324", 5e-324),
    (b"1e-400", 0.0),
    (b"-1e-400", -0.0),
    (b"0e99999999999999999999", 0.0),
    (b"1e-99999999999999999999", 0.0),
    (b"0." + b"1" * 5000, 0.1111111111111111),
    (b"0.1234567890123456789", 0.1234567890123456789),
    (b"[0.1234567890123456789,0.12345678901234567890123]", [0.1234567890123456789, 0.12345678901234567890123]),
    (b"1" * 200 + b"e-150", 1.1111111111111111e49),
    (b"1234567890123456789.5", 1234567890123456789.5),
    # Strings
    (b'""', ""),
    (b'"\\" \\\\ \\/ \\b\\f\\n\\r\\t"', '" \\ / \b\f\n\r\t'),
    (b'"\\u0041\\u00e9\\u20AC"', "A\u00e9\u20ac"),
    (b'"\\u0000\\u001f"', "\0\x1f"),
    (b'"\\ud83d\\ude00"', "\U0001f600"),
    (b'"\\uD83D\\uDE00"', "\U0001f600"),
    (b'"\\ud7ff\\ue000"', "\ud7ff\ue000"),
    (b'"\\\\ud800"', "\\ud800"),
    (b'"\\\\\\ud83d\\ude00"', "\\\U0001f600"),
    (b'"\x7f"', "\x7f"),
    ('"\u00e9\u20ac\U0001f600\u2028\u2029\ufeff\uffff"'.encode(), "\u00e9\u20ac\U0001f600\u2028\u2029\ufeff\uffff"),
    (b'{"":0,"\\u0000":1}', {"": 0, "\0": 1}),
    (b'"12345678901234567890"', "12345678901234567890"),
    # Large ones
    (b'["' + b"7" * 40_000 + b'",18446744073709551616,""]', ["7" * 40_000, 2**64, ""]),
    (b'["' + b"[" * 40_000 + b'\\n",-18446744073709551616]', ["[" * 40_000 + "\n", -(2**64)]),
    (b'["7"' + b',"7"' * 9999 + b"]", ["7"] * 10_000),
    # Nesting
    (nested(128), standard.loads(nested(128))),
    (b'{"a":' * 128 + b"0" + b"}" * 128, standard.loads(b'{"a":' * 128 + b"0" + b"}" * 128)),
    (b"[" + b"[]," * 999 + b"[]]", [[]] * 1000),
    (b'["' + b"[" * 9999 + b'"]', ["[" * 9999]),
    (b'["' + b"{" * 5000 + b'"]', ["{" * 5000]),
    (b'["\\\\","' + b"[" * 999 + b'","\\"' + b"]" * 999 + b'"]', ["\\", "[" * 999, '"' + "]" * 999]),
]

# Text -> a part of the reason, the same on every backend.
REFUSED: list[tuple[bytes, str]] = [
    (b"", "no JSON value"),
    (b" \n", "no JSON value"),
    (b"hello", "expecting value at character 0"),
    (b"True", "expecting value"),
    (b"nul", "expecting value"),
    (b"/* c */ 1", "expecting value"),
    (b"1 2", "extra data at character 2"),
    (b"{} x", "extra data"),
    (b"1\x00", "extra data"),
    (b"\x00", "expecting value"),
    (b"\x0b1", "expecting value"),
    (b"\xc2\xa01", "expecting value"),
    (b"[1,]", ""),
    (b'{"a":1,}', ""),
    (b"[,]", "expecting value"),
    (b"[1 2]", "expecting ',' delimiter"),
    (b'{"a" 1}', "expecting ':' delimiter"),
    (b"{'a':1}", "expecting property name"),
    (b"{1:2}", "expecting property name"),
    (b"[", ""),
    (b"]", "expecting value"),
    (b'{"a":', "expecting value"),
    # Numbers
    (b"NaN", "NaN is not JSON"),
    (b"[Infinity]", "Infinity is not JSON"),
    (b"-Infinity", "-Infinity is not JSON"),
    (b"nan", "expecting value"),
    (b"1e400", "too large for a double"),
    (b"-1E400", "too large for a double"),
    (b"1e99999999999999999999", "too large for a double"),
    (b"1" * 5000 + b".5", "too large for a double"),
    (b"1" + NINES, "more than 4300 digits"),
    (b'{"id":-1' + NINES + b"}", "more than 4300 digits"),
    (b"01", "extra data"),
    (b"-01", "extra data"),
    (b"1.", "extra data"),
    (b".5", "expecting value"),
    (b"+1", "expecting value"),
    (b"-", "expecting value"),
    (b"1e", "extra data"),
    (b"0x10", "extra data"),
    (b"1_0", "extra data"),
    (b"\xef\xbc\x91", "expecting value"),
    # Strings
    (b'"abc', "unterminated string"),
    (b'"a\nb"', "invalid control character"),
    (b'"a\tb"', "invalid control character"),
    (b'"a\x00b"', "invalid control character"),
    (b'"\\x41"', "invalid \\escape"),
    (b'"\\u12"', "invalid \\uXXXX escape"),
    (b'"\\u+123"', "invalid \\uXXXX escape"),
    (b'"\\u12_3"', "invalid \\uXXXX escape"),
    # Bytes that are no text
    (b"\xef\xbb\xbf1", "byte-order mark"),
    (b'"\xff"', "not UTF-8 at byte 1"),
    (b"\xff\xfe1\x00", "not UTF-8 at byte 0"),
    (b'"\xc0\x80"', "not UTF-8"),
    (b'"\xc3"', "not UTF-8"),
    (b'"\xf4\x90\x80\x80"', "not UTF-8"),
    (b'"\xed\xa0\x80"', "not UTF-8"),
    # Surrogates
    (b'"\\ud800"', "surrogate"),
    (b'"\\uD800"', "surrogate"),
    (b'"\\udc00"', "surrogate"),
    (b'"\\ud800x"', "surrogate"),
    (b'"\\ud800\\u0041"', "surrogate"),
    (b'"\\udc00\\ud800"', "surrogate"),
    (b'"\\ud83d\\ud83d\\ude00"', "surrogate"),
    (b'"\\ud83d\\ude00\\ude00"', "surrogate"),
    (b'"\\ud83d\\\\\\ude00"', "surrogate"),
    (b'"\\\\\\ud800"', "surrogate"),
    (b'{"\\ud800":1}', "surrogate"),
    (b'{"a":"\\ud800","a":1}', "surrogate"),
    # Nesting
    (nested(129), "nested deeper than 128"),
    (b'{"a":' * 129 + b"0" + b"}" * 129, "nested deeper than 128"),
    (nested(1100), "nested deeper than 128"),
    (b"[" * 100_000, "nested deeper than 128"),
    (b'{"a":' + nested(128) + b',"a":1}', "nested deeper than 128"),
    (b"[" + b"[]," * 50 + nested(128) + b"]", "nested deeper than 128"),
    (b'["]]]]",' + nested(128, b'"]"') + b"]", "nested deeper than 128"),
    (b"]" * 1000 + b"[" * 200, "expecting value"),
    (b'["' + b"x" * 40_000 + b'",' + nested(128) + b"]", "nested deeper than 128"),
    (b'["' + b"[" * 40_000, "unterminated string"),
]


def _short(text: bytes) -> str:
    return f"{text[:24]!r}-{len(text)}"


@pytest.mark.req("RPC-22")
@pytest.mark.req("RPC-21")
@pytest.mark.parametrize(("text", "value"), ACCEPTED, ids=[_short(text) for text, _ in ACCEPTED])
def test_text_is_read_from_bytes_bytearray_and_str(either: Backend, text: bytes, value: Any) -> None:
    for form in (text, bytearray(text), text.decode()):
        assert _exact(either.loads(form)) == _exact(value)


@pytest.mark.req("RPC-22")
@pytest.mark.req("RPC-02")
@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[_short(text) for text, _ in REFUSED])
def test_a_text_is_refused_with_a_reason(either: Backend, text: bytes, reason: str) -> None:
    with pytest.raises(JsonError) as caught:
        either.loads(text)
    assert reason in caught.value.reason == str(caught.value)
    assert "\n" not in caught.value.reason
    # What the library raised holds the whole text.
    assert caught.value.__context__ is None


@pytest.mark.parametrize("text", ['"\ud800"', "\ud800", '{"\udfff":1}'])
def test_a_surrogate_in_a_str_is_refused(either: Backend, text: str) -> None:
    with pytest.raises(JsonError, match="surrogate at character"):
        either.loads(text)


def test_a_byte_order_mark_in_a_str_is_refused(either: Backend) -> None:
    with pytest.raises(JsonError, match="byte-order mark"):
        either.loads("\ufeff1")


def _exact(value: object) -> str:
    """Return what tells 1, 1.0 and True apart; hexadecimal, for integers that are too long for decimal."""
    if type(value) is int:
        return hex(value)
    if isinstance(value, list):
        return f"[{','.join(map(_exact, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key!r}:{_exact(item)}' for key, item in value.items())}}}"
    return repr(value)


def test_nesting_is_counted_over_a_long_text() -> None:
    up_and_down = b"[" * 100 + b"[]," * 300 + b"[[]]" + b"]" * 100
    check_nesting(up_and_down, 102)
    with pytest.raises(JsonError, match="nested deeper than 101"):
        check_nesting(up_and_down, 101)


# Time. Nothing but the clock shows what a library does in compiled code, so the bounds are wide.

NUMBERS = [
    *(
        "1e308",
        "-1E+308",
        "1e300",
        "1.7976931348623157e308",
        "9.5e-308",
        "1e-310",
        "4.9e-324",
        "2.2250738585072011e-308",
    ),
    *("1e-400", "1e0000000000000308", "1" * 100 + "e200", "1" * 190 + "e99", "0." + "0" * 200 + "1e-110"),
    *("9007199254740993.0", "9007199254740992.5" + "0" * 780 + "1", "0." + "3" * 800, "1e23", "8.5e-120", "-0.0"),
    *("9" * 19, "9" * 20, "9" * 4300, "0", "-1", "1.5"),
]


def _time_per_byte(call: Callable[[bytes], object], text: bytes) -> float:
    """Return the processor time of the quickest of three calls, over the bytes of the text."""
    return processor_seconds([partial(call, text)] * 3) / len(text)


def _array(item: str, size: int = 60_000) -> bytes:
    return ("[" + f"{item}," * (size // (len(item) + 1)) + "0]").encode()


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:24])
def test_no_number_takes_much_longer_than_others_of_its_length(either: Backend, number: str) -> None:
    usual = _time_per_byte(STDLIB.loads, _array("1.5"))
    assert _time_per_byte(either.loads, _array(number)) < 6 * usual


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("text", [b"[" + b"[]," * 200_000 + b"0]", b"[" + b"[]," * 200_000], ids=["good", "bad"])
def test_large_text_is_read_without_collecting_garbage(text: bytes, collects: bool) -> None:
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        generations.append(info["generation"])

    was_enabled = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    gc.callbacks.append(note)
    try:
        with suppress(JsonError):
            json.loads(text)
        assert gc.isenabled() is collects
    finally:
        gc.callbacks.remove(note)
        (gc.enable if was_enabled else gc.disable)()
    assert len(generations) < 10  # 200,000 arrays would bring hundreds


# Writing


class Name(enum.StrEnum):
    ONE = "one"


class Number(enum.IntEnum):
    ONE = 1


class Anything(enum.Enum):
    TEXT = "text"
    LIST = (1, 2)
    NAN = math.nan
    OBJECT = object()


class Str(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Int(int):
    def __int__(self) -> int:
        return -1


class Float(float):
    def __float__(self) -> float:
        return -1.0


class List(list[Any]):
    pass


class Pair(tuple[int, int]):
    __slots__ = ()


class Dict(dict[str, Any]):
    pass


@dataclasses.dataclass
class Data:
    a: int = 1


SAID: list[tuple[Any, bytes]] = [
    ({"a": [1, 2.5, None, True, "x"]}, b'{"a":[1,2.5,null,true,"x"]}'),
    ("\u00e9\u2028\U0001f600/<\x7f", '"\u00e9\u2028\U0001f600/<\x7f"'.encode()),
    ('\n\r\t"\\\x00', b'"\\n\\r\\t\\"\\\\\\u0000"'),
    ((1, (2,)), b"[1,[2]]"),
    (2**64, b"18446744073709551616"),
    ({"a": -(2**63) - 1}, b'{"a":-9223372036854775809}'),
    (10**4300 - 1, NINES),
    (-0.0, b"-0.0"),
    (Name.ONE, b'"one"'),
    ({Name.ONE: Number.ONE}, b'{"one":1}'),
    (Anything.TEXT, b'"text"'),
    ([Anything.LIST], b"[[1,2]]"),
    (Str("text"), b'"text"'),
    ({Str("key"): 1}, b'{"key":1}'),
    (Int(3), b"3"),
    ([Int(2**64)], b"[18446744073709551616]"),
    (Float(1.5), b"1.5"),
    (List([1]), b"[1]"),
    (Pair((1, 2)), b"[1,2]"),
    (Dict(a=1), b'{"a":1}'),
    (collections.OrderedDict(b=1, a=2), b'{"b":1,"a":2}'),
    (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
    ([[]] * 200, b"[" + b"[]," * 199 + b"[]]"),
    (standard.loads(nested(128)), nested(128)),
    ("null", b'"null"'),
    ({"a": "x", "b": None}, b'{"a":"x","b":null}'),
    ({"a": "null[" * 9999}, b'{"a":"' + b"null[" * 9999 + b'"}'),
    ({"a": ("x" * 9999, 1.5, None)}, b'{"a":["' + b"x" * 9999 + b'",1.5,null]}'),
    (["x" * 9999, *[None] * 100], b'["' + b"x" * 9999 + b'"' + b",null" * 100 + b"]"),
]

UNSAID: list[tuple[Any, type[Exception], str]] = [
    (math.nan, ValueError, "nan has no form in JSON"),
    ({"a": [0, {"b": math.inf}]}, ValueError, r"a\[1\]\.b: inf has no form in JSON"),
    ([1, -math.inf], ValueError, r"\[1\]: -inf has no form in JSON"),
    ([Float(math.nan)], ValueError, r"\[0\]: .*nan.* has no form in JSON"),
    (["x" * 40_000, math.nan], ValueError, r"\[1\]: nan has no form in JSON"),
    (["x" * 40_000, [0] * 100, math.nan], ValueError, r"\[2\]: nan has no form in JSON"),
    (["x" * 40_000, {"a": ({"b": Float(math.inf)},)}], ValueError, r"\[1\]\.a\[0\]\.b: .*inf.* has no form in JSON"),
    (Anything.NAN, ValueError, "nan has no form in JSON"),
    ("\ud800", ValueError, "a string with a surrogate at character 0"),
    ({"a": ["ok", "x\udfff"]}, ValueError, r"a\[1\]: a string with a surrogate at character 1"),
    ({"\ud800": 1}, ValueError, "a key with a surrogate at character 0"),
    ({"a": {1: 2}}, TypeError, "a: the key 1 is not a string"),
    ({None: 2}, TypeError, "the key None is not a string"),
    (10**4300, ValueError, "an integer of more than 4300 digits"),
    ([-(10**4300)], ValueError, r"\[0\]: an integer of more than 4300 digits"),
    (object(), TypeError, "object has no form in JSON"),
    ({"a": b"x"}, TypeError, "a: bytes has no form in JSON"),
    ({"a": {1, 2}}, TypeError, "a: set has no form in JSON"),
    ([decimal.Decimal(1)], TypeError, r"\[0\]: Decimal has no form in JSON"),
    ([dt.date(2025, 1, 1)], TypeError, r"\[0\]: date has no form in JSON"),
    ([dt.datetime(2025, 1, 1)], TypeError, r"\[0\]: datetime has no form in JSON"),
    ([Data()], TypeError, r"\[0\]: Data has no form in JSON"),
    (Anything.OBJECT, TypeError, "object has no form in JSON"),
    (standard.loads(nested(129)), ValueError, "nested deeper than 128"),
    (standard.loads(nested(400)), ValueError, "nested deeper than 128"),
]


@pytest.mark.req("STDIO-02")
@pytest.mark.parametrize(("value", "text"), SAID, ids=[_short(text) for _, text in SAID])
def test_value_is_written(either: Backend, value: Any, text: bytes) -> None:
    assert either.dumps(value) == text


@pytest.mark.parametrize(("value", "error", "reason"), UNSAID, ids=[f"{n}-{row[2]}" for n, row in enumerate(UNSAID)])
def test_unwritable_value_is_refused_at_its_place(
    either: Backend, value: Any, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason) as caught:
        either.dumps(value)
    assert type(caught.value) is error


def test_a_value_that_contains_itself_is_refused(either: Backend) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper than 128"):
        either.dumps(endless)


# What surrounds the two functions


def _with_frames_left(frames: int, function: Callable[[Any], Any], argument: Any) -> str:
    """Call a function with about so many frames left, and return the name of the exception or ``"value"``."""

    def call() -> str:
        try:
            function(argument)
        except (ValueError, RecursionError) as error:
            return type(error).__name__
        return "value"

    def descend(levels: int) -> str:
        return call() if levels <= 0 else descend(levels - 1)

    used = sum(1 for _ in traceback.walk_stack(None))
    return descend(sys.getrecursionlimit() - used - frames)


def test_short_stack_raises_json_error_or_value_error(either: Backend) -> None:
    deep = nested(MAX_NESTING, b"null")
    value = standard.loads(deep)
    for frames in range(20, 400, 20):
        assert _with_frames_left(frames, either.loads, deep) in {"value", "JsonError"}
        assert _with_frames_left(frames, either.dumps, value) in {"value", "ValueError"}
    assert _with_frames_left(100, either.dumps, value) == "ValueError"


def test_recursion_error_of_the_library_becomes_json_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(decoder: object, text: str) -> Any:
        raise RecursionError

    monkeypatch.setattr(standard.JSONDecoder, "decode", give_up)
    with pytest.raises(JsonError, match="nested too deeply for the stack that is left"):
        backend("stdlib").loads(b"[]")


def test_an_interpreter_that_converts_fewer_digits_refuses_them(either: Backend) -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(JsonError, match="more digits than this interpreter converts"):
            either.loads(b"1" * 641)
    finally:
        sys.set_int_max_str_digits(limit)


def test_library_is_chosen_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (lambda: json.loads(b"[1]") == [1], lambda: json.dumps([1]) == b"[1]"):
        monkeypatch.setattr(json, "_loads", json._first_loads)
        monkeypatch.setattr(json, "_dumps", json._first_dumps)
        assert call()
        assert call()
        assert json._loads is not json._first_loads
        assert json._dumps is not json._first_dumps


@pytest.mark.parametrize(
    ("missing", "libraries"),
    [
        (["msgspec", "msgspec.json", "orjson"], ("stdlib", "stdlib")),
        (["msgspec", "msgspec.json"], ("stdlib", "orjson")),
        (["orjson"], ("msgspec", "stdlib")),
        pytest.param([], ("msgspec", "orjson"), marks=pytest.mark.skipif(not HAS_BOTH, reason="a library is missing")),
    ],
)
def test_a_missing_library_is_replaced_by_the_standard_one(
    missing: list[str], libraries: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(json, "_loads", json._first_loads)
    monkeypatch.setattr(json, "_dumps", json._first_dumps)
    if HAS_BOTH:
        assert libraries == json.LIBRARIES
    assert json.loads(json.dumps([1])) == [1]


def test_a_backend_has_its_name() -> None:
    assert [backend(name).name for name in NAMES] == NAMES


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="the JSON backend must be 'stdlib' or 'compiled', not 'simplejson'"):
        backend("simplejson")
    with pytest.raises(AttributeError, match="no attribute 'FRONTEND'"):
        _ = json.FRONTEND


def test_importing_the_module_imports_no_library() -> None:
    program = (
        "import sys, mcpio.framing.json; print({'json', 'msgspec', 'orjson', 'uuid', 'decimal'} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "set()\n"


def test_sorted_members_give_equal_bytes_to_equal_values() -> None:
    one = {"b": [{"z": 1, "a": 2.5}], "a": types.MappingProxyType({"é": Name.ONE, "c": uuid.UUID(int=0)})}
    two = {"a": {"c": str(uuid.UUID(int=0)), "é": "one"}, "b": [{"a": 2.5, "z": 1}]}
    assert json.dumps_sorted(one) == json.dumps_sorted(two)
    assert json.dumps_sorted(two).startswith(b'{"a":{"c":"')
    assert json.dumps_sorted([1]) != json.dumps_sorted([1.0])
