from __future__ import annotations

import ast
import copy
import inspect
import itertools
import pickle
import typing
from pathlib import Path
from typing import Any

import attrs
import pytest

import mcpio.events
from mcpio.events import (
    CloseReason,
    ConnectionClosed,
    Event,
    IgnoreReason,
    IncomingId,
    Initialized,
    MessageIgnored,
    NoiseReceived,
    OutgoingId,
    Peer,
    RequestContext,
)

EVENTS = typing.get_args(Event)
VALUES = (*EVENTS, RequestContext, Peer)


def test_the_union_is_closed_over_every_event_there_is() -> None:
    public = {getattr(mcpio.events, name) for name in mcpio.events.__all__} - {Event}
    helpers = {RequestContext, Peer, IncomingId, OutgoingId, IgnoreReason, CloseReason}
    assert public - helpers == set(EVENTS)


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_event_has_no_other_attributes_than_its_fields(cls: type[Any]) -> None:
    fields = attrs.fields(cls)
    event = cls(*(object() for _ in fields))
    assert not hasattr(event, "__dict__")
    assert event == cls(*(getattr(event, field.name) for field in fields))


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_an_event_compares_hashes_prints_and_is_copied_by_its_members(cls: type[Any]) -> None:
    names = [field.name for field in attrs.fields(cls)]
    event = cls(*names)
    assert repr(event) == f"{cls.__name__}({', '.join(f'{name}={name!r}' for name in names)})"
    same = cls(**{name: name for name in names})
    assert event == same
    assert hash(event) == hash(same)
    assert event != cls(*names[1:], "else")
    assert event != tuple(names)
    assert pickle.loads(pickle.dumps(event)) == copy.deepcopy(event) == event
    assert cls.__match_args__ == tuple(names)


def test_every_event_and_field_has_a_docstring() -> None:
    tree = ast.parse(Path(inspect.getfile(mcpio.events)).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for cls in VALUES:
        assert cls.__doc__
        body = classes[cls.__name__].body
        for node, after in itertools.pairwise(body):
            if isinstance(node, ast.AnnAssign):
                assert isinstance(after, ast.Expr), f"{cls.__name__}.{ast.unparse(node.target)}"
                assert isinstance(after.value, ast.Constant)


def test_events_of_messages_have_raw_and_events_of_requests_have_cookies() -> None:
    for cls in EVENTS:
        names = {field.name for field in attrs.fields(cls)}
        assert "raw" in names or cls in (ConnectionClosed, NoiseReceived, mcpio.events.VersionMismatched)
        assert ("cookie" in names) == (
            attrs.fields_dict(cls).get("id", None) is not None
            and "OutgoingId" in str(attrs.fields_dict(cls)["id"].type)
        )


@pytest.mark.req("RPC-05")
def test_ids_are_integers_of_distinct_classes() -> None:
    assert (IncomingId(1), OutgoingId(1)) == (1, 1)
    assert not issubclass(IncomingId, OutgoingId)
    assert not issubclass(OutgoingId, IncomingId)


def test_reasons_have_texts() -> None:
    for reason in (*IgnoreReason, *CloseReason):
        assert reason.value.replace(" ", "").replace(",", "").replace(":", "").replace("-", "").isalpha()
    assert MessageIgnored(IgnoreReason.UNKNOWN_TOKEN, {}, None).reason.value == "the progress token was never given out"
    assert CloseReason.SLOW_CONSUMER.value == "slow-consumer"


def test_an_event_is_frozen_to_type_checkers() -> None:
    event = Initialized({})
    event.raw = {"x": 1}  # type: ignore[misc]  # mypy would report an ignore that it does not need
    assert event == Initialized({"x": 1})
