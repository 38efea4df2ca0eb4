"""Random programs of cells, and an oracle that knows by brute force what is true of their heap.

The oracle runs a program in a namespace that records every read and every binding, down to those of
functions (a dict's subclass: LOAD_GLOBAL asks it by `__getitem__`; what STORE_GLOBAL binds goes past it
and is found by comparing), and takes a canonical picture of every name's value after every cell and
after what happened between two cells. It shares no code with
the probe: pictures are built by walking values, not by digests of pickles.
"""

from __future__ import annotations

import dis
import re
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pandas as pd

PRELUDE = "import threading, numpy as np, pandas as pd"
_FIRST = {"n": "n0 = 3", "l": "l0 = [1, 2]", "d": "d0 = dict(k=1)", "a": "a0 = np.arange(4.0)"}
_KINDS = ["n", "s", "l", "d", "t", "a", "v", "f", "g", "c", "k", "o"]
"""numbers, strings, lists, dicts, sets, arrays, views, frames, functions, makers of closures, classes,
their objects"""


@dataclass
class Cell:
    source: str
    between: str = ""
    """what happens after the cell, outside any execution"""


def program(random: Random, cells: int, *, hidden: bool) -> list[Cell]:
    """Cells that mostly run: each uses names that earlier ones bound; `hidden`: by exec and globals() too."""
    writer = _Writer(random, _TEMPLATES + _HIDDEN * 3 if hidden else _TEMPLATES)
    made = [Cell(PRELUDE), *(Cell(source) for source in _FIRST.values())]
    for _ in range(cells):
        lines = [writer.statement() for _ in range(random.choice((1, 1, 1, 2, 3)))]
        if random.random() < 0.06:
            lines.insert(random.randrange(len(lines) + 1), "1 / 0")
        made.append(Cell("\n".join(lines), writer.drift() if random.random() < 0.12 else ""))
    return made


class _Writer:
    def __init__(self, random: Random, templates: list[Callable[[_Writer], str]]) -> None:
        self._r = random
        self._templates = templates
        self._names: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for kind in _FIRST:
            self._names[kind].append(f"{kind}0")

    def _new(self, kind: str) -> str:
        name = f"{kind}{self._r.randrange(3)}"
        if name not in self._names[kind]:
            self._names[kind].append(name)
        return name

    def _old(self, kind: str) -> str:
        names = self._names[kind]
        return self._r.choice(names) if names else ""

    def drift(self) -> str:
        """A change that no cell made."""
        makers = {
            "l": "{0}.append(-1)",
            "d": "{0}['drift'] = 1",
            "t": "{0}.add('drift')",
            "n": "{0} = 99991",
            "a": "{0}[0] = 7777",
        }
        kinds = [kind for kind in makers if self._names[kind]]
        if not kinds:
            return ""
        kind = self._r.choice(kinds)
        return makers[kind].format(self._old(kind))

    def statement(self) -> str:
        while True:
            line = self._r.choice(self._templates)(self)
            if line:
                return line

    def literal(self) -> int:
        return self._r.randrange(10**6)

    def number(self) -> str:
        choices = [str(self._r.randrange(5)), str(self._r.randrange(10**9)), repr(self._r.random())]
        if self._names["n"]:
            choices += [self._old("n")] * 3
        return self._r.choice(choices)


def _plain(text: str) -> Callable[[_Writer], str]:
    """`text` with {+k} a name of kind k that it binds, {k} one that exists, {#} a number."""
    holes = re.findall(r"\{(.*?)\}", text)

    def make(w: _Writer) -> str:
        filled = text
        for hole in holes:
            if hole == "#":
                value = w.number()
            elif hole == "literal":  # CPython looks globals up in a class's body without asking a subclass
                value = str(w.literal())
            elif hole.startswith("+"):
                continue
            else:
                value = w._old(hole)
                if not value:
                    return ""
            filled = filled.replace("{" + hole + "}", value, 1)
        for hole in holes:
            if hole.startswith("+"):
                filled = filled.replace("{" + hole + "}", w._new(hole[1:]), 1)
        return filled

    return make


