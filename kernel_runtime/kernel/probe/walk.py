"""The search that `code.py` starts from a cell, through code and objects: what can run, and what it uses.

Invariant: every object that followed code can reach is visited with the smallest set of names that was
settled on any way to it. Two things wait until they are needed: methods, until something names them, and
what a statement only puts under a name, until something uses that name.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

from kernel_runtime.kernel.probe import reasons
from kernel_runtime.kernel.probe.bytecode import Deferred, Facts, facts, kind_of
from kernel_runtime.kernel.probe.identity import ident
from kernel_runtime.kernel.probe.instructions import NOTHING, Kind, Names
from kernel_runtime.kernel.probe.kinds import (
    CELL,
    CLASS,
    CLOSED,
    CONTAINER,
    FOREIGN,
    FUNCTION,
    GENERATOR,
    LEAF,
    METHOD,
    MODULE,
    SHELL,
    WEAK,
    class_dict,
    class_order,
    contents,
    is_cell_class,
    is_inert,
    kind_of_type,
    module_dict,
    referents,
)
from kernel_runtime.kernel.probe.layout import distinct_types
from kernel_runtime.kernel.probe.magics import read_magic
from kernel_runtime.kernel.probe.onlookers import is_harmless, is_partial

_MOST_VISITS: Final = 50_000
_MOST_ELEMENTS: Final = 1_000_000
_MANY: Final = 8
_GENERATORS: Final = 0x20 | 0x80 | 0x200
_NEAR: Final = 2
"""the namespace found that many references inside a library's object is that object's to use"""


def _is_hook(name: str) -> bool:
    """A method that operators, statements or displays call: `__add__`, `_repr_html_`."""
    return name[:1] == "_" and name[-1:] == "_"


class Walk:
    """One analysis. `settled`, wherever it stands: names the cell has surely bound or deleted by then."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self.reads: set[str] = set()
        self.uses: set[str] = set()
        self.binds: set[str] = set()
        self.surely: set[str] = set()
        self.deletes: set[str] = set()
        self.stores_into: set[str] = set()
        self.builtins: set[str] = set()
        self.dynamic: set[str] = set()
        self.used: dict[tuple[str, bool], Names] = {}
        self.seen: dict[int, tuple[object, Names]] = {}
        """visited objects; held, so that no other takes their id"""
        self.kinds: dict[int, int] = {}
        self.types: list[type] = []
        self.classes: dict[tuple[int, bool, bool], Names] = {}
        self.queue: deque[tuple[object, Names, bool]] = deque()
        self.mentioned: set[str] = set()
        self.attributes: set[str] = set()
        self.words: set[str] = set()
        self.waiting: dict[str, list[tuple[object, Names]]] = {}
        """methods that nothing has named yet"""
        self.classes_made: set[str] = set()
        self.unnamed: dict[str, list[tuple[Deferred, Names]]] = {}
        """statements that only put something under a name that nothing has used yet"""
        self.reachable: list[tuple[object, Names]] = []
        """methods that library code can call, if it was given their object"""
        self.modules: dict[int, tuple[dict[str, Any], Names]] = {}
        self.patchable: dict[int, tuple[type, Names]] = {}
        self.checked: set[tuple[int, str]] = set()
        self.any_attribute = False
        self.foreign = False
        """library code is within reach"""
        self.visits = 0
        self.elements = 0

    # Code.

    def cell(self, codes: Sequence[CodeType]) -> None:
        settled: Names = NOTHING
        for code in codes:
            found = facts(code, "top")
            self.code(code, "top", settled)
            settled |= found.settles
            self.surely = (self.surely - found.deletes) | found.leaves
            self.drain()
        self.drain()
        self.texts()

    def code(
        self,
        code: CodeType,
        kind: Kind,
        settled: Names,
        *,
        owner: bool = True,
        given_back: tuple[CodeType, ...] = (),
    ) -> None:
        """Follow one code object. `owner`: methods in a class body may be called."""
        found = facts(code, kind)
        self.binds |= found.binds
        self.deletes |= found.deletes
        self.stores_into |= found.stores_into
        self.dynamic.update(found.reasons)
        self.mention(found)
        for name in found.imports:
            self.imported(name, settled)
        for name, before in found.reads.items():
            now = settled | before if before else settled
            if name in found.called:
                self.use(name, now, bare=name in found.bare, facts=found)
            else:
                self.note(name, now)
        for magic in found.magics:
            self.magic(magic.method, magic.arguments, settled | magic.settled)
        for nested, before in found.codes:
            if nested not in given_back:
                self.nested(nested, settled | before)
        for deferred in found.deferred:
            if kind == "class":
                self.defer_attribute(deferred, settled | deferred.settled, found, owner=owner)
            else:
                self.defer(deferred, settled | deferred.settled, found)

    def nested(self, code: CodeType, settled: Names, *, owner: bool = True) -> None:
        known = self.seen.get(ident(code))
        if known is not None and known[1] <= settled:
            return
        self.seen[ident(code)] = (code, settled if known is None else known[1] & settled)
        self.code(code, kind_of(code), settled, owner=owner)

    def defer(self, deferred: Deferred, settled: Names, found: Facts) -> None:
        made = deferred.how == "class"
        looks = (
            deferred.how == "kept"
            or (deferred.how != "made" and self.only_looks(deferred))
            or bool(deferred.maker and self.makes(deferred, settled))
        )
        if deferred.maker or (made and deferred.simple):
            for name in deferred.names:
                if looks:
                    self.note(name, settled)
                else:
                    self.use(name, settled, bare=True, facts=found)
        if made:
            for code in deferred.codes:
                self.nested(code, settled, owner=False)
            if looks and not any("__init_subclass__" in code.co_names for code in deferred.codes):
                self.classes_made.add(deferred.target)
        if not looks or self.is_used(deferred.target):
            self.release(deferred, settled)
        else:
            self.unnamed.setdefault(deferred.target, []).append((deferred, settled))

    def makes(self, deferred: Deferred, settled: Names) -> bool:
        """Whether a call of it runs only its own code: what it was given and what it makes, it gives back."""
        value = self.namespace.get(deferred.maker)
        for made, _ in self.unnamed.get(deferred.maker, ()):
            if type(value) is not FunctionType or value.__code__ not in made.codes:
                return False  # another one, that the cell made and has let go since
        if is_partial(value, deferred.attributes):
            return True
        if deferred.attributes or type(value) is not FunctionType or value.__globals__ is not self.namespace:
            return False
        code = value.__code__
        if code.co_flags & _GENERATORS:
            return True  # nothing of it runs before its result is used
        found = facts(code, "function")
        if not (found.returned and found.captures):
            return False
        for inner in (value.__closure__, value.__defaults__, value.__kwdefaults__):
            self.queue.append((inner, settled, True))
        self.code(code, "function", settled, given_back=found.returned)
        return True

    def release(self, deferred: Deferred, settled: Names) -> None:
        for code in deferred.codes:
            self.seen.pop(ident(code), None)
            self.nested(code, settled)
        for name in deferred.names:
            self.use(name, settled, bare=True)

    def defer_attribute(self, deferred: Deferred, settled: Names, body: Facts, *, owner: bool) -> None:
        """What a class body puts under a name: run if something names it, once the class is used."""
        if deferred.how == "class":
            for name in deferred.names:
                self.use(name, settled, bare=True)
            for code in deferred.codes:
                self.nested(code, settled, owner=owner)
            return
        name = deferred.target
        now = name in body.called or (deferred.how == "decorated" and not self.only_looks(deferred))
        if now:
            self.release(deferred, settled)
        elif owner:
            if _is_hook(name) or name in self.mentioned or self.any_attribute:
                self.release(deferred, settled)
            else:
                self.waiting.setdefault(name, []).append((deferred, settled))
                self.reachable.append((deferred, settled))

    def is_used(self, name: str) -> bool:
        return (name, True) in self.used or (name, False) in self.used

    def only_looks(self, deferred: Deferred) -> bool:
        """Whether decorators and base classes are known not to call what they are given."""
        if not deferred.simple:
            return False
        for name in deferred.names:
            if len(self.unnamed.get(name, ())) > 1:
                return False  # another one, that the cell made and has let go since
            ours = name in self.classes_made and name not in self.namespace
            if not (ours or is_harmless(name, deferred.attributes, self.namespace)):
                return False
        return True

    # Names.

    def note(self, name: str, settled: Names) -> bool:
        """A read of the name; whether the namespace has it, or had it."""
        here = name in self.namespace or name in self.binds or name in self.deletes
        if not here and name in vars(builtins):
            self.builtins.add(name)
            return False
        self.uses.add(name)
        if name not in settled:
            self.reads.add(name)
        return True

    def use(self, name: str, settled: Names, *, bare: bool, facts: Facts | None = None) -> None:
        here = self.note(name, settled)
        known = self.used.get((name, bare))
        if known is not None and known <= settled:
            return
        self.used[name, bare] = settled if known is None else known & settled
        for deferred, then in self.unnamed.pop(name, ()):
            self.queue.append((deferred, then, True))
        if here:
            if name in self.namespace:
                self.push(self.namespace[name], settled, escapes=bare, direct=True)
        else:
            self.builtin(name, facts)

    def builtin(self, name: str, facts: Facts | None) -> None:
        if name in reasons.BUILTINS_ASKED and not (facts and name in facts.harmless):
            self.dynamic.add(reasons.REASONS["builtins", name])
        if name in reasons.ANY_ATTRIBUTE_BUILTINS:
            self.any_attributes()
        if name in reasons.IMPORTERS:
            self.importer(facts)
        if name == "print":
            if facts is None or "file" in facts.words:
                self.name_attributes(("write", "flush"))
        elif name == "type":
            self.name_attributes(("__class__",))
        elif name == "dict":
            self.name_attributes(("keys",))

    def importer(self, found: Facts | None) -> None:
        """A module by its name at run time: the namespace's own, unless constants say another."""
        words = found.words if found else NOTHING
        if "__main__" in words or not any(word in sys.modules for word in words):
            self.dynamic.add("__main__")
        self.foreign = True

    def imported(self, name: str, settled: Names) -> None:
        self.foreign = True
        if name == "__main__":
            self.dynamic.add("__main__")
        if name.partition(".")[0] in {"ctypes", "_ctypes"}:
            self.dynamic.add("ctypes")
        for part in {name, name.partition(".")[0]}:
            module = sys.modules.get(part)
            if module is not None:
                self.push(module, settled, escapes=False, direct=True)

    def magic(self, method: str, arguments: tuple[str, ...], settled: Names) -> None:
        read = read_magic(method, arguments)
        self.dynamic.update(read.reasons)
        self.binds |= read.binds
        for code in read.codes:
            self.code(code, "top", settled)
        for name in read.names:
            self.use(name, settled, bare=True)

    def texts(self) -> None:
        """Names that a text asks for: `df.query("fare > @limit")`."""
        if reasons.ASKS_BY_TEXT.isdisjoint(self.attributes):
            return
        words = set(self.words)
        for name in self.uses:
            value = self.namespace.get(name)
            if type(value) is str:
                words.update(value.replace("@", " ").replace(".", " ").split())
        for word in words:
            if word in self.namespace:
                self.use(word, NOTHING, bare=True)
        self.drain()

    # Attributes.

    def mention(self, found: Facts) -> None:
        self.attributes |= found.attributes
        self.words |= found.words
        for name in found.attributes & reasons.REASON_OF_ATTRIBUTE.keys():
            self.dynamic.add(reasons.REASON_OF_ATTRIBUTE[name])
        if not reasons.ANY_ATTRIBUTE.isdisjoint(found.attributes):
            self.any_attributes()
        if not reasons.IMPORTERS.isdisjoint(found.attributes):
            self.importer(found)
        if found.delegates:
            self.name_attributes(("send", "throw", "close"))
        self.name_attributes(found.attributes)
        self.name_attributes(found.words)

    def name_attributes(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.mentioned:
                self.mentioned.add(name)
                for value, settled in self.waiting.pop(name, ()):
                    self.queue.append((value, settled, True))

    def any_attributes(self) -> None:
        if not self.any_attribute:
            self.any_attribute = True
            self.name_attributes(list(self.waiting))
            for word in self.words & reasons.REASON_OF_ATTRIBUTE.keys():
                self.dynamic.add(reasons.REASON_OF_ATTRIBUTE[word])

    # Objects.

    def kind(self, cls: type) -> int:
        known = self.kinds.get(ident(cls))
        if known is None:
            known = self.kinds[ident(cls)] = kind_of_type(cls, self.namespace)
            self.types.append(cls)
        return known

    def push(self, value: object, settled: Names, *, escapes: bool, direct: bool = False) -> None:
        kind = self.kind(type(value))
        if kind == LEAF:
            return
        if direct:
            self.direct(value, kind, settled)
        if kind == MODULE:
            return
        if kind == CELL:
            self.look_at_class(type(value), settled, instance=True, escapes=escapes)
        self.queue.append((value, settled, escapes))

    def direct(self, value: object, kind: int, settled: Names) -> None:
        """What a name itself stands for."""
        if kind == MODULE:
            self.foreign = True
            held = module_dict(value)
            if held is self.namespace:
                self.dynamic.add("__main__")
            name = held.get("__name__")
            if type(name) is str and name.partition(".")[0] in {"ctypes", "_ctypes"}:
                self.dynamic.add("ctypes")
            self.modules[ident(held)] = (held, settled)
        elif kind == SHELL:
            self.dynamic.add("get_ipython")
        elif kind == FOREIGN:
            self.foreign = True
            self.patchable[ident(type(value))] = (type(value), settled)
        elif value is self.namespace:
            self.dynamic.add("globals")
        elif value is sys.modules:
            self.dynamic.add("sys.modules")

    def drain(self) -> None:
        while True:
            while self.queue:
                value, settled, escapes = self.queue.popleft()
                if type(value) is Deferred:
                    self.release(value, settled)
                else:
                    self.follow(value, settled, escapes=escapes)
            if self.foreign and self.reachable:
                methods, self.reachable = self.reachable, []
                self.queue.extend((value, settled, True) for value, settled in methods)
            self.look_up()
            if not self.queue:
                return

    def look_up(self) -> None:
        """Attributes of modules and library classes that the code names: reasons, and functions put there."""
        names = self.mentioned if self.any_attribute else self.attributes
        for held, settled in list(self.modules.values()):
            for name in self.unchecked(held, names):
                self.look_in_module(held, name, settled)
        for cls, settled in list(self.patchable.values()):
            for name in self.unchecked(cls, names):
                for base in class_order(cls):
                    value = class_dict(base).get(name)
                    if type(value) is FunctionType and value.__globals__ is self.namespace:
                        self.queue.append((value, settled, True))

    def unchecked(self, holder: object, names: Iterable[str]) -> list[str]:
        """The names not yet looked up in it, from now on looked up."""
        fresh = [name for name in names if (ident(holder), name) not in self.checked]
        self.checked.update((ident(holder), name) for name in fresh)
        return fresh

    def look_in_module(self, held: dict[str, Any], name: str, settled: Names) -> None:
        value = held.get(name)
        if value is None:
            return
        module = held.get("__name__")
        if type(module) is str and (module, name) in reasons.REASONS:
            self.dynamic.add(reasons.REASONS[module, name])
        kind = self.kind(type(value))
        if kind == MODULE:
            self.direct(value, kind, settled)
        elif (
            kind == CELL
            or (kind == FUNCTION and value.__globals__ is self.namespace)
            or (kind == CLASS and is_cell_class(value, self.namespace))
        ):
            self.push(value, settled, escapes=True)

    def visit(self, value: object, settled: Names) -> bool:
        known = self.seen.get(ident(value))
        if known is None:
            self.visits += 1
            if self.visits > _MOST_VISITS:
                self.dynamic.add("objects")
                return False
            self.seen[ident(value)] = (value, settled)
            return True
        if known[1] <= settled:
            return False
        self.seen[ident(value)] = (value, known[1] & settled)
        return True

    def follow(self, value: object, settled: Names, *, escapes: bool = True) -> None:
        """Whatever code can be reached through the object; breadth first, each level at once."""
        if self.kind(type(value)) == CONTAINER and is_inert(value, self.kind, self.namespace):
            return
        level: list[object] = [value]
        depth = 0
        while level:
            kinds = self.kinds
            types = list(map(type, level))
            self.elements += len(level)
            if self.elements > _MOST_ELEMENTS:
                self.dynamic.add("objects")
                return
            distinct = types if len(level) < _MANY else distinct_types(level)
            if CLOSED.issuperset([self.kind(cls) for cls in distinct]):
                return
            deeper: list[object] = []
            for item, cls in zip(level, types, strict=True):
                kind = kinds[ident(cls)]
                if kind in CLOSED or not self.visit(item, settled):
                    continue
                if item is self.namespace:
                    if depth <= _NEAR:
                        self.dynamic.add("globals")
                    continue
                if depth and kind == MODULE and module_dict(item) is self.namespace and depth <= _NEAR:
                    self.dynamic.add("__main__")
                deeper.extend(self.inside(item, kind, settled, escapes=escapes or depth > 0))
            level = deeper
            depth += 1

    def inside(self, item: Any, kind: int, settled: Names, *, escapes: bool) -> Iterable[object]:
        if kind == CONTAINER:
            return contents(item)
        if kind == FUNCTION:
            return self.function(item, settled)
        if kind == CLASS:
            self.look_at_class(item, settled, instance=False, escapes=escapes)
            return ()
        if kind == METHOD:
            return (item.__func__, item.__self__)
        if kind == CELL:
            self.look_at_class(type(item), settled, instance=True, escapes=escapes)
            return referents(item)
        if kind == GENERATOR:
            return self.generator(item, settled)
        if kind == WEAK:
            self.dynamic.add("weakref")
        if kind in {WEAK, SHELL, MODULE}:
            return ()
        self.foreign_object(item)
        return referents(item)

    def foreign_object(self, item: Any) -> None:
        if type(item) is type(len):  # a function in C, or a method of an object's
            module = item.__module__
            reason = reasons.REASONS.get((module, item.__name__)) if type(module) is str else None
            if reason:
                self.dynamic.add(reason)
            elif item.__name__ in reasons.ANY_ATTRIBUTE_BUILTINS:
                self.any_attributes()

    def generator(self, item: Any, settled: Names) -> list[object]:
        """One that has not ended holds its function and locals; of one that has, only the code is left."""
        inner = referents(item)
        if not any(type(value) is FunctionType for value in inner):
            for attribute in ("gi_code", "cr_code", "ag_code"):
                code = getattr(item, attribute, None)  # of exact types: no code of the user's
                if code is not None:
                    self.nested(code, settled)
        return inner

    def function(self, item: FunctionType, settled: Names) -> list[object]:
        code = item.__code__
        inner: list[object] = [*(item.__defaults__ or ())]
        for name, cell in zip(code.co_freevars, item.__closure__ or (), strict=False):
            if name != "__class__" or "super" not in code.co_names:  # super() makes no new one
                inner.append(cell)
        inner.extend((item.__kwdefaults__ or {}).values())
        if item.__dict__:
            inner.extend(item.__dict__.values())
        if item.__globals__ is self.namespace:
            self.nested(code, settled)
            return inner
        module = item.__module__
        if module not in reasons.HARMLESS_MODULES:
            self.foreign = True
        reason = reasons.REASONS.get((module, item.__name__)) if type(module) is str else None
        if reason:
            self.dynamic.add(reason)
        return inner

    def look_at_class(self, cls: type, settled: Names, *, instance: bool, escapes: bool) -> None:
        """The code of a class that may run: hooks, and the methods that something names."""
        key = (ident(cls), instance, escapes)
        known = self.classes.get(key)
        if known is not None and known <= settled:
            return
        self.classes[key] = settled if known is None else known & settled
        order = class_order(cls)
        cells = [base for base in order if is_cell_class(base, self.namespace)]
        if not instance:
            if len(cells) < len(order) and self.kind(cls) == FOREIGN:
                self.foreign = True
            self.visit(cls, settled)
            if type(cls) is not type:
                self.look_at_class(type(cls), settled, instance=True, escapes=escapes)
        if not cells:
            return
        self.seen.setdefault(ident(cls), (cls, settled))
        handed = (
            escapes
            or any(self.kind(base) == FOREIGN for base in order)
            or any(self.hands_over(value) for base in cells for value in list(class_dict(base).values()))
        )
        for base in cells:
            for name, value in list(class_dict(base).items()):
                if self.kind(type(value)) == LEAF:
                    continue
                if instance and name in reasons.BIRTH:
                    self.waiting.setdefault("__class__", []).append((value, settled))
                    if "__class__" in self.mentioned or self.any_attribute:
                        self.queue.append((value, settled, True))
                    elif handed:
                        self.reachable.append((value, settled))
                elif _is_hook(name) or name in self.mentioned or self.any_attribute:
                    self.queue.append((value, settled, True))
                else:
                    self.waiting.setdefault(name, []).append((value, settled))
                    if handed:
                        self.reachable.append((value, settled))

    def hands_over(self, value: object) -> bool:
        """A method that gives its own object to others."""
        if type(value) is not FunctionType or value.__globals__ is not self.namespace:
            return False
        return facts(value.__code__, "function").hands_over
