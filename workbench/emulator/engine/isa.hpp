// The engine's sources are compiled once for each instruction set, each time into a namespace of its own, so
// that the right one can be chosen when the program runs. WORKBENCH_ISA is that namespace.
#pragma once

#ifndef WORKBENCH_ISA
#define WORKBENCH_ISA baseline_isa
#endif
