"""What every verdict means and what to do about it. docs/verdicts.md and the rules in SARIF use these texts."""

from __future__ import annotations

from ..model.results import Verdict

VERDICTS: dict[Verdict, tuple[str, str]] = {
    Verdict.PASS: (
        "The stage solved every problem correctly, in every tier, and all negative controls were rejected.",
        "Nothing. Another seed, or more `--examples`, tries other problems.",
    ),
    Verdict.UNSUPPORTED: (
        "The stage's own `supports` refuses all of the problems, or the stage uses an instruction that the emulator "
        "does not know. This is not a failure.",
        "Choose a problem that it supports with `--problem`; for an instruction, verify on a GPU.",
    ),
    Verdict.MISMATCH: (
        "An output is wrong: it differs from the rounded reference in the exact tier, it exceeds its bound in another "
        "tier, it is not finite where the reference is, or it violates an invariant of the operation.",
        "Read `looks like:` and the map of wrong elements, and replay the smallest problem.",
    ),
    Verdict.INPUT_CHANGED: (
        "A kernel wrote to an input. The emulator names the store.",
        "Store to an output, or declare the array `inout`.",
    ),
    Verdict.WEAK_CHECK: (
        "The operation's comparison cannot judge: its bound is not an array of numbers, or it is so wide that a "
        "negative control (the answer of a broken kernel) would pass.",
        "Correct `bound` of the operation. The stage is not to blame.",
    ),
    Verdict.NOT_DETERMINISTIC: (
        "Two launches on the same inputs gave answers with different bits.",
        "Add up in a fixed order. If any order is right, declare the stage `deterministic=False`.",
    ),
    Verdict.STALE: (
        "A launch gave the answer of an earlier launch, or none, although it is right in fresh memory; or it was wrong "
        "after several right launches on the same inputs; or scratch memory that must be zero again at the end is not.",
        "Let a launch depend only on its arguments, and clear at its end whatever must be zero.",
    ),
    Verdict.OPERATION_ERROR: (
        "The Python code of the operation raises an exception or returns something unusable; or its declaration is not "
        "sound: the reference or a kernel in fp32 does not pass its own bound, or the exact tier is not exact.",
        "Correct the operation at the named line. No kernel is to blame.",
    ),
    Verdict.COMPILE_ERROR: (
        "The source does not compile. The message has the compiler's errors.",
        "Correct the line that the compiler names.",
    ),
    Verdict.LAUNCH_ERROR: (
        "The function that makes the launch raises an exception, or the device refuses its launch: a kernel that does "
        "not exist, arguments of other types, too many threads, too much shared memory.",
        "Correct the launch: the message names the line of your file that raised, or the limit.",
    ),
    Verdict.ILLEGAL_ACCESS: (
        "The GPU stopped at an address outside of every allocation. It does not say where. The emulator then solves "
        "the same problem, and names the line.",
        "Read what the emulator adds below the message.",
    ),
    Verdict.TIMEOUT: (
        "A launch took many times as long as a slow kernel needs, and was ended. The emulator then says what it waits "
        "for.",
        "Look for a wait that nothing ends, and read what the emulator adds below the message.",
    ),
    Verdict.CRASH: (
        "The process of the stage ended, or the GPU failed with an error that no other verdict describes.",
        "Read what the emulator adds below the message, and replay the problem.",
    ),
    Verdict.OUT_OF_MEMORY: (
        "The problem does not fit into memory.",
        "Ask for less scratch, or verify smaller problems.",
    ),
    Verdict.TAMPERING: (
        "The Python code of the stage changed the code that judges or times it. None of its results can be trusted.",
        "Do not change the names that are listed.",
    ),
    Verdict.UNTESTED: (
        "With `--strict`: the stage is right on every problem, but a condition of its kernel on a parameter, on the "
        "size of the grid, on a clock or on data came out one way in all of them. What the kernel does otherwise was "
        "not tried.",
        "Remove the condition, or let the operation draw problems that try it both ways.",
    ),
    Verdict.OUT_OF_BOUNDS: (
        "An access is outside of an array, of shared memory or of local memory; or a kernel wrote to the gaps between "
        "the rows of an output.",
        "Compare the index with the size before the access, also in tails.",
    ),
    Verdict.MISALIGNED: (
        "An access of several bytes has an address that is not a multiple of their number.",
        "Align the array and its rows, or check the alignment before the wide path; a stage declares its `alignment`.",
    ),
    Verdict.INDEX_OVERFLOW: (
        "32-bit arithmetic that an address is made of has a result that 32 bits do not hold.",
        "Compute the index in 64 bits: convert one operand to `long long` or `size_t` before the product.",
    ),
    Verdict.UNINITIALISED: (
        "A kernel uses a value that nothing has set: a register, or memory that was never written.",
        "Set the register on every path. Store to every element that is read, with a barrier or a wait before the "
        "read.",
    ),
    Verdict.HEAP_MISUSE: (
        "A kernel frees what no `malloc` or `new` has returned, frees a block twice, or leaves blocks behind (a note).",
        "Free each block once, by the pointer that `malloc` or `new` returned.",
    ),
    Verdict.READ_ONLY: (
        "A kernel stores to memory that must not change. `workbench verify` calls this `input_changed`.",
        "Store to an output instead.",
    ),
    Verdict.IN_FLIGHT: (
        "A kernel accesses memory while an asynchronous copy or product may still be using it.",
        "Wait for it first: the message names the wait.",
    ),
    Verdict.ACCUMULATOR_IN_FLIGHT: (
        "A kernel accesses a register while a wgmma may still be using it.",
        "Execute wgmma.commit_group and wgmma.wait_group before you access accumulators.",
    ),
    Verdict.RACE: (
        "Two accesses to one address, at least one of them a write, have no defined order: those of two lanes, warps "
        "or blocks, or of a copy. Both lines are named.",
        "Put what the message proposes between the two accesses: a barrier, a named barrier where only some warps "
        "come, mbarriers between roles, atomics or a flag between blocks.",
    ),
    Verdict.PROXY_FENCE: (
        "TMA or wgmma uses what an ordinary store wrote, without a proxy fence between them.",
        "Let the threads that store execute fence.proxy.async, then a barrier.",
    ),
    Verdict.WGMMA_FENCE: (
        "A wgmma may begin before earlier accesses to its registers are complete.",
        "Execute wgmma.fence before the first wgmma, and after every other write to a register that a wgmma uses.",
    ),
    Verdict.TENSOR_MEMORY: (
        "Tensor memory is used outside of its allocation, before what fills it has ended, or while something else uses "
        "it; or it is not freed.",
        "Allocate, wait and free as the message says: a commit and its mbarrier for products and copies, "
        "tcgen05.wait::ld and wait::st for loads and stores.",
    ),
    Verdict.REGISTER_MISUSE: (
        "A setmaxnreg cannot be right: its count or its direction is wrong, or the kernel declares no limit.",
        "Use a multiple of 8 from 24 to 256, and give the kernel launch bounds.",
    ),
    Verdict.DEADLOCK: (
        "No warp can continue; the message lists who waits for what. Or all resident blocks wait for a block that "
        "cannot begin before one of them ends.",
        "Compare what each warp waits for with the warps that are left. If all blocks wait for all, launch only as "
        "many as are resident.",
    ),
    Verdict.LIVELOCK: (
        "A block ran for longer than the launch allows. The message lists where its warps are.",
        "Look for a loop that ends only when another warp does something.",
    ),
    Verdict.MBARRIER_MISUSE: (
        "An mbarrier is not initialised, or its initialisation is not visible yet, or its counts do not match: too "
        "many arrivals, or a wrong number of bytes.",
        "Compare the count of its initialisation, its arrivals and the bytes of its copies.",
    ),
    Verdict.BARRIER_MISUSE: (
        "Threads use one barrier with different counts or operations, or with a count that is not allowed.",
        "Use the same count and operation in all threads that meet at the barrier. The count is a multiple of 32.",
    ),
    Verdict.DIVERGENT_COLLECTIVE: (
        "Only some lanes of a warp, or some warps of a warpgroup, reach an instruction that needs all of them.",
        "Move the instruction out of the branch, or name exactly the lanes that execute it.",
    ),
    Verdict.TRAP: ("The kernel executed a trap.", "Read the named line and find out why the kernel traps there."),
    Verdict.ASSERTION: ("An assertion of the kernel failed.", "Check its condition for the named thread."),
    Verdict.DESCRIPTOR: (
        "A tensor map or a matrix descriptor does not fit its use: its swizzle, rank, mode or start address is wrong.",
        "Make the map, the descriptor and the layout in shared memory agree.",
    ),
    Verdict.BAD_OPERAND: (
        "An instruction gets a value that it does not accept: a wrong size, a box whose start is not a multiple of "
        "what is required, a multicast without a target.",
        "Use a value that it accepts: the message has the rule where there is one.",
    ),
    Verdict.RESOURCES: (
        "A launch does not fit. New records have `launch_error` instead; old records may have this verdict.",
        "Request fewer resources.",
    ),
    Verdict.EXITED_WITH_WORK: (
        "A warp ends with asynchronous work that nothing waited for, or a block ends while another block uses its "
        "memory.",
        "Wait for the work. For another block, put a cluster barrier before the exit.",
    ),
}

