"""A few of the cuts that ``cuts.py`` makes; by itself it makes all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.name != "posix", reason="sockets and pipes of POSIX")]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_conversation_cut_at_some_bytes_keeps_the_promises(loop: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("cuts.py")), "--every", "199", "--loop", loop]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count(" points in ") == 11