_TEMPLATES: list[Callable[[_Writer], str]] = [
    _plain(text)
    for text in [
        # numbers and strings
        "{+n} = {#}",
        "{+n} = {n} + {#}",
        "{+n} = {n}",
        "{+n} = 1.5 * {#}",
        "{n} += {#}",
        "{+n} = sum({l})",
        "{+n} = len({d})",
        "{+s} = 'text' * ({#} % 3 == 0)",
        "{+s} = str({n})",
        "{+s} = {s} + 'x'",
        # containers, aliases, edits in place
        "{+l} = [{#}, {#}]",
        "{+l} = list({l})",
        "{+l} = {l}",
        "{+l} = [{l}, {#}]",
        "{+l} = [{n}]",
        "{l}.append({#})",
        "{l}[0] = {#}",
        "{l}.clear()",
        "{l}.sort(key=str)",
        "{l} += [{#}]",
        "for {+n} in range(2): {l}.append({#})",
        "{+d} = dict(k={#})",
        "{+d} = dict(k={l})",
        "{+d} = {d}",
        "{d}['k'] = {#}",
        "{d}['l'] = {l}",
        "{d}.get('l', []).append({#})",
        "{d}.pop('k', None)",
        "{d}.update(z={#})",
        "{+t} = set(map(str, {l}))",
        "{+t} = {t} | set(['q'])",
        "{t}.add({#})",
        "{t}.discard('q')",
        "{+n} = len({t})",
        # arrays and views, frames
        "{+a} = np.arange(4.0) + {#}",
        "{+a} = {a}.copy()",
        "{+a} = np.zeros(60_000)",
        "{+v} = {a}[1:]",
        "{+v} = {v}",
        "{a}[0] = {#}",
        "{v}[0] = {#}",
        "{a} += 1",
        "{+n} = float({a}.sum())",
        "{+n} = float({v}[0])",
        "{+a} = {a} * 2",
        "{+f} = pd.DataFrame(dict(x=[1, 2, 3], y={#}))",
        "{f}['z'] = {#}",
        "{f}.loc[0, 'x'] = {#} % 1000",
        "{+f} = {f}.assign(w={#})",
        "{+f} = {f}",
        "{+n} = int({f}['x'].sum())",
        "{f}.pop('x')",
        # functions, closures, classes
        "def {+g}(): return {#}",
        "def {+g}(): return {n}",
        "def {+g}(): return {n} + len({l})",
        "def {+g}(): {l}.append({#})",
        "def {+g}():\n    global {n}\n    {n} = {#}",
        "def {+g}(k={l}): k.append(1); return k",
        "{+g} = lambda: {g}()",
        "{+g} = (lambda q: lambda: q)({n})",
        "{+g} = (lambda q: lambda: q.append({#}))({l})",
        "{+g} = {l}.copy",
        "{g}()",
        "{+l} = [{g}()]",
        (
            "def {+c}(start):\n    kept = [start]\n    def step():\n        kept[0] += 1\n"
            "        return kept[0]\n    return step"
        ),
        "{+g} = {c}({#})",
        (
            "class {+k}:\n    unit = {literal}\n    def __init__(self): self.v = {n}\n"
            "    def put(self): {l}.append(self.v)\n    def get(self): return self.v"
        ),
        "{+o} = {k}()",
        "{+o} = {o}",
        "{o}.v = {#}",
        "{o}.put()",
        "{+n} = {o}.get()",
        "{k}.unit = {#}",
        "{+n} = {k}.unit",
        # what may or may not happen
        "if {n} > 2: {+n} = {#}",
        "if {n} > 2: {l}.append({#})",
        "try:\n    {l}[5] = {#}\n    {+n} = 1\nexcept IndexError:\n    {+n} = 2",
        "for _ in range(3 - len({l})): {l}.append({n})",
        "[{+n} := {#}, {n}]",
        "{+l} = [q + 0 for q in [{n}, {#}]]",
        "del {l}",
        "del {n}",
        "{l} = {l}",
        "{n} = {n}",
        # threads
        "q = threading.Thread(target={l}.append, args=({#},)); q.start(); q.join()",
        "q = threading.Thread(target={g}); q.start(); q.join()",
    ]
]

_HIDDEN = [
    _plain(text)
    for text in [
        "exec('{n} = {#}')",
        "globals()['{n}'] = {#}",
        "eval('{l}.append({#})')",
        "vars()['{+n}'] = {#}",
    ]
]
"""what no analysis of code can follow"""


# -- the oracle


class Recording(dict[str, Any]):
    """A namespace that knows what the running cell read before it bound it, and what it bound."""

    reads: set[str]
    binds: set[str]
    moves: set[str]
    """bound to another object than before"""
    before: dict[str, Any]

    def begin(self) -> None:
        self.reads, self.binds, self.moves = set(), set(), set()
        self.before = dict.copy(self)

    def compare(self, source: str) -> None:
        """What was bound past `__setitem__`: by functions with `global`, or where a cell holds such."""
        for name in self.before.keys() | self.keys():
            if self.before.get(name, self) is not self.get(name, self):
                self.binds.add(name)
                self.moves.add(name)
        for instruction in dis.get_instructions(compile(source, "<cell>", "exec")):
            if instruction.opname == "STORE_GLOBAL":
                self.binds.add(str(instruction.argval))
                # whether it was read before that or after, nobody saw
                self.reads.discard(str(instruction.argval))
        # what was there only meanwhile left nothing that could be superseded
        gone = {name for name in self.binds if name not in self.before and name not in self}
        self.binds -= gone
        self.moves -= gone

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name not in self.binds:
            self.reads.add(name)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self.binds.add(name)
        if self.get(name) is not value:
            self.moves.add(name)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.binds.add(name)
        self.moves.add(name)


