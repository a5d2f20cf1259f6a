"""Faults that the emulator finds in public kernels: `reports/found.md`.

    python benchmarks/found.py measure OUTPUT.json --snapshots FOLDER   # FOLDER/owner+name is a checkout of each
    python benchmarks/found.py write [OUTPUT.json]                      # the page, of that file and nothing else

No code of others is here. A remedy is some words at a line of theirs, which are put into a copy of the file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from click.testing import CliRunner

from workbench.cli.main import main
from workbench.records import environment

RECORD = recorded.REPORTS / "found.json"
ARRAYS = {
    "n": np.int32([128]),
    "m": np.int32([16]),
    "one": np.int32([1]),
    "many": np.int32([4096]),
    "range": np.int64([0, 1024]),
    "wanted": np.int64([0, 32]),
    "first": np.int64([0]),
    "far": np.full(1024, 5e4, np.float32),
}
"""Arrays of the launches, each a file such as `n.npy` in the folder of the command."""
TEXT = " --arg i32=1 --arg i32={n} --arg i32=16 --arg points:f32[{n},3]=random --arg distances:f32[{many}]=ones"
SAMPLED = TEXT.format(n=128, many=128) + " --arg chosen:i32[16]"
BY_OFFSETS = " --arg points:f32[128,3]=random --arg offsets:i32=@n.npy --arg wanted:i32=@m.npy"
BY_OFFSETS += " --arg distances:f32[128]=ones --arg chosen:i32[16]"
MMCV = "--include common/cuda --include common"
BARRIER = "__syncthreads();"

SAMPLING = (
    "In each round all threads read the winner of a reduction from shared memory, `dists_i[0]`. In the next round the "
    "first thread stores its candidate there, and nothing comes between: a warp that reads late takes that candidate "
    "for the winner. Then the warps of a block measure distances from different points."
)
LOCAL = "Candidates go to an array of the thread of fixed length, and nothing compares their number with it. "


@dataclass(frozen=True)
class Case:
    """A kernel of a repository, the launch, and what is wrong.

    `root` is the folder that the command is run in and `file` what it is given. `edits` are the remedy: (file, line,
    words there, words instead; no words: a line behind it), `right` other arguments that are clean.
    """

    repository: str
    commit: str
    root: str
    file: str
    what: str
    remedy: str
    launch: str
    edits: tuple[tuple[str, int, str, str], ...] = ()
    right: str = ""
    note: str = ""


def sampling(repository: str, commit: str, root: str, file: str, line: int, launch: str, note: str = "") -> Case:
    """A copy of the farthest point sampling of PointNet++, which reads the winner at this line."""
    place, _, where = file.partition(":")
    remedy = f"a `__syncthreads()` behind line {line} of `{(where or place).rpartition('/')[2]}`"
    edits = ((where or place, line, "", BARRIER),)
    return Case(repository, commit, root, place, SAMPLING, remedy, launch, edits, note=note)


OPENPCDET, POINTCEPT = ("open-mmlab/OpenPCDet", "8caccce"), ("Pointcept/Pointcept", "d74c646")
CASES = (
    sampling(
        "open-mmlab/mmcv",
        "a8073c74",
        "mmcv/ops/csrc",
        "pytorch/cuda/furthest_point_sample_cuda.cu:common/cuda/furthest_point_sample_cuda_kernel.cuh",
        80,
        f"{MMCV} --entry 'furthest_point_sampling_forward_cuda_kernel<128>' --grid 1 --block 128{SAMPLED}",
        "The kernel with distances, in the same file, has the same fault at line 147.",
    ),
    Case(
        "open-mmlab/mmcv",
        "a8073c74",
        "mmcv/ops/csrc",
        "pytorch/cuda/group_points_cuda.cu",
        "A loop over the grid moves the pointer `idx` by the offset of its element. In the second round the offset of "
        "the first round is still in it. A launch has at most 4096 blocks of 512 threads, so more than 2,097,152 "
        "samples "
        "(32,769 points with 64 samples) are read from behind the end, or from wrong places.",
        "a pointer of each round, instead of one that is moved",
        f"{MMCV} --entry 'group_points_forward_cuda_kernel<float>' --grid 4096 --block 512 --seeds 1 --as-compiled "
        "--arg i32=1 --arg i32=1 --arg i32=1 --arg i32=32769 --arg i32=64 --arg points:f32[1]=ones --arg "
        "idx:i32[32769,64]=zeros --arg out:f32[32769,64]",
        (
            ("common/cuda/group_points_cuda_kernel.cuh", 31, "idx += ", "const int *here = idx + "),
            ("common/cuda/group_points_cuda_kernel.cuh", 32, "idx[0]", "here[0]"),
        ),
        note="By reading, the same is true of its backward pass and of `knn`, `three_nn`, `three_interpolate`, "
        "`ball_query`, `gather_points` and the backward pass of `roiaware_pool3d`.",
    ),
    sampling(
        *OPENPCDET,
        "pcdet/ops/pointnet2/pointnet2_batch/src",
        "sampling_gpu.cu",
        212,
        f"--entry 'farthest_point_sampling_kernel<128>' --grid 1 --block 128{SAMPLED}",
    ),
    sampling(
        *OPENPCDET,
        "pcdet/ops/pointnet2/pointnet2_stack/src",
        "sampling_gpu.cu",
        136,
        f"--entry 'farthest_point_sampling_kernel<128>' --grid 1 --block 128{SAMPLED}",
        "The kernel for stacked batches, in the same file, has the same fault at line 315.",
    ),
    sampling(
        *POINTCEPT,
        "libs/pointops/src",
        "sampling/sampling_cuda_kernel.cu",
        125,
        f"--entry 'farthest_point_sampling_cuda_kernel<128>' --grid 1 --block 128{BY_OFFSETS}",
        "The kernel of `libs/pointops2` has the same fault at the same line.",
    ),
    Case(
        *POINTCEPT,
        "libs/pointops/src",
        "ball_query/ball_query_cuda_kernel.cu",
        LOCAL + "With more than 2048 points in the radius it writes behind it.",
        "a look at the number of candidates before one is added",
        "--entry ball_query_cuda_kernel --grid 1 --block 256 --arg i32=1 --arg i32=16 --arg f32=0 --arg f32=100 --arg "
        "points:f32[4096,3]=random --arg query:f32[3]=zeros --arg offsets:i32=@many.npy --arg wanted:i32=@one.npy "
        "--arg "
        "idx:i32[16] --arg dist2:f32[16]",
        (
            ("ball_query/ball_query_cuda_kernel.cu", 96, "if (d2", "if (candi_num < 2048 && (d2"),
            ("ball_query/ball_query_cuda_kernel.cu", 96, "max_radius2))", "max_radius2)))"),
        ),
        note="Line 120 also stores indices where distances are meant.",
    ),
    Case(
        *POINTCEPT,
        "libs/pointops/src",
        "knn_query/knn_query_cuda_kernel.cu",
        LOCAL + "With more than 128 neighbours it writes behind it.",
        "a refusal of more than 128 neighbours; with 128 the launch is clean",
        "--entry knn_query_cuda_kernel --grid 1 --block 256 --arg i32=1 --arg i32={k} --arg points:f32[4096,3]=random "
        "--arg "
        "query:f32[3]=zeros --arg offsets:i32=@many.npy --arg wanted:i32=@one.npy --arg idx:i32[{k}] --arg "
        "dist2:f32[{k}]".replace("{k}", "200"),
        right="128",
    ),
    Case(
        "rusty1s/pytorch_cluster",
        "3d1d9e3",
        "csrc",
        "cuda/fps_cuda.cu",
        "In each step of the reduction, a thread reads the pair of another thread (distance and index) that this one "
        "may "
        "replace in the same step. A distance can go with the index of another point.",
        "only threads that are a multiple of `2 * i` take part in a step",
        "--entry 'fps_kernel<float>' --grid 1 --block 256 --arg points:f32[1024,3]=random --arg ptr:i64=@range.npy "
        "--arg "
        "out_ptr:i64=@wanted.npy --arg start:i64=@first.npy --arg dist:f32=@far.npy --arg out:i64[32] --arg i64=3",
        (("cuda/fps_cuda.cu", 53, "if ((thread_idx + i)", "if (thread_idx % (2 * i) == 0 && (thread_idx + i)"),),
    ),
    sampling(
        "mit-han-lab/pvcnn",
        "476715b",
        "modules/functional/src",
        "sampling/sampling.cu",
        163,
        f"--entry furthest_point_sampling_kernel --grid 1 --block 512{TEXT.format(n=512, many=512)} --arg "
        f"chosen:i32[16]",
    ),
    sampling(
        "erikwijmans/Pointnet2_PyTorch",
        "b5ceb6d",
        "pointnet2_ops_lib/pointnet2_ops/_ext-src",
        "src/sampling_gpu.cu",
        170,
        f"--include include --entry 'furthest_point_sampling_kernel<128>' --grid 1 --block 128{SAMPLED}",
    ),
    sampling(
        "facebookresearch/votenet",
        "2f6d6d3",
        "pointnet2/_ext_src",
        "src/sampling_gpu.cu",
        175,
        f"--include include --entry 'furthest_point_sampling_kernel<128>' --grid 1 --block 128{SAMPLED}",
    ),
    sampling(
        "charlesq34/pointnet2",
        "4292663",
        "tf_ops/sampling",
        "tf_sampling_g.cu",
        165,
        f"--entry farthestpointsamplingKernel --grid 32 --block 512{TEXT.format(n=512, many=16384)} --arg "
        f"chosen:i32[16]",
    ),
    sampling(
        "hszhao/PointWeb",
        "f31fe05",
        "lib/pointops/src",
        "sampling/sampling_cuda_kernel.cu",
        164,
        f"--entry 'furthestsampling_cuda_kernel<128>' --grid 1 --block 128{SAMPLED}",
    ),
    Case(
        "hszhao/PointWeb",
        "f31fe05",
        "lib/pointops/src",
        "knnquery/knnquery_cuda_kernel.cu",
        "The pointer to the distances is not moved to the point of a thread. All threads of a batch store to one row.",
        "`dist2` is moved as `idx` is, behind line 13",
        "--entry knnquery_cuda_kernel --grid 1 --block 256 --arg i32=1 --arg i32=64 --arg i32=64 --arg i32=8 --arg "
        "points:f32[64,3]=random --arg query:f32[64,3]=random --arg idx:i32[64,8] --arg dist2:f32[64,8]=zeros",
        (("knnquery/knnquery_cuda_kernel.cu", 13, "", "dist2 += bs_idx * m * nsample + pt_idx * nsample;"),),
        note="[An issue](https://github.com/hszhao/PointWeb/issues/14) of 2025 says so.",
    ),
    Case(
        "karpathy/llm.c",
        "f1e2ace",
        "dev/cuda",
        "softmax_forward.cu",
        "All threads read the maximum of a row from the first element of shared memory. The first thread then stores "
        "the sum of its warp there, and nothing comes between: a warp that reads late subtracts that sum.",
        "a `__syncthreads()` behind line 268",
        "--entry softmax_forward_kernel4 --grid 4 --block 128 --shared 16 --arg out:f32[4,1003] "
        "--arg inp:f32[4,1003]=random --arg i32=4 --arg i32=1003",
        (("softmax_forward.cu", 268, "", BARRIER),),
        note="The program's own check fails under `workbench capture`, too.",
    ),
    Case(
        "zjin-lcf/HeCBench",
        "f27000a5",
        "src/lda-cuda",
        "main.cu",
        "All threads read a sum from the first element of shared memory. The next sum (line 214 behind line 205) puts "
        "that of a warp there, and nothing comes between: a warp that reads late subtracts another number from its "
        "gradients. And `__activemask()` behind a branch need not name all lanes that have taken it: the loop before "
        "it ends earlier for some lanes with the program's own 1,000 topics.",
        "a `__syncthreads()` in front of the store, and a mask of all lanes",
        "--entry EstepKernel --grid 1 --block 128 --shared 2048 --arg cols:i32[1]=zeros --arg indptr:i32[2]=zeros "
        "--arg vali:u8[1]=zeros --arg counts:f32[1]=ones --arg bool=0 --arg i32=1 --arg i32=1 --arg i32=128 "
        "--arg i32=1 --arg alpha:f32[128]=ones --arg beta:f32[128]=ones --arg gamma:f32[128]=ones "
        "--arg grad_alpha:f32[128]=zeros --arg new_beta:f32[128]=zeros --arg train:f32[1]=zeros "
        "--arg losses:f32[1]=zeros --arg locks:i32[1]=zeros",
        (("kernel.h", 14, "__activemask()", "0xffffffff"), ("kernel.h", 41, "", BARRIER)),
    ),
)


def mend(case: Case, folder: Path) -> None:
    """Puts the remedy into a copy. Raises ValueError where the words are not at their line."""
    for name, line, old, new in case.edits:
        file = folder / name
        lines = file.read_text().splitlines()
        if old and old not in lines[line - 1]:
            raise ValueError(f"{name}:{line} has no {old!r}")
        lines[line - 1] = lines[line - 1].replace(old, new) if old else f"{lines[line - 1]} {new}"
        file.write_text("\n".join(lines) + "\n")


def emulated(case: Case, launch: str, *more: str) -> dict[str, Any]:
    """The document of a launch in this folder. Raises ValueError where it was not executed."""
    result = CliRunner().invoke(main, ["emulate", case.file, *shlex.split(launch), "--json", *more])
    document: dict[str, Any] = json.loads(result.stdout)
    if document["error"]:
        raise ValueError(document["error"]["message"])
    found: dict[str, Any] = document["result"]
    return found


def row(case: Case, snapshots: Path) -> dict[str, Any]:
    """What is found, its witness, and how many findings the remedy leaves."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "copy"
        shutil.copytree(snapshots / case.repository.replace("/", "+") / case.root, folder)
        for name, array in ARRAYS.items():
            np.save(folder / name, array)
        with contextlib.chdir(folder):
            found = emulated(case, case.launch, "--witness")
            mend(case, folder)
            launch = case.launch.replace("200", case.right) if case.right else case.launch
            left = [finding["text"].splitlines()[0] for finding in emulated(case, launch)["findings"]]
    first = found["findings"][0]["text"].splitlines()[0]
    return {"repository": case.repository, "file": case.file, "found": first, "witness": found["witness"], "left": left}


