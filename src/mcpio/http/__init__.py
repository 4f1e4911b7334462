"""Streamable HTTP as machines: HTTP by meaning goes in and comes out, and no HTTP library is in the rules."""
