"""Clients of a session: the async `session`, its `blocking` facade, and what both stand on."""
