"""Calls of functions of the same module, expanded in place.

The engine has no call stack. What the compiler left as a call is copied into the caller with registers, labels and
local variables of its own; arguments travel through the same parameter variables as in the PTX. Recursion cannot be
expanded.
"""

from __future__ import annotations

from dataclasses import replace

from . import ptx

__all__ = ["inline_calls"]

_MAX_INSTRUCTIONS = 1_000_000
_MAX_DEPTH = 200
_MAX_COPIES = 5_000


def inline_calls(entry: ptx.Function, module: ptx.Module) -> ptx.Function:
    """The entry with every call of a defined function replaced by its body; the entry itself if it calls none."""
    if not any(_callee(instruction, module) for instruction in entry.instructions):
        return entry
    return _Inliner(entry, module).run()


def _callee(instruction: ptx.Instruction, module: ptx.Module) -> ptx.Function | None:
    if instruction.parts[0] != "call":
        return None
    for operand in instruction.operands:
        if isinstance(operand, ptx.Symbol):
            function = module.functions.get(operand.name)
            return function if function is not None and function.defined and not function.is_entry else None
    return None


class _Inliner:
    def __init__(self, entry: ptx.Function, module: ptx.Module) -> None:
        self.entry = entry
        self.module = module
        self.result = replace(entry, instructions=[], registers=[], variables={}, labels=[], branch_tables={})
        self.copies = 0
        self.calling: list[str] = []

    def run(self) -> ptx.Function:
        self.copy(self.entry, {}, ())
        return self.result

    def copy(self, function: ptx.Function, names: dict[str, str], callers: tuple[ptx.SourceLocation, ...]) -> None:
        """Appends a copy of a function's body. ``names`` renames its parameters to the caller's variables."""
        self.copies += 1
        self.calling.append(function.name)
        suffix = "" if function.is_entry else f"@{self.copies}"
        registers: dict[int, ptx.Register] = {}
        for register in function.registers:
            copied = ptx.Register(register.name + suffix, register.type, len(self.result.registers))
            registers[register.index] = copied
            self.result.registers.append(copied)
        names = dict(names)
        for variable in function.variables.values():
            if variable.space != "shared":
                names[variable.name] = variable.name + suffix
            self.result.variables[names.get(variable.name, variable.name)] = replace(
                variable, name=names.get(variable.name, variable.name)
            )
        starts = [-1] * (len(function.instructions) + 1)
        labels: list[tuple[ptx.Label, int]] = []
        end = ptx.Label(f"end of {function.name}")
        rename = _Renamer(registers, names, labels)
        for instruction in function.instructions:
            starts[instruction.index] = len(self.result.instructions)
            location = _placed(instruction.location, callers)
            callee = _callee(instruction, self.module)
            if callee is not None and callee.name not in self.calling:
                self.call(instruction, callee, rename, location)
            elif instruction.parts[0] == "ret" and not function.is_entry:
                self.append(instruction, "bra", (end,), rename, location)
            else:
                operands = tuple(rename.operand(operand) for operand in instruction.operands)
                self.append(instruction, instruction.opcode, operands, rename, location)
        starts[len(function.instructions)] = end.target = len(self.result.instructions)
        for table, targets in function.branch_tables.items():
            self.result.branch_tables[table + suffix] = tuple(rename.label(label) for label in targets)
            names[table] = table + suffix
        for label, target in labels:
            label.target = starts[target]
        self.calling.pop()

    def call(
        self, instruction: ptx.Instruction, callee: ptx.Function, rename: _Renamer, location: ptx.SourceLocation
    ) -> None:
        skip: ptx.Label | None = None
        if instruction.guard is not None:
            skip = ptx.Label(f"after the call of {callee.name}")
            inverted = replace(instruction, guard_negated=not instruction.guard_negated)
            self.append(inverted, "bra", (skip,), rename, location)
        if self.copies > _MAX_COPIES:
            raise ptx.PtxSyntaxError("the program has too many calls to expand", instruction.line)
        if len(self.calling) > _MAX_DEPTH:
            raise ptx.PtxSyntaxError(f"calls are nested more than {_MAX_DEPTH} deep", instruction.line)
        groups = [operand for operand in instruction.operands if isinstance(operand, ptx.Group)]
        if not callee.results:
            groups.insert(0, ptx.Group(()))
        declared_counts = [len(callee.results), len(callee.parameters)]
        if [len(group.elements) for group in (*groups, ptx.Group(()), ptx.Group(()))[:2]] != declared_counts:
            raise ptx.PtxSyntaxError(
                f"{callee.name} has {declared_counts[0]} results and {declared_counts[1]} parameters, and is called "
                f"with others",
                instruction.line,
            )
        names: dict[str, str] = {}
        for declared, group in zip((callee.results, callee.parameters), groups, strict=False):
            for parameter, operand in zip(declared, group.elements, strict=True):
                renamed = rename.operand(operand)
                if isinstance(renamed, ptx.Symbol):
                    names[parameter.name] = renamed.name
        self.copy(callee, names, (location, *location.inlined_at))
        if skip is not None:
            skip.target = len(self.result.instructions)

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
            ptx.Instruction(
                len(self.result.instructions),
                opcode,
                operands,
                guard,
                instruction.guard_negated,
                location,
                instruction.line,
                instruction.text,
            )
        )


class _Renamer:
    """Operands of a callee as operands of its copy."""

    def __init__(
        self, registers: dict[int, ptx.Register], names: dict[str, str], labels: list[tuple[ptx.Label, int]]
    ) -> None:
        self.registers = registers
        self.names = names
        self.labels = labels

    def label(self, label: ptx.Label) -> ptx.Label:
        copied = ptx.Label(label.name)
        self.labels.append((copied, label.target))
        return copied

    def operand(self, operand: ptx.Operand) -> ptx.Operand:
        if isinstance(operand, ptx.Register):
            return self.registers[operand.index]
        if isinstance(operand, ptx.Symbol):
            return ptx.Symbol(self.names.get(operand.name, operand.name), operand.offset)
        if isinstance(operand, ptx.Label):
            return self.label(operand)
        if isinstance(operand, ptx.Vector):
            return ptx.Vector(tuple(self.operand(element) for element in operand.elements))
        if isinstance(operand, ptx.Group):
            return ptx.Group(tuple(self.operand(element) for element in operand.elements))
        if isinstance(operand, ptx.Pair):
            return ptx.Pair(self.operand(operand.first), self.operand(operand.second))
        if isinstance(operand, ptx.Negated):
            return ptx.Negated(self.operand(operand.operand))
        if isinstance(operand, ptx.Address):
            base = self.operand(operand.base)
            assert isinstance(base, ptx.Register | ptx.Symbol | ptx.Immediate)
            return ptx.Address(base, operand.offset, tuple(self.operand(c) for c in operand.coordinates))
        return operand


def _placed(location: ptx.SourceLocation, callers: tuple[ptx.SourceLocation, ...]) -> ptx.SourceLocation:
    if not callers:
        return location
    outer = tuple(replace(caller, inlined_at=()) for caller in callers)
    return replace(location, inlined_at=(*location.inlined_at, *outer))
