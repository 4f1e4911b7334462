"""The client's half of Streamable HTTP: messages become requests, responses become messages."""
