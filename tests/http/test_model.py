from __future__ import annotations

from typing import Any

import pytest

from mcpio.http.model import Body, Denied, End, HostPolicy, RequestHead, Reset, ResponseHead, header_fields


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
        ({"message": 5}, TypeError, "message= takes str"),
        ({"message": "\ud800"}, ValueError, "surrogates not allowed"),
        ({"headers": (("a", "b"),)}, TypeError, "both bytes"),
        ({"headers": (b"ab",)}, TypeError, "both bytes"),
        ({"headers": ((b"a b", b"x"),)}, ValueError, "b'a b' has characters that are not allowed"),
        ({"headers": ((b"x-a", b"secret\r\nb: c"),)}, ValueError, "b'x-a' has characters that are not allowed"),
    ],
)
def test_denial_that_no_response_could_have_is_rejected(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        Denied(**given)
    assert "secret" not in str(caught.value)
