"""Decorators and registries of a server: tools, resources, prompts and completions."""
