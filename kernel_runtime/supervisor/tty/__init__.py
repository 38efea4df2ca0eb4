"""The kernel's terminal, as the supervisor sees it: who waits for input there, what it shows, how to answer.

`readers` finds who reads, `screen` says what is shown, `watch` puts it into the session's life. The terminal
itself is the foster parent's (`supervisor/foster.py`), which outlives the supervisor.
"""
