"""DistBelief's figure 3 and figures 5 and 6 of Coates et al. 2013, as `disttrain plan` has them.

Nothing is trained: the papers' networks are divided without values, and priced by one machine for
each paper. With `--output` a page with tables and pictures is left. `model_parallel.py` has what
plans of one and two partitions are beside measured steps.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.line_chart import LineChart, Points
from builders.paper_networks import BATCH, CLUSTER_OF_2012, COTS, DISTBELIEF, GPU_OF_2013, Network
from builders.report import Bar, measured_version, print_report, say
from disttrain.cli.plan_text import advice
from disttrain.parallel import pricing
from disttrain.parallel.counting import Counts
from disttrain.parallel.pricing import Machine, PlannedStep, Purpose

SPEECH, *_, LARGEST = DISTBELIEF
SMALLEST, *_ = COTS

MACHINES = (1, 2, 4, 8, 16, 32, 64, 81)
GPUS = (1, 2, 4, 9, 16, 36, 64)
QUICK = (1, 4)
OTHER_MACHINES: Mapping[str, Machine] = {
    "as above": CLUSTER_OF_2012,
    **{
        f"{each:g} GFLOP/s": replace(CLUSTER_OF_2012, flops_per_second=each * 1e9)
        for each in (50, 200)
    },
    **{
        f"{each:g} Gbit/s": replace(CLUSTER_OF_2012, bytes_per_second=each * 1.25e8)
        for each in (0.5, 2, 10)
    },
    **{
        f"{each:g} us": replace(CLUSTER_OF_2012, latency_seconds=each / 1e6)
        for each in (50, 100, 200, 600)
    },
    **{f"jitter {each:.0%}": replace(CLUSTER_OF_2012, jitter=each) for each in (0.0, 0.2, 0.5)},
}


@dataclass(frozen=True, slots=True)
class Line:
    """One network of a figure."""

    parameters: int
    counts: Sequence[Counts]

    def steps(self, machine: Machine, purpose: Purpose = Purpose.TRAINING) -> Sequence[PlannedStep]:
        return [pricing.step(each, machine, purpose) for each in self.counts]


Lines = Mapping[str, Line]


def main() -> None:
    """Plan, print the report, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few partitions: that it runs")
    parser.add_argument("--output", type=Path, help="folder of the page, such as docs/methods")
    options = parser.parse_args()
    distbelief = lines(DISTBELIEF, QUICK if options.quick else MACHINES)
    cots = lines(COTS, QUICK if options.quick else GPUS)
    if options.output:
        write_page(options.output, distbelief, cots)
    report = {
        "distbelief": [row(name, line, CLUSTER_OF_2012) for name, line in distbelief.items()],
        "cots": [row(name, line, GPU_OF_2013) for name, line in cots.items()],
    }
    print_report("partition_figures", report, bars(distbelief, quick=options.quick))


def lines(networks: Mapping[str, Network], partitions: Sequence[int]) -> Lines:
    found = {}
    for name, network in networks.items():
        found[name] = Line(network.parameters(), network.counts(partitions))
        say(f"{name}: {found[name].parameters:,} parameters")
    return found


def bars(distbelief: Lines, *, quick: bool) -> list[Bar]:
    speech = gains(distbelief[SPEECH].steps(CLUSTER_OF_2012))
    if quick:
        return [Bar("speech: times as fast with 4 machines", speech[4], 1.0)]
    largest = gains(distbelief[LARGEST].steps(CLUSTER_OF_2012))
    return [
        Bar("speech: times as fast with 8 machines", speech[8], 2.0),
        Bar("speech: 16 machines, of 8", speech[16] / speech[8], 1.0, at_least=False),
        Bar("largest image model: times as fast with 81 machines", largest[81], 12.0),
        Bar("largest image model: 81 machines, of 64", largest[81] / largest[64], 1.0),
    ]


def gains(steps: Sequence[PlannedStep]) -> dict[int, float]:
    """How many times as fast as one partition, by partitions."""
    return {step.partitions: steps[0].seconds / step.seconds for step in steps}


def row(name: str, line: Line, machine: Machine) -> dict[str, Any]:
    steps = line.steps(machine)
    return {
        "network": name,
        "parameters": line.parameters,
        "seconds": {step.partitions: step.seconds for step in steps},
        "training": gains(steps),
        "inference": gains(line.steps(machine, Purpose.INFERENCE)),
        "advice": advice(steps),
    }


def normalised(line: Line, of: Line) -> Points:
    """Parameters by seconds, beside those of another network on one GPU: the paper's figure 6."""
    one = of.parameters / pricing.step(of.counts[0], GPU_OF_2013).seconds
    return [
        (step.partitions, line.parameters / step.seconds / one) for step in line.steps(GPU_OF_2013)
    ]


