"""The command that tries mutants runs, and the survivors that it lists are mutants of the code as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from mutants import ROOMS, SOURCE, _forked, _joined, mutants, of_room, reasons_anywhere, survivors

pytestmark = pytest.mark.long


def test_listed_survivors_are_mutants_of_the_code_and_have_a_reason() -> None:
    listed = survivors()
    files = {name.partition(" ")[0] for name in listed}
    existing = {mutant.name for file in files for mutant in mutants(SOURCE / file)}
    assert listed.keys() - existing == set()
    assert all(listed.values())
    changes = {mutant.change.partition(" #")[0] for room in ROOMS for mutant in of_room(room)}
    assert reasons_anywhere().keys() - changes == set()
    assert all(reasons_anywhere().values())


def test_command_counts_mutants_that_tests_kill_and_prints_the_others() -> None:
    program = [sys.executable, str(Path(__file__).with_name("mutants.py"))]
    options = ["--sample", "4", "--again", "--tests", "engine/test_limits.py"]
    functions = ["engine/limits.py:parsed_size", "engine/dialect.py:_renamed"]  # of which the tests call the first
    ran = subprocess.run([*program, *functions, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert f"\n{functions[0]}: 4 of 9 mutants tried, 4 killed, 0 survive, 0 unlisted\n" in ran.stdout
    assert f"\n{functions[1]}: 4 of 24 mutants tried, 0 killed, 4 survive, 4 unlisted\n" in ran.stdout
    assert ran.stdout.count("is run by none of these tests: engine/dialect.py:") == 4


def test_command_says_that_no_chosen_test_runs_a_file() -> None:
    program = [sys.executable, str(Path(__file__).with_name("mutants.py")), "engine/dialect.py:_renamed"]
    options = ["--sample", "4", "--again", "--tests", "engine/test_limits.py"]
    ran = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.count("is run by none of these tests: engine/dialect.py:") == 4
    assert "\nengine/dialect.py:_renamed: 4 of 24 mutants tried, 0 killed, 4 survive, 4 unlisted\n" in ran.stdout


def test_fork_that_waits_for_ever_is_killed() -> None:
    def work(pipe: int) -> None:
        os.write(pipe, b" ")
        Event().wait()

    status, written = _joined(*_forked(work), waiting=1.0)
    assert (status, written.strip()) == (-signal.SIGKILL, b"")


def test_command_continues_from_its_record_with_the_mutants_that_were_not_killed(tmp_path: Path) -> None:
    program = [sys.executable, str(Path(__file__).with_name("mutants.py")), "engine/limits.py:parsed_size"]
    options = ["--record", str(tmp_path / "killed"), "--again", "--tests", "engine/test_limits.py"]
    record = tmp_path / "killed"
    tried = []
    written: list[str] = []
    for chosen in (["--sample", "4"], ["--all", "--jobs", "2"], ["--all"]):
        ran = subprocess.run([*program, *options, *chosen], capture_output=True, text=True, check=False)
        assert ran.returncode in (0, 1), ran.stderr
        tried.append(ran.stdout.splitlines()[-1].partition(": ")[2])
        written = record.read_text("utf-8").splitlines()
        assert len(written) == len(set(written))
    assert tried[0] == "4 of 9 mutants tried, 4 killed, 0 survive, 0 unlisted"
    assert tried[1] == tried[2] == "9 of 9 mutants tried, 9 killed, 0 survive, 0 unlisted"
    assert len(written) == 9


def test_comparison_of_processor_times_kills_no_mutant() -> None:
    function = "engine/connection.py:Connection.next_event"
    program = [sys.executable, str(Path(__file__).with_name("mutants.py")), function]
    options = ["--all", "--again", "--tests", "engine/test_channel.py"]
    ran = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    changes = [line.partition(" Connection.next_event: ")[2] for line in ran.stdout.splitlines()]
    assert "if len(events) > 1: -> if True:" in changes, "it changes only the speed"
