"""Tests for transports, on Trio, asyncio and uvloop: for authors of a stream, a channel, or another transport (P16).

::

    from mcpio.testing.transport_kit import PairHarness, TransportTests

    class TestMyTransport(TransportTests):
        harness = PairHarness(my_pair)

The class has a test for each check, under pytest and unittest; ``check_transport(harness)`` needs neither. A failed
check raises TransportFault, which says what was expected of the transport, and what happened.
"""

from mcpio.testing.transport_kit._checks import Check, CheckRun, TransportFault
from mcpio.testing.transport_kit._harness import AsyncioEnds, Conversation, Ends, Harness, PairHarness
from mcpio.testing.transport_kit._runner import CHECKS, TransportTests, check_transport, run_check
from mcpio.testing.transport_kit._server import kit_server

__all__ = [
    "CHECKS",
    "AsyncioEnds",
    "Check",
    "CheckRun",
    "Conversation",
    "Ends",
    "Harness",
    "PairHarness",
    "TransportFault",
    "TransportTests",
    "check_transport",
    "kit_server",
    "run_check",
]