def write_page(folder: Path, distbelief: Lines, cots: Lines) -> None:
    """partitions.md with tables, and pictures beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    gained = LineChart(across="machines", upwards="times as fast as one machine")
    for purpose in Purpose:
        curves = {
            name: [list(gains(line.steps(CLUSTER_OF_2012, purpose)).items())]
            for name, line in distbelief.items()
        }
        gained.draw(folder / f"partitions-distbelief-{purpose.value}.svg", curves)
    seconds = {
        name: [[(each.partitions, each.seconds) for each in line.steps(GPU_OF_2013)]]
        for name, line in cots.items()
    }
    LineChart(across="GPUs", upwards="seconds of an update", is_logarithmic=True).draw(
        folder / "partitions-cots-seconds.svg", seconds
    )
    LineChart(across="GPUs", upwards="times as fast, by parameters").draw(
        folder / "partitions-cots-gains.svg",
        {name: [normalised(line, cots[SMALLEST])] for name, line in cots.items()},
    )
    (folder / "partitions.md").write_text(page(distbelief, cots))


def page(distbelief: Lines, cots: Lines) -> str:
    """The text of the page."""
    machine, gpu = CLUSTER_OF_2012, GPU_OF_2013
    return f"""# What partitions gain, as the papers draw it

Written by `tests/benchmarks/partition_figures.py` at commit {measured_version()}: what
`disttrain plan` says of the papers' networks, with batches of {BATCH}. Nothing here is measured.
The networks are in `tests/builders/paper_networks.py`.

## DistBelief's figure 3

Each machine does {machine.flops_per_second / 1e9:g} GFLOP/s and has
{machine.bytes_per_second / 1.25e8:g} Gbit/s each way, {machine.latency_seconds * 1e6:g} us for a
message, and a jitter of {machine.jitter:.0%}. That is one machine for all four networks. The paper
tells no more of it than its cores, at most 20, and tells no batch. Speed and latency are chosen so
that speech is fastest on 8 machines; nothing is fitted to the image models.

![training](partitions-distbelief-training.svg)

Training, times as fast as one machine:

{gains_table(distbelief, Purpose.TRAINING)}

![inference](partitions-distbelief-inference.svg)

Inference:

{gains_table(distbelief, Purpose.INFERENCE)}

Will more partitions help?

{sentences(distbelief, machine)}

### With other machines

One number is another one, and the rest is as above:

{sensitivity(distbelief)}

## The figures 5 and 6 of Coates et al. 2013

All stacks are updated together, with an objective in each. A GPU does
{gpu.flops_per_second / 1e12:g} TFLOP/s and has {gpu.bytes_per_second / 1.25e8:g} Gbit/s, a quarter
of its server's, and {gpu.latency_seconds * 1e6:g} us for a message, as in the paper's section 2.
There is no jitter. Nothing is computed while messages are under way; the paper's code hides them.

The paper tells no borders. Here pools and contrast normalisation keep the size of what they look
at, which makes 1.64 and 14.24 billion parameters where it says 1.8 and 11.2. If pools and both
means of contrast normalisation stayed within what they look at, 12 rows less for each stack, it
would be 1.37 and 11.20 billion. So the large network has had such borders, as far as sizes tell.
With them the small one would be further from the paper's.

Figure 5, seconds of an update of {BATCH} images:

![seconds](partitions-cots-seconds.svg)

{seconds_table(cots)}

A star marks parameters, gradients and activations that the 4 GB of a GPU do not hold.

Figure 6, parameters that are updated in a second, beside the smallest network on one GPU:

![times as fast](partitions-cots-gains.svg)

{normalised_table(cots)}

Will more partitions help?

{sentences(cots, gpu)}
"""


def partitions_of(found: Lines) -> list[str]:
    line = next(iter(found.values()))
    return [str(each.grid.size) for each in line.counts]


def gains_table(found: Lines, purpose: Purpose) -> str:
    rows = []
    for name, line in found.items():
        told = gains(line.steps(CLUSTER_OF_2012, purpose)).values()
        rows.append((name, f"{line.parameters / 1e6:,.0f}", *(f"{each:.2f}" for each in told)))
    return table(("network", "million parameters", *partitions_of(found)), rows)


def seconds_table(found: Lines) -> str:
    rows = []
    for name, line in found.items():
        told = (
            f"{step.seconds:.3g}{'*' if step.largest.memory_bytes > 4e9 else ''}"
            for step in line.steps(GPU_OF_2013)
        )
        rows.append((name, f"{line.parameters / 1e6:,.0f}", *told))
    return table(("blocks", "million parameters", *partitions_of(found)), rows)


def normalised_table(found: Lines) -> str:
    rows = [
        (name, *(f"{gained:.1f}" for _, gained in normalised(line, found[SMALLEST])))
        for name, line in found.items()
    ]
    return table(("blocks", *partitions_of(found)), rows)


def sensitivity(found: Lines) -> str:
    rows = []
    for name, machine in OTHER_MACHINES.items():
        speech = gains(found[SPEECH].steps(machine))
        best = max(speech, key=lambda count: speech[count])
        images = (gains(line.steps(machine)) for each, line in found.items() if each != SPEECH)
        told = (f"{list(each.values())[-1]:.1f}" for each in images)
        rows.append((name, str(best), f"{speech[best]:.2f}", *told))
    last = (f"{name}: gain at {partitions_of(found)[-1]}" for name in found if name != SPEECH)
    return table(("", "speech: fastest on", "gain there", *last), rows)


def sentences(found: Lines, machine: Machine) -> str:
    return "\n".join(f"- {name}: {advice(line.steps(machine))}" for name, line in found.items())


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(each)} |" for each in (titles, *rows))
    return "\n".join((head, f"|{'---|' * len(titles)}", *body))


if __name__ == "__main__":
    main()
