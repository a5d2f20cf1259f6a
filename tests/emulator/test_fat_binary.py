"""PTX is found in fat binaries and in files that hold them, compressed or not."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import numpy as np
import pytest
from emulation import ptx_of

from workbench.emulator import CompileError, launch, load
from workbench.emulator.source import DamagedData, images

SOURCE = """extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = 2 * x[i];  // here
}
"""
# what nvcc 13.0 makes of it: -fatbin -lineinfo -gencode arch=compute_90,code=compute_90 --compress-mode=size, =speed
WITH_ZSTD = base64.b85decode(
    "Q0-N^0RRvH-"
    "~j*t000000RRC3XaE2JcmV(a00000bpZeXNB{r;000R9S^xk5KmY&$1ONa45r6;y00000000000000000RI300000b1q|b00000Pyhe`"
    "761SMAT2FtWo~71VRU6JY-"
    "w&~Eop9MZy*2wD77#BU;qML3jpSjHy1E_&KzlnJ8g^_7_uNqlEg&shzM*T3NHXL05Je&*SmD*f|uRrwcG#6x8|isda`*me@V}I&pQZq5"
    "@&k-x!AkEbFw9UqNMM9-8q}44@KQznR8CGqLtu7%cugIr+Z8l5+P+RRZ3`(_jGHK_nqNv<Yi%$BjLE_QMV54E>-"
    "hj%FaVeaif2CfBm=w!#FM*bk{w7WoqfE-(1}3=bmXdNPc2P&Ftu9Ta<+gKo-"
    "<*d&CP7_4^(jk<|Q%z)LdRIme&(tmtOiwC^8id8lLA8pm%C>@w9fU<b)Ts1aF-MueoODK!R=BoMpnu_TBcsz9uQWRHCVDE*0^Ni9+-"
    "gj+qqrBD__=qSqlw1&eLBMm=N{TXra1l`CwAI^-?aaWI@(xbY7$-`Fa-"
    "S5q5gp88M(QuZ*&2M7x_dghzKMRT}4j;?r6`t)MpZ;1nISCP{m-719+bKzPu)30rDr6b31ONa4"
)
WITH_LZ4 = base64.b85decode(
    "Q0-N^0RRvHSONe5000000RRC3XaE2J@Bsh-00000=>Y%$NB{r;000R9S^xk5KmY&$1ONa45g-"
    "5n00000000000000000RI300000b1q|b00000Pyhe`761SMAT2FtWo~71VRU6JY-w&~Eop9MZy*2w6AA$U@Ek67WpZ<AZ*CwtE-"
    "(r%bYXI5Wpp5OZC^Ps3NB$}WO8M5b6<05dSxIsG%*136E1dXb7^91WgsqPZgg^aAai43Y-"
    "K14E^uLTVQnBTbv85;01;mi06$+aEE@m@7cm<EDKj!Q0P_ek3MmSE3NCVGXCN+ca%E&7C2%}4K06Wsg=RA{ASGrzGZ6p~Vi5osauEQ4H"
    "Z&k5a%4O>GyvjkZ(|8DATb~?3JMBrWR3s<r~r5+a%3?qAX|9=JuqE6Bmf&SBmfyPBme<>01P7lB{E%j0CO@RH41HSb}0arF)Sb@bZKNR"
    "cpw1KGaxkzb7gdJE@x#fb4>sca3lZ$DFE~daxyy#KqYW7AYyW1AS6s*UqV7KUotxiI{*M%0OVtKbYU)ZZ!TwSZ(?C=*8mVRLjWmcF=YU"
    "AZFOuecWGp105fuAG-m*UG&>4mWMnRLGXW7bIsgJd01-"
    "6k00UY80(AiZFac5}a%44KH2?w?03tFh8UQ9GW^w=zoB#(AHe3J|GAaN70Rabr01-DI02DTX03>sC+W-"
    "J;004XdAU9oV000L81rq@jI!plY9W)>@3UXz1I|>SY3JNY}X>4T)F(4u@bZu}iXm4|LV|6cPVlQ(pV|5}50000000000"
)


def fat_binary(*entries: tuple[int, int, bytes]) -> bytes:
    """Of entries that are not compressed: their kind (1: PTX, 2: machine code), architecture and contents."""
    made = b""
    for kind, architecture, contents in entries:
        header = struct.pack(
            "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(contents), 0, 0, 0, 9, architecture, 0, 0, 17, 0, 0
        )
        made += header + contents
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(made)) + made


@pytest.mark.parametrize("data", [WITH_ZSTD, WITH_LZ4], ids=["zstd", "lz4"])
def test_compressed_ptx_runs_and_a_hazard_has_its_line(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "scale.fatbin"
    file.write_bytes(data)
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    assert launch(file, "scale", 1, 32, [x, y, 8]).ok
    assert np.array_equal(y, 2 * x)
    (finding,) = launch(file, "scale", 1, 32, [x, y, 9]).findings
    assert (Path(finding.location.file).name, finding.location.line) == ("s.cu", 3)


def test_the_kernel_that_is_named_is_taken_from_several_modules_at_the_newest_target(tmp_path: Path) -> None:
    texts = {
        name: ptx_of(
            'extern "C" __global__ void NAME(int* x) { x[0] = VALUE; }'.replace("NAME", name).replace("VALUE", value)
        )
        for name, value in (("a", "1"), ("b", "2"))
    }
    old = texts["a"].replace("sm_90a", "sm_80").replace(", 1;", ", 8;")
    newer = texts["a"].replace("sm_90a", "sm_120").replace(", 1;", ", 9;")
    modules = [(1, 80, old), (1, 90, texts["a"]), (1, 120, newer), (1, 90, texts["b"])]
    whole = fat_binary(
        (2, 90, b"\x7fELFmachine"), *[(kind, arch, text.encode() + bytes(3)) for kind, arch, text in modules]
    )
    file = tmp_path / "library.so"
    file.write_bytes(b"\x7fELF" + bytes(200) + whole[: len(whole)] + b"more" + fat_binary())
    x = np.zeros(1, np.int32)
    for kernel, value in (("a", 1), ("b", 2)):
        assert launch(file, kernel, 1, 1, [x]).ok
        assert x == value
    with pytest.raises(CompileError, match=r"say which kernel is the entry; library.so has: a, b"):
        load(file)
    with pytest.raises(CompileError, match=r"there is no kernel c.*has: a, b"):
        load(file, entry="c")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x7fELF" + bytes(14) + struct.pack("<H", 190) + bytes(100), "machine code and no PTX"),
        (fat_binary((2, 90, b"code"), (2, 100, b"code")), "machine code for sm_100, sm_90 and no PTX"),
        (b"\x7fELF" + bytes(300), "machine code and no PTX"),
    ],
    ids=["cubin", "fat binary", "program"],
)
def test_machine_code_alone_is_refused_with_the_flag_that_keeps_ptx(data: bytes, what: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.cubin"
    file.write_bytes(data)
    with pytest.raises(CompileError, match=f"kernel.cubin holds {what}.*-gencode arch=compute_90,code=compute_90"):
        load(file)


@pytest.mark.parametrize("data", [WITH_ZSTD, WITH_LZ4], ids=["zstd", "lz4"])
def test_damaged_data_is_told_and_never_anything_else(data: bytes, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(300):
        damaged = bytearray(data[: int(rng.integers(20, len(data) + 1))])
        damaged[int(rng.integers(len(damaged)))] ^= int(rng.integers(1, 256))
        try:
            list(images(bytes(damaged)))
        except DamagedData:
            told += 1
    assert told > 100
    file = tmp_path / "cut.fatbin"
    file.write_bytes(data[:200])
    with pytest.raises(CompileError, match=r"cut.fatbin cannot be read: a fat binary is longer"):
        load(file)
