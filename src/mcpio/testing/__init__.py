"""Tools to test conversations without an event loop, a socket or a clock.

* ``pair()`` joins two engines: real bytes, virtual time, any splitting of the stream, and a network that can fail.
* ``read_script`` and ``play`` check either engine or both against a written conversation; ``mcpio.testing.script``
  describes the format.
* ``ManualRuntime`` runs the application layer's coroutines step by step.
* ``AuthorizationServer`` issues tokens in memory, for clients that log in and servers that check tokens.

``mcpio.testing.transport_kit`` tests transports. It is imported separately, since it needs Trio.
"""

from mcpio.testing.authorization_server import AuthorizationFaults, AuthorizationServer, IssuedToken
from mcpio.testing.engine_pair import Carried, Chunking, Pair, at_random, cut_at, every, pair, whole
from mcpio.testing.manual_runtime import ManualCancelled, ManualRuntime
from mcpio.testing.script import Script, ScriptError, parse_script, read_script
from mcpio.testing.script_player import ScriptFailed, play

__all__ = [
    "AuthorizationFaults",
    "AuthorizationServer",
    "Carried",
    "Chunking",
    "IssuedToken",
    "ManualCancelled",
    "ManualRuntime",
    "Pair",
    "Script",
    "ScriptError",
    "ScriptFailed",
    "at_random",
    "cut_at",
    "every",
    "pair",
    "parse_script",
    "play",
    "read_script",
    "whole",
]
