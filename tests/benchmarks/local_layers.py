"""Block-local layers beside the machine: Coates et al. 2013, section 4.1 and table 1.

The four operations W X, W^T X, the weight gradient, and the norms of filters, on the fields of
section 5.2 (20 x 20, blocks 4 x 4 x 8, step 4, batches of 96). The first three are held against the
same batched dense products of operands that lie beside each other already, the norms against a copy
of as many bytes. Beside them: the layer with its norms, and unfold with einsum.

All four are held against the machine's roofline, too (Williams, Waterman and Patterson 2009): the
speed of a large square product, and a copy's bandwidth. An operation's bytes are those of its
operands, read once, and of its result, written once. So laying strips is none of its work.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.report import Bar, print_report, say
from disttrain.parallel import UnitFilters2d
from disttrain.parallel.layers import fields
from disttrain.parallel.layers.fields import Fields
from disttrain.parallel.layers.unit_filters import UnitProduct

FORWARD, GRADIENTS, NORMS = 0.6, 0.5, 0.6
"""What is wanted of dense products, and of a copy's bandwidth."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What is measured, and how often."""

    size: int
    channels: int
    kernel: int
    samples: int
    device: str
    precision: str
    rounds: int
    square: int
    """Rows of the product that tells the peak."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a machine can do at most."""

    flops_per_second: float
    bytes_per_second: float

    def seconds(self, flops: float, tensors: tuple[Tensor, ...]) -> float:
        """At least, for an operation that reads or writes each of the tensors once."""
        nbytes = sum(each.nbytes for each in tensors)
        return max(flops / self.flops_per_second, nbytes / self.bytes_per_second)


def seconds(cases: dict[str, Callable[[], object]], case: Case) -> dict[str, float]:
    """Medians, measured in turn: the machine's speed changes within a run."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(-1, case.rounds):
        for name, call in cases.items():
            wait(case)
            began = time.perf_counter()
            call()
            wait(case)
            if number >= 0:
                found[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in found.items()}


def wait(case: Case) -> None:
    if case.device == "cuda":
        torch.cuda.synchronize()


def measured(case: Case) -> dict[str, Any]:
    torch.manual_seed(0)
    size = case.size, case.size
    layer = UnitFilters2d(case.channels, 8, case.kernel, input_size=size, stride=4, block=4)
    device, dtype = case.device, PRECISIONS[case.precision]
    layer = layer.to(device, dtype)
    x = torch.randn(case.samples, case.channels, *size, device=device, dtype=dtype)
    square = torch.randn(case.square, case.square, device=device, dtype=dtype)
    where = Fields(layer.kernel_size, layer.stride, *size)
    product = UnitProduct(layer.kernel_size, layer.stride, layer.block)
    weight = layer.weight.detach().flatten(3)
    own = weight.flatten(0, 1)
    dense = functional.unfold(x, case.kernel, stride=4).permute(2, 1, 0).contiguous()
    responses = torch.randn_like(layer(x).detach())
    y = product.in_blocks(responses, weight)
    blocks = y.flatten(0, 1)
    copied = torch.empty_like(weight)
    usual = layer.filters().detach().flatten(3).flatten(0, 1)
    with torch.no_grad():
        times = seconds(
            {
                "dense_forward": lambda: torch.bmm(own, dense),
                "dense_input_gradient": lambda: torch.bmm(own.transpose(1, 2), blocks),
                "dense_weight_gradient": lambda: torch.bmm(blocks, dense.transpose(1, 2)),
                "w_x": lambda: product.arranged(fields.responses(weight, x, where)),
                "w_transposed_x": lambda: fields.transposed(
                    weight, product.in_blocks(responses, weight), where
                ),
                "weight_gradient": lambda: fields.weight_gradient(
                    product.in_blocks(responses, weight), x, where
                ),
                "strips": lambda: fields.strips(x, where),
                "norms": lambda: torch.linalg.vector_norm(weight, dim=3),
                "normalising": lambda: functional.normalize(weight, dim=3),
                # Into memory that is there: to get it takes longer than to copy.
                "copying": lambda: copied.copy_(weight),
                "square_product": lambda: torch.mm(square, square),
                "layer_of_unit_filters": lambda: layer(x),
                "unfold_and_einsum": lambda: by_einsum(layer, usual, x),
            },
            case,
        )
    flops = 2.0 * weight.numel() * case.samples
    machine = Roofline(
        2 * case.square**3 / times["square_product"], 2 * weight.nbytes / times["copying"]
    )
    norms = torch.linalg.vector_norm(weight, dim=3)
    works = {
        "w_x": (flops, (weight, x, responses)),
        "w_transposed_x": (flops, (weight, responses, x)),
        "weight_gradient": (flops, (responses, dense, weight)),
        "norms": (2.0 * weight.numel(), (weight, norms)),
    }
    return {
        "filters": list(own.shape),
        "samples": case.samples,
        "precision": case.precision,
        "machine": asdict(machine),
        "seconds": times,
        "giga_flops": {name: flops / times[name] / 1e9 for name in PRODUCTS},
        "of_dense": {
            "w_x": times["dense_forward"] / times["w_x"],
            "w_transposed_x": times["dense_input_gradient"] / times["w_transposed_x"],
            "weight_gradient": times["dense_weight_gradient"] / times["weight_gradient"],
            "unfold_and_einsum": times["dense_forward"] / times["unfold_and_einsum"],
        },
        "of_roofline": {name: machine.seconds(*work) / times[name] for name, work in works.items()},
        # A copy reads and writes, the norms read, and normalised filters are written, too.
        "norms_of_copy_bandwidth": times["copying"] / times["norms"] / 2,
        "normalising_of_copy_bandwidth": times["copying"] / times["normalising"],
    }


PRODUCTS = (
    "dense_forward",
    "dense_input_gradient",
    "dense_weight_gradient",
    "w_x",
    "w_transposed_x",
    "weight_gradient",
    "unfold_and_einsum",
)


def by_einsum(layer: UnitFilters2d, weight: Tensor, x: Tensor) -> Tensor:
    """What one writes without thinking of memory."""
    (kernel, _), (stride, _) = layer.kernel_size, layer.stride
    columns = functional.unfold(x, kernel, stride=stride)
    return torch.einsum("lof,nfl->nol", weight, columns)


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few small blocks: that it runs")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    options = parser.parse_args()
    torch.set_num_threads(2)
    size, samples, square = (200, 96, 8192) if options.device == "cuda" else (60, 96, 2048)
    if options.quick:
        size, samples, square = 28, 4, 256
    rounds = 2 if options.quick else 15
    report, bars = {}, []
    for name, channels in {"first stack": 3, "second stack": 8}.items():
        case = Case(
            size=size,
            channels=channels,
            kernel=20,
            samples=samples,
            device=options.device,
            precision=options.precision,
            rounds=rounds,
            square=square,
        )
        found = measured(case)
        report[name] = found
        for operation, bound in (
            ("w_x", FORWARD),
            ("w_transposed_x", GRADIENTS),
            ("weight_gradient", GRADIENTS),
        ):
            value = found["of_dense"][operation]
            bars.append(Bar(f"{name}: {operation} of dense products", value, bound))
        bandwidth = found["norms_of_copy_bandwidth"]
        bars.append(Bar(f"{name}: norms of a copy's bandwidth", bandwidth, NORMS))
        say(f"{name}: {found}")
    print_report("local_layers", report, bars)


if __name__ == "__main__":
    main()
