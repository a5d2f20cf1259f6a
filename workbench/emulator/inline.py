"""Calls of functions of the same module.

A call is expanded in place where that is possible: the callee is copied into the caller with registers, labels and
local variables of its own, and parameters become local variables. Functions that may call themselves, or that are
called through a pointer, are placed once, before the entry, and called through a stack in local memory (``stack.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import ptx
from .stack import STACK, Frame, StackCalls, called_on_stack

_MAX_INSTRUCTIONS = 1_000_000
_MAX_DEPTH = 200
_MAX_COPIES = 5_000


def inline_calls(entry: ptx.Function, module: ptx.Module) -> ptx.Function:
    """The entry with every call of a defined function carried out."""
    return _Inliner(entry, module).run()


def _callee(instruction: ptx.Instruction, module: ptx.Module) -> ptx.Function | None:
    if instruction.parts[0] != "call":
        return None
    for operand in instruction.operands:
        if isinstance(operand, ptx.Symbol):
            function = module.functions.get(operand.name)
            return function if function is not None and function.defined and not function.is_entry else None
    return None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a variable lies: at an offset from another variable, or from the frame of a function on the stack."""

    base: str | ptx.Register
    offset: int = 0


class _Inliner:
    def __init__(self, entry: ptx.Function, module: ptx.Module) -> None:
        self.entry = entry
        self.module = module
        self.result = replace(entry, instructions=[], registers=[], variables={}, labels=[], branch_tables={})
        self.copies = 0
        self.calling: list[str] = []
        self.on_stack = called_on_stack(entry, module)
        self.stack = StackCalls(self.result, module)
        self.frame: Frame | None = None  # of the function on the stack that is being placed; None: the entry

    def run(self) -> ptx.Function:
        self.copy(self.entry, {}, ())
        while self.stack.waiting:
            self.place(self.module.functions[self.stack.waiting.pop()])
        self.stack.finish()
        return self.result

    def place(self, function: ptx.Function) -> None:
        """Places a function that is called through the stack. The first time only tells how large its frame is."""
        trial = _Inliner(self.entry, self.module)
        trial.result.registers = list(self.result.registers)
        trial.stack.pointer = self.stack.pointer
        size = trial.body(function, 0)
        self.copies += trial.copies
        self.body(function, size)

    def body(self, function: ptx.Function, frame_bytes: int) -> int:
        """Appends a function that is called through the stack; returns the bytes of its frame."""
        self.frame = frame = Frame(self.stack.pointer, frame_bytes)
        start = self.stack.begin(function)
        offsets = frame.parameters((p.size, p.align) for p in (*function.results, *function.parameters))
        declared = zip((*function.results, *function.parameters), offsets, strict=True)
        self.copy(function, {p.name: _Place(frame.pointer, offset) for p, offset in declared}, ())
        self.stack.end(function, frame, start)
        return frame.bytes

    def copy(self, function: ptx.Function, names: dict[str, _Place], callers: tuple[ptx.SourceLocation, ...]) -> None:
        """Appends a copy of a function's body. ``names`` tells where its parameters lie."""
        self.copies += 1
        self.calling.append(function.name)
        suffix = "" if function is self.entry else f"@{self.copies}"
        registers: dict[int, ptx.Register] = {}
        for register in function.registers:
            copied = ptx.Register(register.name + suffix, register.type, len(self.result.registers))
            registers[register.index] = copied
            self.result.registers.append(copied)
        names = {**names, **self.outgoing(function)}
        for variable in function.variables.values():
            if variable.name not in names and variable.space != "shared":
                names[variable.name] = self.place_variable(variable, suffix)
            elif variable.space == "shared":
                self.result.variables[variable.name] = variable
        starts = [-1] * (len(function.instructions) + 1)
        labels: list[tuple[ptx.Label, int]] = []
        end = ptx.Label(f"end of {function.name}")
        tables = {name: name + suffix for name in function.branch_tables}
        rename = _Renamer(registers, names, labels, tables)
        for instruction in function.instructions:
            starts[instruction.index] = len(self.result.instructions)
            location = _placed(instruction.location, callers)
            callee = _callee(instruction, self.module)
            if callee is not None or _called_register(instruction) is not None:
                self.call(instruction, callee, rename, location)
            elif instruction.parts[0] == "ret" and function is not self.entry:
                self.append(instruction, "bra", (end,), rename, location)
            else:
                self.renamed(instruction, rename, location)
        starts[len(function.instructions)] = end.target = len(self.result.instructions)
        for table, targets in function.branch_tables.items():
            self.result.branch_tables[tables[table]] = tuple(rename.label(label) for label in targets)
        for label, target in labels:
            label.target = starts[target]
        self.calling.pop()

    def place_variable(self, variable: ptx.Variable, suffix: str) -> _Place:
        """A place for a local variable, or for a parameter of a call that is expanded."""
        if self.frame is not None:
            return _Place(self.frame.pointer, self.frame.add(variable.size, variable.align))
        name = variable.name + suffix
        space = "local" if variable.space == "param" else variable.space
        self.result.variables[name] = replace(variable, name=name, space=space)
        return _Place(name)

    def outgoing(self, function: ptx.Function) -> dict[str, _Place]:
        """Where the parameters of calls through the stack lie: in the frame of the callee, above the caller's."""
        places: dict[str, _Place] = {}
        for instruction in function.instructions:
            if not self.uses_stack(instruction):
                continue
            names = [
                element.name
                for group in instruction.operands
                if isinstance(group, ptx.Group)
                for element in group.elements
                if isinstance(element, ptx.Symbol) and element.name in function.variables
            ]
            variables = [function.variables[name] for name in names]
            offsets = Frame(self.stack.pointer).parameters((v.size, v.align) for v in variables)
            for name, offset in zip(names, offsets, strict=True):
                if self.frame is None:
                    places[name] = _Place(STACK, offset)
                else:
                    places[name] = _Place(self.frame.pointer, self.frame.size + offset)
        return places

    def uses_stack(self, instruction: ptx.Instruction) -> bool:
        callee = _callee(instruction, self.module)
        return _called_register(instruction) is not None if callee is None else callee.name in self.on_stack

    def call(
        self, instruction: ptx.Instruction, callee: ptx.Function | None, rename: _Renamer, location: ptx.SourceLocation
    ) -> None:
        skip: ptx.Label | None = None
        if instruction.guard is not None:
            skip = ptx.Label("after the call")
            inverted = replace(instruction, guard_negated=not instruction.guard_negated)
            self.append(inverted, "bra", (skip,), rename, location)
        if callee is None or callee.name in self.on_stack:
            pointer = _called_register(instruction)
            here = replace(instruction, guard=None, guard_negated=False, location=location)
            sizes = tuple(
                tuple(self.parameter_bytes(element) for element in group.elements)
                for group in instruction.operands
                if isinstance(group, ptx.Group)
            )
            if callee is not None:
                self.counts(instruction, callee)
            known = None if pointer is None else rename.registers[pointer.index]
            self.stack.call(here, callee, known, self.frame, sizes)
        else:
            self.expand(instruction, callee, rename, location)
        if skip is not None:
            skip.target = len(self.result.instructions)

    def parameter_bytes(self, operand: ptx.Operand) -> int:
        variables = self.module.functions[self.calling[-1]].variables
        return variables[operand.name].size if isinstance(operand, ptx.Symbol) and operand.name in variables else 0

    @staticmethod
    def counts(instruction: ptx.Instruction, callee: ptx.Function) -> list[ptx.Group]:
        """Results and arguments of a call. Raises ``PtxSyntaxError`` unless they are as many as the callee has."""
        groups = [operand for operand in instruction.operands if isinstance(operand, ptx.Group)]
        if not callee.results:
            groups.insert(0, ptx.Group(()))
        declared = [len(callee.results), len(callee.parameters)]
        if [len(group.elements) for group in (*groups, ptx.Group(()), ptx.Group(()))[:2]] != declared:
            raise ptx.PtxSyntaxError(
                f"{callee.name} has {declared[0]} results and {declared[1]} parameters, and is called with others",
                instruction.line,
            )
        return groups

    def expand(
        self, instruction: ptx.Instruction, callee: ptx.Function, rename: _Renamer, location: ptx.SourceLocation
    ) -> None:
        if self.copies > _MAX_COPIES:
            raise ptx.PtxSyntaxError("the program has too many calls to expand", instruction.line)
        if len(self.calling) > _MAX_DEPTH:
            raise ptx.PtxSyntaxError(f"calls are nested more than {_MAX_DEPTH} deep", instruction.line)
        names: dict[str, _Place] = {}
        groups = self.counts(instruction, callee)
        for declared, group in zip((callee.results, callee.parameters), groups, strict=False):
            for parameter, operand in zip(declared, group.elements, strict=True):
                if isinstance(operand, ptx.Symbol) and operand.name in rename.names:
                    names[parameter.name] = rename.names[operand.name]
        self.copy(callee, names, (location, *location.inlined_at))

    def renamed(self, instruction: ptx.Instruction, rename: _Renamer, location: ptx.SourceLocation) -> None:
        """Appends a copy of an instruction that is no call and no return."""
        opcode = instruction.opcode
        if instruction.parts[0] in ("ld", "st") and rename.is_placed(instruction.operands):
            opcode = ".".join("local" if part in ("param", "param::func") else part for part in instruction.parts)
        operands: list[ptx.Operand] = []
        for operand in instruction.operands:
            place = rename.names.get(operand.name) if isinstance(operand, ptx.Symbol) else None
            if place is not None and isinstance(place.base, ptx.Register):
                # the address itself is wanted of something that lies in a frame
                assert isinstance(operand, ptx.Symbol)
                address = self.stack.register("b64")
                offset = ptx.Immediate(place.offset + operand.offset)
                self.append(instruction, "add.u64", (address, place.base, offset), rename, location)
                operands.append(address)
            else:
                operands.append(rename.operand(operand))
        self.append(instruction, opcode, tuple(operands), rename, location)

    def append(
        self,
        instruction: ptx.Instruction,
        opcode: str,
        operands: tuple[ptx.Operand, ...],
        rename: _Renamer,
        location: ptx.SourceLocation,
    ) -> None:
        if len(self.result.instructions) > _MAX_INSTRUCTIONS:
            raise ptx.PtxSyntaxError("the program has too many calls to expand", instruction.line)
        guard = rename.registers[instruction.guard.index] if instruction.guard is not None else None
        self.result.instructions.append(
            replace(
                instruction,
                index=len(self.result.instructions),
                opcode=opcode,
                operands=operands,
                guard=guard,
                location=location,
            )
        )


