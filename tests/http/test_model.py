from __future__ import annotations

from mcpio.http.model import Body, Denied, End, RequestHead, Reset, ResponseHead, header_fields
from mcpio.http.options import HostPolicy


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
