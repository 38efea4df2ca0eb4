"""What one code object can touch, from its instructions alone: names, attributes, nested code.

Invariant: every load of a name is in `reads`, with what is settled before it; every store that can reach
the namespace is in `binds`. Facts are kept per code object and go when it goes.

Not promised: anything about values. Which objects the names stand for, and which of the nested code
runs, is `code.py`'s to say.
"""

from __future__ import annotations

import dis
import re
import weakref
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Final, Literal, NamedTuple

from kernel_runtime.kernel.probe.identity import ident
from kernel_runtime.kernel.probe.instructions import (
    ATTRIBUTE,
    ATTRIBUTE_SHIFT,
    BINARY,
    CALL,
    CALLS,
    CLASS,
    CONST,
    COPY,
    DELETE_GLOBAL,
    DELETE_NAME,
    DICT,
    FAST,
    HAS_DOCSTRING,
    IMPORT,
    INERT,
    INPLACE,
    INTERESTING,
    INTRINSIC,
    KEYWORDS,
    LEAST,
    LOAD,
    LOAD_GLOBAL,
    MAKE,
    METHOD,
    NAMESPACE_WITHOUT_ARGUMENT,
    NOTHING,
    OPTIMIZED,
    RETURNS,
    SEND,
    STAR,
    STORE_ATTRIBUTE,
    STORE_GLOBAL,
    STORE_ITEM,
    STORE_NAME,
    STORE_SLICE,
    SUPER,
    Code,
    Kind,
    Names,
)

_WORD = re.compile(r"[^\W\d]\w*")


_COMPILERS: Final = frozenset({"__annotations__", "__annotate__", "__conditional_annotations__"})
"""names that the compiler reads and binds for its own use"""


class Deferred(NamedTuple):
    """A statement that puts something under a name without running all of it."""

    target: str
    how: Literal["kept", "made", "decorated", "class"]
    codes: tuple[CodeType, ...]
    """functions made, or the body of the class"""
    names: Names
    """what is kept, the decorators, or the bases and keywords"""
    attributes: Names
    settled: Names
    simple: bool = True
    """nothing was called but the decorators, and what makes the class"""
    maker: str = ""
    """the only function that was called: its result, if it is a function of its own, is kept"""


class Magic(NamedTuple):
    method: str
    arguments: tuple[str, ...]
    settled: Names


class Facts(NamedTuple):
    reads: dict[str, Names]
    """each name loaded, and what was settled whenever it was"""
    called: Names
    """names loaded for more than to be kept under another name"""
    bare: Names
    """names loaded for more than an attribute of theirs"""
    attributes: Names
    words: Names
    """words in its string constants: they may be looked up as attributes or names"""
    binds: Names
    deletes: Names
    settles: Names
    """names bound or deleted on every path to its end"""
    leaves: Names
    """names that are surely bound at its end"""
    stores_into: Names
    codes: tuple[tuple[CodeType, Names], ...]
    """nested code that may run, and what is settled by then"""
    deferred: tuple[Deferred, ...]
    returned: tuple[CodeType, ...]
    """functions that it makes and gives back, and does not call"""
    captures: bool
    """what it is given is seen by nothing but functions that it makes"""
    imports: Names
    harmless: Names
    """names such as `vars` and `locals` that are used in a way that does not reach the namespace"""
    magics: tuple[Magic, ...]
    reasons: tuple[str, ...]
    hands_over: bool
    """a function that uses its first argument for more than its attributes"""
    delegates: bool
    """it awaits, or yields from something"""


_known: dict[tuple[int, Kind], tuple[weakref.ref[CodeType], Facts]] = {}


def facts(code: CodeType, kind: Kind) -> Facts:
    """What the code can touch. `top`: a cell's own code; `class`: a class body; else a function's."""
    key = (ident(code), kind)
    known = _known.get(key)
    if known is not None and known[0]() is code:
        return known[1]
    found = _facts(Code(code, kind))
    _known[key] = (weakref.ref(code, lambda _: _known.pop(key, None)), found)
    return found


def kind_of(code: CodeType) -> Kind:
    """The kind of a nested code object."""
    return "function" if code.co_flags & OPTIMIZED else "class"


def _facts(code: Code) -> Facts:
    return _Reading(code).facts()


