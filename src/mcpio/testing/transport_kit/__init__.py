"""Says whether a transport is right: for authors of a ``trio.abc.Stream``, a ``trio.abc.Channel``, or more (P16).

::

    from mcpio.testing.transport_kit import PairHarness, TransportTests

    class TestMyTransport(TransportTests):
        harness = PairHarness(my_pair)

The class has a test for each check, under pytest and unittest; ``check_transport(harness)`` needs neither. A check that
fails raises ``TransportFault``, which says what was expected of the transport, and what happened.
"""

from mcpio.testing.transport_kit._check import Check, Stage, TransportFault, kit_server
from mcpio.testing.transport_kit._harness import Conversation, Ends, Harness, PairHarness
from mcpio.testing.transport_kit._runner import CHECKS, TransportTests, check_transport, run_check

__all__ = [
    "CHECKS",
    "Check",
    "Conversation",
    "Ends",
    "Harness",
    "PairHarness",
    "Stage",
    "TransportFault",
    "TransportTests",
    "check_transport",
    "kit_server",
    "run_check",
]