@dataclass
class Moment:
    """After one cell, and after what followed it."""

    ok: bool
    reads: set[str]
    binds: set[str]
    moves: set[str]
    after_cell: dict[str, Any]
    after_all: dict[str, Any]


@dataclass
class Oracle:
    """Runs the cells itself."""

    moments: list[Moment] = field(default_factory=list)

    def run(self, cells: list[Cell]) -> None:
        space = Recording(__name__="__main__", __builtins__=__builtins__)
        space.begin()
        for cell in cells:
            space.begin()
            ok = execute(cell.source, space)
            space.compare(cell.source)
            traced = space.reads, space.binds, space.moves
            after_cell = pictures(space)
            if cell.between:
                space.begin()
                execute(cell.between, space)
            self.moments.append(Moment(ok, *traced, after_cell, pictures(space)))

    @property
    def now(self) -> dict[str, Any]:
        return self.moments[-1].after_all

    def name_drifted(self, name: str) -> bool:
        """Its value is not what the last cell that had it in its hands left."""
        left = None
        for moment, before in zip(self.moments, [{}, *(m.after_all for m in self.moments)], strict=False):
            if moment.after_cell.get(name) != before.get(name) or name in moment.binds:
                left = moment.after_cell.get(name)
        return bool(left != self.now.get(name))

    def false_live(self, index: int) -> str | None:
        """Why saying `live` of this cell would be false; None when it would not."""
        moment = self.moments[index]
        if not moment.ok:
            return "it raised"
        for name in sorted(moment.reads):
            if moment.after_cell.get(name) != self.now.get(name):
                return f"it read {name}, which changed"
        bound = [n for n in moment.binds if not n.startswith("_")]
        # the same object bound again changes nothing for whoever put it there
        if bound and all(any(name in m.moves for m in self.moments[index + 1 :]) for name in bound):
            if any(moment.after_cell.get(name) == self.now.get(name) for name in bound):
                return None  # bound anew to an equal value: what it left stands
            return f"all it bound was rebound: {bound}"
        return None

    def is_live(self, index: int) -> bool:
        moment = self.moments[index]
        bound = [n for n in moment.binds if not n.startswith("_")]
        return (
            self.false_live(index) is None
            and not (bound and all(self._rebound(name, index) for name in bound))
            and not any(self.name_drifted(name) for name in bound)
        )

    def _rebound(self, name: str, index: int) -> bool:
        return any(name in later.binds for later in self.moments[index + 1 :])


def execute(source: str, space: dict[str, Any], ran: Callable[[types.CodeType], None] | None = None) -> bool:
    """Run a cell's source; whether it ended without an exception."""
    code = compile(source, "<cell>", "exec")
    if ran is not None:
        ran(code)
    try:
        exec(code, space)
    except Exception:  # noqa: BLE001 - a cell may raise anything
        return False
    return True


def pictures(space: dict[str, Any]) -> dict[str, Any]:
    return {
        name: picture(value, ())
        for name, value in dict.items(space)
        if not name.startswith("_") and not isinstance(value, types.ModuleType | threading.Thread)
    }


def picture(value: Any, inside: tuple[int, ...]) -> Any:  # noqa: PLR0911 - one return per kind of value
    """What a value is, as plain nested tuples; equal pictures mean equal values of equal types."""
    if id(value) in inside:
        return ("cycle", len(inside) - inside.index(id(value)))
    inner = (*inside, id(value))
    kind = type(value).__name__
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return (kind, repr(value))
        case list() | tuple():
            return (kind, *(picture(item, inner) for item in value))
        case set() | frozenset():
            return (kind, *sorted(repr(picture(item, inner)) for item in value))
        case dict():
            return (kind, *((picture(k, inner), picture(v, inner)) for k, v in value.items()))
        case np.ndarray():
            return (kind, str(value.dtype), value.shape, value.tobytes())
        case np.generic():
            return (kind, repr(value))
        case pd.DataFrame() | pd.Series():
            return (kind, value.to_json(), str(getattr(value, "dtypes", "")), repr(list(value.index)))
        case types.FunctionType():
            cells = [c.cell_contents for c in value.__closure__ or ()]
            return (
                kind,
                _code(value.__code__),
                picture(cells, inner),
                picture(value.__defaults__, inner),
            )
        case types.BuiltinMethodType():
            return (kind, value.__name__, picture(value.__self__, inner))
        case type():
            return (kind, value.__qualname__, *_class(value, inner))
    if type(value).__module__ == "__main__":
        return (kind, picture(type(value), inner), picture(vars(value), inner))
    return (kind, repr(value))


def _class(cls: type, inner: tuple[int, ...]) -> Iterator[Any]:
    for name, value in vars(cls).items():
        if not name.startswith("__") or name == "__init__":
            yield (name, picture(value, inner))


def _code(code: types.CodeType) -> Any:
    consts = tuple(_code(c) if isinstance(c, types.CodeType) else (type(c), repr(c)) for c in code.co_consts)
    return (code.co_code, consts, code.co_names, code.co_varnames)
