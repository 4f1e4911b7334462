"""Annotated types: their JSON Schemas, and the conversion and validation of their values."""
