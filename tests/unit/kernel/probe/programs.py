"""Random small programs, and an oracle that knows by brute force what each cell changed.

The oracle draws every name's value as a nested tuple, in plain Python, without anything of the probe:
types, contents, what shares what inside of a value, and of functions and classes what they are made of.
"""

from __future__ import annotations

import random
import types
from typing import Any

import numpy as np

NAMES = "abcdefgh"


def drawn(value: Any, seen: dict[int, int] | None = None) -> Any:  # noqa: PLR0911, PLR0912, C901
    """A value as a tree that compares by content."""
    seen = {} if seen is None else seen
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        return (kind.__name__, value)
    if kind is float:
        return ("float", value.hex())
    if kind is tuple:
        return ("tuple", tuple(drawn(item, seen) for item in value))
    if kind is types.BuiltinFunctionType or kind is types.ModuleType:
        return (kind.__name__, value.__name__)
    if id(value) in seen:
        return ("again", seen[id(value)])
    seen[id(value)] = len(seen)
    if kind is list:
        return ("list", tuple(drawn(item, seen) for item in value))
    if kind is set:
        return ("set", tuple(sorted(map(repr, value))))
    if kind is dict:
        return ("dict", tuple((drawn(k, seen), drawn(v, seen)) for k, v in value.items()))
    if kind is np.ndarray:
        return ("ndarray", str(value.dtype), value.shape, value.tobytes())
    if kind is types.FunctionType:
        cells = tuple(drawn(cell.cell_contents, seen) for cell in value.__closure__ or ())
        code = value.__code__
        parts = (code.co_code, repr([c for c in code.co_consts if not hasattr(c, "co_code")]), code.co_names)
        return (
            "function",
            value.__name__,
            parts,
            drawn(value.__defaults__, seen),
            cells,
            drawn(value.__dict__, seen),
        )
    if kind is types.MethodType:
        return ("method", drawn(value.__func__, seen), drawn(value.__self__, seen))
    if isinstance(value, type):
        if value.__module__ != "__main__":
            return ("class", value.__name__)
        own = {k: v for k, v in vars(value).items() if not k.startswith("__") or k == "__init__"}
        return ("class", value.__name__, tuple((k, drawn(v, seen)) for k, v in own.items()))
    if kind is types.GeneratorType:
        frame = value.gi_frame
        return ("generator", None if frame is None else (frame.f_lasti, drawn(dict(frame.f_locals), seen)))
    if kind.__name__.endswith("iterator") or kind is map:
        try:
            return (kind.__name__, drawn(value.__reduce__()[1:], seen))
        except RuntimeError:  # of a dict that has another size by now
            return (kind.__name__, "broken")
    if kind is types.BuiltinMethodType or not hasattr(value, "__dict__"):
        return ("opaque", kind.__name__)
    return ("object", drawn(kind, seen), drawn(vars(value), seen))


LIBRARY = """
held = []
def register(thing): held.append(thing)
def poke():
    for thing in list(held):
        if type(thing) is list: thing.append(len(thing))
        elif type(thing) is dict: thing[len(thing)] = 0
def fire():
    for thing in list(held):
        if callable(thing): thing()
def forget(): held.clear()
def change(thing): thing.append('changed')
"""


