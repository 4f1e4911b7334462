"""Standard input and output, and child processes: what does not depend on the event loop."""
