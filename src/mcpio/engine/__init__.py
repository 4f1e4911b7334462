"""The protocol engine: a state machine for each role. Bytes in, events and bytes out; it never waits."""