class _Reading:
    """One pass over the instructions that collects Facts."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.before, self.sets, self.settles, self.leaves = code.flow()
        self.reads: dict[str, Names] = {}
        self.called: set[str] = set()
        self.bare: set[str] = set()
        self.attributes: set[str] = set()
        self.binds: set[str] = set()
        self.deletes: set[str] = set()
        self.stores_into: set[str] = set()
        self.codes: list[tuple[CodeType, Names]] = []
        self.deferred: list[Deferred] = []
        self.imports: set[str] = set()
        self.harmless: set[str] = set()
        self.magics: list[Magic] = []
        self.reasons: set[str] = set()
        self.hands_over = False
        self.delegates = False
        self.kept: set[int] = set()
        """instructions whose value is only put under a name"""

    def facts(self) -> Facts:
        code = self.code
        if code.kind != "function":
            for index, op in enumerate(code.ops):
                if op in STORE_NAME and index:
                    self.defer(index)
        words = self.words()
        for index, op in enumerate(code.ops):
            if INTERESTING[op]:
                self.look(index, op, code.args[index])
        if not DICT.isdisjoint(code.ops):
            words.add("keys")
        return Facts(
            self.reads,
            frozenset(self.called),
            frozenset(self.bare),
            frozenset(self.attributes),
            frozenset(words),
            frozenset(self.binds - _COMPILERS),
            frozenset(self.deletes),
            self.settles,
            self.leaves,
            frozenset(self.stores_into),
            tuple(self.codes),
            tuple(self.deferred),
            tuple(self.returned()) if code.kind == "function" else (),
            code.kind == "function" and self.captures(),
            frozenset(self.imports),
            frozenset(self.harmless),
            tuple(self.magics),
            tuple(sorted(self.reasons)),
            self.hands_over,
            self.delegates,
        )

    def settled(self, index: int) -> Names:
        return self.sets(self.before[index]) if self.before else NOTHING

    def outside(self, index: int) -> Names:
        """What is settled for nested code: the names of a class body are not seen by it."""
        return NOTHING if self.code.kind == "class" else self.settled(index)

    def look(self, index: int, op: int, arg: int) -> None:  # noqa: C901, PLR0912 - one table
        code = self.code
        if op in LOAD or op in LOAD_GLOBAL:
            self.load(index, code.names[arg if op in LOAD else arg >> 1])
        elif op in ATTRIBUTE:
            self.attributes.add(code.names[arg >> ATTRIBUTE_SHIFT])
        elif op in METHOD:
            self.attributes.add(code.names[arg])
        elif op in SUPER:
            self.attributes.add(code.names[arg >> 2])
        elif op in CONST:
            nested = code.consts[arg]
            if type(nested) is CodeType and index not in self.kept:
                self.codes.append((nested, self.outside(index)))
        elif op in STORE_GLOBAL or op in STORE_NAME:
            if op in STORE_GLOBAL or code.kind == "top":
                self.binds.add(code.names[arg])
        elif op in DELETE_GLOBAL or op in DELETE_NAME:
            if op in DELETE_GLOBAL or code.kind == "top":
                self.deletes.add(code.names[arg])
        elif op in STORE_ATTRIBUTE:
            self.attributes.add(code.names[arg])
            self.store_into(code.back(index), index)
        elif op in STORE_ITEM or op in STORE_SLICE:
            key = code.back(index, 1 if op in STORE_ITEM else 2)
            if key is None or code.ops[key] in COPY:
                self.store_into(key, index)
            else:
                self.store_into(code.back(key), key)
        elif op in BINARY:
            if arg in INPLACE:
                right = code.back(index)
                self.store_into(None if right is None else code.back(right), right or 0)
        elif op in FAST:
            self.fast(index, arg)
        elif op in IMPORT:
            self.imports.add(code.names[arg])
        elif op in STAR or (op in INTRINSIC and arg == 2):
            self.reasons.add("import *")
        elif op in SEND:
            self.delegates = True

    def load(self, index: int, name: str) -> None:
        code = self.code
        settled = self.settled(index)
        if code.kind == "class":
            if name in settled:
                self.called.add(name)
                return
            if name == "__name__" and code.ops[index + 1] in STORE_NAME:
                return
            settled = NOTHING
        after = code.after(index)
        if name in _COMPILERS:
            return
        if name == "get_ipython":
            self.magic(after, settled)
            return
        known = self.reads.get(name)
        self.reads[name] = settled if known is None else known & settled
        if name in NAMESPACE_WITHOUT_ARGUMENT and (
            code.kind == "function" if name == "locals" else not code.is_empty_call(after)
        ):
            self.harmless.add(name)
        if index in self.kept:
            return
        self.called.add(name)
        following = code.ops[after] if after < len(code.ops) else -1
        if following not in ATTRIBUTE and following not in METHOD and following not in STORE_ATTRIBUTE:
            self.bare.add(name)

    def magic(self, index: int, settled: Names) -> None:
        """`get_ipython().method('…', '…')`, as IPython writes magics; anything else can do anything."""
        code = self.code
        if code.is_empty_call(index):
            at = code.after(index)
            if at < len(code.ops) and (code.ops[at] in ATTRIBUTE or code.ops[at] in METHOD):
                shift = ATTRIBUTE_SHIFT if code.ops[at] in ATTRIBUTE else 0
                method = code.names[code.args[at] >> shift]
                arguments: list[str] = []
                at = code.after(at)
                while code.ops[at] in CONST and type(code.consts[code.args[at]]) is str:
                    arguments.append(code.consts[code.args[at]])
                    at = code.after(at)
                if code.ops[at] in CALL and code.args[at] == len(arguments):
                    self.magics.append(Magic(method, tuple(arguments), settled))
                    return
        self.reasons.add("get_ipython")

    def fast(self, index: int, arg: int) -> None:
        code = self.code.code
        if not code.co_argcount or self.hands_over:
            return
        name = dis.opname[self.code.ops[index]]
        pair = name.count("LOAD_FAST") > 1 or name.endswith("_LOAD_FAST_BORROW")
        if pair:
            first, last = arg >> 4, arg & 15
            if first == 0:
                self.hands_over = True
        else:
            last = arg
        following = self.code.ops[index + 1] if index + 1 < len(self.code.ops) else -1
        if last == 0 and not (
            following in ATTRIBUTE
            or following in METHOD
            or following in STORE_ATTRIBUTE
            or following in SUPER
        ):
            self.hands_over = True

    def store_into(self, start: int | None, end: int) -> None:
        """The names in that expression; if it is not known where it begins, any name of the code."""
        code = self.code
        if start is not None and code.ops[start] in COPY:
            # `x[i] += y` and `x.a += y`: what is stored into was copied before the value was fetched
            while start and code.ops[start - 1] in COPY:
                start -= 1
            end = start
            start = code.back(start, code.args[start])
        if start is None:
            start, end = 0, len(code.ops)
        self.stores_into |= code.names_in(start, end) - _COMPILERS

    def defer(self, index: int) -> None:
        """A store whose value is only kept, or a function or class that decorators at most have seen."""
        code = self.code
        last = code.ops[index - 1]
        if last not in INERT and last not in CALL:
            return
        if last in CONST and type(code.consts[code.args[index - 1]]) is not CodeType:
            return
        start = code.back(index)
        if start is None:
            return
        ops = code.ops[start:index]
        target = code.names[code.args[index]]
        if code.kind == "class" and target == "__module__":
            return  # `__module__ = __name__`: what every class body begins with
        consts = [
            (at, value)
            for at in range(start, index)
            if code.ops[at] in CONST and type(value := code.consts[code.args[at]]) is CodeType
        ]
        names = frozenset(code.names_in(start, index))
        if "get_ipython" in names:
            return
        attributes = frozenset(
            code.names[code.args[at] >> (ATTRIBUTE_SHIFT if code.ops[at] in ATTRIBUTE else 0)]
            for at in range(start, index)
            if code.ops[at] in ATTRIBUTE or code.ops[at] in METHOD
        )
        settled = self.outside(index)
        codes = tuple(value for _, value in consts)
        if INERT.issuperset(ops):
            if names or codes:
                self.kept.update(range(start, index))
                self.deferred.append(Deferred(target, "kept", codes, names, NOTHING, settled))
            return
        callee = self.callee(start, index, attributes)
        if callee is not None:
            self.kept.update(range(start, index))
            maker = code.names[code.args[callee]]
            self.deferred.append(Deferred(target, "made", codes, names, attributes, settled, maker=maker))
            return
        if len(consts) == 1:
            self.define(
                index, start, Deferred(target, "class", codes, names, attributes, settled), consts[0][0]
            )

    def define(self, index: int, start: int, deferred: Deferred, made: int) -> None:
        """A class, or a function with decorators; `made`: where the code stands."""
        code = self.code
        ops = code.ops[start:index]
        decorators = 0  # calls that are given the result of what stands before them, and nothing else
        at = index
        while at > made and code.ops[at - 1] in CALL and code.args[at - 1] == 0:
            at -= 1
            decorators += dis.opname[code.ops[at]] != "PRECALL"
        if not CLASS.isdisjoint(ops):
            calls = sum(op in CALL and dis.opname[op] != "PRECALL" for op in code.ops[made:at])
            # A keyword may be a metaclass, which can do anything.
            simple = (
                calls == 1
                and (INERT | CALLS | CLASS | ATTRIBUTE | METHOD).issuperset(ops)
                and KEYWORDS.isdisjoint(code.ops[made:at])
            )
            if simple:
                self.kept.update(range(start, index))
            self.kept.add(made)
            self.deferred.append(deferred._replace(simple=simple))
        elif decorators and self.is_function(at, start):
            self.kept.add(made)
            maker = (
                next(iter(deferred.names))
                if decorators == 1 and len(deferred.names) == 1 and made == start + 1
                else ""
            )
            if maker:
                self.kept.update(range(start, index))
            self.deferred.append(deferred._replace(how="decorated", maker=maker))

    def callee(self, start: int, end: int, attributes: Names) -> int | None:
        """Where the name is loaded that is called, if the expression is one call and nothing else happens."""
        code = self.code
        ops = code.ops[start:end]
        callee = next((at for at in range(start, end) if code.ops[at] in LOAD), end)
        dotted = attributes == {"partial"} and code.ops[callee + 1] in ATTRIBUTE | METHOD
        if dotted:
            del ops[callee + 1 - start]
        calls = sum(op in CALL and dis.opname[op] != "PRECALL" for op in ops)
        alone = calls == 1 and (INERT | CALLS).issuperset(ops) and code.is_callee(callee + dotted, end - 1)
        return callee if alone else None

    def is_function(self, end: int, start: int) -> bool:
        """Whether the expression that ends there makes a function that is then given to a decorator."""
        code = self.code
        if code.ops[end - 1] not in MAKE and not dis.opname[code.ops[end - 1]].startswith("SET_FUNCTION"):
            return False
        begin = code.back(end)
        return begin is not None and begin > start and dis.opname[code.ops[begin - 1]] != "PUSH_NULL"

    def returned(self) -> Iterator[CodeType]:
        code = self.code
        for at, op in enumerate(code.ops):
            if op not in MAKE:
                continue
            made = code.consts[code.args[at - 1]] if code.ops[at - 1] in CONST else None
            after = at + 1
            while dis.opname[code.ops[after]] == "SET_FUNCTION_ATTRIBUTE":
                after += 1
            if type(made) is CodeType and (
                code.ops[after] in RETURNS or (self.is_stored(after) and self.is_given_back(code.slot(after)))
            ):
                yield made

    def is_stored(self, at: int) -> bool:
        name = dis.opname[self.code.ops[at]]
        arg = self.code.args[at]
        return name == "STORE_FAST" or (name == "STORE_FAST_LOAD_FAST" and arg >> 4 == arg & 15)

    def is_given_back(self, slot: int) -> bool:
        """Whether the local is loaded for nothing but to be returned."""
        code = self.code
        for at, op in enumerate(code.ops):
            name = dis.opname[op]
            if "LOAD_FAST" in name:
                pair = name.count("_FAST") > 1 and name not in {"LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR"}
                slots = {code.args[at] >> 4, code.args[at] & 15} if pair else {code.args[at]}
                if slot in slots and code.ops[at + 1] not in RETURNS:
                    return False
        return True

    def captures(self) -> bool:
        code = self.code.code
        count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in (4, 8))
        given = set(code.co_varnames[:count])
        if not given:
            return True
        if not given <= set(code.co_cellvars):
            loads = {"LOAD_FAST", "LOAD_FAST_BORROW"}
            for at, op in enumerate(self.code.ops):
                name = dis.opname[op]
                if "LOAD_FAST" in name and (name not in loads or self.code.args[at] < count):
                    return False
        return not any(dis.opname[op] in {"LOAD_DEREF", "LOAD_FROM_DICT_OR_DEREF"} for op in self.code.ops)

    def words(self) -> set[str]:
        code = self.code.code
        consts = code.co_consts
        documented = code.co_flags & HAS_DOCSTRING if LEAST >= (3, 13) else code.co_name[:1] != "<"
        if self.code.kind == "function" and consts and documented:
            consts = consts[1:]
        words: set[str] = set()
        for text in _texts(consts):
            words.update((text,) if text.isidentifier() else _WORD.findall(text))
        return words


def _texts(consts: Sequence[object]) -> Iterator[str]:
    for value in consts:
        if type(value) is str:
            yield value
        elif type(value) is tuple:
            yield from _texts(value)
        elif type(value) is frozenset:
            yield from _texts(tuple(value))
