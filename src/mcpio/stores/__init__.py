"""Stores that outlive the process: for tasks, for sessions over HTTP, and for the credentials of clients."""

from mcpio._drivers.login import CredentialStore, FileCredentials, KeyringCredentials
from mcpio.stores.sqlite import SqliteStore

__all__ = ["CredentialStore", "FileCredentials", "KeyringCredentials", "SqliteStore"]
