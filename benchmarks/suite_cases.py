"""The suites of `benchmarks/suites.py`: how their cases are found and launched, and what their authors say of them."""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench import emulator
from workbench.cli.launches import example_argument
from workbench.cli.main import main as workbench

ORDER = frozenset({"race", "deadlock", "livelock", "barrier_misuse", "divergent_collective"})
MEMORY = frozenset({"out_of_bounds", "misaligned", "uninitialised", "read_only", "assertion", "trap"})
THREADS, ELEMENTS = 1024, 1 << 16
"""About so many threads are launched where a suite asks for more, and so many elements an array has."""


@dataclass(frozen=True)
class Case:
    """One kernel: the words of `workbench emulate` after the file, for each launch that is tried, and what is expected.

    Findings of other ``kinds`` come from our choice of inputs, and count neither way. ``lines`` are those that are
    wrong, where the suite marks them. ``left_out`` says why a case cannot be run. With ``build``, a command that makes
    a program in the folder of the file, each of the launches is a command of `workbench`.
    """

    name: str
    file: Path
    faulty: bool
    launches: Sequence[Sequence[str]] = ()
    kinds: frozenset[str] = ORDER
    lines: frozenset[int] = frozenset()
    left_out: str = ""
    build: Sequence[str] = ()


@dataclass(frozen=True)
class Suite:
    """A public repository, and its cases; those that are written first go into the second folder."""

    repository: str
    about: str
    cases: Callable[[Path, Path], Iterator[Case]]
    options: Sequence[str] = ("--max-seconds", "300")


PRELUDE = """
#define __requires(...) ((void)0)
#define __ensures(...) ((void)0)
#define __assume(...) ((void)0)
#define __invariant(...) ((void)0)
#define __global_invariant(...) ((void)0)
#define __function_wide_invariant(...) ((void)0)
#define __requires_fresh_array(...) ((void)0)
#define __barrier_invariant(...) ((void)0)
#define __axiom(...)
#define __assert(condition) do { if (!(condition)) __trap(); } while (0)
#define __implies(a, b) (!(a) || (b))
#define __read(...) 0
#define __write(...) 0
#define __read_implies(...) 1
#define __write_implies(...) 1
#define __no_read(...) 1
#define __no_write(...) 1
#define __enabled() 1
#define __other_int(value) (value)
#define __builtin_memset memset
#define __builtin_memcpy memcpy
#ifdef SHUFFLES
#define __shfl_up(...) __shfl_up_sync(~0u, __VA_ARGS__)
#define __all(condition) __all_sync(~0u, condition)
#endif
#ifdef CLOCK
#define clock_t own_clock_t
#endif
#ifdef GROUPS
#include <cooperative_groups.h>
#define synchronize(group) (group).sync()
#endif
"""
"""Annotations of GPUVerify, which say nothing to a compiler, and names that CUDA had once."""


NEEDED = {
    "GROUPS": r"\b(?:grid_group|thread_block)\b",
    "SHUFFLES": r"\b(?:__shfl_up|__all)\(",
    "CLOCK": r"typedef .*\bclock_t;",
}
"""Macros of the prelude, and the sources that need them."""


def document_of(words: Sequence[str]) -> dict[str, Any]:
    """What a command of `workbench` says with `--json`, executed in this process."""
    shown, ignored = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(ignored), contextlib.suppress(SystemExit):
        workbench(args=[words[0], "--json", *words[1:]], prog_name="workbench")
    document: dict[str, Any] = json.loads(shown.getvalue())
    return document


def extents(text: str) -> list[int]:
    """`[64,8]` or `64` as numbers."""
    return [int(number) for number in re.findall(r"\d+", text)]


def scalar(text: str, name: str, threads: int, least: bool) -> int:
    """A value of a whole number that the annotations of a kernel allow; the least of those that are tried, or not."""
    said = rf"__(?:requires|assume)\(\s*{name}\s*"
    if stated := re.search(rf"{said}==\s*(\d+(?:\s*\*\s*\d+)*)|^//\s*{name} = (\d+)", text, re.MULTILINE):
        return math.prod(extents(stated[1] or stated[2]))
    if re.search(rf"{said}==\s*blockDim\.x", text):
        return threads
    value = 32 if least else threads
    for sign, number in re.findall(rf"{said}([<>]=?)\s*(\d+)", text):
        value = min(value, int(number) - 1) if sign[0] == "<" else max(value, int(number) + 1)
    return value


