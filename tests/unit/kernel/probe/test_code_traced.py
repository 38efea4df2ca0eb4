"""What the probe says a cell read, against what a namespace that writes down each look-up saw it read."""

import ast
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_runtime.kernel.probe.code import Touch, analyse

DATA = ["a", "b", "c", "d"]
CODE = ["f", "g", "h"]


class Recorder(dict[str, Any]):
    """A namespace that notes which names were looked up, and held what they held before the cell."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(names)
        self.begin()

    def begin(self) -> None:
        self.before = {name: value for name, value in dict.items(self) if name != "__builtins__"}
        self.read: set[str] = set()
        self.stored: set[str] = set()

    def __setitem__(self, name: str, value: Any) -> None:
        self.stored.add(name)
        dict.__setitem__(self, name, value)

    def __getitem__(self, name: str) -> Any:
        value = dict.__getitem__(self, name)
        if name not in self.stored and self.before.get(name, self) is value:
            self.read.add(name)
        return value


def compiled(source: str) -> list[Any]:
    """One code object for each statement, as IPython makes them."""
    return [compile(ast.Module([node], []), "<cell>", "exec") for node in ast.parse(source).body]


def run(namespace: Recorder, source: str) -> tuple[Touch, set[str], bool]:
    codes = compiled(source)
    before = analyse(codes, namespace)
    namespace.begin()
    ended = False
    try:
        for code in codes:
            exec(code, namespace)
        ended = True
    except Exception:  # noqa: BLE001 - a cell may fail: what it read until then counts
        pass
    seen = {name for name in namespace.read if name[:2] != "__"}
    return analyse(codes, namespace, before), seen, ended


TEMPLATES = [
    "{d} = [{n}.5]",
    "{d} = {e}",
    "{d} = [*{e}, {n}.5]",
    "{d}.append({n}.5)",
    "{d} += [{n}.5]",
    "del {d}",
    "{k} = len({d})",
    "print({d} and None, end='')",
    "def {f}():\n    return {d}",
    "def {f}(x={e}):\n    return [x, {d}]",
    "def {f}():\n    global {d}\n    {d} = [{n}.5]\n    return {e}",
    "def {f}():\n    {d} = [1]\n    return [i for i in {e}]",
    "def {f}():\n    def inner():\n        return {d}\n    return inner",
    "def {f}():\n    return {g}()",
    "def {f}():\n    yield {d}\n    yield {e}",
    "{f} = lambda: {d}",
    "{f} = lambda: [{e}, {g}()]",
    "{f} = {g}",
    "{d} = {f}()",
    "{k} = {f}",
    "{k} = [{f}, {g}]",
    "{k} = {{'x': {f}}}",
    "{k} = ({f},)\n{k}[0]()",
    "{k}[0]()",
    "{k}.pop()()",
    "{k}['x']()",
    "{k}()",
    "{k} = {f}()",
    "next({k})",
    "list({k})",
    "for {k} in [{f}, {g}]:\n    {k}()",
    "for i in {d}:\n    {e} = i\n    {k} = {e}",
    "for i in range(2):\n    {k} = [i, {d}]\nelse:\n    {e} = i",
    "if {d}:\n    {e} = [1.5]\nelse:\n    {k} = 2\n{k} = {e}",
    "while True:\n    {d} = [{n}.5]\n    break\n{k} = {d}",
    """try:
    {d} = [{n}.5]
    {e} = {f}()
except Exception as x:
    {k} = [{d}, x]
