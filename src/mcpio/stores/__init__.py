"""Stores that outlive the process: for tasks, for sessions over HTTP, and for the credentials of clients."""

from mcpio._drivers.login import FileCredentials, KeyringCredentials
from mcpio.auth.effects import CredentialStore
from mcpio.stores.sqlite import SqliteStore

__all__ = ["CredentialStore", "FileCredentials", "KeyringCredentials", "SqliteStore"]
