"""HTTP/2 connections of a server, on h2."""
