"""Sentences about traps, assertions and what the emulator does not carry out."""

from __future__ import annotations

from pathlib import Path

from ..source_lines import through
from .evidence import Evidence
from .words import shortened


class Others(Evidence):
    """Sentences about traps, assertions and what the emulator does not carry out."""

    def explain_trap(self) -> tuple[str, str]:
        if self.opcode == "trap" and self.instruction and self.instruction.text.startswith("call"):
            return (
                "calls through a pointer that is not the address of a function with these parameters",
                "store the address of a __device__ function there, taken in device code, before the call",
            )
        return "the kernel executed a trap", ""

    def explain_assertion(self) -> tuple[str, str]:
        text = self.context.string(self.seen.address)
        file = self.context.string(self.seen.detail)
        return f"the assertion `{text}` at {Path(file).name}:{self.seen.info} failed", ""

    def explain_resources(self) -> tuple[str, str]:
        return f"the launch asks for more than fits: {self.seen.info}", ""

    def explain_launch_control(self) -> tuple[str, str]:
        """Requests for blocks that have not started, and their responses."""
        here = f"`{shortened(self.opcode)}`"
        if self.seen.info == 1:
            before = f" at {through(self.other.location)}" if self.other else ""
            return (
                f"{here} comes after the cluster has seen{before} that a request was refused",
                "end the loop once clusterlaunchcontrol.query_cancel.is_canceled is false",
            )
        return (
            f"{here} asks a response for a block where nothing has been cancelled",
            "ask for the block where clusterlaunchcontrol.query_cancel.is_canceled is true",
        )

    def explain_unsupported(self) -> tuple[str, str]:
        return f"the emulator does not support this form of `{shortened(self.opcode)}`", ""
