"""Sockets: clients and servers over TCP and Unix sockets, and the serving of many connections."""