def _called_register(instruction: ptx.Instruction) -> ptx.Register | None:
    """The register that holds the address of the function to be called."""
    if instruction.parts[0] != "call":
        return None
    return next((operand for operand in instruction.operands if isinstance(operand, ptx.Register)), None)


class _Renamer:
    """Operands of a callee as operands of its copy."""

    def __init__(
        self,
        registers: dict[int, ptx.Register],
        names: dict[str, _Place],
        labels: list[tuple[ptx.Label, int]],
        tables: dict[str, str],
    ) -> None:
        self.registers = registers
        self.names = names
        self.labels = labels
        self.tables = tables

    def label(self, label: ptx.Label) -> ptx.Label:
        copied = ptx.Label(label.name)
        self.labels.append((copied, label.target))
        return copied

    def is_placed(self, operands: tuple[ptx.Operand, ...]) -> bool:
        """Whether an operand is the address of a variable with a place of its own: not of a kernel's parameter."""
        addresses = [operand.base for operand in operands if isinstance(operand, ptx.Address)]
        return any(isinstance(base, ptx.Symbol) and base.name in self.names for base in addresses)

    def operand(self, operand: ptx.Operand) -> ptx.Operand:
        if isinstance(operand, ptx.Register):
            return self.registers[operand.index]
        if isinstance(operand, ptx.Symbol):
            return self.symbol(operand)
        if isinstance(operand, ptx.Label):
            return self.label(operand)
        if isinstance(operand, ptx.Vector):
            return ptx.Vector(tuple(self.operand(element) for element in operand.elements))
        if isinstance(operand, ptx.Group):
            return ptx.Group(tuple(self.element(element) for element in operand.elements))
        if isinstance(operand, ptx.Pair):
            return ptx.Pair(self.operand(operand.first), self.operand(operand.second))
        if isinstance(operand, ptx.Negated):
            return ptx.Negated(self.operand(operand.operand))
        if isinstance(operand, ptx.Address):
            return self.address(operand)
        return operand

    def symbol(self, symbol: ptx.Symbol) -> ptx.Symbol:
        place = self.names.get(symbol.name)
        if place is None:
            return ptx.Symbol(self.tables.get(symbol.name, symbol.name), symbol.offset)
        assert isinstance(place.base, str)
        return ptx.Symbol(place.base, place.offset + symbol.offset)

    def address(self, address: ptx.Address) -> ptx.Address:
        coordinates = tuple(self.operand(coordinate) for coordinate in address.coordinates)
        base = address.base
        place = self.names.get(base.name) if isinstance(base, ptx.Symbol) else None
        if place is not None:
            assert isinstance(base, ptx.Symbol)
            new = ptx.Symbol(place.base, base.offset) if isinstance(place.base, str) else place.base
            return ptx.Address(new, place.offset + address.offset, coordinates)
        renamed = self.operand(base)
        assert isinstance(renamed, ptx.Register | ptx.Symbol | ptx.Immediate)
        return ptx.Address(renamed, address.offset, coordinates)

    def element(self, element: ptx.Operand) -> ptx.Operand:
        """An argument of a call that is not of a function of the module."""
        return self.address(ptx.Address(element)) if isinstance(element, ptx.Symbol) else self.operand(element)


def _placed(location: ptx.SourceLocation, callers: tuple[ptx.SourceLocation, ...]) -> ptx.SourceLocation:
    if not callers:
        return location
    outer = tuple(replace(caller, inlined_at=()) for caller in callers)
    return replace(location, inlined_at=(*location.inlined_at, *outer))
