"""What becomes of the work of a task, whatever that does. Most is shown from the wire: see ``test_tool_tasks``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from linked import Link
from tasked import Host, Mine, Wire

from mcpio.app.context import Context
from mcpio.app.runtime import ThreadPool
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions, TaskReceiver, TaskRun
from mcpio.app.tasks.store import MemoryTaskStore
from mcpio.auth.grant import Grant
from mcpio.engine.limits import Limits
from mcpio.engine.table import Role
from mcpio.engine.tasks import TaskChanged, TaskLimits
from mcpio.errors import LocalProtocolError, NoBackChannel
from mcpio.testing import ManualCancelled
from mcpio.types import CallToolResult, ElicitFormRequest, ElicitResult, ElicitSchema, ListRootsRequest, TextContent

RELATED = "io.modelcontextprotocol/related-task"


def serving(function: Any, link: dict[str, Any] | None = None, **options: Any) -> Wire:
    server = Server("s", tasks=TaskOptions(**options))
    server.tool(function, name="dig", task_support="optional")
    return Wire(Link(server, **(link or {}), era="handshake"))


class Disk(MemoryTaskStore):
    """A store that blocks."""

    blocking = True


def test_a_store_that_blocks_changes_nothing_for_the_client() -> None:
    wire = serving(lambda: "gold", store=Disk())
    id = wire.begin()
    waits = wire.send("tasks/result", taskId=id)
    answer = wire.answer_to(waits)
    assert answer is not None
    assert (answer["result"]["content"][0]["text"], wire.status(id)) == ("gold", "completed")
    assert wire.ask("tasks/cancel", taskId=id)["code"] == -32602


def test_request_cancelled_before_its_task_is_stored_leaves_no_task() -> None:
    disk = Disk()
    wire = serving(lambda: "gold", store=disk)
    link = wire.link
    link.pair.server.receive_data(
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"dig","task":{}}}\n'
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}\n',
        link.pair.now,
    )
    wire.look()
    assert (wire.answer_to(7), disk._rows) == (None, {})


def test_abandoned_tasks_fail_while_their_host_lives() -> None:
    async def dig(ctx: Context) -> None:
        await ctx.session.driver.runtime.one_shot().wait()

    wire = serving(dig)
    first, second = wire.begin(), wire.begin()
    tasks = wire.link.session.server.tasks
    assert tasks is not None
    tasks.abandon(lambda handle: handle is tasks._runs[first].handle)
    assert (wire.status(first), wire.status(second)) == ("failed", "working")
    tasks.abandon(lambda handle: True)
    assert wire.status(second) == "failed"


def test_closed_session_starts_no_task() -> None:
    contexts: list[Context] = []

    def dig(ctx: Context) -> str:
        contexts.append(ctx)
        return "gold"

    wire = serving(dig)
    wire.begin()
    tasks = wire.link.session.server.tasks
    assert tasks is not None
    tasks.detach(wire.link.session.driver)
    error = wire.ask("tools/call", name="dig", task={})
    assert error["code"] == -32603
    assert any(isinstance(each, NoBackChannel) for each in wire.link.errors)


@pytest.mark.parametrize(
    ("event", "answer", "end"),
    [("cancelled", "task", "cancelled"), ("expired", "task", "-32602"), ("host ended", -32603, "failed")],
)
def test_task_that_ends_before_its_work_begins_runs_nothing(event: str, answer: Any, end: str) -> None:
    dug: list[str] = []
    ids: list[str] = []

    def end_at_once(change: TaskChanged) -> None:
        if change.change == "created":
            ids.append(change.task.task_id)
            if event == "cancelled":
                tasks._machine.cancel(None, ids[0], now=0, cookie=wire.link.runtime.one_shot())
            elif event == "expired":
                tasks._machine.handle_timeout(1e9)
            else:
                tasks.stop(wire.link.session.driver)

    wire = serving(lambda: dug.append("gold"), on_change=end_at_once)
    tasks: Any = wire.link.session.server.tasks
    found = wire.ask("tools/call", name="dig", task={})
    assert answer == found.get("code") or answer in found
    assert (dug, tasks._runs, wire.status(ids[0])) == ([], {}, end)


def test_work_that_holds_up_the_loop_is_reported() -> None:
    wire: Wire

    def dig() -> str:
        wire.link.pair.now += 0.06
        return "gold"

    wire = serving(dig)
    wire.begin()
    assert any(each.startswith("the task of tools/call held up everything else") for each in wire.link.reports)


def test_result_that_cannot_be_encoded_fails_its_task() -> None:
    def dig() -> CallToolResult:
        return CallToolResult((TextContent("gold"),), extra={"x": object()})

    wire = serving(dig)
    id = wire.begin()
    assert wire.ask("tasks/result", taskId=id) == {"code": -32603, "message": "Internal error"}
    assert "the outcome of a task cannot be sent" in wire.link.reports


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_exit_of_the_program_propagates_through_a_task(kind: type[BaseException]) -> None:
    async def dig() -> str:
        raise kind

    wire = serving(dig)
    with pytest.raises(kind):
        wire.begin()


def test_work_that_cancels_itself_fails_its_task() -> None:
    async def dig() -> str:
        raise ManualCancelled

    wire = serving(dig)
    id = wire.begin()
    assert wire.status(id) == "failed"
    assert "the task of tools/call was cancelled from inside" in wire.link.reports


def test_a_store_that_fails_is_reported() -> None:
    class Broken(MemoryTaskStore):
        def write(self, changes: Any) -> Any:
            raise OSError("no disk")

    wire = serving(lambda: "gold", store=Broken())
    error = wire.ask("tools/call", name="dig", task={})
    assert (error["code"], error["message"]) == (-32603, "The task could not be stored")
    assert "tasks cannot be stored" in wire.link.reports
    for _ in range(50):
        wire.ask("tools/call", name="dig", task={})
    later = [each for each in wire.link.reports if each.startswith("tasks cannot be stored again: OSError('no disk')")]
    assert 1 <= len(later) <= 20


@pytest.mark.req("TASK-36")
def test_a_result_that_is_too_large_fails_its_task() -> None:
    wire = serving(lambda: "gold" * 99, limits=TaskLimits(result_bytes=100))
    id = wire.begin()
    assert wire.ask("tasks/result", taskId=id)["data"] == {"reason": "result too large", "limit": 100}


# What belongs to a task says so


@pytest.mark.req("TASK-28", "PROG-07")
def test_progress_continues_under_its_token_until_the_task_ends() -> None:
    mine = Mine()
    id = mine.wire.begin(_meta={"progressToken": "t"})
    (ctx,) = mine.contexts
    for number in (1, 1, 0.5, 2):
        ctx.progress(number, 3, "deeper")
        mine.wire.look()
    assert mine.wire.notes("progress") == [
        {"progressToken": "t", "progress": n, "total": 3, "message": "deeper", "_meta": {RELATED: {"taskId": id}}}
        for n in (1, 2)
    ]
    mine.wire.send("tasks/result", taskId=id)
    ctx.progress(2.5)
    mine.dug()
    ctx.progress(3)
    mine.wire.look()
    assert len(mine.wire.notes("progress")) == 3
    mine.wire.begin()
    mine.contexts[1].progress(1)
    assert len(mine.wire.notes("progress")) == 3


@pytest.mark.req("TASK-28")
def test_log_messages_of_a_task_name_it_in_meta() -> None:
    mine = Mine()
    id = mine.wire.begin()
    mine.contexts[0].log("info", "deep")
    mine.wire.look()
    (note,) = mine.wire.notes("message")
    assert (note["data"], note["_meta"]) == ("deep", {RELATED: {"taskId": id}})


@pytest.mark.req("TASK-29", "TASK-30", "TASK-38")
def test_changes_are_notified_and_passed_to_on_change() -> None:
    mine = Mine()
    id = mine.wire.begin()
    task = mine.contexts[0].task
    assert task is not None
    assert (task.id, task.is_resumed, task.owner) == (id, False, None)
    task.say("half way")
    mine.dug()
    task.say("more")
    notes = mine.wire.notes("tasks/status")
    said = [(note["taskId"], note["status"], note.get("statusMessage")) for note in notes]
    assert said == [(id, "working", "half way"), (id, "completed", None)]
    assert all("_meta" not in note for note in notes)
    mine.link.advance(3601)
    heard = [(each.change, each.task.status, each.operation) for each in mine.changes]
    operation = "tools/call 'dig'"
    assert heard == [
        ("created", "working", operation),
        ("status", "working", operation),
        ("status", "completed", operation),
        ("expired", "completed", operation),
    ]


@pytest.mark.req("TASK-30")
def test_status_notifications_are_optional() -> None:
    mine = Mine(notify=False)
    mine.wire.begin()
    mine.dug()
    assert mine.wire.notes("tasks/status") == []


@pytest.mark.req("TASK-38")
def test_failing_on_change_is_reported() -> None:
    def fail(change: TaskChanged) -> None:
        raise OSError("no paper")

    server = Server("s", tasks=TaskOptions(on_change=fail))
    server.tool(lambda: "x", name="dig", task_support="optional")
    wire = Wire(Link(server, era="handshake"))
    assert wire.status(wire.begin()) == "completed"
    assert "the callback for changes of tasks failed" in wire.link.reports


# Time


@pytest.mark.req("TASK-32", "TASK-33", "TASK-36")
def test_expired_task_is_cancelled_and_unknown() -> None:
    mine = Mine()
    id = mine.wire.begin(ttl=5000)
    waits = mine.wire.send("tasks/result", taskId=id)
    mine.link.advance(4.9)
    assert mine.wire.status(id) == "working"
    mine.link.advance(0.2)
    mine.wire.look()
    answer = mine.wire.answer_to(waits)
    assert answer is not None
    assert answer["error"]["code"] == -32602
    assert (mine.ended, mine.wire.status(id)) == (["cancelled"], "-32602")


# Cancelling


@pytest.mark.req("TASK-23", "TASK-25", "TASK-26", "CANC-04")
def test_a_cancelled_task_stops_and_stays_cancelled() -> None:
    mine = Mine()
    id = mine.wire.begin()
    waits = mine.wire.send("tasks/result", taskId=id)
    answer = mine.wire.ask("tasks/cancel", taskId=id)
    assert (answer["taskId"], answer["status"]) == (id, "cancelled")
    assert (mine.ended, mine.contexts[0].cancelled) == (["cancelled"], True)
    error = {"code": -32603, "message": "Task was cancelled", "data": {"taskId": id, "status": "cancelled"}}
    waited = mine.wire.answer_to(waits)
    assert waited is not None
    assert waited["error"] == error
    assert mine.wire.ask("tasks/result", taskId=id) == error
    assert mine.wire.ask("tasks/cancel", taskId=id)["code"] == -32602
    assert mine.wire.status(id) == "cancelled"
    assert mine.link.reports == [each for each in mine.link.reports if "never sent" in each]


@pytest.mark.req("TASK-25")
def test_result_of_a_cancelled_task_is_dropped() -> None:
    mine = Mine()

    @mine.server.tool(task_support="optional")
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.session.driver.runtime.one_shot().wait()
        except BaseException:
            return "all the same"
        return ""

    id = mine.wire.begin("stubborn")
    mine.wire.ask("tasks/cancel", taskId=id)
    assert mine.wire.status(id) == "cancelled"
    assert mine.wire.ask("tasks/result", taskId=id)["message"] == "Task was cancelled"


@pytest.mark.req("CANC-04")
def test_the_notification_cancels_the_request_and_not_the_task() -> None:
    mine = Mine()
    id = mine.wire.begin()
    waits = mine.wire.send("tasks/result", taskId=id)
    mine.wire.feed(method="notifications/cancelled", params={"requestId": waits})
    mine.wire.feed(method="notifications/cancelled", params={"requestId": 101})
    mine.dug()
    assert (mine.wire.answer_to(waits), mine.wire.status(id)) == (None, "completed")


# Lists and owners


@pytest.mark.req("TASK-24", "TASK-33")
def test_tasks_are_listed_in_pages() -> None:
    server = Server("s", page_size=2, tasks=TaskOptions(list=True))
    server.tool(lambda: "x", name="dig", task_support="optional")
    wire = Wire(Link(server, era="handshake"))
    ids = [wire.begin() for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while cursor is not None:
        page = wire.ask("tasks/list", **cursor)
        seen += [task["taskId"] for task in page["tasks"]]
        wire.begin()
        if len(seen) == 6:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen[:5] == ids
    assert wire.ask("tasks/list", cursor="made up")["code"] == -32602


@pytest.mark.req("TASK-35")
def test_anonymous_requestors_get_no_list() -> None:
    assert Mine().wire.ask("tasks/list")["code"] == -32601


@pytest.mark.req("TASK-34", "TASK-18")
def test_tasks_belong_to_their_principal_across_sessions() -> None:
    mine = Mine(link={"principal": "ada"})
    id = mine.wire.begin()
    ada = mine.wire
    again = Wire(Link(mine.server, principal="ada", era="handshake"))
    bob = Wire(Link(mine.server, principal="bob", era="handshake"))
    for verb in ("get", "result", "cancel"):
        assert bob.ask(f"tasks/{verb}", taskId=id)["message"] == "Task not found"
    assert (bob.ask("tasks/list"), again.status(id)) == ({"tasks": []}, "working")
    assert [each["taskId"] for each in again.ask("tasks/list")["tasks"]] == [id]
    waits = again.send("tasks/result", taskId=id)
    ada.look()
    mine.dug()
    again.look()
    assert again.answer_to(waits) is not None


@pytest.mark.req("TASK-34")
def test_owner_follows_from_the_principal_or_the_owner_option() -> None:
    known = Mine(link={"principal": Grant("https://id", "ada", "app")})
    known.wire.begin()
    assert known.changes[0].owner == '["https://id","ada","app"]'
    mine = Mine(link={"principal": ("ada", 5)}, owner=lambda principal: principal and principal[0])
    mine.wire.begin()
    assert mine.changes[0].owner == "ada"
    other = Mine(link={"principal": ("ada", 5)})
    assert other.wire.ask("tools/call", name="dig", task={})["code"] == -32603
    assert "an owner must be a string" in str(other.link.errors[0])


# Places


@pytest.mark.parametrize("resume", [True, False])
def test_interrupted_task_resumes_at_another_host_or_is_lost(resume: bool) -> None:
    mine = Mine(link={"principal": "ada"}, tool={"resume": resume})
    id = mine.wire.begin()
    mine.link.pair.server.abort()
    mine.link.run()
    # Somebody else's session is a place too, but not the session of the task.
    bob = mine.connect(principal="bob", era="handshake")
    assert len(mine.digs) == (2 if resume else 1)
    assert [each.session for each in mine.contexts if each.session is bob.link.session] == []
    assert bob.status(id) == "-32602"
    ada = mine.connect(principal="ada", era="handshake")
    assert ada.status(id) == ("working" if resume else "failed")


def test_interrupted_run_changes_nothing_of_the_resumed_one() -> None:
    mine = Mine(link={"principal": "ada"}, tool={"resume": True})
    id = mine.wire.begin()
    mine.link.pair.server.abort()
    mine.link.run()
    ada = mine.connect(principal="ada", era="handshake")
    old, new = (context.task for context in mine.contexts)
    assert isinstance(old, TaskRun)
    assert new is not None
    new.say("new")
    old.say("old")
    with pytest.raises(LocalProtocolError, match="the task is over"):
        old.ask(lambda session: session.request, ListRootsRequest()).send(None)
    with pytest.raises(LocalProtocolError, match="the task is over"):
        old.put_question("q", {"method": "elicitation/create", "params": {}}).send(None)
    found = ada.ask("tasks/get", taskId=id)
    assert (found["status"], found["statusMessage"]) == ("working", "new")


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_question_that_is_awaited_no_more_is_withdrawn_unless_another_run_asks_it(is_interrupted: bool) -> None:
    mine = Mine(link={"principal": "ada"}, tool={"resume": True})
    id = mine.wire.begin()
    run: Any = mine.contexts[0].task
    question = {"method": "elicitation/create", "params": {}}
    asking = run.put_question("q", question)
    asking.send(None)

    def open_questions() -> list[str]:
        return list(run._receiver._keeping.machine.look(run.owner, id).inputs)

    assert open_questions() == ["q-1"]
    asked_again: Any = None
    if is_interrupted:
        mine.link.pair.server.abort()
        mine.link.run()
        mine.connect(principal="ada", era="handshake")
        again: Any = mine.contexts[1].task
        asked_again = again.put_question("q", question)
        asked_again.send(None)
    before = open_questions()
    asking.close()
    mine.link.run()
    assert open_questions() == (before if is_interrupted else [])
    if is_interrupted:
        assert before
        asked_again.close()


def test_unresumed_task_is_lost() -> None:
    store = MemoryTaskStore()
    mine = Mine(store=store, tool={"resume": True})
    id = mine.wire.begin()
    task = Mine(store=store).wire.ask("tasks/get", taskId=id)
    assert (task["status"], task["statusMessage"]) == ("failed", "The server does not know how to go on with it")


def test_a_host_runs_the_tasks_of_all_sessions() -> None:
    mine = Mine(link={"principal": "ada"})
    tasks: Any = mine.server.tasks
    host = Host(mine.link)
    tasks.attach(host)
    mine.wire.begin()
    tasks.stop(host)
    tasks.detach(host)
    tasks.detach(host)
    mine.wire.look()
    assert mine.ended == ["cancelled"]
    mine.link.do(tasks.flush(mine.link.session.driver))


# Failures


@pytest.mark.req("TASK-15", "TASK-21")
def test_request_error_raised_by_the_work_is_the_outcome() -> None:
    mine = Mine()
    id = mine.wire.begin("sift", arguments={"how": "badly"})
    assert mine.wire.ask("tasks/result", taskId=id) == {"code": -32001, "message": "no sieve", "data": {"x": 1}}


@pytest.mark.parametrize("kind", [ValueError, None])
def test_handler_that_fails_or_returns_no_result_fails_its_task(kind: type[Exception] | None) -> None:
    def answer(scope: Any, request: Any) -> Any:
        if kind is not None:
            raise kind("broken")
        return "no result"

    wire = Wire(Link(Server("s"), elicitation=answer, tasks=TaskOptions(), era="handshake"), Role.CLIENT)
    form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
    id = wire.ask("elicitation/create", **form, task={})["task"]["taskId"]
    assert wire.ask("tasks/result", taskId=id) == {"code": -32603, "message": "Internal error"}
    assert wire.link.reports.count("the task of elicitation/create failed") == 1


@pytest.mark.req("TASK-16")
def test_question_sets_input_required_until_the_answer() -> None:
    async def dig(ctx: Context) -> str:
        return (await ctx.elicit(ElicitFormRequest("How deep?", ElicitSchema({})))).action

    wire = serving(dig, {"elicitation": lambda scope, request: ElicitResult("decline")})
    id = wire.begin()
    assert wire.status(id) == "input_required"
    wire.send("tasks/result", taskId=id)
    said = [each["status"] for each in wire.notes("tasks/status")]
    assert said == ["input_required", "working", "completed"]
    other = wire.begin()
    wire.ask("tasks/cancel", taskId=other)
    assert wire.status(other) == "cancelled"


def test_failure_without_a_host_is_not_reported() -> None:
    class Broken(Disk):
        def write(self, changes: Any) -> Any:
            raise OSError("no disk")

    wire = serving(lambda: "gold", store=Broken())
    text = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"dig","task":{}}}\n'
    wire.link.pair.server.receive_data(text, 0.0)
    wire.link.pair.run()
    wire.link.pair.server.abort()
    wire.link.pair.run()
    tasks: Any = wire.link.session.server.tasks
    wire.link.do(tasks.flush(wire.link.session.driver))
    assert "tasks cannot be stored" not in wire.link.reports


@pytest.mark.req("TASK-03")
def test_request_without_task_params_creates_no_task() -> None:
    wire = serving(lambda: "gold")
    assert "content" in wire.ask("tools/call", name="dig")


def test_events_without_a_host_are_not_reported() -> None:
    receiver = TaskReceiver(TaskOptions(), ThreadPool(Limits()))
    receiver._report("lost", OSError())
    assert receiver._keeping.host is None


def test_tasks_continue_at_the_remaining_host() -> None:
    link = Link(server := Server("s", tasks=TaskOptions()))
    tasks: Any = server.tasks
    first, second = Host(link), Host(link)
    tasks.attach(first)
    tasks.attach(second)
    tasks.stop(second)
    assert tasks._host is first
    tasks.stop(first)
    assert tasks._host is None


def test_tasks_that_go_on_after_their_host_are_waited_for_and_named() -> None:
    server = Server("s", tasks=TaskOptions())

    @server.tool(task_support="optional")
    async def dig() -> None:
        await link.runtime.one_shot().wait()

    wire = Wire(link := Link(server, era="handshake"))
    tasks: Any = server.tasks
    first, second = Host(link), Host(link)
    for host in (first, second):
        tasks.attach(host)
        wire.begin()
    wire.begin()  # the second of that host
    tasks.stop(second)
    tasks.report_work(second)
    assert (first.reports, len(second.reports)) == ([], 2)
    assert second.reports[0].startswith("the task of tools/call does not end when it is cancelled")
    link.do(tasks.wait_for_work(second))
    assert len(tasks._working) == 1
    link.do(tasks.wait_for_work(second))  # nothing is left to wait for


def test_end_of_a_host_waits_for_work_that_goes_on_after_its_cancellation() -> None:
    server = Server("s", tasks=TaskOptions())
    ended: list[str] = []

    @server.tool(task_support="optional")
    async def dig() -> None:
        for _ in range(9):  # each takes a turn
            with suppress(ManualCancelled):
                await link.runtime.one_shot().wait()
        ended.append("work")

    async def wait() -> None:
        await tasks.wait_for_work(host)
        ended.append("host")

    wire = Wire(link := Link(server, era="handshake"))
    tasks: Any = server.tasks
    host = Host(link)
    tasks.attach(host)
    wire.begin()
    tasks.stop(host)
    link.do(wait())
    assert ended == ["work", "host"]
