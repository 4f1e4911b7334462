from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcpio import Options, Server
from mcpio._drivers import checked_auth
from mcpio._drivers.login import LoginSetup
from mcpio._drivers.stdio import stderr_mode
from mcpio.app.client import client_connection
from mcpio.app.middleware.policies import Cache, RateLimit, allow
from mcpio.app.runtime import check_nothing_waits, checked_callback
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.auth import BearerToken, OAuth
from mcpio.auth.keys import LocalSigner
from mcpio.observe import Recorder
from mcpio.testing import ManualRuntime


async def later() -> None: ...


def test_a_callback_is_a_plain_function_or_none() -> None:
    assert checked_callback("on_x", None, "(x)") is None
    assert checked_callback("on_x", print, "(x)") is print


@pytest.mark.parametrize("callback", [later, 5, "print"])
def test_async_callback_is_refused(callback: Any) -> None:
    with pytest.raises(TypeError, match="on_x must be a plain function, called without waiting, not "):
        checked_callback("on_x", callback, "(x)")


def test_callback_returning_an_awaitable_raises() -> None:
    check_nothing_waits(None)
    check_nothing_waits(5)
    for waits in (later(), ManualRuntime().one_shot()):
        with pytest.raises(TypeError, match="which is never awaited: make it a plain function"):
            check_nothing_waits(waits)


def tool(**options: Any) -> None:
    Server("s", "1").tool(name="t", **options)(lambda: "")


def login(ask_user: Any) -> object:
    return LoginSetup.check("https://example.com/", {"auth": OAuth(), "ask_user": ask_user})


FUNCTIONS: dict[str, tuple[Callable[[Any], object], int]] = {
    "log_filter": (lambda given: Server("s", "1", log_filter=given), 2),
    "lifespan": (lambda given: Server("s", "1", lifespan=given), 1),
    "visible": (lambda given: tool(visible=given), 1),
    "scopes": (lambda given: tool(scopes=given), 1),
    "on_tasks_create": (lambda given: Options(on_tasks_create=given), 1),
    "owner": (lambda given: TaskOptions(owner=given), 1),
    "on_change": (lambda given: TaskOptions(on_change=given), 1),
    "sampling": (lambda given: client_connection(sampling=given), 2),
    "elicitation": (lambda given: client_connection(elicitation=given), 2),
    "roots": (lambda given: client_connection(roots=given), 0),
    "on_log": (lambda given: client_connection(on_log=given), 1),
    "on_notification": (lambda given: client_connection(on_notification=given), 1),
    "per": (lambda given: RateLimit(5, per=given), 2),
    "per ": (lambda given: Cache(5, per=given), 2),
    "predicate": (allow, 2),
    "principal": (lambda given: checked_auth(None, given, "(scope)"), 1),
    "choose_issuer": (lambda given: OAuth(choose_issuer=given), 1),
    "on_step_up": (lambda given: OAuth(on_step_up=given), 1),
    "assertion": (BearerToken, 1),
    "ask_user": (login, 1),
    "stderr": (stderr_mode, 1),
    "write": (Recorder, 1),
    "sign": (lambda given: LocalSigner("ES256", None, {}, given), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_do_not_fit_are_refused_where_they_are_passed(name: str) -> None:
    give, count = FUNCTIONS[name]
    for wrong in (5, object()):
        with pytest.raises((TypeError, ValueError), match=r"must be|takes|called|function"):
            give(wrong)
    given = [f"x{number}" for number in range(count)]
    one_more = eval(f"lambda {', '.join([*given, 'one_more'])}: None")
    with pytest.raises(TypeError, match=rf"{name.strip()}= is called with \(.*\), which .* does not take: .*one_more"):
        give(one_more)
    give(eval(f"lambda {', '.join([*given, 'one_more=None'])}: None"))
    give(print)
