"""The instructions of one code object, without caches, and what every path has stored before each.

Opcodes are looked up by name, so that the same walk serves every Python from 3.11 on. Invariant: a name
is settled before an instruction only if each path to it binds or deletes the name; an instruction that
may raise has stored nothing on the path to its handler.
"""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import CodeType
from typing import Final, Literal

Kind = Literal["top", "class", "function"]
Names = frozenset[str]

NOTHING: Final[Names] = frozenset()
OPTIMIZED: Final = 0x1  # co_flags of functions: locals in slots, so nothing of theirs is in the namespace
HAS_DOCSTRING: Final = 0x4000000
LEAST: Final = sys.version_info[:2]


def _ops(*names: str) -> frozenset[int]:
    return frozenset(code for name in names if (code := dis.opmap.get(name, 256)) < 256)


def _starting(*prefixes: str) -> frozenset[int]:
    return frozenset(code for name, code in dis.opmap.items() if code < 256 and name.startswith(prefixes))


CACHE = dis.opmap.get("CACHE", -1)
EXTENDED = dis.EXTENDED_ARG
LOAD = _ops("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
LOAD_GLOBAL = _ops("LOAD_GLOBAL")
STORE_NAME = _ops("STORE_NAME")
STORE_GLOBAL = _ops("STORE_GLOBAL")
DELETE_NAME = _ops("DELETE_NAME")
DELETE_GLOBAL = _ops("DELETE_GLOBAL")
ATTRIBUTE = _ops("LOAD_ATTR")
METHOD = _ops("LOAD_METHOD", "IMPORT_FROM")
SUPER = _ops("LOAD_SUPER_ATTR")
STORE_ATTRIBUTE = _ops("STORE_ATTR", "DELETE_ATTR")
STORE_ITEM = _ops("STORE_SUBSCR", "DELETE_SUBSCR")
STORE_SLICE = _ops("STORE_SLICE")
BINARY = _ops("BINARY_OP")
IMPORT = _ops("IMPORT_NAME")
CONST = _ops("LOAD_CONST")
MAKE = _ops("MAKE_FUNCTION")
CLASS = _ops("LOAD_BUILD_CLASS")
SEND = _ops("SEND", "GET_YIELD_FROM_ITER", "GET_AWAITABLE")
STAR = _ops("IMPORT_STAR")
INTRINSIC = _ops("CALL_INTRINSIC_1")
DICT = _ops("DICT_UPDATE", "DICT_MERGE")
CALL = _ops("CALL", "PRECALL")
CALLS = CALL | _ops("CALL_KW", "KW_NAMES", "PUSH_NULL")
COPY = _ops("COPY")
SWAP = _ops("SWAP")
KEYWORDS = _ops("KW_NAMES", "CALL_KW")
NOISE = _ops("PUSH_NULL", "PRECALL", "NOP", "NOT_TAKEN", "KW_NAMES")
JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
BACK = frozenset(code for name, code in dis.opmap.items() if "JUMP_BACKWARD" in name)
ENDS = _ops(
    "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT", "INTERPRETER_EXIT",
)  # fmt: skip
RETURNS = _ops("RETURN_VALUE", "RETURN_CONST")
FAST = _starting("LOAD_FAST")
INERT = (
    LOAD
    | CONST
    | MAKE
    | _ops("SET_FUNCTION_ATTRIBUTE", "BUILD_TUPLE", "BUILD_LIST", "BUILD_CONST_KEY_MAP", "LOAD_SMALL_INT")
)
INPLACE = frozenset(
    number for number, (name, _) in enumerate(getattr(opcode, "_nb_ops", ())) if "INPLACE" in name
) or frozenset(range(13, 26))
INTERESTING = bytearray(256)
for _code in (
    LOAD | LOAD_GLOBAL | STORE_NAME | STORE_GLOBAL | DELETE_NAME | DELETE_GLOBAL | ATTRIBUTE | METHOD
    | SUPER | STORE_ATTRIBUTE | STORE_ITEM | STORE_SLICE | BINARY | IMPORT | CONST | SEND | STAR
    | INTRINSIC | DICT | FAST
):  # fmt: skip
    INTERESTING[_code] = 1
ATTRIBUTE_SHIFT: Final = 0 if LEAST < (3, 12) else 1
NAMESPACE_WITHOUT_ARGUMENT: Final = frozenset({"vars", "dir", "locals"})


class Sets(dict[int, Names]):
    """Bits as names, each combination made once."""

    def __init__(self, places: dict[str, int]) -> None:
        self.places = places

    def __call__(self, bits: int) -> Names:
        found = self.get(bits)
        if found is None:
            found = self[bits] = frozenset(name for name, bit in self.places.items() if bits & bit)
        return found


class Code:
    """One code object's instructions, without caches, and what must be so before each."""

    def __init__(self, code: CodeType, kind: Kind) -> None:
        self.code = code
        self.kind = kind
        self.names = code.co_names
        self.consts = code.co_consts
        self.ops: list[int] = []
        self.args: list[int] = []
        self.offsets: list[int] = []
        raw = code.co_code
        extended = 0
        for offset, op in enumerate(raw[::2]):
            if op == CACHE:
                continue
            arg = raw[2 * offset + 1]
            if op == EXTENDED:
                extended = (extended | arg) << 8
                continue
            self.ops.append(op)
            self.args.append(extended | arg)
            self.offsets.append(2 * offset)
            extended = 0

    def back(self, index: int, items: int = 1) -> int | None:
        """Where the expression begins that pushed the topmost items before the instruction."""
        height = 0
        labels = self.labels
        while index > 0:
            if index in labels:
                return None
            index -= 1
            op = self.ops[index]
            if op in JUMPS or op in ENDS:
                return None
            height += effect(op, self.args[index])
            if height >= items:
                return index
        return None

    @cached_property
    def labels(self) -> frozenset[int]:
        """Instructions that more than the one before them leads to."""
        edges = self._edges() or ()
        return frozenset(to for index, out in enumerate(edges) for to, _ in out if to != index + 1)

    def name_at(self, index: int) -> str | None:
        op, arg = self.ops[index], self.args[index]
        if op in LOAD:
            return self.names[arg]
        return self.names[arg >> 1] if op in LOAD_GLOBAL else None

    def names_in(self, start: int, end: int) -> set[str]:
        return {name for i in range(start, end) if (name := self.name_at(i)) is not None}

    def after(self, index: int) -> int:
        """The next instruction that is not about how a call is laid out."""
        index += 1
        while index < len(self.ops) and self.ops[index] in NOISE:
            index += 1
        return index

    def is_callee(self, index: int, call: int) -> bool:
        """Whether the call's arguments begin right after the instruction."""
        if index >= call or self.ops[call] not in CALL:
            return False
        first = self.back(call if dis.opname[self.ops[call - 1]] != "PRECALL" else call - 1, self.args[call])
        if self.args[call] == 0:
            return self.after(index) == call
        return first is not None and self.after(index) == first

    def slot(self, index: int) -> int:
        """The local that is stored to."""
        pair = dis.opname[self.ops[index]] == "STORE_FAST_LOAD_FAST"
        return self.args[index] >> 4 if pair else self.args[index]

    def is_empty_call(self, index: int) -> bool:
        return index < len(self.ops) and self.ops[index] in CALL and self.args[index] == 0

    # What every path has settled.

    def bits(self) -> tuple[list[int], list[int], dict[str, int]]:
        """For each instruction: names that it settles, names that it unbinds; and each name's bit."""
        settles, unbinds = [0] * len(self.ops), [0] * len(self.ops)
        stores = STORE_GLOBAL if self.kind == "function" else STORE_GLOBAL | STORE_NAME
        deletes = DELETE_GLOBAL if self.kind == "function" else DELETE_GLOBAL | DELETE_NAME
        places: dict[str, int] = {}
        for index, op in enumerate(self.ops):
            if op in stores or op in deletes:
                bit = places.setdefault(self.names[self.args[index]], 1 << len(places))
                settles[index] = bit
                if op in deletes:
                    unbinds[index] = bit
        return settles, unbinds, places

    def flow(self) -> tuple[list[int], Sets, Names, Names]:
        """What is settled before each instruction, in bits; what at the end; and what is then bound."""
        settles, unbinds, places = self.bits()
        sets = Sets(places)
        count = len(self.ops)
        if not places:
            return [], sets, NOTHING, NOTHING
        everything = (1 << len(places)) - 1
        before, bound = [everything] * count, [everything] * count
        before[0] = bound[0] = 0
        edges = self._edges()
        if edges is None:
            for index in range(count - 1):
                before[index + 1] = before[index] | settles[index]
                bound[index + 1] = (bound[index] | settles[index]) & ~unbinds[index]
        else:
            self._meet(edges, settles, unbinds, before, bound)
        settled = held = everything
        ends = [index for index, op in enumerate(self.ops) if op in RETURNS]
        for index in ends:
            settled &= before[index]
            held &= bound[index]
        return before, sets, sets(settled if ends else 0), sets(held if ends else 0)

    @staticmethod
    def _meet(
        edges: list[list[tuple[int, bool]]],
        settles: list[int],
        unbinds: list[int],
        before: list[int],
        bound: list[int],
    ) -> None:
        """Lower both lists to what holds on every path."""
        work = list(range(len(edges) - 1, -1, -1))
        while work:
            index = work.pop()
            settled = before[index] | settles[index]
            kept = (bound[index] | settles[index]) & ~unbinds[index]
            for target, raised in edges[index]:
                # An instruction that raised may have stored nothing, and may have deleted.
                new = before[target] & (before[index] if raised else settled)
                held = bound[target] & (bound[index] & kept if raised else kept)
                if new != before[target] or held != bound[target]:
                    before[target], bound[target] = new, held
                    work.append(target)

    def _edges(self) -> list[list[tuple[int, bool]]] | None:
        """Where control may go from each instruction; None if only to the next."""
        ops, args, offsets = self.ops, self.args, self.offsets
        if not self.code.co_exceptiontable and JUMPS.isdisjoint(ops):
            return None
        at: dict[int, int] = {}  # an EXTENDED_ARG may be what is jumped to
        position = 0
        for index, offset in enumerate(offsets):
            while position <= offset:
                at[position] = index
                position += 2
        edges: list[list[tuple[int, bool]]] = [[] for _ in ops]
        raw = self.code.co_code
        for index, op in enumerate(ops):
            if op not in ENDS and index + 1 < len(ops):
                edges[index].append((index + 1, False))
            if op in JUMPS:
                after = offsets[index] + 2
                while after < len(raw) and raw[after] == CACHE:
                    after += 2
                target = after + (-2 if op in BACK else 2) * args[index]
                edges[index].append((at[target], False))
        for start, end, target in exception_ranges(self.code.co_exceptiontable):
            for index, offset in enumerate(offsets):
                if start <= offset < end:
                    edges[index].append((at[target], True))
        return edges


def exception_ranges(table: bytes) -> Iterator[tuple[int, int, int]]:
    """`(start, end, handler)` in bytes, from a code object's exception table."""
    data = iter(table)

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(data)
            value = value << 6 | first & 63
        return value

    for first in data:
        start = number(first) * 2
        length = number(next(data)) * 2
        target = number(next(data)) * 2
        number(next(data))
        yield start, start + length, target


@lru_cache(4096)
def effect(op: int, arg: int) -> int:
    try:
        return dis.stack_effect(op, arg, jump=False)
    except ValueError:
        return dis.stack_effect(op, None, jump=False)
