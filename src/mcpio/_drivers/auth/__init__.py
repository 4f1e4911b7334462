"""Logins of clients, the credentials that they store, and the checks of a server's clients."""
