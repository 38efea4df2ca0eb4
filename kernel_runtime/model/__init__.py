"""Frozen types: entries, executions, truths. No I/O, no clock, no dependencies but msgspec."""