def measure(options: argparse.Namespace) -> None:
    """Makes the record. Rows of repositories whose snapshot is not there stay as they are."""
    here = environment.describe()
    if here.dirty:
        raise SystemExit("the checkout has uncommitted changes: commit them first, so that the record names its code")
    rows = recorded.read(RECORD)["rows"]
    for number, case in enumerate(CASES):
        if (options.snapshots / case.repository.replace("/", "+")).exists():
            rows[number:] = [row(case, options.snapshots), *rows[number + 1 :]]
    record = {"environment": asdict(here), "rows": rows}
    recorded.save(record, options.file)


def entry(number: int, case: Case, found: dict[str, Any]) -> str:
    """One fault on the page."""
    witness = found["witness"]
    said = ""
    if witness and witness["slice"] is not None:
        first, other = witness["values"]
        element = f"`{witness['array']}[{witness['index']}]`"
        said = f"In one order {element} becomes {first}, in another one (`--slice {witness['slice']}`) {other}. "
    if found["left"]:
        raise ValueError(f"the remedy of {case.file} leaves {found['left']}")
    link = f"https://github.com/{case.repository}/blob/{case.commit}/{case.root}/{case.file}"
    command = f"workbench emulate {case.file} {case.launch} --witness"
    told = f"{case.what} {said}{case.note}".strip()
    return (
        f"## {number}. {case.repository}: {case.file.rpartition('/')[2]}\n\n{told}\n\n"
        f"Remedy: {case.remedy}. With it, the emulator finds nothing.\n\n"
        f"[The file]({link}). In `{case.root}`:\n\n```console\n{command}\n```\n\n```text\n{found['found']}\n```\n"
    )


