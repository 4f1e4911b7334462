"""Tasks of a stateless server, followed by its client: the extension ``io.modelcontextprotocol/tasks`` of 2026-07-28.

The server decides which calls become tasks. The state of a task has all there is to know: the questions that it waits
for, which the client's callbacks answer, and its outcome. Where the server reports the states of tasks on a
subscription, the client listens (XTASK-11); otherwise it polls, as often as the server asks for (XTASK-14).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from mcpio.app.client_inputs import answers_to
from mcpio.app.tasks.requester import Clock, TaskHandle, TaskWatch, flat_task, follow, is_over, looks, poll_interval
from mcpio.codec import codec
from mcpio.engine.gates import check_question
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.errors import (
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    NoBackChannel,
    RequestCancelled,
    RequestError,
    TooManyRounds,
)
from mcpio.revisions import REV_2026_07_28
from mcpio.types.custom import CustomRequest
from mcpio.types.task_extension import CreatedTask, DetailedTask, TaskNotification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpio.events import IncomingId
    from mcpio.types.inputs import InputRequest
    from mcpio.types.tasks import Task
    from mcpio.types.tools import CallToolRequest

__all__ = ["StatelessTaskHandle", "to_the_end"]

R = TypeVar("R")

_CODEC: Final = codec(REV_2026_07_28)

MOST_QUESTIONS: Final = 1000
"""How many questions of one task are answered."""
RARELY: Final = 60.0
"""Seconds between two polls of a task whose changes are reported: a report may get lost."""


async def to_the_end(
    watch: Callable[[], TaskWatch],
    request: CallToolRequest,
    answer: object,
    *,
    timeout: Timeout | float | None | Default,
    related_to: IncomingId | None,
) -> Any:
    """Return the answer to a call, or the result of the task by which the server answered (XTASK-03, XTASK-17).

    Raises as ``TaskHandle.result``.
    """
    if not isinstance(answer, CreatedTask):
        return answer
    return await follow(watch(), request, answer, None, related_to).result(timeout=timeout)


class TaskReports(Protocol):
    """The client's subscription, as far as tasks need it."""

    async def follow_task(self, id: str) -> bool:
        """Listen to a task too; return whether the server reports it."""

    def reports_task(self, id: str) -> bool:
        """Whether the server reports changes of a task at present."""

    def leave_task(self, id: str) -> None:
        """Listen to a task no longer."""


