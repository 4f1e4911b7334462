"""Servers as child processes, real ones: how they start, what they inherit, and that none is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from mcpio._drivers import posix
from mcpio.errors import ConnectFailed
from mcpio.trio._stdio import ChildProcess, default_environment, open_process_stream, start_process

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

SHORT = 0.05
"""A grace that a test can wait for."""


def python(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", source, *arguments]


ECHO = python("import os\nwhile data := os.read(0, 65536): os.write(1, data)")

IGNORES_EOF = python("import os, time\nos.write(1, b'ready')\ntime.sleep(60)")

IGNORES_SIGTERM = python(
    "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.write(1, b'ready')\ntime.sleep(60)"
)


async def read_all(child: ChildProcess) -> bytes:
    received = b""
    while data := await child.stream.receive_some():
        received += data
    return received


async def until_ready(child: ChildProcess) -> None:
    assert await child.stream.receive_some() == b"ready"


@pytest.mark.req("STDIO-01")
def test_child_process_echoes_until_end_of_input() -> None:
    async def main() -> None:
        async with open_process_stream(ECHO) as child:
            await child.stream.send_all(b"hello")
            assert await child.stream.receive_some() == b"hello"
            await child.stream.send_eof()
            assert await child.stream.receive_some() == b""
            assert await child.wait() == 0
        assert child.returncode == 0

    trio.run(main)


@pytest.mark.req("STDIO-08")
@pytest.mark.parametrize(
    ("argv", "returncode"), [(ECHO, 0), (IGNORES_EOF, -signal.SIGTERM), (IGNORES_SIGTERM, -signal.SIGKILL)]
)
@pytest.mark.parametrize("tied", [False, True])
def test_every_child_is_ended(argv: list[str], returncode: int, tied: bool) -> None:
    async def main() -> None:
        close_grace = 5.0 if argv is ECHO else SHORT
        terminate_grace = 5.0 if argv is IGNORES_EOF else SHORT
        async with open_process_stream(
            argv, die_with_parent=tied, close_grace=close_grace, terminate_grace=terminate_grace
        ) as child:
            if argv is not ECHO:
                await until_ready(child)
        assert child.returncode == returncode
        assert not is_running(child.pid)

    trio.run(main)


@pytest.mark.req("STDIO-08")
def test_a_child_that_blocks_on_its_output_is_read_to_its_end() -> None:
    chatty = python("import os, sys\nos.write(1, b'ready')\nsys.stdin.read()\nos.write(1, bytes(1_000_000))")

    async def main() -> None:
        async with open_process_stream(chatty) as child:
            await until_ready(child)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(expect_closed, child)
                await trio.testing.wait_all_tasks_blocked()
                child.close()
        assert child.returncode == 0

    async def expect_closed(child: ChildProcess) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await child.stream.receive_some()

    trio.run(main)


WITH_HELPERS = """
import os, signal, subprocess, sys, time
if sys.argv[1] == "polite":
    helper = "import sys; sys.stdin.read()"
else:
    helper = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('ready', flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", helper], stdout=subprocess.PIPE)
if sys.argv[1] == "stubborn":
    child.stdout.readline()
os.write(1, str(child.pid).encode())
if sys.argv[2] == "waits":
    sys.stdin.read()
"""


@pytest.mark.req("STDIO-08", "STDIO-13")
@pytest.mark.parametrize("leader", ["waits", "exits at once"])
@pytest.mark.parametrize("helper", ["polite", "stubborn"])
def test_helpers_in_the_process_group_are_ended(helper: str, leader: str) -> None:
    async def main() -> None:
        argv = python(WITH_HELPERS, helper, leader)
        grace = 5.0 if helper == "polite" else SHORT
        async with open_process_stream(argv, close_grace=grace, terminate_grace=SHORT) as child:
            pid = int(await child.stream.receive_some())
            if leader == "exits at once":
                assert await child.wait() == 0
        assert not is_running(pid)
        assert child.returncode == 0

    trio.run(main)


def is_running(pid: int) -> bool:
    """Whether a process exists and is more than a zombie that process 1 has not reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


def test_child_may_be_closed_repeatedly_by_any_task() -> None:
    async def main() -> None:
        async with open_process_stream(ECHO) as child:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(child.aclose)
                child.close()
                child.close()
            assert child.returncode == 0
            child.close()
            await child.aclose()
            await child.stream.aclose()

    trio.run(main)


def test_last_output_of_an_exited_child_is_readable() -> None:
    async def main() -> None:
        async with open_process_stream(python("print('the last words', flush=True); raise SystemExit(3)")) as child:
            assert await child.wait() == 3
            await trio.testing.wait_all_tasks_blocked()
            assert await read_all(child) == b"the last words\n"
            with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)):
                await child.stream.send_all(b"too late")

    trio.run(main)


