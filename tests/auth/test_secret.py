from __future__ import annotations

import copy
import logging
import pickle
import traceback

import pytest

from mcpio.auth import Secret
from mcpio.auth.keys import as_secret

CANARY = "canary-4711"


def test_representations_hide_the_text() -> None:
    secret = Secret(CANARY)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>30}", f"{[secret]}", "%s" % secret]  # noqa: UP031  the old way must hide it too
    assert [text for text in shown if CANARY in text] == []
    assert secret.reveal() == CANARY


def test_logs_and_tracebacks_hide_the_text(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(CANARY)
    logging.getLogger("test").error("failed with %s %r", secret, secret)
    shown = "".join(traceback.format_exception(ValueError(secret)))
    assert CANARY not in shown + caplog.text


def test_pickling_raises() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Secret(CANARY))
    with pytest.raises(TypeError):
        copy.copy(Secret(CANARY))


def test_equality_is_that_of_the_texts() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("\ud800ä") == Secret("\ud800ä")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_secret_of_another_type_raises_without_showing_it() -> None:
    for make in (Secret, as_secret):
        with pytest.raises(TypeError, match="a Secret must be made of a str, not bytes") as caught:
            make(b"hunter2")  # type: ignore[arg-type]  # of another type
        assert "hunter2" not in str(caught.value)
