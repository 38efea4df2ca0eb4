"""The world of a session as its supervisor sees it, and why a busy cell is busy.

Processes, sockets, files and terminals are seen from outside, through /proc, without asking the kernel: so
they are told of also while a cell runs, when the kernel hangs and when it is dead. A look changes nothing,
and what cannot be seen is not guessed.
"""

from kernel_runtime.supervisor.world.resources import World

__all__ = ["World"]
