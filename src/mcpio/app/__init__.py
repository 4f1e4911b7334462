"""The application layer: servers from plain functions, and clients with one call per method. Tied to no event loop."""
