"""Calls through a stack: of functions that may call themselves, and through pointers.

Such a function is placed once, in front of the entry, and has one set of registers. A frame of local memory holds,
from the frame pointer on, the number of the place to return to, results and parameters, then local variables and the
registers that must be found again after a call inside the function. The callee's frame follows the caller's. All of
this is written in PTX's own terms, loads and stores and branches, so that the engine knows nothing of it.

Functions stand before the entry because the lanes of a warp with the lowest program counter run first: those that are
in a function come back before the others go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from . import ptx

STACK = "%stack"
"""The local variable that frames lie in."""

STACK_BYTES = 4096
"""Of one thread."""

_RETURN_BYTES = 8


def _mentioned(function: ptx.Function, module: ptx.Module) -> tuple[set[str], set[str], bool]:
    """Defined functions that a function calls, those whose address it takes, and whether it calls through a pointer."""
    called: set[str] = set()
    taken: set[str] = set()
    indirect = False
    for instruction in function.instructions:
        is_call = instruction.parts[0] == "call"
        for operand in instruction.operands:
            if isinstance(operand, ptx.Symbol) and operand.name in module.functions:
                (called if is_call else taken).add(operand.name)
            indirect |= is_call and isinstance(operand, ptx.Register)
    for text in function.prototypes.values():
        taken.update(name for name in module.functions if name in text.replace(",", " ").split())
    return called, taken, indirect


def called_on_stack(entry: ptx.Function, module: ptx.Module) -> set[str]:
    """The functions that cannot be expanded in place: those that may be called again before they have returned."""
    functions = {f.name: f for f in module.functions.values() if f.defined and not f.is_entry}
    mentioned = {name: _mentioned(function, module) for name, function in functions.items()}
    taken = pointed_to(module)
    edges = {
        name: {callee for callee in called | (taken if indirect else set()) if callee in functions}
        for name, (called, _, indirect) in mentioned.items()
    }
    return {name for name in functions if name in _reached(edges[name], edges)}


def _reached(first: set[str], edges: dict[str, set[str]]) -> set[str]:
    reached, waiting = set(first), list(first)
    while waiting:
        for callee in edges[waiting.pop()] - reached:
            reached.add(callee)
            waiting.append(callee)
    return reached


def pointed_to(module: ptx.Module) -> set[str]:
    """The functions whose address is taken somewhere: by a variable, an instruction or a list of targets."""
    taken = {name for variable in module.variables.values() for _, name, _, _ in variable.relocations}
    for function in module.functions.values():
        taken |= _mentioned(function, module)[1]
    return {name for name in taken if name in module.functions and module.functions[name].defined}


@dataclass(slots=True)
class Frame:
    """A function's part of the stack. ``size`` is what its callees' frames begin after, ``bytes`` what is in use."""

    pointer: ptx.Register
    size: int = 0
    end: int = _RETURN_BYTES
    slots: dict[int, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Aligned, so that what follows is."""
        return -(-self.end // 16) * 16

    def add(self, size: int, align: int) -> int:
        """A place for a variable: its offset."""
        start = -(-self.end // align) * align
        self.end = start + size
        return start

    def parameters(self, declared: Iterable[tuple[int, int]]) -> list[int]:
        """Offsets of results and parameters, given as sizes and alignments: the same for caller and callee."""
        return [self.add(size, align) for size, align in declared]

    def slot(self, register: ptx.Register) -> int:
        """Where a register is kept during a call."""
        if register.index not in self.slots:
            self.slots[register.index] = self.add(16, 16) if register.type == "b128" else self.add(8, 8)
        return self.slots[register.index]


@dataclass(slots=True)
class _Site:
    """A call in a function that is itself on the stack: the instructions that enter the callee's frame and leave it."""

    enter: int
    leave: int


class StackCalls:
    """Calls through the stack in one entry, whose instructions gather in ``result``."""

    def __init__(self, result: ptx.Function, module: ptx.Module) -> None:
        self.result = result
        self.module = module
        self.waiting: list[str] = []
        self.starts: dict[str, ptx.Label] = {}
        self.returns: dict[str, list[ptx.Label]] = {}
        self.sites: list[_Site] = []
        self.entry_size = -1
        self._pointer: ptx.Register | None = None
        self._scratch: dict[str, ptx.Register] = {}

    @property
    def pointer(self) -> ptx.Register:
        """The frame pointer."""
        if self._pointer is None:
            self._pointer = self.register("b64")
        return self._pointer

    @pointer.setter
    def pointer(self, register: ptx.Register) -> None:
        self._pointer = register

    def register(self, type_name: str) -> ptx.Register:
        register = ptx.Register(f"%stack{len(self.result.registers)}", type_name, len(self.result.registers))
        self.result.registers.append(register)
        return register

    def scratch(self, type_name: str) -> ptx.Register:
        """A register whose value is used at once."""
        if type_name not in self._scratch:
            self._scratch[type_name] = self.register(type_name)
        return self._scratch[type_name]

    def start(self, name: str) -> ptx.Label:
        """A label for a branch to a function, which will be placed."""
        if name not in self.starts:
            self.starts[name] = ptx.Label(name)
            self.returns[name] = []
            self.waiting.append(name)
        return self.starts[name]

    def emit(
        self,
        like: ptx.Instruction,
        opcode: str,
        *operands: ptx.Operand,
        guard: ptx.Register | None = None,
        into: list[ptx.Instruction] | None = None,
    ) -> None:
        target = self.result.instructions if into is None else into
        target.append(
            replace(like, index=len(target), opcode=opcode, operands=operands, guard=guard, guard_negated=False)
        )

    # ------------------------------------------------------------------------------------------------------- calls

    def call(
        self,
        like: ptx.Instruction,
        callee: ptx.Function | None,
        pointer: ptx.Register | None,
        frame: Frame | None,
        sizes: tuple[tuple[int, ...], ...],
    ) -> None:
        """Appends a call: of ``callee``, or of what a register points to, with parameters of the sizes in bytes."""
        stack = self.pointer
        enter = len(self.result.instructions)
        if frame is None:
            self.result.variables[STACK] = ptx.Variable(STACK, "local", "b8", 16, STACK_BYTES)
            self.emit(like, "mov.u64", stack, ptx.Symbol(STACK))
        else:
            self.emit(like, "add.u64", stack, stack, ptx.Immediate(frame.size))
        callees = [callee] if callee is not None else self.candidates(sizes)
        back = ptx.Label("return")
        for function in callees:
            label = self.start(function.name)
            number = ptx.Immediate(len(self.returns[function.name]))
            self.returns[function.name].append(back)
            guard = None
            if pointer is not None:
                guard = self.scratch("pred")
                address = ptx.Immediate(self.module.addresses()[function.name])
                self.emit(like, "setp.eq.u64", guard, pointer, address)
            self.emit(like, "st.local.u32", ptx.Address(stack), number, guard=guard)
            self.emit(like, "bra", label, guard=guard)
        if pointer is not None:
            self.emit(like, "trap")
        back.target = len(self.result.instructions)
        if frame is not None:
            self.sites.append(_Site(enter, back.target))
            self.emit(like, "add.u64", stack, stack, ptx.Immediate(-frame.size))

    def candidates(self, sizes: tuple[tuple[int, ...], ...]) -> list[ptx.Function]:
        """What a pointer to a function of these results and parameters may point to."""
        wanted = tuple(group for group in sizes if group)
        found = []
        for name in sorted(pointed_to(self.module)):
            function = self.module.functions[name]
            declared = (tuple(p.size for p in function.results), tuple(p.size for p in function.parameters))
            if tuple(group for group in declared if group) == wanted:
                found.append(function)
        return found

    # --------------------------------------------------------------------------------------------------- functions

    def begin(self, function: ptx.Function) -> int:
        """Where the next function starts."""
        instructions = self.result.instructions
        if self.entry_size < 0:
            if instructions:
                self.emit(instructions[-1], "exit")  # what a label at the end of the entry leads to
            self.entry_size = len(instructions)
        start = len(instructions)
        self.start(function.name).target = start
        self.sites = []
        return start

    def end(self, function: ptx.Function, frame: Frame, start: int) -> None:
        """Appends the return of a function, and puts the keeping of registers around its calls."""
        instructions = self.result.instructions
        like = replace(
            instructions[-1] if len(instructions) > start else _nothing(function),
            guard=None,
            text=f"ret of {function.name}",
        )
        number = self.scratch("b32")
        table = f"returns of {function.name}"
        self.emit(like, "ld.local.u32", number, ptx.Address(frame.pointer))
        self.emit(like, "brx.idx", number, ptx.Symbol(table))
        self.emit(like, "trap")
        self.keep_registers(frame, start)

    def keep_registers(self, frame: Frame, start: int) -> None:
        piece = self.result.instructions[start:]
        before: dict[int, list[ptx.Instruction]] = {}
        for site in self.sites:
            enter, leave = site.enter - start, site.leave - start
            for register in self.kept(piece, start, enter, leave):
                slot = frame.slot(register)
                saved = before.setdefault(enter, [])
                loaded = before.setdefault(leave, [])
                self.save(piece[enter], register, ptx.Address(frame.pointer, slot - frame.size), saved)
                self.restore(piece[leave], register, ptx.Address(frame.pointer, slot), loaded)
        if not before:
            return
        moved = []
        rebuilt: list[ptx.Instruction] = []
        for number, instruction in enumerate(piece):
            moved.append(start + len(rebuilt))
            rebuilt.append(instruction)
            rebuilt += before.get(number, [])
        moved.append(start + len(rebuilt))
        for label in self.labels(piece, start):
            label.target = moved[label.target - start]
        self.result.instructions[start:] = [
            replace(instruction, index=start + number) for number, instruction in enumerate(rebuilt)
        ]

    def labels(self, piece: list[ptx.Instruction], start: int) -> list[ptx.Label]:
        """All labels that lead to a place in the piece of code that begins at ``start``."""
        found = {id(label): label for label in self.result.labels}
        for instruction in piece:
            for operand in instruction.operands:
                if isinstance(operand, ptx.Label):
                    found[id(operand)] = operand
                elif isinstance(operand, ptx.Symbol):
                    found.update((id(label), label) for label in self.result.branch_tables.get(operand.name, ()))
        for labels in self.returns.values():
            found.update((id(label), label) for label in labels)
        starts = {id(label) for label in self.starts.values()}
        return [label for key, label in found.items() if label.target > start and key not in starts]

    def kept(self, piece: list[ptx.Instruction], start: int, enter: int, leave: int) -> list[ptx.Register]:
        """Registers that may be written before a call and read after it."""
        after: list[list[int]] = []
        for number, instruction in enumerate(piece):
            targets = list(self.targets(instruction, start, len(piece)))
            ends = instruction.opcode == "exit" or (instruction.parts[0] == "bra" and targets)
            if number + 1 < len(piece) and (not ends or instruction.guard is not None):
                targets.append(number + 1)
            after.append(targets)
        before: list[list[int]] = [[] for _ in piece]
        for number, targets in enumerate(after):
            for target in targets:
                before[target].append(number)
        earlier, later = _registers(piece, before, enter), _registers(piece, after, leave)
        kept = {register.index: register for register in earlier.values() if register.index in later}
        kept.pop(self.pointer.index, None)
        for scratch in self._scratch.values():
            kept.pop(scratch.index, None)
        return [kept[index] for index in sorted(kept)]

    def targets(self, instruction: ptx.Instruction, start: int, size: int) -> Iterator[int]:
        """The instructions of a piece that a branch may lead to; a call comes back to the next."""
        for operand in instruction.operands:
            table = self.result.branch_tables.get(operand.name, ()) if isinstance(operand, ptx.Symbol) else ()
            for label in (operand,) if isinstance(operand, ptx.Label) else table:
                if label not in self.starts.values() and start <= label.target < start + size:
                    yield label.target - start

    def save(
        self, like: ptx.Instruction, register: ptx.Register, address: ptx.Address, into: list[ptx.Instruction]
    ) -> None:
        value = register
        if register.type == "pred":
            value = self.scratch("b32")
            self.emit(like, "selp.b32", value, ptx.Immediate(1), ptx.Immediate(0), register, into=into)
        self.emit(like, f"st.local.b{_bits(register)}", address, value, into=into)

    def restore(
        self, like: ptx.Instruction, register: ptx.Register, address: ptx.Address, into: list[ptx.Instruction]
    ) -> None:
        value = self.scratch("b32") if register.type == "pred" else register
        self.emit(like, f"ld.local.b{_bits(register)}", value, address, into=into)
        if register.type == "pred":
            self.emit(like, "setp.ne.u32", register, value, ptx.Immediate(0), into=into)

    # ---------------------------------------------------------------------------------------------------- the whole

    def finish(self) -> None:
        """Puts the functions before the entry, and tells every one where it returns to."""
        if self.entry_size < 0:
            return
        result = self.result
        for name, labels in self.returns.items():
            result.branch_tables[f"returns of {name}"] = tuple(labels)
        entry, functions = result.instructions[: self.entry_size], result.instructions[self.entry_size :]
        first = replace(entry[0], opcode="bra", operands=(ptx.Label("entry", 0),), guard=None, text="the entry")
        moved = {id(label): label for labels in result.branch_tables.values() for label in labels}
        ordered = [first, *functions, *entry]
        for instruction in ordered:
            moved.update((id(label), label) for label in instruction.operands if isinstance(label, ptx.Label))
        for label in moved.values():
            label.target += 1 + (len(functions) if label.target < self.entry_size else -self.entry_size)
        result.instructions[:] = [replace(instruction, index=number) for number, instruction in enumerate(ordered)]


def _nothing(function: ptx.Function) -> ptx.Instruction:
    place = ptx.SourceLocation("<PTX>", 0, 0)
    return ptx.Instruction(0, "ret", (), None, False, place, function.line, "ret")


def _registers(piece: list[ptx.Instruction], edges: list[list[int]], first: int) -> dict[int, ptx.Register]:
    """The registers of the instructions that edges lead to."""
    found: dict[int, ptx.Register] = {}
    seen = {first}
    waiting = [first]
    while waiting:
        number = waiting.pop()
        instruction = piece[number]
        for operand in (*instruction.operands, instruction.guard):
            found.update((register.index, register) for register in _named(operand))
        for following in edges[number]:
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return found


def _named(operand: ptx.Operand | None) -> Iterator[ptx.Register]:
    if isinstance(operand, ptx.Register):
        yield operand
    elif isinstance(operand, ptx.Vector | ptx.Group):
        for element in operand.elements:
            yield from _named(element)
    elif isinstance(operand, ptx.Pair):
        yield from _named(operand.first)
        yield from _named(operand.second)
    elif isinstance(operand, ptx.Negated):
        yield from _named(operand.operand)
    elif isinstance(operand, ptx.Address):
        yield from _named(operand.base)
        for coordinate in operand.coordinates:
            yield from _named(coordinate)


def _bits(register: ptx.Register) -> int:
    return 8 * max(ptx.type_size(register.type), 4) if register.type != "pred" else 32