def page(record: recorded.Record) -> str:
    """The Markdown page."""
    made = record["environment"]
    arrays = ", ".join(
        f"`{name}.npy` {array.tolist() if array.size < 9 else f'{array.size} times {array[0]:g}'} ({array.dtype})"
        for name, array in ARRAYS.items()
    )
    repositories = len({case.repository for case in CASES})
    text = (
        f"# Faults found in public kernels\n\n{len(CASES)} faults in {repositories} public repositories, in their "
        f"newest "
        "snapshots that were at hand. Each was checked twice: by reading, and by a launch in the emulator that "
        "accesses "
        "memory out of bounds, or that ends with other values in another order of warps "
        "([witness](../docs/emulator.md))."
        " Each remedy was tried on a copy of the file. No GPU took part. Launches have the shape that the repository's "
        "own host code gives them, but for fewer batches or queries.\n\nThe commands run in the named folder. "
        f"They read arrays of `numpy.save`: {arrays}.\n\nWritten by `benchmarks/found.py` from [the JSON beside it]"
        f"(found.json), commit `{made['commit'][:12]}`, {made['date'][:10]}.\n"
    )
    entries = [entry(n, *pair) for n, pair in enumerate(zip(CASES, record["rows"], strict=True), 1)]
    return "\n".join((text, *entries))


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, measure, page, snapshots={"type": Path, "default": Path("snapshots")})
