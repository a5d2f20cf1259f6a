"""Kernels for helion, with what PyTorch says of them; the last has a fault, at the line that ends with ``# here``."""

import helion
import helion.language as hl
import torch

ONE = {"config": helion.Config(block_sizes=[32]), "static_shapes": True}
TWO = {"config": helion.Config(block_sizes=[32, 32]), "static_shapes": True}


@helion.kernel(**TWO)
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel(**TWO)
def activated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.nn.functional.silu(x[tile]) * y[tile]
    return out


@helion.kernel(**ONE)
def softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.softmax(x[tile, :], dim=1)
    return out


@helion.kernel(**ONE)
def row_sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = (x[tile, :] * y[tile, :]).sum(-1)
    return out


@helion.kernel(**ONE)
def normalised(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        out[tile, :] = row * torch.rsqrt((row * row).mean(-1, keepdim=True) + 1e-5)
    return out


@helion.kernel(config=helion.Config(block_sizes=[32, 32, 16]), static_shapes=True)
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(0)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        sums = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            sums = sums + hl.dot(x[rows, inner], y[columns, inner].T)
        out[rows, columns] = sums
    return out


@helion.kernel(**ONE)
def overwritten(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([1, x.size(1)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.store(out, [0, slice(None)], x[tile, :].sum(0))
    return out


KERNELS = {
    add: lambda x, y: x + y,
    activated: lambda x, y: torch.nn.functional.silu(x) * y,
    softmax: lambda x, y: x.softmax(1),
    row_sums: lambda x, y: (x * y).sum(1),
    normalised: lambda x, y: torch.nn.functional.rms_norm(x, (48,), None, 1e-5),
    product: lambda x, y: x @ y.T,
}
FAULTS = {overwritten: "race"}
