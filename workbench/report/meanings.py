"""What every verdict means and what to do about it: the words of docs/verdicts.md and of the rules in SARIF."""

from __future__ import annotations

from ..model.results import Verdict

VERDICTS: dict[Verdict, tuple[str, str]] = {
    Verdict.PASS: (
        "Every problem that was tried was solved right, in every tier, and the negative controls were rejected.",
        "Nothing. Another seed, or more `--examples`, tries other problems.",
    ),
    Verdict.UNSUPPORTED: (
        "The stage takes none of the problems, by its own `supports`, or it uses an instruction that the emulator does "
        "not know. This is no failure.",
        "Give it problems that it takes with `--problem`; for an instruction, verify on a GPU.",
    ),
    Verdict.MISMATCH: (
        "An output is wrong: not the rounded reference in the exact tier, beyond its bound in the others, not finite "
        "where the reference is, or against an invariant of the operation.",
        "Read `looks like:` and the map of wrong elements, and replay the smallest problem.",
    ),
    Verdict.INPUT_CHANGED: (
        "A kernel wrote to an input. The emulator names the store.",
        "Store to an output, or declare the array `inout`.",
    ),
    Verdict.WEAK_CHECK: (
        "The operation's comparison is not able to judge: its bound is no array of numbers, or so wide that a negative "
        "control, the answer of a broken kernel, would pass.",
        "Correct `bound` of the operation. The stage is not to blame.",
    ),
    Verdict.NOT_DETERMINISTIC: (
        "Two launches on the same inputs gave answers whose bits differ.",
        "Sum up in a fixed order; or declare the stage `deterministic=False`, where any order is right.",
    ),
    Verdict.STALE: (
        "A launch gave what belongs to an earlier launch, or nothing, though it is right in fresh memory; or it was "
        "wrong after several on the same inputs that were right; or scratch that has to be zero again is not.",
        "Let a launch depend on its arguments only; clear what has to be zero at its end.",
    ),
    Verdict.OPERATION_ERROR: (
        "The Python code of the operation raises or gives what cannot be used; or what it declares is not sound: the "
        "reference or a kernel in fp32 does not pass its own bound, or the exact tier is not exact.",
        "Correct the operation at the line that is named. No kernel is to blame.",
    ),
    Verdict.COMPILE_ERROR: (
        "The source does not compile, with what the compiler says.",
        "Correct the line that it names.",
    ),
    Verdict.LAUNCH_ERROR: (
        "The function that makes the launch raises, or the device refuses what it gives: a kernel that is not there, "
        "arguments of other types, too many threads, too much shared memory.",
        "Correct the launch: the line of your file that raised is named, or the limit.",
    ),
    Verdict.ILLEGAL_ACCESS: (
        "The GPU stopped at an address that belongs to nobody. It does not say where; the emulator, which solves the "
        "same problem then, does.",
        "Look at what the emulator adds below the message.",
    ),
    Verdict.TIMEOUT: (
        "A launch took many times what a slow kernel needs, and was ended. The emulator is asked what it waits for.",
        "Look for a wait that nobody ends, and at what the emulator adds below the message.",
    ),
    Verdict.CRASH: (
        "The process in which the stage ran ended, or the GPU failed in a way that has no name.",
        "Look at what the emulator adds below the message, and replay the problem.",
    ),
    Verdict.OUT_OF_MEMORY: (
        "The problem does not fit into memory.",
        "Ask for less scratch, or verify smaller problems.",
    ),
    Verdict.TAMPERING: (
        "The Python code of the stage changed what judges or times it. Nothing it gives can be believed.",
        "Leave the names alone that are listed.",
    ),
    Verdict.OUT_OF_BOUNDS: (
        "An access outside of an array, of shared or of local memory; or elements between the rows of an output were "
        "written.",
        "Compare the index with the size before the access, also in tails.",
    ),
    Verdict.MISALIGNED: (
        "An access of several bytes at an address that is not a multiple of them.",
        "Align the array and its rows, or check before the wide path is taken; a stage declares its `alignment`.",
    ),
    Verdict.UNINITIALISED: (
        "A value is used that nobody has set: a register, or memory that was never written.",
        "Set it on every path; store to every element that is read, with a barrier or a wait before the read.",
    ),
    Verdict.READ_ONLY: (
        "A store to memory that must not change. `workbench verify` calls it `input_changed`.",
        "Store to an output instead.",
    ),
    Verdict.IN_FLIGHT: (
        "Memory is touched while an asynchronous copy or product may not be done with it.",
        "Wait for it first: the message names the wait.",
    ),
    Verdict.ACCUMULATOR_IN_FLIGHT: (
        "A register is touched while a wgmma may still be using it.",
        "wgmma.commit_group and wgmma.wait_group come before accumulators are touched.",
    ),
    Verdict.RACE: (
        "Two accesses to one place, at least one of which writes, and nothing puts one before the other: of lanes, of "
        "warps, of blocks, or of a copy. Both lines are named.",
        "Put what the message says between the two. It fits every warp that comes there: a barrier, a named one where "
        "only some warps come, mbarriers between roles, atomics or a flag between blocks.",
    ),
    Verdict.PROXY_FENCE: (
        "TMA or wgmma uses what an ordinary store wrote, and no proxy fence lies between.",
        "fence.proxy.async by the threads that store, then a barrier.",
    ),
    Verdict.WGMMA_FENCE: (
        "A wgmma may begin before its registers are settled.",
        "wgmma.fence before the first wgmma, and after other writes to registers that one uses.",
    ),
    Verdict.REGISTER_MISUSE: (
        "A setmaxnreg that cannot be right: its count, its direction, or no limit declared.",
        "Give a multiple of 8 from 24 to 256, and let the kernel have launch bounds.",
    ),
    Verdict.DEADLOCK: (
        "No warp can go on: who waits for what is listed; or all blocks that the device holds wait for one that cannot "
        "begin before they end.",
        "Compare what is waited for with who is left; launch no more blocks than are resident where all wait for all.",
    ),
    Verdict.LIVELOCK: (
        "A block ran for longer than the launch allows. Where its warps are is listed.",
        "Look for a loop whose end another warp must bring about.",
    ),
    Verdict.MBARRIER_MISUSE: (
        "An mbarrier that is not initialised, or not visibly so, or used against its counts: too many arrivals, or "
        "other bytes than were expected.",
        "Compare the count of its initialisation, its arrivals and the bytes of its copies.",
    ),
    Verdict.BARRIER_MISUSE: (
        "Threads disagree about a barrier, or give it a count that it cannot have.",
        "The same count and operation in all threads that meet there, in multiples of 32.",
    ),
    Verdict.DIVERGENT_COLLECTIVE: (
        "Only some lanes of a warp, or warps of a warpgroup, come to what needs them all together.",
        "Move it out of the branch, or name exactly the lanes that execute it.",
    ),
    Verdict.TRAP: ("The kernel executed a trap.", "Look at the line: it is there for a reason."),
    Verdict.ASSERTION: ("An assertion of the kernel failed.", "Look at its condition, and at the thread."),
    Verdict.DESCRIPTOR: (
        "A tensor map or a matrix descriptor does not fit its use: another swizzle, rank, mode, or start.",
        "Make the map, the descriptor and the layout in shared memory agree.",
    ),
    Verdict.BAD_OPERAND: (
        "An instruction is given a value that it does not accept: a size, a box that begins off its multiple, a "
        "multicast to nobody.",
        "Give it one that it accepts: the message has the rule where there is one.",
    ),
    Verdict.RESOURCES: (
        "A launch that does not fit. Today it is a `launch_error`; old records may have this.",
        "Ask for less.",
    ),
    Verdict.EXITED_WITH_WORK: (
        "A warp ends with asynchronous work that nobody waited for, or a block while another one uses its memory.",
        "Wait for it; a cluster barrier before the exit.",
    ),
}