class StatelessTaskHandle(TaskHandle[R]):
    """One task of a stateless server. Waiting for its result, or iterating over it, answers its questions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._detail: DetailedTask | TaskNotification | None = None
        # The keys of questions that were answered, which a later poll may still show (XTASK-09).
        self._answered: set[str] = set()
        self._is_answering = False
        self._is_followed = False
        # Whether a change may have been missed, so that the next state is asked for.
        self._is_doubted = False

    async def status(self, *, timeout: Timeout | float | None | Default = DEFAULT) -> Task:
        """Request the state of the task and return it (XTASK-06). Raises as ``Session.request`` does.

        Raises RequestError (-32602) if the server no longer knows the task.
        """
        result = await self._send("tasks/get", timeout)
        detail = _CODEC.decode(result, DetailedTask)
        if detail.task_id != self.id:
            raise InvalidMessage("taskId", f"expected {self.id!r:.100}, got {detail.task_id!r:.100}")
        return self._record(detail)

    async def cancel(self, *, timeout: Timeout | float | None | Default = DEFAULT) -> Task:
        """Ask the server to cancel the task, and return its state, which may be another yet (XTASK-10)."""
        await self._send("tasks/cancel", timeout)
        return await self.status(timeout=timeout)

    async def next_state(self, seen: Task | None) -> Task:
        """Wait for a state that differs from ``seen``, and return it. Meanwhile questions are answered."""
        while self.last is None or looks(self.last) == looks(seen):
            await self._advance(None)
        return self.last

    # For this package

    def take(self, told: TaskNotification) -> None:
        """Record a state that the server reported (XTASK-11)."""
        self._record(told)
        self._changed.notify_all()  # the questions may be others

    def doubt(self) -> None:
        """Record that changes may have been missed, or are not reported any more."""
        self._is_doubted = True
        self._changed.notify_all()

    # Inside

    def _record(self, detail: DetailedTask | TaskNotification) -> Task:
        state = flat_task(detail)
        if self._detail is None or not is_over(self.last):
            self._detail = detail
            self.note(state)
            if is_over(state):
                self._leave()
        return state

    async def _wait(self, clock: Clock, *, poll: bool) -> None:
        del poll  # a request for the result alone does not exist
        while self._detail is None or not is_over(self.last):
            await self._advance(clock)

    async def _advance(self, clock: Clock | None) -> None:
        """Answer the questions, or else wait until a state is reported or the next poll is due; then poll."""
        questions = self._questions()
        if questions and not self._is_answering:
            await self._answer(questions, clock)
            if self._is_reported or is_over(self.last):
                return
        elif self.last is not None and not self._is_doubted and not self._watch.has_ended:
            self._follow()
            pause = poll_interval(self.last, clock, RARELY) if self._is_reported else poll_interval(self.last, clock)
            if await self._changed.wait(pause):
                return
        self._is_doubted = False
        await self._repeatedly(self.status, clock)

    # The subscription

    @property
    def _listening(self) -> TaskReports:
        client: Any = self._watch.session
        listening: TaskReports = client.driving.managed_listening
        return listening

    @property
    def _is_reported(self) -> bool:
        return self._is_followed and self._listening.reports_task(self.id)

    def _follow(self) -> None:
        """Begin to listen, beside the polls."""
        if not self._is_followed:
            self._is_followed = True
            self._watch.session.driver.runtime.spawn(self._begin_to_follow())

    async def _begin_to_follow(self) -> None:
        if await self._listening.follow_task(self.id):
            self.doubt()  # what happened before is not reported by every server

    def _leave(self) -> None:
        """Listen no longer."""
        if self._is_followed:
            self._listening.leave_task(self.id)

    def _questions(self) -> Mapping[str, InputRequest]:
        """Return the questions that were not answered yet, by their keys."""
        detail = self._detail
        if detail is None or detail.status != "input_required":
            return {}
        asked = detail.input_requests or {}
        return {key: question for key, question in asked.items() if key not in self._answered}

    async def _answer(self, questions: Mapping[str, InputRequest], clock: Clock | None) -> None:
        """Answer questions by the client's callbacks. If one of these fails, the task is given up.

        So it is, with TooManyRounds, beyond ``MOST_QUESTIONS``: a server must not ask for ever.
        """
        client: Any = self._watch.session
        self._is_answering = True
        try:
            self._check_questions(len(questions))
            for question in questions.values():
                check_question(question, client.connection.capabilities, _CODEC)
            answers = {key: _CODEC.encode(answer) for key, answer in (await answers_to(client, questions)).items()}
            self._answered |= answers.keys()
            # The first answer to a question counts, so this is safe to repeat too.
            await self._repeatedly(partial(self._send, "tasks/update", inputResponses=answers), clock)
        except Exception:
            self._give_up()
            raise
        finally:
            self._is_answering = False

    def _check_questions(self, count: int) -> None:
        if len(self._answered) + count > MOST_QUESTIONS:
            raise TooManyRounds(self.operation, len(self._answered))

    async def _send(self, method: str, timeout: Timeout | float | None | Default, **more: Any) -> Any:
        if not self.id:
            raise LocalProtocolError(f"{self.operation}: the peer made no task of it, and has answered already")
        request = CustomRequest(method, {"taskId": self.id, **more})
        return await self._watch.session.request(request, timeout=timeout)

    def _give_up(self) -> None:
        if self.owned and not self.done:
            self._leave()
            session = self._watch.session
            with suppress(LocalProtocolError, NoBackChannel):
                request = CustomRequest("tasks/cancel", {"taskId": self.id})
                session.connection.send_request(request, now=session.driver.now())
                session.driver.wake()

    def _decoded(self) -> R:
        detail: Any = self._detail
        if detail.status == "cancelled":
            raise RequestCancelled(self.operation, detail.status_message)
        if detail.status == "failed":
            raise _failure(detail)
        if detail.result is None:
            raise InvalidMessage("result", "a completed task needs its result")
        result: R = _CODEC.decode(detail.result, self._result_type)
        return result


def _failure(detail: DetailedTask) -> RequestError:
    """Return the error of a failed task (XTASK-07)."""
    error: Any = detail.error or {}
    code, message = error.get("code"), error.get("message")
    if type(code) is not int or not isinstance(message, str):
        return RequestError(ErrorCode.INTERNAL_ERROR, detail.status_message or "The task failed, and does not say why")
    return RequestError(code, message, error.get("data"))
