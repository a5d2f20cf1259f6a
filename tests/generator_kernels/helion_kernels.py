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


@helion.kernel(**TWO)
def chosen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.where(x[tile] > y[tile], x[tile], -y[tile])
    return out


@helion.kernel(**TWO)
def clipped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.clamp(x[tile], -1, 1) + torch.relu(y[tile])
    return out


@helion.kernel(**TWO)
def powers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.exp(x[tile]) * torch.sqrt(torch.abs(y[tile]))
    return out


@helion.kernel(**TWO)
def sines(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.sin(x[tile]) + torch.tanh(y[tile])
    return out


@helion.kernel(**TWO)
def halves(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = (x[tile].to(torch.bfloat16) * y[tile].to(torch.bfloat16)).to(torch.float32)
    return out


@helion.kernel(**TWO)
def transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(1), x.size(0)], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile(x.size()):
        out[columns, rows] = x[rows, columns].T
    return out


@helion.kernel(**TWO)
def broadcast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        out[rows, columns] = x[rows, columns] + y[0, columns][None, :]
    return out


@helion.kernel(**ONE)
def column_sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(1)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(1)):
        out[tile] = x[:, tile].sum(0)
    return out


@helion.kernel(**ONE)
def largest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.amax(x[tile, :], dim=1)
    return out


@helion.kernel(**ONE)
def where_largest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.argmax(x[tile, :], dim=1)
    return out


@helion.kernel(**ONE)
def layer_norm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        centred = x[tile, :] - x[tile, :].mean(-1, keepdim=True)
        out[tile, :] = centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
    return out


@helion.kernel(**ONE)
def counted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([1], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [0], (x[tile, :] > 0).to(torch.float32).sum(-1).sum(-1))
    return out


@helion.kernel(**ONE)
def summed_so_far(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.cumsum(x[tile, :], dim=1)
    return out


@helion.kernel(config=helion.Config(block_sizes=[32, 16]), static_shapes=True)
def by_parts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for rows in hl.tile(x.size(0)):
        sums = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(x.size(1)):
            sums = sums + (x[rows, columns] * y[rows, columns]).sum(-1)
        out[rows] = sums
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
    chosen: lambda x, y: torch.where(x > y, x, -y),
    clipped: lambda x, y: x.clamp(-1, 1) + y.relu(),
    powers: lambda x, y: x.exp() * y.abs().sqrt(),
    sines: lambda x, y: x.sin() + y.tanh(),
    halves: lambda x, y: (x.bfloat16() * y.bfloat16()).float(),
    transposed: lambda x, y: x.T,
    broadcast: lambda x, y: x + y[0],
    column_sums: lambda x, y: x.sum(0),
    largest: lambda x, y: x.amax(1),
    where_largest: lambda x, y: x.argmax(1),
    layer_norm: lambda x, y: torch.nn.functional.layer_norm(x, (48,)),
    counted: lambda x, y: (x > 0).sum().float()[None],
    summed_so_far: lambda x, y: x.cumsum(1),
    by_parts: lambda x, y: (x * y).sum(1),
}
FAULTS = {overwritten: "race"}
