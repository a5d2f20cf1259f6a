"""Stages whose Python code cheats, with a kernel that is wrong: what each does, and what has to come of it."""

from __future__ import annotations

from dataclasses import dataclass

STAGE = '@square.stage("cheat", source="cheat.cu", idea="cheats", track="cheat"{more})\n'
PLAIN = STAGE.format(more="") + "def cheat(p, size):\n    return launch(p)\n"


def plan(body: str) -> str:
    """A declaration whose function has this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{STAGE.format(more='')}def cheat(p, size):\n{lines}"


@dataclass(frozen=True)
class Cheat:
    """`verdict` is that of the stage, or empty where its module cannot be used at all; `says` is in the message."""

    kind: str
    name: str
    text: str
    verdict: str = "mismatch"
    says: str = ""


def at_import(kind: str, name: str, text: str) -> Cheat:
    """What its module does when it is imported does not reach the judge."""
    return Cheat(kind, name, text + "\n\n" + PLAIN)


def refused(kind: str, name: str, body: str, says: str, verdict: str = "launch_error") -> Cheat:
    """Its function gives what is no launch."""
    return Cheat(kind, name, plan(body), verdict, says)


CHEATS = (
    at_import("patch at import", "comparison", "import workbench.judge.case as c\nc.accepts = c.compare = None"),
    at_import("patch at import", "judge", "from workbench.judge.case import Case\nCase.judge = lambda *a: (None, 0.0)"),
    at_import("patch at import", "numpy", "np.isnan = np.abs = np.argwhere = lambda *a, **k: np.zeros(1, bool)"),
    at_import("patch at import", "hypothesis",
        "import hypothesis\nhypothesis.given = lambda *a, **k: lambda f: lambda: None"),
    at_import("patch at import", "builtins",
        "import builtins\nbuiltins.any = lambda *a: False\nbuiltins.abs = lambda x: 0"),
    at_import("patch at import", "reference",
        "square.problem.reference = lambda self, i: {'y': 0 * i['x'].astype('d')}\n"
        "square.problem.bound = lambda self, i, e: {'y': 1e9 + e['y']}"),
    at_import("frames", "frames",
        "import sys\nf = sys._getframe()\nwhile f:\n    f.f_globals['accepts'] = None\n    f = f.f_back"),
    at_import("frames", "objects", "import gc\nfor o in gc.get_objects():\n"
        "    if isinstance(o, dict) and 'expected' in o:\n        o['expected'] = o['inputs'] = None"),
    at_import("threads and exit", "atexit",
        "import atexit\natexit.register(lambda: open('results.json', 'w').write('{}'))"),
    at_import("threads and exit", "thread", "import threading, time, pathlib\n\n\ndef rewrite():\n    while True:\n"
        "        for f in pathlib.Path('reports').rglob('*.json'):\n"
        "            f.write_text(f.read_text().replace('mismatch', 'pass'))\n        time.sleep(0.001)\n\n\n"
        "threading.Thread(target=rewrite, daemon=True).start()"),
    at_import("files", "reference_file", "import pathlib\nf = pathlib.Path('numbers_/operation.py')\n"
        "try:\n    f.write_text(f.read_text().replace('x * x', '0 * x'))\nexcept OSError:\n    pass"),
    at_import("files", "sitecustomize",
        "import pathlib\nfor f in ('sitecustomize.py', 'conftest.py', 'x.pth', 'cuda/good.cu'):\n"
        "    try:\n        pathlib.Path(f).write_text('import os; os._exit(0)')\n    except OSError:\n        pass"),
    at_import("the parent", "command_line",
        "import os\ntry:\n    open(f'/proc/{os.getppid()}/cmdline').read()\nexcept OSError:\n    pass\n"
        "else:\n    os._exit(9)"),
    at_import("the parent", "memory",
        "import os\ntry:\n    open(f'/proc/{os.getppid()}/mem', 'r+b')\nexcept OSError:\n    pass\n"
        "else:\n    os._exit(9)"),
    at_import("the parent", "kill",
        "import os, signal\ntry:\n    os.kill(os.getppid(), signal.SIGTERM)\nexcept OSError:\n    pass"),
    at_import("environment", "variables",
        "import os\nfor name in ('WORKBENCH_SEED', 'CUDA_VISIBLE_DEVICES', 'WORKBENCH_VERSIONS', 'PATH'):\n"
        "    os.environ[name] = '0'"),
    at_import("environment", "working_directory", "import os\nos.chdir('/')\nos.umask(0o777)"),
    at_import("forged output", "stdout",
        'import os\nprint(\'{"stages": [{"stage": "cheat", "verification": {"verdict": "pass"}}]}\', flush=True)\n'
        "os.write(1, b'cheat pass\\n')\nos.write(2, b'1 of 1 stages passed\\n')"),
    at_import("the interpreter", "trace",
        "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\nsys.setswitchinterval(100)"),
    at_import("the interpreter", "import_hook", "import sys\nsys.meta_path.clear()\nsys.path.clear()"),
    at_import("the interpreter", "audit_hook",
        "import sys\n\n\ndef stop(event, arguments):\n    if event == 'open' and str(arguments[0]).endswith('.json'):\n"
        "        raise OSError\n\n\nsys.addaudithook(stop)"),
    Cheat("state", "second_answer",
        "CALLS = []\n\n\n" + plan("CALLS.append(1)\nreturn launch(p) if len(CALLS) % 2 else launch(p, 'nothing')")),
    Cheat("the problem", "shrunk", plan("object.__setattr__(p, 'n', 1)\nreturn launch(p)")),
    refused("sizes", "many_parameters", "return launch(p, 'square', *[np.int32(0)] * 100_000)", "100,00"),
    Cheat("shadowed modules", "modules", "import sys\nsys.modules['json'] = sys.modules['numpy'] = None\n\n" + PLAIN,
        "launch_error"),
    at_import("shadowed modules", "tidy",
        "import sys, types\nsys.modules['workbench.sandbox.plain'] = types.ModuleType('x')"),
    Cheat("exit", "exit_at_import", "raise SystemExit(0)\n", "", "SystemExit"),
    Cheat("exit", "os_exit_at_import", "import os\nos._exit(0)\n", "", "exited with code 0"),
    Cheat("exit", "exec", "import os\nos.execv('/bin/true', ['true'])\n", "", "exited with code 0"),
    refused("exit", "exit", "raise SystemExit(0)", "SystemExit: 0"),
    refused("exit", "os_exit", "import os\nos._exit(0)", "exited with code 0", "operation_error"),
    refused("exit", "interrupt", "raise KeyboardInterrupt", "KeyboardInterrupt"),
    refused("exit", "generator_exit", "raise GeneratorExit", "GeneratorExit"),
    refused("signals", "segfault", "import ctypes\nctypes.string_at(0)", "SIGSEGV", "operation_error"),
    refused("signals", "kill", "import os\nos.kill(os.getpid(), 9)", "SIGKILL", "operation_error"),
    refused("silence", "loop", "while True:\n    pass", "gave no answer within", "operation_error"),
    refused("silence", "lock", "import re\nre.match('(a+)+b', 'a' * 64)", "gave no answer within", "operation_error"),
    refused("the connection", "flood",
        "import os\nwhile True:\n    for f in range(3, 4096):\n        try:\n            os.write(f, b'x' * 65536)\n"
        "        except OSError:\n            pass", "it sent what is no answer", "operation_error"),
    refused("the connection", "forged",
        "import os\nfor f in range(3, 4096):\n    try:\n        os.write(f, b'\\0\\0\\0\\2[]')\n"
        "    except OSError:\n        pass", "it sent what is no answer", "operation_error"),
    refused("the connection", "closed", "import os\nos.closerange(3, 4096)", "end", "operation_error"),
    refused("pickle", "reduce", "class Argument(str):\n    def __reduce__(self):\n        return print, ('x',)\n\n"
        "return launch(p, 'square', object.__new__(type('X', (), {'__reduce__': lambda s: (print, ())})))",
        "an argument is the name of an array"),
    Cheat("subclasses", "lying_text",
        plan("class Text(str):\n    __eq__ = lambda *a: True\n    __hash__ = str.__hash__\n\n"
        "return launch(p, Text('square'))")),
    Cheat("subclasses", "lying_numbers",
        plan("class One(int):\n    __eq__ = __le__ = __ge__ = lambda *a: True\n    __hash__ = int.__hash__\n\n"
        "return Launch('square', (One(ceil_div(p.n, 64)), One(1), One(1)), (64, 1, 1), ('x', 'y', np.int32(p.n)))")),
    refused("off schema", "none", "return None", "it has to return a Launch or a Plan, not NoneType"),
    refused("off schema", "nan", "return Launch('square', (float('nan'), 1, 1), (1, 1, 1), ())", "is no whole number"),
    refused("off schema", "two_sizes", "return Launch('square', (1, 1), (1, 1, 1), ())", "it has to have three"),
    refused("off schema", "huge_number", "return Launch('square', (1 << 80, 1, 1), (1, 1, 1), ())",
        "it has to be a whole number"),
    refused("off schema", "long_name", "return launch(p, 'x' * 100_000)", "100,000 characters"),
    refused("off schema", "long_answer", "return launch(p, 'x' * 50_000_000)", "a message of", "operation_error"),
    refused("off schema", "bad_name", "return launch(p, '../x y')", "the kernel is called"),
    refused("off schema", "many", "return Plan((launch(p),) * 5000)", "5,000 parts"),
    refused("off schema", "no_launch", "return Plan(())", "there is no launch"),
    refused("off schema", "scratch_over_output",
        "return Plan((launch(p),), scratch={'y': Array((1,), FP32, output=True)})",
        "has the name of an array of the problem"),
    refused("off schema", "scratch_without_end",
        "return Plan((launch(p),), scratch={'s': Array((1 << 50,), FP32, output=True)})", "larger than any device"),
    refused("off schema", "no_array", "return launch(p, 'square', 'expected')", "expected"),
    Cheat("sizes", "asks_for_inputs", STAGE.format(more=", sizes=lambda p, size: {'ANSWER': int(p.inputs()['x'][0])}")
        + "def cheat(p, size):\n    return launch(p)\n"),
    Cheat("sizes", "no_number", STAGE.format(more=", sizes=lambda p, size: {'ANSWER': float('nan')}")
        + "def cheat(p, size):\n    return launch(p)\n", "launch_error", "no whole number"),
    Cheat("sizes", "option", STAGE.format(more=", sizes=lambda p, size: {'X -include /etc/passwd': 1}")
        + "def cheat(p, size):\n    return launch(p)\n", "launch_error", "has the name"),
    Cheat("supports", "exit", STAGE.format(more=", supports=lambda p: __import__('os')._exit(0)")
        + "def cheat(p, size):\n    return launch(p)\n", "operation_error", "exited with code 0"),
    Cheat("supports", "true",
        STAGE.format(more=", supports=lambda p: True") + "def cheat(p, size):\n    return launch(p)\n",
        "operation_error", "a reason or None, not bool"),
    Cheat("edge cases", "of_another_operation",
        "#\n" + STAGE.format(more=", edge_cases=(1,)") + "def cheat(p, size):\n    return launch(p)\n", "",
        "dataclass"),
    Cheat("names", "path", "#\n" + PLAIN.replace('"cheat", source', '"../cheat", source'), "",
        "a name has letters, digits"),
)  # fmt: skip