def test_shutdown_continues_after_a_cancelled_aclose() -> None:
    async def main() -> None:
        async with open_process_stream(IGNORES_EOF, close_grace=SHORT) as child:
            await until_ready(child)
            with trio.move_on_after(0) as scope:
                await child.aclose()
            assert scope.cancelled_caught
            assert await child.wait() == -signal.SIGTERM

    trio.run(main)


def test_a_cancelled_block_ends_its_child() -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with open_process_stream(IGNORES_SIGTERM, close_grace=SHORT, terminate_grace=SHORT) as child:
                await until_ready(child)
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert child.returncode == -signal.SIGKILL

    trio.run(main)


def test_a_cancelled_nursery_ends_its_children() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            child = await start_process(IGNORES_EOF, nursery=nursery, close_grace=SHORT)
            await until_ready(child)
            nursery.cancel_scope.cancel()
        assert child.returncode == -signal.SIGTERM

    trio.run(main)


def test_closed_nursery_raises() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pass
        with pytest.raises(RuntimeError, match="closed"):
            await start_process(ECHO, nursery=nursery)

    trio.run(main)


def test_exception_in_the_block_propagates_unwrapped() -> None:
    async def main() -> None:
        async with open_process_stream(ECHO):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trio.run(main)


@pytest.mark.req("STDIO-13")
def test_arguments_reach_the_program_unchanged() -> None:
    argument = "two words; $HOME * 'x' \"y\" \\ \n ü"

    async def main() -> bytes:
        show = python("import os, sys; os.write(1, os.fsencode(sys.argv[1]))", argument)
        async with open_process_stream(show) as child:
            return await read_all(child)

    assert trio.run(main).decode() == argument


@pytest.mark.req("STDIO-11")
def test_the_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    monkeypatch.setenv("HOME", "(){ :; }")
    monkeypatch.setenv("TERM", "dumb")
    show = python("import os; print(sorted(os.environ), os.getcwd(), os.environ.get('SECRET_TOKEN'))")

    async def main(**options: object) -> str:
        async with open_process_stream(show, **options) as child:  # type: ignore[arg-type]  # options as a user has them
            return (await read_all(child)).decode()

    names = trio.run(main)
    assert "'TERM'" in names
    assert "'PATH'" in names
    assert "HOME" not in names
    assert "SECRET" not in names
    added = trio.run(lambda: main(env={"SECRET_TOKEN": "given"}, cwd=tmp_path))
    assert "'PATH'" in added
    assert f"{tmp_path} given" in added
    assert "hidden" in trio.run(lambda: main(inherit_env=True))
    assert "given" in trio.run(lambda: main(inherit_env=True, env={"SECRET_TOKEN": "given"}))
    with pytest.raises(TypeError, match="env: the value of 'RETRIES' must be text, not of type int"):
        trio.run(lambda: main(env={"RETRIES": 3}))
    assert set(default_environment()) <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}


