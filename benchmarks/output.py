"""Much output: all of it there, and not slower than from a bare kernel."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lean import LeanClient
from benchmarks.measure import Result, compared, in_turns
from benchmarks.subjects import places, session, stock
from kernel_runtime.client.blocking import Session
from kernel_runtime.wire import Message


class Tally:
    """Lines of stdout and rich messages of one cell, as a client saw them."""

    def __init__(self) -> None:
        self.lines = 0
        self.displays = 0

    def __call__(self, message: Message) -> None:
        if message.header.msg_type == "stream":
            # a newline in JSON is two characters, and the cells here print no backslash of their own
            self.lines += message.frames[4].count(b"\\n")
        elif message.header.msg_type == "display_data":
            self.displays += 1


def run(*, quick: bool = False) -> list[Result]:
    lines, displays, images = (50_000, 1_000, 50) if quick else (1_000_000, 10_000, 1_000)
    rounds = 2 if quick else 5
    printed = f"for i in range({lines}):\n    print(i)"
    shown = f"for i in range({displays}):\n    display({{'text/plain': str(i)}}, raw=True)"
    drawn = (
        "from IPython.display import Image, display\nimport os\n"
        f"for i in range({images}):\n    display(Image(data=os.urandom(75_000), format='png'))"
    )
    return [
        _compare(f"{lines:,} printed lines", printed, rounds, lambda t: t.lines, lines),
        _compare(f"{displays:,} displays", shown, rounds, lambda t: t.displays, displays),
        _compare(f"{images:,} images of 100 kB", drawn, max(2, rounds - 2), lambda t: t.displays, images),
    ]


def _compare(what: str, cell: str, rounds: int, count: Callable[[Tally], int], expected: int) -> Result:
    seen: dict[str, list[int]] = {"ours": [], "theirs": []}
    with places() as root, stock(root) as (bare, _, _), session() as (kept, front):
        connections = {"ours": front, "theirs": bare}
        clients = {name: LeanClient(connection) for name, connection in connections.items()}

        def turn(name: str) -> None:
            tally = Tally()
            clients[name].execute(cell, tally)
            seen[name].append(count(tally))

        series = in_turns({name: (lambda n=name: turn(n)) for name in clients}, rounds)  # type: ignore[misc]
        for client in clients.values():
            client.__exit__(None, None, None)
        in_journal = _recorded(kept)
    complete = all(n == expected for n in seen["ours"]) and in_journal == expected
    whole = {name: f"{sum(n == expected for n in counts)} of {len(counts)}" for name, counts in seen.items()}
    note = f"complete: ours {whole['ours']}, its journal {in_journal:,}; stock {whole['theirs']}"
    return compared(what, series, goal=1.1, note=note, ok=complete)


def _recorded(kept: Session) -> int:
    """Lines or displays of the last execution, as the journal tells them."""
    outputs = kept.execution().outputs
    lines = sum("".join(o["text"]).count("\n") for o in outputs if o["output_type"] == "stream")
    return lines or sum(o["output_type"] == "display_data" for o in outputs)
