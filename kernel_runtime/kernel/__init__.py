"""What runs inside the kernel process, and the outbox that survives it.

Importing this package loads nothing: the user's process pays for every module.
"""