def members(kind: str, text: str) -> list[str]:
    """The declarations of a struct or a vector, those of its bases first; none where its definition is not found."""
    if vector := re.fullmatch(r"(u?)(char|short|int|long|float|double)([1-4])", kind):
        return [f"{'unsigned ' if vector[1] else ''}{vector[2]} {name}" for name in "xyzw"[: int(vector[3])]]
    text = re.sub(r"struct\s*\{([^{}]*)\}\s*\w+\s*;(?=[^{}]*\})", r"\1", text)  # the members of a member are its own
    text = re.sub(r"\w+\([^()]*\)\s*\{[^{}]*\}", "", text)
    found = re.search(rf"(?:struct|class)\s+{kind}\s*(?::\s*(\w+)\s*)?\{{([^{{}}]*)\}}", text)
    found = found or re.search(rf"struct\s*(?:\w+\s*)?()\{{([^{{}}]*)\}}\s*{kind}\s*;", text)
    if not found:
        return []
    listed = members(found[1], text) if found[1] else []
    for part in found[2].split(";"):
        first, *more = part.replace("public:", "").strip().split(",")
        for one in (first, *(f"{first.rpartition(' ')[0]} {name}" for name in more)):
            times = re.search(r"\[(\d+)\]", one)
            listed += [re.sub(r"\[\d+\]", "", one).strip()] * (int(times[1]) if times else 1)
    return [one for one in listed if one and "__device__" not in one]


def argument(parameter: str, number: int, text: str, threads: int, least: bool) -> str:
    """An `--arg` for a parameter. Raises ValueError where no array and no number can be given for it."""
    parameter = parameter.partition("=")[0].strip()  # without the default
    given = example_argument(parameter.replace("long long int", "long long"), number)
    name = (re.findall(r"\w+", parameter) or ["a"])[-1]
    if ":TYPE" in given and "*" in parameter and "**" not in parameter:
        return f"{name}:u8[{8 * ELEMENTS}]=zeros"  # structs and vectors
    if ":TYPE" in given:
        kind = re.sub(r"\b(?:const|struct)\b", "", parameter).split()[0]
        if found := members(kind, text):
            parts = (argument(part, k, text, threads, least) for k, part in enumerate(found))
            return f"{name}:{{{'; '.join(parts)}}}"
        if re.search(rf"\benum\s+{kind}\b", text):
            return f"{name}:i32=0"
        raise ValueError(f"the parameter {parameter} is no array and no number")
    if "*" in parameter:
        fill = "random" if ":f" in given else "zeros"
        return re.sub(r"\[1024\].*", f"[{ELEMENTS}]={fill}", given)
    if re.search(r":[iu]\d+=", given):
        given = re.sub(r"=.*", f"={scalar(text, name, threads, least)}", given)
    return re.sub(r":([iu])8=\d+", r":\g<1>8=1", given)


