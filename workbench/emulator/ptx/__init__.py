"""Text of a PTX module to a tree of entries, instructions and operands.

The parser knows PTX's syntax and scoping, and nothing of what an instruction does: an opcode stays the string it was.
Statements end with ``;`` and may span lines, ``.loc``, ``.file`` and the module's directives end with the line, and
inline assembly brings nested ``{}`` scopes that declare the same names over and over; those are the three facts that
shape this package. Bodies of functions are passed over until they are asked for, since libraries have hundreds of
kernels in a file. One regular expression is matched a statement, and operands are parsed once a scope, so that 20,000
lines take well under a second."""

from .parser import Module as Module
from .parser import parse as parse
from .tree import Address as Address
from .tree import Function as Function
from .tree import Group as Group
from .tree import Immediate as Immediate
from .tree import Instruction as Instruction
from .tree import Label as Label
from .tree import Negated as Negated
from .tree import Operand as Operand
from .tree import Pair as Pair
from .tree import Parameter as Parameter
from .tree import PtxSyntaxError as PtxSyntaxError
from .tree import Register as Register
from .tree import Sink as Sink
from .tree import SourceLocation as SourceLocation
from .tree import Special as Special
from .tree import Symbol as Symbol
from .tree import Variable as Variable
from .tree import Vector as Vector
from .tree import readable_symbol as readable_symbol
from .tree import source_files as source_files
from .tree import text_of as text_of
from .tree import type_size as type_size
