"""Arrays of gigabytes: pages that no kernel touches cost nothing, and large arrays behave as small ones do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from workbench.emulator import FindingKind, Output, Session, load, memory, passing

ROWS = """
extern "C" __global__ void rows(float* x, const float* z, int count, OFFSET width) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < count) x[r * width + 5] = z[r];
}
"""
HUGE = f"""
import resource
import numpy as np
from workbench.emulator import Output, launch
source = {ROWS!r}
x = np.zeros(2**31, np.float32)
for offset in ("int", "long long"):
    arguments = [x, np.ones(16, np.float32), 16, 2**27]
    report = launch(source, "rows", 1, 32, arguments, defines={{"OFFSET": offset}})
    print(report.ok, *[finding.kind for finding in report.findings])
    report = launch(source, "rows", 1, 32, [Output(x), *arguments[1:]], defines={{"OFFSET": offset}})
print(x[5 + 15 * 2**27], x[6], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_an_array_of_8_gib_costs_what_a_kernel_touches() -> None:
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True, check=True)
    *reports, last = done.stdout.splitlines()
    value, other, kilobytes = last.split()
    assert (float(value), float(other)) == (1, 0)
    assert int(kilobytes) < 1_500_000
    assert reports[1] == "True"


ADD = """
extern "C" __global__ void add(const int* x, int* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
}
"""


@pytest.fixture(params=["large", "small"])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Session:
    if request.param == "large":
        monkeypatch.setattr(passing, "LARGE", 64)
        monkeypatch.setattr(memory, "LARGE", 64)
    return Session(load(ADD))


def test_launches_see_what_others_and_the_host_have_stored(session: Session) -> None:
    x, y = np.arange(64, dtype=np.int32), np.full(64, -7, np.int32)
    assert session.launch("add", 1, 64, [x, Output(y), 40]).ok
    assert y.tolist() == [*range(1, 41), *[-7] * 24]
    x[:] = 100
    assert session.launch("add", 1, 64, [x, Output(y), 64]).ok
    assert (y == 101).all()


def test_what_was_never_stored_is_still_known(session: Session) -> None:
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    finding = session.launch("add", 1, 64, [Output(x), y, 64]).findings[0]
    assert finding.kind is FindingKind.UNINITIALISED
    assert session.launch("add", 1, 64, [x.copy(), y, 65]).ok


def test_an_array_that_must_not_change_is_no_place_to_store(session: Session) -> None:
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    y.flags.writeable = False
    assert session.launch("add", 1, 64, [x, y, 64]).findings[0].kind is FindingKind.READ_ONLY
    assert not y.any()


def test_arrays_that_do_not_lie_together_are_copied(session: Session) -> None:
    x, y = np.arange(128, dtype=np.int32), np.zeros((2, 64), np.int32)
    assert session.launch("add", 1, 32, [x[::4], y.T, 32]).ok
    assert y.T.reshape(-1)[:32].tolist() == [4 * i + 1 for i in range(32)]
