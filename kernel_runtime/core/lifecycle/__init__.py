"""A session's life as a pure function: `step(state, event, now) -> (state, commands)`.

Invariants, held by tests/property/test_lifecycle.py:
  - an execution gets exactly one outcome, and none is guessed;
  - `Dispatch` of an execution is preceded, in the same list of commands, by a synced `Append` of
    its `ExecutionStarted`; one execution is dispatched at a time;
  - nothing is dispatched twice, except `Redispatch` to a kernel that drops what it has seen;
  - a kernel is started only for an accepted execution, an explicit start, or a restart.

State is immutable: when an `Append` fails, the shell keeps the old state and refuses the request,
and nothing has happened.
"""

from kernel_runtime.core.lifecycle.queue import may_dispatch
from kernel_runtime.core.lifecycle.state import Pending, Policy, Running, State
from kernel_runtime.core.lifecycle.step import next_deadline, step

__all__ = ["Pending", "Policy", "Running", "State", "may_dispatch", "next_deadline", "step"]
