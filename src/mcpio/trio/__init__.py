"""The Trio drivers: the only part of mcpio that waits."""
