from __future__ import annotations

from collections import UserList
from typing import Any

import pytest

from mcpio.http.model import (
    Body,
    Denied,
    End,
    HostPolicy,
    RequestHead,
    RequestItem,
    Reset,
    ResponseHead,
    header_fields,
    whole_request,
)


def test_items_are_values_and_each_names_its_exchange() -> None:
    assert RequestHead(1, "GET", "/", ()) == RequestHead(1, "GET", "/", (), None, None)
    assert [item.exchange for item in (ResponseHead(1, 200, ()), Body(2, b""), End(3), Reset(4))] == [1, 2, 3, 4]


def test_request_defaults_to_no_principal_and_the_servers_policy() -> None:
    head = RequestHead(1, "GET", "/", ())
    assert (head.principal, head.policy) == (None, None)
    assert RequestHead(1, "GET", "/", (), "me", HostPolicy(None, None)).policy == HostPolicy(None, None)


def test_denied_defaults_to_401() -> None:
    assert (Denied().status, Denied().message, Denied().headers) == (401, "Unauthorized", ())


def test_representation_of_a_request_has_the_names_of_its_fields_and_no_value() -> None:
    head = RequestHead(1, "GET", "/mcp", header_fields([("authorization", "Bearer canary")]))
    assert "<authorization>" in repr(head)
    assert "canary" not in repr(head)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"status": 200}, ValueError, "a status from 400 to 599, not 200"),
        ({"status": 0}, ValueError, "not 0"),
        ({"status": 600}, ValueError, "not 600"),
        ({"status": True}, ValueError, "not True"),
        ({"message": 5}, TypeError, "message must be str"),
        ({"message": "\ud800"}, ValueError, "surrogates not allowed"),
        ({"headers": (("a", "b"),)}, TypeError, "both bytes"),
        ({"headers": (b"ab",)}, TypeError, "both bytes"),
        ({"headers": ((b"a b", b"x"),)}, ValueError, "b'a b' must have no line end, and a token for a name"),
        ({"headers": ((b"x-a", b"secret\r\nb: c"),)}, ValueError, "b'x-a' must have no line end"),
    ],
)
def test_denial_that_no_response_could_have_is_rejected(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        Denied(**given)
    assert "secret" not in str(caught.value)


HOST = HostPolicy(None, None)


@pytest.mark.parametrize(
    ("item", "given", "said"),
    [
        (RequestHead, ([], "GET", "/", ()), r"exchange must be a value that can be a key, not \[\]"),
        (RequestHead, (1, b"GET", "/", ()), "method must be str, not b'GET'"),
        (RequestHead, (1, "GET", None, ()), "target must be str, not None"),
        (RequestHead, (1, "GET", "/", {b"a": b"b"}), "headers must be a sequence"),
        (RequestHead, (1, "GET", "/", [("a", "secret")]), "headers must be a sequence"),
        (RequestHead, (1, "GET", "/", [b"ab"]), "both bytes"),
        (RequestHead, (1, "GET", "/", [5]), "both bytes"),
        (RequestHead, (1, "GET", "/", (), {}), "principal must be a value that can be a key"),
        (RequestHead, (1, "GET", "/", (), None, "*"), "policy must be HostPolicy"),
        (ResponseHead, ([], 200, ()), "exchange must be"),
        (ResponseHead, (1, 200, "ab"), "headers must be a sequence"),
        (Body, ([], b""), "exchange must be"),
        (Body, (1, "text"), "data must be bytes, not 'text'"),
        (End, ([],), "exchange must be"),
        (Reset, ([],), "exchange must be"),
        (Reset, (1, "gone"), "cause must be BaseException"),
    ],
)
def test_items_of_wrong_types_are_refused_by_name(item: Any, given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said) as caught:
        item(*given)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", ["200", 99, 1000, True, 200.0])
def test_response_head_takes_a_status(status: Any) -> None:
    with pytest.raises(ValueError, match="status must be a number from 100 to 999"):
        ResponseHead(1, status, ())


def test_items_take_what_adapters_have() -> None:
    kinds: list[Any] = [memoryview(b"x"), bytearray(b"x")]
    assert [Body(1, data).data for data in kinds] == [b"x", b"x"]
    assert RequestHead((1, "a"), "GET", "/", [(b"a", b"b")], "me", HOST).headers == [(b"a", b"b")]
    assert Reset(1, OSError()).exchange == 1


def test_request_that_came_in_one_read_is_taken_whole() -> None:
    head, body, end = RequestHead(1, "POST", "/", ()), Body(1, b"x"), End(1)
    assert whole_request([head, body, end]) == (head, b"x")
    others: list[list[RequestItem]] = [[], [head, end], [head, body], [body, body, end], [head, body, body]]
    others += [[body, head, end], [head, body, body, end]]
    for items in others:
        assert whole_request(items) is None


def test_header_fields_may_be_any_sequence() -> None:
    fields = UserList([(b"a", b"b")])
    assert RequestHead(1, "GET", "/", fields).fields == {b"a": b"b"}
