"""Connections of HTTP clients: kept ones, proxies, and single requests."""
