"""The session's append-only, hash-chained log in one SQLite file, and the projections kept beside it.

`Journal` is the only writer; `JournalReader` reads from any process, any number at a time, while the
writer writes; `verify` walks the whole chain and computes every projection anew. The format is in
docs/journal-format.md.
"""

from kernel_runtime.journal.reader import JournalReader
from kernel_runtime.journal.verify import Problem, VerifyReport, verify
from kernel_runtime.journal.writer import Clock, Journal, system_clock

__all__ = ["Clock", "Journal", "JournalReader", "Problem", "VerifyReport", "system_clock", "verify"]
