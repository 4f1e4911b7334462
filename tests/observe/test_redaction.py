from __future__ import annotations

import json
from typing import Any

import pytest
from work import steps_of

from mcpio.engine.limits import Limits
from mcpio.events import Event
from mcpio.observe.tap import MARK, Redacting, Redactor, Tap, add_tap
from mcpio.testing import pair

REDACTOR = Redactor()


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Password",
        "db_password",
        "userPassword",
        "token",
        "access_token",
        "accessToken",
        "API_KEY",
        "apiKey",
        "X-API-Key",
        "openai_api_key",
        "apikey",
        "clientSecret",
        "Authorization",
        "credentials",
        "set-cookie",
        "pwd",
        "passwords",
        "refreshTokens",
        "API-Keys",
        "cookies",
        "code_verifier",
        "clientAssertion",
        "device_code",
        "dpop",
    ],
)
def test_member_with_a_secret_name_is_redacted(name: str) -> None:
    assert REDACTOR.message({name: "x", "other": "x"}) == {name: MARK, "other": "x"}


@pytest.mark.parametrize("name", ["progressToken", "passwords_changed_at", "name", "", "keyboard", "s", "tokenss"])
def test_member_with_another_name_stays(name: str) -> None:
    value = {name: "x"}
    assert REDACTOR.message(value) is value


@pytest.mark.parametrize("count", [512, 0.5, True])
def test_number_under_a_plural_is_a_count(count: float) -> None:
    value = {"maxTokens": count, "usage": {"input_tokens": count}}
    assert REDACTOR.message(value) is value


def test_list_under_a_plural_is_redacted() -> None:
    assert REDACTOR.message({"tokens": ["a", 5], "token": 5}) == {"tokens": [MARK, 0], "token": 0}


def test_redacted_value_keeps_its_type() -> None:
    secret = {"a": "x", "b": 5, "c": 1.5, "d": True, "e": None, "f": ["x", {"g": 7}]}
    assert REDACTOR.message({"secret": secret}) == {
        "secret": {"a": MARK, "b": 0, "c": 0.0, "d": False, "e": None, "f": [MARK, {"g": 0}]}
    }


def test_schema_of_a_secret_stays() -> None:
    schema = {"properties": {"password": {"type": "string"}, "n": {"default": {"token": "x"}}}}
    redacted = {"properties": {"password": {"type": "string"}, "n": {"default": {"token": MARK}}}}
    assert REDACTOR.message(schema) == redacted
    assert REDACTOR.message({"properties": {"password": "x"}}) == {"properties": {"password": MARK}}


