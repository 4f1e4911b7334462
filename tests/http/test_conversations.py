"""The conversations of ``tests/conversations`` over HTTP, answered with JSON and with streams.

What is said in a conversation is the same on every channel. Those that are about what HTTP does in another way are left
out, each with the rule that makes the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from httpplayer import HttpPlayer

from mcpio.engine.table import Role
from mcpio.http.model import Answers
from mcpio.revisions import Revision
from mcpio.testing import Script, read_script

rules = pytest.mark.req
"""Under a name of its own: the map reads the ids of conversations from their files, and those of tests from markers."""

SCRIPTS = [read_script(path) for path in sorted((Path(__file__).parents[1] / "conversations").glob("*.txt"))]

NO_SESSION = "a message other than initialize needs a session (SESS-04)"
NO_END = "requests end, sessions end, but there is no end of the input as channels have it"
STATUS = "what is no acceptable notification gets a status and an error (HTTP-10)"
TOO_LARGE = "a message over the limit is refused with status 413, before any engine sees it (HTTP-14)"
NO_CHANNEL = "without a session, what does not answer comes on the response to the request that it is about (SHTTP-05)"
ONE_ARRAY = "the answers to one POST are one array (BATCH-06)"

OTHERWISE = {
    ("answers", "client"): "an exchange has one answer: whatever it is, no second one follows",
    ("batch", "server"): ONE_ARRAY,
    ("batch-accepted", "server"): NO_SESSION,
    ("batch-mixed", "server"): ONE_ARRAY,
    ("batch-too-long", "server"): ONE_ARRAY,
    ("batch-with-initialize", "server"): NO_SESSION,
    ("before-initialize", "server"): NO_SESSION,
    ("before-initialize-at-a-client", "client"): NO_SESSION,
    ("cancel-before-2025-11-25", "server"): STATUS,
    ("cancel-unknown", "server"): STATUS,
    ("end-of-a-server", "client"): NO_END,
    ("end-while-requests-run", "server"): NO_END,
    ("end-with-a-grace", "server"): "a request whose session ends before its answer gets status 404 (SESS-05)",
    ("envelope", "server"): STATUS,
    ("error-with-a-null-id", "server"): NO_SESSION,
    ("handshake", "server"): NO_END,
    ("handshake-of-a-client", "client"): "nothing overtakes the handshake, which has an exchange of its own",
    ("ids-of-a-client", "server"): "several exchanges may use one id at a time (RPC-07)",
    ("initialize-malformed", "server"): "a handshake that fails leaves no session",
    ("lost", "client-server"): NO_END,
    ("lost", "server"): NO_END,
    ("ping-while-closing", "server"): NO_SESSION,
    ("stateless-adopted", "client"): NO_CHANNEL,
    ("stateless-cancel", "client"): "the end of the response cancels a request, and no message does (SHTTP-06)",
    ("stateless-client-refusals", "client"): NO_CHANNEL,
    ("stateless-listen", "client"): NO_CHANNEL,
    ("stateless-listen-ended", "client"): NO_CHANNEL,
    ("stateless-listen-lost", "client"): NO_CHANNEL,
    ("stateless-opening-in-silence", "client"): "silence tells nothing of the era (ERA-07)",
    ("stateless-opening-lost", "client"): "a lost connection tells nothing of the era (ERA-07)",
    ("too-long-and-passed-over-by-a-client", "client"): TOO_LARGE,
    ("too-long-for-a-client", "client"): TOO_LARGE,
    ("too-long-for-a-server", "server"): TOO_LARGE,
    ("unknown-methods", "server"): NO_SESSION,
}
"""By script and engines: why it goes otherwise over HTTP."""


def _engines(script: Script) -> list[frozenset[Role]]:
    """Return the engines that a script is played with.

    A stateless server has one for each request: ``tests/http/server/test_stateless.py`` shows what it does.
    """
    is_stateless = script.name.startswith("stateless-")
    return [engines for engines in script.engines if not is_stateless or engines == {Role.CLIENT}]


def _cases() -> Iterator[ParameterSet]:
    for script in SCRIPTS:
        for engines in _engines(script):
            key = (script.name.removesuffix(".txt"), "-".join(sorted(role.value for role in engines)))
            for answers in ("auto", "sse"):
                if key in OTHERWISE:
                    continue
                for revision in script.revisions:
                    name = f"{'-'.join(key)}-{revision}-{answers}"
                    yield pytest.param(script, engines, revision, answers, id=name, marks=rules(*script.requirements))


@pytest.mark.parametrize(("script", "engines", "revision", "answers"), list(_cases()))
def test_a_conversation_holds_over_http(
    script: Script, engines: frozenset[Role], revision: Revision, answers: Answers
) -> None:
    HttpPlayer(script, revision, answers).play(engines)


def test_skipped_conversations_exist() -> None:
    known = {
        (script.name.removesuffix(".txt"), "-".join(sorted(role.value for role in engines)))
        for script in SCRIPTS
        for engines in _engines(script)
    }
    assert known >= OTHERWISE.keys()
    assert len(known) > 3 * len(OTHERWISE)