def statement(rng: random.Random) -> str:
    """One statement over NAMES; it may well fail."""
    a, b, c = (rng.choice(NAMES) for _ in range(3))
    n = rng.randrange(4)
    return rng.choice(
        [
            f"{a} = {n}",
            f"{a} = {n} * 1.5",
            f"{a} = 'text{n}'",
            f"{a} = [{n}, {n + 1}]",
            f"{a} = {{'k': {n}}}",
            f"{a} = {{{n}, 7}}",
            f"{a} = {b}",
            f"{a} = [{b}, {c}]",
            f"{a} = {{'k': {b}}}",
            f"{a} = ({b}, {n})",
            f"{a} = list({b})",
            f"{a} = {b}['k']",
            f"{a} = {b}[0]",
            f"{a} += [{n}]",
            f"{a} += 1",
            f"{a}.append({n})",
            f"{a}.append({b})",
            f"{a}[0] = {n}",
            f"{a}[0].append({n})",
            f"{a}['k'] = {b}",
            f"{a}['k'].append({n})",
            f"{a}.add({n})",
            f"{a}.clear()",
            f"{a}.pop()",
            f"del {a}",
            f"del {a}[0]",
            f"if {n} > 1: {a} = {n}",
            f"for {a} in range({n}): {b}.append({a})",
            f"def {a}(): {b}.append({n})",
            f"def {a}():\n    global {b}\n    {b} = {n}",
            f"def {a}(x=[{n}]):\n    x.append(1); return x",
            f"def {a}():\n    held = {b}\n    def inner(): held.append({n})\n    return inner",
            f"def {a}(): return {b}()",
            f"{a}()",
            f"{a} = {b}()",
            f"{a}[0]()",
            f"{a}['k']()",
            f"{a}.mark = {n}",
            f"{a} = lambda: {b}.append({n})",
            f"{a} = [lambda: {b}.append({n})]",
            f"{a} = {b}.append",
            f"{a}({n})",
            f"class {a.upper()}:\n    made = []\n    def __init__(self): self.x = []; self.made.append({n})",
            f"class {a.upper()}:\n    def __init__(self): self.x = [{n}]\n"  # noqa: ISC004
            f"    def add(self): self.x.append({n}); {b}.append({n})",
            f"{a} = {b.upper()}()",
            f"{a}.add()",
            f"{a}.x.append({n})",
            f"{a}.x = {b}",
            f"{a} = {b}.add",
            f"{a.upper()}.extra = {n}",
            f"{a} = [{n} for {b} in range(2)]",
            f"{a} = ({b}.append(i) for i in range(3))",
            f"next({a})",
            f"{a} = iter({b})",
            f"exec('{a} = [{n}]')",
            f"exec('{a}.append({n})')",
            f"globals()['{a}'] = {n}",
            f"globals()['{a}'].append({n})",
            f"lib.register({a})",
            f"lib.register(lambda: {a}.append({n}))",
            "lib.poke()",
            "lib.fire()",
            "lib.forget()",
            f"lib.change({a})",
            f"lib.held.append({a})",
            "lib.held[0].append(5)",
            f"{a} = lib.held",
            f"{a} = np.arange({n + 2}.0)",
            f"{a} = {b}[1:]",
            f"{a}[0] += 1",
            f"{a} = {b}.reshape(-1)",
            f"np.add({a}, 1, out={a})",
            f"{a}.sort()",
            f"{a} = sum({b})",
            f"{a} = sorted({b})",
            f"{a} = max(list({b}), key=lambda i: {c}.append(i) or 0)",
            f"try:\n    {a}.append({n}); 1 / 0\nexcept ZeroDivisionError as {b}:\n    {c} = 1",
            "1 / 0",
            f"import copy; {a} = copy.copy({b})",
            f"import copy; {a} = copy.deepcopy({b})",
            f"with_, {a} = {b}, {c}",
            f"{a}, {b} = {b}, {a}",
            f"setattr({a}, 'mark', [{n}])",
            f"getattr({a}, 'append')({n})",
            f"{a} = map({b}, [1, 2])",
            f"list({a})",
            f"print({a}, file=io)",
        ]
    )


def program(seed: int, cells: int) -> list[str]:
    rng = random.Random(seed)
    first = [f"{name} = {rng.choice(['[1]', '[[1], 2]', '1', '{}', 'np.arange(3.0)'])}" for name in NAMES]
    rest = ["\n".join(statement(rng) for _ in range(rng.randrange(1, 4))) for _ in range(cells)]
    return ["\n".join(first), *rest]