finally:
    {k} = {e}""",
    "try:\n    1 / 0\n    {d} = 1\nexcept ZeroDivisionError:\n    {k} = {d}",
    "{k} = [i for i in {d} if {e}]",
    "{k} = {{i: {f}() for i in range(2)}}",
    "{k} = ({d} for _ in range(2))",
    "{k} = {d} if {e} else {f}()",
    "import functools\n{k} = functools.partial({f})",
    "import functools\n@functools.lru_cache\ndef {f}():\n    return {g}()",
    "import functools\n@functools.wraps({g})\ndef {f}():\n    return {d}",
    "import contextlib\n@contextlib.contextmanager\ndef {f}():\n    yield {d}",
    "with {f}() as {k}:\n    {e} = {k}",
    "def {f}(inner):\n    def outer():\n        return [{d}, inner()]\n    return outer",
    "@{g}\ndef {f}():\n    return {d}",
    """def {f}(inner=None):
    n = {d}
    def outer(*_):
        return [n, {e}, inner and inner()]
    return outer""",
    "def {f}(*a):\n    return lambda: [{e}, a]",
    "def {f}(inner=None):\n    x = inner()\n    def outer(*_):\n        return [{d}]\n    return outer",
    "def {f}(inner=None):\n    def outer(*_):\n        return {d}\n    outer()\n    return outer",
    "{k} = {f}({g})",
    "{k} = {f}({g}, lambda: {d})\n{k}()",
    "class C:\n    kept = {d}\n    def m(self):\n        return {e}\n    def n(self):\n        return {f}()",
    """class C:
    def __init__(self, v=None):
        self.v = {d}
    def m(self):
        return self.n()
    def n(self):
        return {e}
    def __add__(self, other):
        return {f}""",
    """class C:
    @property
    def p(self):
        return {d}
    @staticmethod
    def s():
        return {e}
    @classmethod
    def m(cls):
        return cls.s()""",
    "class C:\n    {d} = [1]\n    e = {d}\n    def m(self):\n        return {d}",
    "class D(C):\n    def n(self):\n        return [super().m(), {d}]",
    """class M(type):
    def __call__(cls):
        return [{d}, super().__call__()]
class C(metaclass=M):
    pass""",
    "{k} = C()",
    "{k} = D()",
    "{k} = C().m()",
    "{k} = C().p",
    "{k} = C.s()",
    "{k}.m()",
    "{k}.n()",
    "{k} + 1",
    "{k} = {k}.m",
    "{k} = getattr({k}, 'm')()",
    "{k} = [C(), D()]\nfor {e} in {k}:\n    {e}.n()",
    "{k} = sorted([2, 1], key=lambda _: {d})",
    "{k} = list(map({f}, []))",
    "{k} = map(lambda _: {f}(), [1])",
    "{k} = (lambda: {d})()",
    "del {f}",
    "{f} = {f}()",
    "(lambda {d}: {d})({e})",
    """async def later():
    return [{d}, {f}()]
{k} = later()
try:
    {k}.send(None)
except StopIteration:
    pass
finally:
    {k}.close()
del later""",
    "[{k} := {d}, {k}]",
    "import functools\n{k} = functools.reduce(lambda x, y: {f}(), [1, 2])",
    "{d}, *{e} = [1.5], [2.5]\n{k} = [{d}, {e}]",
    "match {d}:\n    case [first, *_]:\n        {k} = first\n    case _:\n        {k} = {e}",
]

statement = st.builds(
    lambda template, d, e, f, g, k, n: template.format(d=d, e=e, f=f, g=g, k=k, n=n),
    st.sampled_from(TEMPLATES),
    st.sampled_from(DATA),
    st.sampled_from(DATA),
    st.sampled_from(CODE),
    st.sampled_from(CODE),
    st.sampled_from(["k", "l"]),
    st.integers(1, 9),
)
cell = st.lists(statement, min_size=1, max_size=4).map("\n".join)


@settings(
    max_examples=100,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(cell, min_size=2, max_size=8))
def test_whatever_was_read_is_reported(cells: list[str]):
    namespace = Recorder({"__name__": "__main__"})
    for name in DATA:
        namespace[name] = [0.5]
    for name in CODE:
        run(namespace, f"def {name}(*_):\n    return {DATA[CODE.index(name)]}")
    for source in cells:
        names = set(namespace)
        touch, seen, ended = run(namespace, source)
        assert touch.dynamic or seen <= touch.reads, (source, seen - touch.reads)
        assert set(namespace) - names <= touch.binds | {"__builtins__"}, source
        assert names - set(namespace) <= touch.deletes, source
        if ended:
            assert touch.binds_surely <= namespace.keys(), source
        assert touch.reads <= touch.uses


def test_one_code_object_or_one_for_each_statement_report_alike():
    source = "x = [1.5]\ndef f():\n    return [x, y]\nz = f()\n"
    namespace = Recorder({"__name__": "__main__", "y": 1.5})
    touch, _, _ = run(namespace, source)
    whole = compile(source, "<cell>", "exec")
    assert touch.reads == analyse([whole], namespace).reads == {"y"}
