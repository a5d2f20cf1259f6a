"""`workbench emulate`: its options. `emulation` does the work, and is loaded only then: help needs no emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .main import Number, OutputFile, options, trace_options

EMULATE_ARGUMENTS = """Arguments, one --arg for each parameter of the kernel, in their order:

\b
  f32[1024]=random      an array, its shape and its values: zeros, ones,
                        random, arange, nan or uninitialised
  f32[64,32]            an uninitialised array: reading an element before
                        it was written is a hazard
  f32[1024]=@x.npy      values from a .npy file; f32=@x.npy takes its shape
  f32[1024] => y.npy    save the array to this file afterwards
  C:f32[64,64]          an array with the name C in findings
  i32=1024   f32=0.5    a number
  {x:f32[8]=ones; n:i32=8}   a struct, with a pointer to x
  A:bf16[256,64]=random as map[64,64] swizzle=128
                        a tensor map of an array, and its box
  image:u8[64,64]=random as texture linear normalized wrap fraction
                        a texture of an array; layered, channels=4; as surface
  A                     the array that was named before

\b
--set coefficients:f32[4]=@c.npy gives a __constant__ or __device__ variable
its value. --then 'reduce --grid 1 --block 256 --arg y --arg z:f32[1]'
launches another kernel afterwards; y is the array that was named before.
With --stream N --programmatic, in --then or for all, launches overlap.

\b
Types: int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool fp16 fp32 fp64
  bf16 e4m3 e5m2 e8m0, in any spelling: f32 and float32 are fp32, i32 and
  int are int32

\b
workbench emulate scale.cu --grid 4 --block 256 --arg x:f32[1000]=random \\
    --arg y:f32[1000] --arg f32=2 --arg i32=1000 --print 0:4"""


@click.command(epilog=EMULATE_ARGUMENTS)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--entry", metavar="NAME", help="The kernel, such as scale or ns::scale<float>; needed if the source has several."
)
@click.option("--grid", metavar="X[,Y[,Z]]", help="Blocks of the grid; without it, the kernels of FILE are listed.")
@click.option("--block", metavar="X[,Y[,Z]]", help="Threads of a block; needed except with --triton.")
@click.option("--cluster", default="1", metavar="X[,Y[,Z]]", help="Blocks of a cluster.")
@click.option("--arg", "arguments", multiple=True, metavar="ARG", help="An argument of the kernel: see below.")
@click.option("--shared", type=click.IntRange(0), default=0, metavar="BYTES", help="Dynamic shared memory.")
@click.option("--define", "defines", multiple=True, metavar="X=1", help="A macro for the compiler.")
@click.option(
    "--include", multiple=True, type=click.Path(path_type=Path), metavar="FOLDER", help="A folder of headers."
)
@click.option("--option", "flags", multiple=True, metavar="FLAG", help="A flag of NVRTC, such as -use_fast_math.")
@click.option("--set", "variables", multiple=True, metavar="NAME:ARG", help="A variable of the source, and its value.")
@click.option(
    "--then", "steps", multiple=True, metavar="'KERNEL ...'", help="Another launch on the same memory: see below."
)
@click.option(
    "--stream", type=click.IntRange(0), metavar="N", help="Stream of launches, unless a --then has its own; 0: default."
)
@click.option(
    "--programmatic",
    is_flag=True,
    help="Each --then may begin when all blocks before it in its stream have triggered or ended.",
)
@click.option("--nvcc", is_flag=True, help="Let nvcc compile FILE.cu unchanged, with its host code.")
@click.option(
    "--arch",
    metavar="SM",
    help="Architecture of the device: sm_80, 86, 89, 90, 90a, 100, 120. By default PTX has its own, and CUDA C++ and "
    "Triton have sm_90a.",
)
@click.option(
    "--as-compiled",
    is_flag=True,
    help="Judge only what the compiler has made of FILE.cu, and not beside it the source without optimisation.",
)
@click.option("--print", "printed", metavar="0:8", help="Print these elements of every array after the launch.")
@click.option("--max-seconds", type=Number(0, min_open=True), help="A kernel that takes longer counts as hung.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63), default=0, help="Seed of the order of warps and of random arrays."
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1_000_000),
    default=3,
    show_default=True,
    metavar="N",
    help="Launch with N seeds, from --seed on, until one finds a failure; some hazards and hangs need a certain "
    "order of warps.",
)
@click.option(
    "--slice",
    type=click.IntRange(1, 2**31 - 1),
    metavar="N",
    help="Another order of warps with the same seed: a warp gives way after N instructions, by default after 2000.",
)
@click.option(
    "--witness",
    is_flag=True,
    help="For a race, try forty orders of warps until an element becomes another value, and say how to see it again.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also fail for strict findings: PTX forbids the access, but today's devices give the intended result.",
)
@click.option(
    "--suppress",
    multiple=True,
    metavar="KIND[@FILE:LINE]",
    help="Hide findings of this kind; a comment `// workbench: allow KIND` on the line does the same.",
)
@click.option("--counters", is_flag=True, help="Print the source, with what every line asks of the machine.")
@click.option("--triton", is_flag=True, help="Execute FILE.py, and emulate the Triton kernels that it launches.")
@click.option("--trace", "trace_file", type=OutputFile(), metavar="FILE", help="Write the timeline to this file.")
@trace_options("trace-")
@options("json", "sarif")
def emulate(**given: Any) -> None:
    """Execute any kernel on the CPU and name its hazards at their source lines.

    FILE is a .cu file (with or without host code), a .ptx file, or a fat binary, object, library or program with PTX.

    With --triton, FILE is a Python file. Its launches of Triton kernels are emulated, on arrays of NumPy or PyTorch.

    Exit codes: 0 no hazard, 1 a hazard or a source that does not compile, 2 wrong usage."""
    from . import emulation

    emulation.emulate(**given)
