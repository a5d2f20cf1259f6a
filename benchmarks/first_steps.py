"""Measures what README says of the first steps: the install, its size, and the first fault that is named.

python benchmarks/first_steps.py reports/first-steps.json
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

EXTRAS = "cuda13,plots,stats"


def timed(*command: str, folder: Path) -> tuple[float, float]:
    """Seconds that a command takes, and seconds of CPU time, which do not depend on what else the machine does."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(time.monotonic() - start, 2), round(cpu, 1)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary, "clone")
        subprocess.run(["git", "clone", "-q", str(Path(__file__).parent.parent), str(clone)], check=True)
        record = {"commit": subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=clone, text=True).strip()}
        record |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "extras": EXTRAS}
        record |= {"cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}
        subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=clone, check=True)
        pip = (".venv/bin/pip", "install", "-q", "-e", f".[{EXTRAS}]")
        record["install_seconds"], record["install_cpu_seconds"] = timed(*pip, folder=clone)
        record["demo_seconds"] = timed(".venv/bin/workbench", "demo", folder=clone)[0]
        files = [path for path in (clone / ".venv").rglob("*") if path.is_file() and not path.is_symlink()]
        record["megabytes"] = round(sum(path.stat().st_size for path in files) / 1e6)
        target.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
