"""Text of a PTX module to a tree of entries, instructions and operands.

The parser knows PTX's syntax and scoping, and nothing of what an instruction does: an opcode stays the string it was.
Statements end with ``;`` and may span lines, ``.loc``, ``.file`` and the module's directives end with the line, and
inline assembly brings nested ``{}`` scopes that declare the same names over and over; those are the three facts that
shape this package. Bodies of functions are passed over until they are asked for, since libraries have hundreds of
kernels in a file. One regular expression is matched a statement, and operands are parsed once a scope, so that 20,000
lines take well under a second."""

from .parser import Module, parse
from .tree import (
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Parameter,
    PtxSyntaxError,
    Register,
    Sink,
    SourceLocation,
    Special,
    Symbol,
    Variable,
    Vector,
    readable_symbol,
    source_files,
    type_size,
)

__all__ = [
    "Address",
    "Function",
    "Group",
    "Immediate",
    "Instruction",
    "Label",
    "Module",
    "Negated",
    "Operand",
    "Pair",
    "Parameter",
    "PtxSyntaxError",
    "Register",
    "Sink",
    "SourceLocation",
    "Special",
    "Symbol",
    "Variable",
    "Vector",
    "parse",
    "readable_symbol",
    "source_files",
    "type_size",
]