def test_value_at_a_path_is_redacted_as_a_whole() -> None:
    redactor = Redactor(names=(), patterns=(), paths=("params.arguments.pin", "result.*.iban", "result.list.1"))
    message = {
        "params": {"arguments": {"pin": 1234, "pan": 5}, "pin": 5},
        "result": {"x": {"iban": "DE"}, "list": ["a", "b"]},
    }
    assert redactor.message(message) == {
        "params": {"arguments": {"pin": 0, "pan": 5}, "pin": 5},
        "result": {"x": {"iban": MARK}, "list": ["a", MARK]},
    }


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Authorization: Bearer abcdefghijkl", f"Authorization: {MARK}"),
        ("Authorization: DPoP abcdefghijkl", f"Authorization: {MARK}"),
        (
            "http://127.0.0.1:1/callback?state=x&code=SplxlO&iss=y",
            f"http://127.0.0.1:1/callback?state=x&code={MARK}&iss=y",
        ),
        ("http://127.0.0.1:1/callback?code=SplxlO", f"http://127.0.0.1:1/callback?code={MARK}"),
        ("code=SplxlO&code_verifier=dBjft", f"code={MARK}&code_verifier={MARK}"),
        ("grant_type=refresh_token&refresh_token=8xLO", f"grant_type=refresh_token&refresh_token={MARK}"),
        (
            "client_assertion=a.b&subject_token=c.d&assertion=e",
            f"client_assertion={MARK}&subject_token={MARK}&assertion={MARK}",
        ),
        ("grant_type=x&device_code=GmRh&client_id=c", f"grant_type=x&device_code={MARK}&client_id=c"),
        ("exit code=1 status_code=200", "exit code=1 status_code=200"),
        ("use sk-abcdefghijklmnopqrstuv now", f"use {MARK} now"),
        ("ghp_abcdefghijklmnopqrstuvwxyz", MARK),
        ("xoxb-1234567890-abc", MARK),
        ("AKIAABCDEFGHIJKLMNOP", MARK),
        ("eyJhbGciOiJIUzI1.eyJzdWIi.abc-_", MARK),
        ("postgres://user:pw@host/db", f"postgres://{MARK}@host/db"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", MARK),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nA-b\n-----END PGP PRIVATE KEY BLOCK-----.", f"{MARK}."),
        ("a-----BEGIN EC PRIVATE KEY-----\nabc-def", f"a{MARK}"),
        ("redis://:pw@host/0", f"redis://{MARK}@host/0"),
        ("postgres://user:" + 300 * "p" + "@host/db", f"postgres://{MARK}@host/db"),
        ("https://h/cb?access_token=a.b%20c&n=1#x", f"https://h/cb?access_token={MARK}&n=1#x"),
        ("https://h/cb#id_token=ab", f"https://h/cb#id_token={MARK}"),
        ("grant_type=x&client_secret=s", f"grant_type=x&client_secret={MARK}"),
        ("https://b/o?X-Amz-Signature=0f&Expires=1", f"https://b/o?X-Amz-Signature={MARK}&Expires=1"),
        ("https://b/o?sv=1&sig=a%3D", f"https://b/o?sv=1&sig={MARK}"),
        ("login password='hunter2'", f"login password='{MARK}'"),
        ("a-eyJhbGciOiJIUzI1.eyJzdWIi.abc-_", MARK),
        ("max_tokens=512 design=a", "max_tokens=512 design=a"),
        ("eyJhbGciOiJIUzI1 eyJ.a.b", "eyJhbGciOiJIUzI1 eyJ.a.b"),
        ("nothing of the kind", "nothing of the kind"),
        ("https://example.com/a:b", "https://example.com/a:b"),
    ],
)
def test_text_that_matches_a_pattern_is_redacted(text: str, redacted: str) -> None:
    assert REDACTOR.message([text]) == [redacted]


def test_encrypted_private_key_is_redacted_as_a_whole() -> None:
    header = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,ABCD\n\n"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{header}c2VjcmV0\n-----END RSA PRIVATE KEY-----"
    assert REDACTOR.message([f"{key}\n{key}\nrest"]) == [f"{MARK}\n{MARK}\nrest"]


def test_group_named_kept_stays() -> None:
    redactor = Redactor(patterns=(r"(?P<kept>pin )\d+",))
    assert redactor.text("my pin 1234!") == f"my pin {MARK}!"


def test_json_inside_a_text_is_redacted() -> None:
    inner = json.dumps({"password": "x", "n": [1]})
    assert json.loads(REDACTOR.message({"text": inner})["text"]) == {"password": MARK, "n": [1]}
    assert REDACTOR.message({"text": "{no json"}) == {"text": "{no json"}
    harmless = {"text": '{"a": 1}'}
    assert REDACTOR.message(harmless) is harmless
    deep: Any = {"password": "x"}
    for _ in range(5):
        deep = {"text": json.dumps(deep)}
    assert "password" in json.dumps(REDACTOR.message(deep))


def test_text_of_a_message_is_redacted() -> None:
    assert REDACTOR.text('{"token": "x", "n": 1.0}') == '{"token":"[redacted]","n":1.0}'
    assert REDACTOR.text('{ "n" : 1 }') == '{ "n" : 1 }'
    assert REDACTOR.text("log: Bearer abcdefghij") == f"log: {MARK}"
    assert REDACTOR.data(b'{"token": "x"}') == b'{"token":"[redacted]"}'
    assert REDACTOR.data(b"\xff") == MARK.encode()
    harmless = b'{ "n": 1}'
    assert REDACTOR.data(harmless) is harmless


@pytest.mark.parametrize(
    "text",
    [
        '{"token": "hunter2", "token": ""}',
        '{"a": {"token": "hunter2"}, "a": 1}',
        '{"a": "{\\"token\\": \\"hunter2\\", \\"token\\": \\"\\"}"}',
    ],
)
def test_secret_under_a_repeated_name_is_gone(text: str) -> None:
    redacted = Redactor().text(text)
    assert "hunter2" not in redacted
    assert json.loads(redacted).keys() == json.loads(text).keys()