HOST: dict[str, tuple[str, str]] = {
    "host_race": (
        "The host uses pinned or managed memory that a copy or a kernel may still use.",
        "Wait for its stream, for an event behind it, or for the device.",
    ),
    "host_access": (
        "The host follows a pointer to memory of the device.",
        "Copy the memory, or allocate it as managed.",
    ),
    "out_of_bounds": ("A copy or a fill leaves its allocation.", "Correct its size, or the allocation's."),
    "wrong_direction": ("A copy is told a direction that its pointers do not have.", "Correct the direction."),
    "invalid_free": ("Memory is freed twice, or by a pointer that no allocation begins at.", "Free it once."),
    "unread_error": ("A launch failed, and no call has read its error.", "Call cudaGetLastError after launches."),
    "tensor_map": ("A tensor map is encoded that the driver refuses.", "Correct its shape, strides or box."),
    "not_emulated": ("The program calls a function, or launches a kernel, that is not emulated.", "Leave it out."),
    "unwritten_copy": ("Bytes that nothing has stored are copied to the host.", "Store them, or copy fewer."),
    "unread_output": ("What a launch has stored is never read.", "Copy it to the host, or leave the launch out."),
    "leak": ("Memory of the device is never freed.", "Free it."),
}
"""What is found in the host's code of a captured program, as SARIF has it: what it means and what to do."""