def annotated(name: str, file: Path, faulty: bool, **more: object) -> Iterator[Case]:
    """The kernels of a file whose first lines name grid and block: `--gridDim=[64,64] --blockDim=16`."""
    text = file.read_text(errors="replace")
    block = extents(re.search(r"--blockDim=(\S+)", text)[1])  # type: ignore[index]
    grid = extents(re.search(r"--gridDim=(\S+)", text)[1])  # type: ignore[index]
    while math.prod(block) > 1024:
        block[block.index(max(block))] //= 2
    for k in range(len(grid)):
        most = max(2, THREADS // math.prod(block))
        grid[k] = min(grid[k], most if len(grid) == 1 else max(2, int(most**0.5)))
    threads = math.prod(grid) * math.prod(block)
    folder = more.pop("folder", file.parent)
    try:
        kernels = emulator.signatures(file, [str(folder)])
    except Exception as error:
        yield Case(name, file, faulty, left_out=str(error).splitlines()[0][:160])
        return
    if not kernels:
        yield Case(name, file, faulty, left_out="the file has no kernel")
    for entry, parameters in kernels[:1]:
        if template := re.search(r"^template\s*<typename (\w+)>", text, re.MULTILINE):
            kind = "float" if re.search(rf"\b{template[1]} \*", text) else "int"
            entry += f"<{kind}>"
            parameters = [re.sub(rf"\b{template[1]}\b", kind, parameter) for parameter in parameters]
        shape = ["--grid", ",".join(map(str, grid)), "--block", ",".join(map(str, block)), "--include", str(folder)]
        shape += ["--shared=16384"]
        shape += [f"--define={macro}" for macro in re.findall(r"^//--.* -D(\w+=\w+)", text, re.MULTILINE)]
        shape += [f"--define={macro}=1" for macro, sign in NEEDED.items() if re.search(sign, text)]
        try:
            launches = [
                ["--entry", entry, *shape]
                + [f"--arg={argument(p, k, text, threads, least)}" for k, p in enumerate(parameters)]
                for least in (False, True)
            ]
            launches = launches[:1] if launches[0] == launches[1] else launches
            if "null pointer" in text:
                launches.append(["--entry", entry, *shape, *("--arg=u64=0" for _ in parameters)])
        except ValueError as error:
            yield Case(name, file, faulty, left_out=str(error))
            return
        yield Case(name, file, faulty, launches, **more)  # type: ignore[arg-type]


def gpuverify(root: Path, made: Path) -> Iterator[Case]:
    tests = root / "testsuite/CUDA"
    for file in sorted(tests.rglob("*.cu")):
        text, name = file.read_text(errors="replace"), str(file.parent.relative_to(tests))
        label = text.split(maxsplit=1)[0]
        faulty = label != "//pass"
        if faulty and "NOT_ALL_VERIFIED" not in label:
            yield Case(name, file, faulty, left_out="the label is about what GPUVerify's own compiler refuses")
        elif ("__invariant" in text and "loop invariant" in text) or "__axiom" in text or "host is free" in text:
            yield Case(name, file, faulty, left_out="the label is about a proof, or about what no launch can have")
        elif "__other_" in text:
            yield Case(name, file, faulty, left_out="an annotation speaks of another thread's values")
        elif "--warp-sync" in text and not faulty:
            yield Case(name, file, faulty, left_out="the label takes lanes to run in step, as they need not")
        else:
            null = re.search(r"null|constant memory|0-sized", name + text)
            marked = frozenset(int(line) for line in re.findall(r"kernel\\?\.cu:(\d+)", text))
            kinds = ORDER | {"assertion", "trap", "read_only"} | ({"out_of_bounds"} if null and faulty else set())
            yield from annotated(name, file, faulty, kinds=kinds, lines=marked if faulty else frozenset())


_REMOVED = re.compile(r"^(\s*)//\s*(_{0,2}syncthreads\(\)\s*;)", re.MULTILINE)


def mutants(root: Path, made: Path) -> Iterator[Case]:
    """Kernels with a mutation that their authors have put beside them, behind a macro: as they are, and with it."""
    for file in sorted(root.rglob("*.cu")):
        if "MUTATION" not in file.read_text(errors="replace"):
            continue
        name = str(file.parent.relative_to(root))
        yield from annotated(name, file, False)
        for case in annotated(f"{name}, MUTATION", file, True):
            yield replace(case, launches=[[*launch, "--define=MUTATION=1"] for launch in case.launches])


def gpurepair(root: Path, made: Path) -> Iterator[Case]:
    """Kernels whose barriers were commented out; with the barriers back they are correct."""
    tests = root / "tests/testsuite"
    for file in sorted(tests.rglob("kernel.cu")):
        name = str(file.parent.relative_to(tests))
        if name.startswith("CUDA/"):
            continue  # GPUVerify's
        text = file.read_text(errors="replace")
        headers = "".join(header.read_text(errors="replace") for header in file.parent.glob("*.h"))
        removed = bool(_REMOVED.search(text + headers))
        repaired = re.search(r"^\s*(?:__syncthreads|synchronize)\(", text, re.MULTILINE) and "unrepairable" not in name
        yield from annotated(name, file, removed or not (name.startswith("CUDAS") or bool(repaired)))
        if _REMOVED.search(text):
            restored = made / f"{name.replace('/', '__')}.cu"
            restored.write_text(_REMOVED.sub(r"\1\2", text))
            yield from annotated(f"{name}, barriers restored", restored, False, folder=file.parent)


def indigo(root: Path, made: Path) -> Iterator[Case]:
    """Graph kernels, generated with planted bugs that their names list. Lines differ from those of the right kernel."""
    rng, nodes = np.random.default_rng(1), 50
    degree = rng.integers(0, 5, nodes)
    degree[[0, -1]] = 0  # so that an index that is not checked leaves the list on either side
    first = np.concatenate([[0], np.cumsum(degree)]).astype(np.int32)
    arrays = {
        "nindex": first,
        "nlist": np.concatenate([np.sort(rng.choice(nodes, d, replace=False)) for d in degree]).astype(np.int32),
        "data1": np.concatenate([[0], rng.integers(0, nodes, 2 * nodes)]).astype(np.int32),
        "data2": np.concatenate([[0], rng.integers(0, first[-1], 2 * nodes)]).astype(np.int32),
    }
    for key, array in arrays.items():
        np.save(made / f"{key}.npy", array)
    given = [f"--arg={key}:i32=@{made / key}.npy" for key in arrays]
    for file in sorted((root / "indigo/indigo_sources").rglob("*.cu"))[::4]:
        bugs = re.findall(r"_(\w*?(?:Bug|race))(?=_|$)", file.stem.replace("_", "__"))
        right = file.with_name(re.sub(r"_[a-z]*(?:Bug|race)(?=_|$)", "", file.stem) + ".cu")
        lines: set[int] = set()
        if bugs and right.exists():
            a, b = right.read_text().splitlines(), file.read_text().splitlines()
            for tag, _, _, low, high in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
                lines.update(range(low + 1, high + 2) if tag != "equal" else ())
        shape = (50, 64) if "_block" in file.stem else (25, 64) if "_warp" in file.stem else (2, 32)
        launch = ["--grid", str(shape[0]), "--block", str(shape[1]), *given, f"--arg=numv:i32={nodes}"]
        launch += ["--include", str(root / "indigo/indigo_include")]
        yield Case(file.stem, file, bool(bugs), [launch], ORDER | MEMORY, frozenset(lines))


def scor(root: Path, made: Path) -> Iterator[Case]:
    """Two blocks, or two warps, that hand over by scoped atomics, fences and locks."""
    for file in sorted((root / "microbenchmarks/src").glob("*.cu")):
        shape = {name: int(value) for name, value in re.findall(r"#define (NBLOCKS|TPERBLK)\s+(\d+)", file.read_text())}
        launch = ["--grid", str(shape["NBLOCKS"]), "--block", str(shape["TPERBLK"]), "--arg=data:u32[64]=zeros"]
        launches = [[*launch, "--seeds=10", *more] for more in ([], ["--strict"])]
        yield Case(file.stem, file, file.stem.startswith("race_"), launches)


def sanitizer(root: Path, made: Path) -> Iterator[Case]:
    """NVIDIA's samples, one for each tool; a memset that stops short is an array whose end is not written."""
    data, total = "--arg=data_in:i32[128]=zeros", "--arg=sum_out:i32[1]"
    launches = {
        "Memcheck/memcheck_demo:unaligned_kernel": ["--grid=1", "--block=1"],
        "Memcheck/memcheck_demo:out_of_bounds_kernel": ["--grid=1", "--block=1"],
        "Racecheck/block_error:sumKernel": ["--grid=1", "--block=128", data, total],
        "Racecheck/warp_error:sumKernel": ["--grid=1", "--block=64", data, total],
        "Synccheck/divergent_threads:myKernel": ["--grid=1", "--block=64", "--arg=data_in:i32[1008]=zeros", total],
        "Synccheck/illegal_syncwarp:myKernel": ["--grid=1", "--block=32", total],
        "Initcheck/memset_error:vectorAdd": ["--grid=2", "--block=32", "--arg=v:i32[64]"],
        "Suppressions/suppressions_initcheck_demo:mult": [
            *("--grid=1", "--block=123", "--arg=a:i32[123]", "--arg=b:i32[123]", "--arg=size:i32=123"),
        ],
    }
    for name, launch in launches.items():
        file, _, kernel = name.partition(":")
        yield Case(name, root / f"{file}.cu", True, [["--entry", kernel, *launch]], ORDER | MEMORY)


def faial(root: Path, made: Path) -> Iterator[Case]:
    """The kernels of the tutorial."""
    right = {"saxpy", "read-index-fixed"}
    for file in sorted(root.rglob("*.cu")):
        made_of = made / file.name
        made_of.write_text("//--blockDim=64 --gridDim=4\n" + file.read_text())
        yield from annotated(file.stem, made_of, file.stem not in right, folder=file.parent)


def faial_tests(root: Path, made: Path) -> Iterator[Case]:
    """Small kernels whose names say whether the threads of one block race; one is about blocks."""
    np.save(made / "some.npy", np.random.default_rng(1).integers(0, 64, ELEMENTS).astype(np.int32))
    for file in sorted((root / "examples/drf").glob("*-*.cu")):
        if file.stem.startswith(("racy-", "drf-")):
            made_of, faulty, text = made / file.name, file.stem.startswith("racy-"), file.read_text()
            if re.search(r"__device__ \w+ \*\w+;", text):
                yield Case(file.stem, file, faulty, left_out="a pointer that the host would set")
                continue
            grid, block = 4 if "grid-level" in file.stem else 1, 32 if "warp" in file.stem else 64
            made_of.write_text(f"//--blockDim={block} --gridDim={grid}\n{text}")
            for case in annotated(file.stem, made_of, faulty, folder=file.parent):
                some = [
                    [re.sub(r":i32\[\d+\]=zeros", f":i32=@{made}/some.npy", w) for w in one] for one in case.launches
                ]
                yield replace(case, launches=[*case.launches, *(one for one in some[:1] if one not in case.launches)])


def tritonbench(root: Path, made: Path) -> Iterator[Case]:
    """The files that the report of 24 memory bugs names, and every twelfth of the others, with their own tests."""
    files = sorted((root / "data/TritonBench_G_v1").glob("*.py"))
    for file in [
        *(file for file in files if file.stem in REPORTED),
        *[f for f in files if f.stem not in REPORTED][::12],
    ]:
        yield Case(file.stem, file, file.stem in REPORTED, [["--triton"]], frozenset({"out_of_bounds"}))


REPORTED = frozenset(
    re.findall(
        r"\S+",
        """
        apply_penalty attention_fwd_triton1 chunk_bwd_dqkg chunk_delta_fwd chunk_gla_fwd chunk_gla_simple decay_cumsum
        fused_rotary_embedding matmul_triton2 nested_loops_processing parallel_retention_attention
        chunk_gated_attention chunk_linear_attn chunk_retention_ops fused_recurrent_delta fused_recurrent_hgrn
        fused_recurrent_retention layer_norm_triton parallel_attention rotary_emb_nopad token_attn_mistral
        token_attn_reduceV quantize_kv_copy softmax_reducev
        """,
    )
)
"""Files of TritonBench with memory bugs, by thunlp/TritonBench/issues/12."""

OF_PROGRAMS = ORDER | MEMORY | frozenset({"in_flight", "host_race", "host_access", "invalid_free"})


def hecbench(root: Path, made: Path) -> Iterator[Case]:
    """Programs that need no library and no file, with smaller numbers as arguments. None is known to be wrong."""
    programs = []
    for makefile in sorted((root / "src").glob("*-cuda/Makefile")):
        text = makefile.read_text()
        run = re.search(r"\./\$\(program\)([^#/\n]*)$", text, re.MULTILINE)
        if run and not re.search("-l[a-zA-Z]", text):
            programs.append((makefile, run[1].split()))
    for makefile, arguments in programs[::12]:
        target = made / makefile.parent.name
        build = ["make", "-B", f"program={target}", "ARCH=sm_90", "EXTRA_CFLAGS=-lineinfo"]
        capture = ["capture", "--sample=1", "--", str(target), *smaller(arguments)]
        yield Case(target.name, makefile, False, [capture], OF_PROGRAMS, build=build)


def smaller(words: Sequence[str]) -> list[str]:
    """Arguments of a program with whole numbers halved down to at most 1,000. The last of several mostly says how often
    it repeats: at most 2."""
    made = list(words)
    numbers = [k for k, word in enumerate(words) if re.fullmatch(r"\d+", word)]
    for k in numbers:
        number = int(words[k])
        while number > (2 if k == numbers[-1] and len(numbers) > 1 else 1000):
            number //= 2
        made[k] = str(number)
    return made


SUITES = {
    "GPUVerify": Suite("mc-imperial/gpuverify", "The CUDA part of its test suite, one kernel a file.", gpuverify),
    "GPURepair": Suite("cs17resch01003/gpurepair", "Kernels without their barriers, and with them.", gpurepair),
    "GPUVerify's benchmarks": Suite(
        "mc-imperial/GPUVerifyBenchmarks", "Kernels, and the mutation that comes with each.", mutants
    ),
    "Indigo": Suite(
        "JohnJacobsonIII/HiRace-Artifact-SC24", "Irregular kernels with planted bugs, every fourth of HiRace's.", indigo
    ),
    "ScoR": Suite(
        "csl-iisc/ScoR",
        "Its microbenchmarks of scoped synchronisation. PTX asks for a fence behind the atomic that reads a flag; four "
        "cases that are labelled right have none there and are strict, too.",
        scor,
    ),
    "compute-sanitizer": Suite("NVIDIA/compute-sanitizer-samples", "NVIDIA's samples of wrong kernels.", sanitizer),
    "HeCBench": Suite(
        "zjin-lcf/HeCBench",
        "Every twelfth of the programs that need no library and no file, built by its Makefile, with smaller numbers.",
        hecbench,
    ),
    "Faial": Suite("cogumbreiro/faial-tutorial", "The kernels of its tutorial.", faial),
    "Faial's tests": Suite("elliotsayes/faial", "Small kernels, as a copy of its repository has them.", faial_tests),
    "TritonBench": Suite(
        "thunlp/TritonBench",
        "The files of its report of 24 memory bugs, and every twelfth of the others; accesses out of bounds count.",
        tritonbench,
        (),
    ),
}

_LANES = (
    "racecheck: lanes read what others store in `volatile` shared memory, without `__syncwarp()`, and nothing puts "
    "them in order. PTX calls that no race, and the emulator is silent."
)
NOTES = {
    "GPUVerify/loop_unwind": "Both: all threads store one value, which is strict, and the compiler removes it.",
    "GPUVerify/memcpy/fail_arrayofstruct": "The label: all threads store what has no value; the compiler removes it.",
    "GPUVerify/pointertests/test12": "The emulator: threads read a pointer while others store it; all store the same.",
    "GPUVerify's benchmarks/C++AMP/BitonicSort/transpose_kernel, MUTATION": (
        "The emulator: each thread reads back the element that it has stored, so the barrier orders nothing."
    ),
    "GPUVerify's benchmarks/CUDA20/scan/workefficient, MUTATION": (
        "The emulator: in the last round each thread stores the two elements that it then reads."
    ),
    "ScoR/norace_interwarp-block_fence-atom_hrd-indirect": (
        "The emulator: no fence follows the last relaxed read of the flag, so PTX puts nothing in order."
    ),
    **{
        f"GPURepair/CUDASamples/6_Advanced_{name}": _LANES
        for name in (
            *(f"reduction_reduce{k}, barriers restored" for k in (4, 5, 6)),
            *(f"threadFenceReduction_reduce{kind}Pass" for kind in ("Multi", "Single")),
        )
    },
    "GPURepair/CUDASamples/6_Advanced_scan_scanExclusiveShared": (
        "racecheck: the barriers are missing. The emulator names the same load, as `uninitialised`, because it runs "
        "before the store of the other warp."
    ),
    "GPURepair/CUDASamples/6_Advanced_scan_scanExclusiveShared2": (
        "racecheck: the barriers are missing. The emulator ends the kernel before, where it reads outside of an array."
    ),
    "GPURepair/CUDASamples/3_Imaging_HSOpticalFlow_solverKernel": (
        "Both: the barrier is missing. The emulator is strict, because the arrays are `volatile`."
    ),
    "GPUVerify/cooperative_groups/fail/block_divergence_grid_group": (
        "racecheck: half of the blocks never come to the barrier of the grid, and it names the deadlock."
    ),
    "GPUVerify's benchmarks/CUDA20/scan/best": (
        "Both: two lanes store one value to an element, by two instructions and in no order."
    ),
}
"""Of a missed case or an alarm, `SUITE/CASE`: who is right."""

NOT_EXECUTED = {
    "GPUVerify/loop_unwind",
    "GPUVerify/memcpy/fail_arrayofstruct",
    "GPUVerify's benchmarks/C++AMP/BitonicSort/transpose_kernel, MUTATION",
    "GPUVerify's benchmarks/CUDA20/scan/workefficient, MUTATION",
}
"""Missed cases without a race in what is executed: the compiler has removed it, or the mutation makes none."""