def test_unstartable_program_raises_connect_failed(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo")
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\x01\x02\x03")
    garbage.chmod(0o755)

    async def message(argv: list[str], **options: object) -> str:
        with pytest.raises(ConnectFailed) as caught:
            async with open_process_stream(argv, **options):  # type: ignore[arg-type]  # options as a user has them
                pass
        return str(caught.value)

    async def main() -> None:
        assert await message(["no-such-program"]) == "cannot start 'no-such-program': no such program"
        assert "no such program" in await message([str(tmp_path / "missing")])
        assert "not an executable file" in await message([str(plain)])
        assert "not an executable file" in await message([str(tmp_path)])
        assert "the interpreter that its first line names" in await message([str(script)])
        assert "Exec format error" in await message([str(garbage)])
        missing = str(tmp_path / "missing")
        assert f"the working directory {missing!r} does not exist" in await message(ECHO, cwd=missing)
        assert "null byte" in await message(["echo", "a\0b"])
        assert "no such program" in await message(["no-such-program"], die_with_parent=True)
        before = len(os.listdir("/proc/self/fd"))
        await message(["no-such-program"], stderr="capture")
        assert len(os.listdir("/proc/self/fd")) == before

    trio.run(main)


def test_invalid_arguments_raise() -> None:
    async def start(argv: object, **options: object) -> None:
        async with open_process_stream(argv, **options):  # type: ignore[arg-type]  # wrong on purpose
            pass

    with pytest.raises(TypeError, match="argv must be a list of strings"):
        trio.run(start, "python server.py")
    with pytest.raises(TypeError, match="argv must be a list of strings"):
        trio.run(start, [])
    with pytest.raises(ValueError, match="stderr must be"):
        trio.run(lambda: start(ECHO, stderr="nowhere"))
    with pytest.raises(ValueError, match="close_grace must be a number of seconds"):
        trio.run(lambda: start(ECHO, close_grace=-1))


FLOOD = python(
    "import os, sys\n"
    "os.write(1, b'before')\n"
    "for number in range(20_000): sys.stderr.write(f'line {number} of a flood of one megabyte, ü\\n')\n"
    "sys.stderr.write('no end')\n"
    "sys.stderr.flush()\n"
    "os.write(1, b'after')\n"
)


@pytest.mark.req("STDIO-07")
@pytest.mark.parametrize("stderr", ["capture", "discard", "function"])
def test_megabyte_of_standard_error_does_not_block_the_child(stderr: str) -> None:
    lines: list[str] = []

    async def main() -> None:
        sink = lines.append if stderr == "function" else stderr
        async with open_process_stream(FLOOD, stderr=sink) as child:  # type: ignore[arg-type]  # two of the literals
            assert await read_all(child) == b"beforeafter"
        tail = child.stderr_tail
        if stderr == "discard":
            assert tail == ""
        else:
            assert tail.startswith("line ")
            assert tail.endswith("line 19999 of a flood of one megabyte, ü\nno end")
            assert 7000 < len(tail) <= 8192

    trio.run(main)
    if stderr == "function":
        assert lines == [*(f"line {number} of a flood of one megabyte, ü" for number in range(20_000)), "no end"]


def test_standard_error_is_inherited_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with open_process_stream(python("import sys; sys.stderr.write('seen')")) as child:
            await child.wait()
            assert child.stderr_tail == ""

    trio.run(main)
    assert capfd.readouterr().err == "seen"


def test_failing_stderr_function_is_not_called_again(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    def fail(line: str) -> None:
        lines.append(line)
        raise ZeroDivisionError

    async def main() -> None:
        async with open_process_stream(FLOOD, stderr=fail) as child:
            await child.wait()

    trio.run(main)
    assert lines == ["line 0 of a flood of one megabyte, ü"]
    assert "the function for a server's standard error failed" in caplog.text


def test_error_contains_exit_status_and_last_stderr() -> None:
    async def words(source: str, stderr: str = "capture") -> str:
        async with open_process_stream(python(source), stderr=stderr) as child:  # type: ignore[arg-type]  # a literal
            return await child.last_words(5 if "sleep" not in source else 0)

    async def main() -> None:
        name = repr(sys.executable)
        assert await words("raise SystemExit('no licence')") == (
            f"{name} exited with status 1; the end of its standard error:\nno licence"
        )
        assert await words("raise SystemExit('\\x1b[2Jno')") == (
            f"{name} exited with status 1; the end of its standard error:\n\\x1b[2Jno"
        )
        assert await words("") == f"{name} exited with status 0"
        assert await words("import os; os.kill(os.getpid(), 9)", "discard") == f"{name} was ended by SIGKILL"
        assert await words("import os; os.kill(os.getpid(), 40)") == f"{name} was ended by signal 40"
        assert await words("import sys, time; sys.stdin.read(); time.sleep(0)") == f"{name} has not exited"

    trio.run(main)


def test_process_that_keeps_standard_error_open_does_not_delay_the_end() -> None:
    stray = python(
        "import subprocess, sys\n"
        "stray = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print(stray.pid, flush=True)"
    )

    async def main() -> None:
        async with open_process_stream(stray, stderr="capture") as child:
            pid = int(await child.stream.receive_some())
        assert child.returncode == 0
        os.kill(pid, signal.SIGKILL)

    trio.run(main)


@pytest.mark.parametrize("is_waiting", [True, False])
def test_process_that_keeps_standard_output_open_does_not_delay_the_end(is_waiting: bool) -> None:
    stray = python(
        "import subprocess, sys\n"
        "stray = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print(stray.pid, flush=True)\n"
        "sys.stdin.read(1)\n"
        "print('the last words', flush=True)"
    )

    async def main() -> None:
        async with open_process_stream(stray) as child:
            pid = int(await child.stream.receive_some())
            try:
                await child.stream.send_all(b"!")
                if not is_waiting:
                    assert await child.wait() == 0
                    await trio.testing.wait_all_tasks_blocked()
                with trio.fail_after(30):
                    assert await read_all(child) == b"the last words\n"
                    assert await read_all(child) == b""
            finally:
                os.kill(pid, signal.SIGKILL)

    trio.run(main)


def test_stream_can_be_closed_while_standard_error_is_still_open() -> None:
    held = python(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.close(0), os.close(1)\n"
        "    time.sleep(0.5)\n"
        "else: os.write(1, b'ready')"
    )

    async def main() -> None:
        before = len(os.listdir("/dev/fd"))
        async with trio.open_nursery() as nursery:
            child = await start_process(held, nursery=nursery, stderr="capture")
            await until_ready(child)
            assert await child.wait() == 0
            await trio.testing.wait_all_tasks_blocked()
            await child.stream.aclose()
        assert len(os.listdir("/dev/fd")) == before

    trio.run(main)


def test_without_a_descriptor_for_the_exit_a_thread_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    async def main() -> None:
        async with open_process_stream(ECHO, die_with_parent=True) as child:
            monkeypatch.setattr(os, "pidfd_open", refuse)
        assert child.returncode == 0

    trio.run(main)


def test_a_child_that_the_system_reaped_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(3, "No such process")  # of pidfd_open, once the child is reaped

    async def main() -> None:
        async with open_process_stream(ECHO, die_with_parent=True) as child:
            monkeypatch.setattr(os, "pidfd_open", refuse)
        assert child.returncode == 0  # subprocess does not know the status

    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as a process may inherit it
    try:
        trio.run(main)
    finally:
        signal.signal(signal.SIGCHLD, previous)


def test_a_child_is_closed_at_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> int:
        raise OSError(24, "Too many open files")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            child = await start_process(ECHO, nursery=nursery)
            with monkeypatch.context() as patch:
                patch.setattr(os, "dup", refuse)
                child.close()
            with trio.fail_after(30):
                assert await child.wait() == 0

    trio.run(main)


def test_process_group_of_another_user_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", refuse)
        assert posix.group_lives(os.getpid())
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        assert posix._has_living_member(os.getpgrp())
    assert posix.group_lives(os.getpgrp())
