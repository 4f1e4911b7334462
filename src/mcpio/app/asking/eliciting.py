"""How a server asks its client's user: by a form that a class describes, or at a web address."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from mcpio._checks import required
from mcpio.app.asking.elicited import ElicitAnswer, answer_of
from mcpio.app.asking.form_content import check_content, lowered
from mcpio.app.asking.forms import Form, form_of, warn_of_secrets
from mcpio.app.asking.web_address import lint_address, web_address
from mcpio.errors import LocalProtocolError, NoBackChannel
from mcpio.types.elicitation import ElicitFormRequest, ElicitResult, ElicitURLRequest, UnknownSchema

if TYPE_CHECKING:
    from mcpio.app.serving import ServerSession
    from mcpio.revisions import Revision

__all__ = ["ask_by_form", "ask_by_url", "ask_user"]

T = TypeVar("T")

Ask = Callable[[Any], Coroutine[Any, Any, Any]]
"""Sends a request to the client and returns its result."""


def ask_user(
    request: ElicitFormRequest | ElicitURLRequest, ask: Ask, session: ServerSession, revision: Revision
) -> Coroutine[Any, Any, ElicitResult]:
    """Ask with a request of the author's own; what comes back is checked against it (ELIC-12).

    ``TypeError`` for what is no such request, ``ValueError`` for an address that leads nowhere (ELIC-14).
    """
    if isinstance(request, ElicitURLRequest):
        _check_address(request.url)
        return _visited(ask(request), request.elicitation_id, session)
    if not isinstance(request, ElicitFormRequest):
        raise TypeError(f"give a request, or a message and the class of the form, not {request!r:.100}")
    for name, field in request.requested_schema.properties.items():
        if isinstance(field, UnknownSchema):
            raise TypeError(f"the field {name!r:.100} is not one of the fields of a form (ELIC-04): {field.raw!r:.100}")
    warn_of_secrets(request.requested_schema, level=4)
    form = lowered(request.requested_schema, revision)
    return _filled_in(ask(attrs.evolve(request, requested_schema=form)), request)


def ask_by_form(
    message: str, kind: type[T] | Form[T], ask: Ask, revision: Revision
) -> Coroutine[Any, Any, ElicitAnswer[T]]:
    """Ask by the form of a class. ``TypeError`` for a class that cannot be one."""
    if not isinstance(kind, Form | type):
        raise TypeError(f"form= takes a class or a Form, not {kind!r:.100}")
    form = kind if isinstance(kind, Form) else form_of(kind)
    return _read(ask(ElicitFormRequest(message, lowered(form.schema, revision))), form)


def ask_by_url(
    message: str, url: str | Callable[[str], str], id: str, ask: Ask, session: ServerSession
) -> Coroutine[Any, Any, ElicitAnswer[str]]:
    """Ask to visit a web address, which may be made from the elicitation's id. ``ValueError`` for what is none."""
    address = required("url", url(id) if callable(url) else url, str)
    _check_address(address)
    return _agreed(_visited(ask(ElicitURLRequest(message, address, id)), id, session), id)


def _check_address(url: str) -> None:
    """Warn of what users should not be sent to (ELIC-19)."""
    if faults := lint_address(web_address(url)):
        warnings.warn(f"the web address {url!r:.100}: {', and '.join(faults)}", stacklevel=4)


async def _filled_in(asked: Coroutine[Any, Any, ElicitResult], request: ElicitFormRequest) -> ElicitResult:
    result = _without_stray_content(await asked)
    if result.action == "accept":
        check_content(request.requested_schema, result.content or {})
    return result


async def _read(asked: Coroutine[Any, Any, ElicitResult], form: Form[T]) -> ElicitAnswer[T]:
    return answer_of(await asked, form.read)


async def _visited(asked: Coroutine[Any, Any, ElicitResult], id: str | None, session: ServerSession) -> ElicitResult:
    # Recorded before it goes out: the user may be done there before their client has answered.
    is_news = id is not None and session.begin_visit(id)
    try:
        result = await asked
    except (LocalProtocolError, NoBackChannel):
        if is_news:
            session.withdraw_visit(str(id))
        raise
    return attrs.evolve(result, content=None)


async def _agreed(asked: Coroutine[Any, Any, ElicitResult], id: str) -> ElicitAnswer[str]:
    return answer_of(await asked, lambda _: id)


def _without_stray_content(result: ElicitResult) -> ElicitResult:
    """Leave out what came with a refusal: nobody agreed to send it (ELIC-10)."""
    return result if result.action == "accept" or result.content is None else attrs.evolve(result, content=None)