def test_invalid_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="a pattern must be a regular expression, not '\\('"):
        Redactor(patterns=("(",))


class CountedPattern:
    """Counts the characters that it is run over."""

    def __init__(self) -> None:
        self.characters = 0

    def subn(self, replacement: str, text: str) -> tuple[str, int]:
        self.characters += len(text)
        return text, 0


SIZE = Limits().message_bytes
PARTS: dict[str, Any] = {
    "texts": "a",
    "objects": {},
    "members": {"a": 1},
    "numbers": 1,
    "JSON in texts": "[]",
    "texts that begin as JSON": "[",
}
LARGE: dict[str, Any] = {
    "one text": "=" * SIZE,
    "texts of 1 KiB": ["=" * 1024] * (SIZE // 1024),
    "JSON in a text": json.dumps([[]] * (SIZE // 4)),
    "text that begins as JSON": "[" * SIZE,
    "name": {"aB" * (SIZE // 2): 1},
    "names": {f"{number:06x}": 1 for number in range(500_000)},
    **{name: [part] * 400_000 for name, part in PARTS.items()},
}


@pytest.mark.parametrize("call", ["message", "text"])
@pytest.mark.parametrize("name", LARGE)
def test_largest_message_is_searched_in_part(name: str, call: str) -> None:
    redactor, pattern = Redactor(patterns=()), CountedPattern()
    redactor._patterns = ((pattern, MARK),)  # type: ignore[assignment]  # counts instead of a pattern
    value = LARGE[name] if call == "message" else json.dumps(LARGE[name])
    assert steps_of(lambda: getattr(redactor, call)(value)) < 20_000_000
    assert pattern.characters <= 2 * 1024 * 1024


def test_values_beyond_the_search_are_left_out() -> None:
    message = {"id": 1, "long": "a" * SIZE, "list": [1] * SIZE, "object": {str(n): n for n in range(200_000)}, "b": "c"}
    assert REDACTOR.message(message) == {"id": 1, "long": MARK, "list": [], "object": {}, "b": "c"}
    assert REDACTOR.text("a" * SIZE) == MARK
    assert REDACTOR.text(json.dumps([[]] * (SIZE // 4))) == MARK


def test_secret_at_the_end_of_a_long_name_is_redacted() -> None:
    assert REDACTOR.message({"a" * SIZE + "Token": "x"}) == {"a" * SIZE + "Token": MARK}


class Heard(Tap):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def opened(self, connection: Any, now: float) -> None:
        self.heard.append("opened")

    def received(self, data: bytes | None, now: float) -> None:
        self.heard.append(("received", data))

    def sent(self, data: bytes | None, now: float) -> None:
        self.heard.append(("sent", data))

    def message_received(self, text: bytes, via: Any, now: float) -> None:
        self.heard.append(("in", text))

    def message_sent(self, text: bytes, via: Any, now: float) -> None:
        self.heard.append(("out", text))

    def event(self, event: Event, now: float) -> None:
        self.heard.append(type(event).__name__)


def test_redacting_tap_passes_on_redacted_messages() -> None:
    link = pair()
    taps = [Heard(), Heard()]
    add_tap(link.client, Redacting(taps[0]))
    add_tap(link.server, Redacting(taps[1], REDACTOR))
    link.handshake()
    link.server.receive_data(b'{"jsonrpc":"2.0","method":"a/b","params":{"token":"x"}}\n', 0.0)
    link.server.receive_message('{"jsonrpc":"2.0","method":"a/b","params":{"pin":"x"}}', 0.0)
    link.run()
    link.client.close(0.0)
    link.run()
    assert taps[1].heard[0] == "opened"
    assert taps[1].heard[4:] == [
        ("in", b'{"jsonrpc":"2.0","method":"a/b","params":{"pin":"x"}}'),
        ("in", b'{"jsonrpc":"2.0","method":"a/b","params":{"token":"[redacted]"}}'),
        ("received", None),
        ("sent", None),
        "ConnectionClosed",
    ]
    assert taps[0].heard[-2:] == [("sent", None), "ConnectionClosed"]
