"""Code that reaches names by other ways than naming them, and magics: what the probe says of it."""

import pytest

from kernel_runtime.kernel.probe.code import analyse
from tests.unit.kernel.probe.touched import F, compiled, looked_at, namespace_of

DYNAMIC = {
    "exec('x')": "exec",
    "eval('x')": "eval",
    "e = exec\ne('x')": "exec",
    "e('x')": "exec",
    "l[0]('x')": "exec",
    "import builtins\nbuiltins.eval('x')": "eval",
    "globals()['x']": "globals",
    "g['x']": "globals",
    "locals()": "locals",
    "vars()": "vars",
    "dir()": "dir",
    "import sys\nsys._getframe()": "frames",
    "from sys import _getframe as q\nq()": "frames",
    "import inspect\ninspect.currentframe()": "frames",
    "import inspect\ninspect.stack()": "frames",
    "f.__globals__": "globals",
    "getattr(f, '__globals__')": "globals",
    "import sys\nsys.modules": "sys.modules",
    "import __main__": "__main__",
    "from __main__ import x": "__main__",
    "__import__('__main__')": "__main__",
    "import importlib\nimportlib.import_module('__main__')": "__main__",
    "import gc\ngc.get_objects()": "gc",
    "import gc\ngc.get_referrers(x)": "gc",
    "import ctypes": "ctypes",
    "from math import *": "import *",
    "d()": "eval",
    "a = eval('x')": "eval",
    "a = locals()": "locals",
}


@pytest.mark.parametrize("source,reason", DYNAMIC.items())
def test_dynamic(source: str, reason: str):
    cells = ["def f():\n    return x", "e = exec\nl = [exec]\ng = globals()\ndef d():\n    return eval('x')"]
    assert reason in looked_at(source, *cells).dynamic


@pytest.mark.parametrize(
    "source",
    [
        "vars(f)",
        "a = vars(f)",
        "dir(f)",
        "def h():\n    return locals()\nh()",
        "if __name__ == '__main__':\n    pass",
        "import sys\nsys.path, sys.version",
        "import numpy as np\nnp.stack([x])",
        "__import__('math').pi",
        "input",
        "a = str(x).format(1)",
    ],
)
def test_not_dynamic(source: str):
    assert looked_at(source, "def f():\n    pass").dynamic == ()


MAGICS = {
    "get_ipython().system('echo {x} $y')": ("x y", "", ()),
    "a = get_ipython().getoutput('ls {x[0]}')": ("x", "a", ()),
    "get_ipython().run_line_magic('time', 'a = f()')": ("f x", "a", ()),
    "get_ipython().run_line_magic('timeit', '-n 10 -r3 f()')": ("f x", "", ()),
    "get_ipython().run_cell_magic('time', '', 'a = f()\\nb = y\\n')": ("f x y", "a b", ()),
    "get_ipython().run_cell_magic('capture', 'out', 'print(x)\\n')": ("x", "out", ()),
    "get_ipython().run_cell_magic('bash', '', 'ls $HOME\\n')": ("", "", ()),
    "get_ipython().run_line_magic('matplotlib', 'inline')": ("", "", ()),
    "get_ipython().run_line_magic('pip', 'install {x}')": ("x", "", ()),
    "get_ipython().run_line_magic('run', 'a.py')": ("", "", ("magic run",)),
    "get_ipython().run_line_magic('time', 'a b')": ("", "", ("magic time",)),
    "get_ipython().run_cell_magic('bash', '--out a', 'ls')": ("", "", ("magic bash",)),
    "ip = get_ipython()": ("", "ip", ("get_ipython",)),
    "get_ipython().run_line_magic('time', x)": ("x", "", ("get_ipython",)),
    "get_ipython().user_ns": ("", "", ("get_ipython",)),
}


@pytest.mark.parametrize("source,expected", MAGICS.items())
def test_magics(source: str, expected: tuple[str, str, tuple[str, ...]]):
    reads, binds, dynamic = expected
    found = looked_at(source, F)
    assert found.reads == set(reads.split())
    assert found.binds == set(binds.split())
    assert found.dynamic == dynamic


def test_the_shell_itself_can_do_anything():
    shell = type("InteractiveShell", (), {"__module__": "IPython.core.interactiveshell"})()
    namespace = namespace_of()
    namespace["ip"] = shell
    assert analyse(compiled("ip.ev('x')"), namespace).dynamic == ("get_ipython",)
