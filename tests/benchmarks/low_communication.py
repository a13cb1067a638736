"""Local steps over a slow network: seconds and bytes to one loss, beside Downpour, DDP and DiLoCo.

Real processes in network namespaces, whose cables have a rate and a delay; 4 replicas, 2 shards on
machines of their own. A step of the model of examples/language takes a fixed time in which little
is computed. It takes root, ip and tc; torchft's DiLoCo takes part where torchft is installed.

With `--dilation N` each step and delay takes N times longer and rates are N times lower, on a
machine that is too slow or too busy to compute in time. All figures are as without.
"""

import argparse
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "language"))

import torch

from builders.distant_jobs import TEXT, DistantJob
from builders.distant_rivals import Ranks, has_torchft
from builders.distant_runs import Run, busy, idle, late, sent
from builders.report import Bar, print_report, say
from builders.slow_links import SlowLinks
from disttrain import Split
from tasks.slow_language import SLOWER, SlowLanguage

REPLICAS, SHARDS = 4, 2
MEGABITS, ROUND_TRIP_SECONDS = 100.0, 0.05
RATE, WARMUP_STEPS = 0.0007, 20
"""AdamW's; DDP and Downpour, whose gradients add up, have rates of their own."""
SEED = 1
HELD = "average in fragments"
"""The contender that the bars are for."""
TESTS = 64
"""Windows of the test text that are measured."""
SLOW = 4
"""Times longer that each step of one replica takes while others are killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured. Times are those without dilation."""

    step_seconds: float
    width: int
    batch_size: int
    steps: int
    """H: of a replica between two pushes."""
    budget: int
    """Steps of the plain loop, whose loss after 60% of them is the target."""
    measure_seconds: float
    rival_measures_every: int
    """Steps."""
    limit_seconds: float
    """Whoever is not there by then is reported as not met."""
    goodput_seconds: float
    kill_seconds: float
    ceiling_seconds: float


FULL = Scale(
    step_seconds=0.1,
    width=256,
    batch_size=4,
    steps=32,
    budget=500,
    measure_seconds=3,
    rival_measures_every=5,
    limit_seconds=150,
    goodput_seconds=80,
    kill_seconds=20,
    ceiling_seconds=4,
)
QUICK = Scale(
    step_seconds=0.1,
    width=32,
    batch_size=4,
    steps=8,
    budget=30,
    measure_seconds=2,
    rival_measures_every=5,
    limit_seconds=60,
    goodput_seconds=12,
    kill_seconds=5,
    ceiling_seconds=1,
)


def local_steps(scale: Scale, **more: object) -> dict[str, Any]:
    """Each with AdamW inside."""
    warmup = {"samples": WARMUP_STEPS * scale.batch_size * REPLICAS}
    optimizer = {
        "name": "AdamW",
        "arguments": {"lr": RATE},
        "schedule": {"warmup": warmup, "constant": {}},
    }
    return {"localSteps": {"steps": scale.steps, "optimizer": optimizer, **more}}


def downpour(scale: Scale) -> dict[str, Any]:
    """AdamW on the shards; its warm-up is that of the plain loop in samples."""
    warmup = {"samples": WARMUP_STEPS * scale.batch_size * REPLICAS}
    adamw = {"learningRate": RATE, "schedule": {"warmup": warmup, "constant": {}}}
    return {"downpour": {"pushEvery": 1, "optimizer": {"adamw": adamw}}}


CONTENDERS: Mapping[str, Callable[[Scale], dict[str, Any]]] = {
    "average": lambda scale: local_steps(scale, outer={"average": {}}),
    HELD: lambda scale: local_steps(scale, outer={"average": {}}, fragments=4),
    "nesterov": lambda scale: local_steps(scale, outer={"nesterov": {}}, quorum=REPLICAS),
    "delayedNesterov": lambda scale: local_steps(scale, outer={"delayedNesterov": {}}),
    "Decoupled DiLoCo": lambda scale: local_steps(
        scale, outer={"nesterov": {}}, quorum=REPLICAS - 1, fragments=4
    ),
    "downpour": downpour,
}
RIVALS: Mapping[str, dict[str, Any]] = {
    "ddp": {"rate": 2 * RATE, "torchft": False},
    "torchft DiLoCo": {"rate": RATE, "torchft": True},
}


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model: that it works")
    parser.add_argument("--dilation", type=float, default=1.0, help="see above")
    parser.add_argument("--only", nargs="*", help="some of the contenders, or goodput")
    parser.add_argument("--width", type=int, help=f"of the model; {FULL.width} unless told")
    parser.add_argument("--congestion", help="of TCP; else the machine's own")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    scale = replace(scale, width=options.width or scale.width)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Also in the background of a shell, which has it ignored: the namespaces must go.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    names = options.only or [*CONTENDERS, *RIVALS, "goodput"]
    target = plain_loop(scale)
    say(f"the plain loop has {target:.3f} bits per byte after 60% of {scale.budget} steps")
    found: dict[str, Run] = {}
    with ExitStack() as held:
        links = far_machines(held, options.dilation, options.congestion)
        conditions = measured_links(links, scale, options.dilation)
        bench = Bench(scale, options.dilation, links, target)
        for name in names:
            if name in CONTENDERS:
                found[name] = bench.job(name)
            elif name in RIVALS and (name == "ddp" or has_torchft()):
                found[name] = bench.rival(name)
            if name in found:
                say(f"{name}: {found[name]}")
        goodput = bench.goodput() if "goodput" in names else {}
    figures = {
        "target": target,
        "links": conditions,
        "scale": asdict(scale) | {"dilation": options.dilation, "rate": RATE},
        "runs": {name: asdict(run) for name, run in found.items()},
        "goodput": goodput,
        "left_out": [name for name in (*CONTENDERS, *RIVALS) if name not in found],
    }
    print_report(
        "low_communication",
        figures,
        bars(found, goodput, conditions["ceiling_megabits"], scale.limit_seconds),
    )


def far_machines(held: ExitStack, dilation: float, congestion: str | None) -> SlowLinks:
    """Ends the program where they cannot be made."""
    delay = ROUND_TRIP_SECONDS * dilation
    made = SlowLinks(REPLICAS + SHARDS, round_trip_seconds=delay, congestion=congestion)
    try:
        return held.enter_context(made)
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", "") or ""
        sys.exit(f"this takes root, ip and tc, and a kernel with tbf and TUN: {error} {told}")


def plain_loop(scale: Scale) -> float:
    """The loss that is to be reached, in bits per byte."""
    torch.manual_seed(SEED)
    task = SlowLanguage(**arguments(scale, 0.0))
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    windows = task.windows(Split.TRAIN)
    order = torch.randperm(len(windows))
    for step in range(1, scale.budget * 6 // 10 + 1):
        ids = order[step * scale.batch_size : (step + 1) * scale.batch_size]
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, step / WARMUP_STEPS)
        optimizer.zero_grad()
        loss = task.loss(model, (windows.given[ids], windows.following[ids]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return task.bits_per_byte(model)


def arguments(scale: Scale, dilation: float) -> dict[str, Any]:
    """Of the task."""
    seconds = scale.step_seconds * dilation
    return {"step_seconds": seconds, "tests": TESTS, "text": str(TEXT), "width": scale.width}


def measured_links(links: SlowLinks, scale: Scale, dilation: float) -> dict[str, Any]:
    """What they carry without a rate and with it; from then on they have it."""
    everywhere = [(index, (index + 1) % REPLICAS) for index in range(REPLICAS)]
    ceiling = links.flow(everywhere, scale.ceiling_seconds)
    links.limit(MEGABITS / dilation)
    one = links.flow([(0, 1)], scale.ceiling_seconds) * dilation
    round_trip = links.round_trip(0, 1) / dilation
    say(f"{links.congestion}: the links carry {ceiling:.0f} Mbit/s without a rate")
    say(f"with it one flow has {one:.0f} Mbit/s, a round trip takes {round_trip * 1000:.1f} ms")
    return {
        "congestion_control": links.congestion,
        "ceiling_megabits": ceiling,
        "one_flow_megabits": one,
        "round_trip_seconds": round_trip,
    }


class Bench:
    """Runs of one scale over the same links."""

    def __init__(self, scale: Scale, dilation: float, links: SlowLinks, target: float) -> None:
        self._scale, self._dilation, self._links, self._target = scale, dilation, links, target

    def job(self, name: str) -> Run:
        """A job of this product."""
        scale, dilation, links = self._scale, self._dilation, self._links
        stop = {"targetMetric": {"name": "bits_per_byte", "atMost": self._target}}
        limit = scale.limit_seconds * dilation
        with tempfile.TemporaryDirectory() as folder:
            fields = self._fields(CONTENDERS[name](scale), {**stop, "seconds": 2 * limit})
            with DistantJob(Path(folder), links, REPLICAS, fields) as job:
                before = sent(links)
                job.start_all()
                began, relay = job.wait_trained(), links.relay_seconds()
                line: dict[str, Any] | None = None
                while line is None and time.monotonic() < began + limit:
                    job.assert_goes_on()
                    time.sleep(0.1)
                    line = next(filter(self._is_there, job.lines()), None)
                ended, carried = time.monotonic(), sent(links) - before
                share = (links.relay_seconds() - relay) / (ended - began)
                if line is not None:
                    job.wait("coordinator")
                samples = job.status()["samples"] if line is None else line["samples"]
                times = [job.steps(each) for each in job.replicas]
                return Run(
                    seconds=math.nan if line is None else (ended - began) / dilation,
                    samples=samples,
                    sent_bytes=carried,
                    payload_bytes=job.payload(),
                    all_sent_bytes=sent(links) - before,
                    computing=min(busy(steps, ended) for steps in times),
                    time_shares=job.status()["timeShares"],
                    late_steps=late(times, scale.step_seconds * dilation),
                    relay_share=share,
                    megabits=carried * 8e-6 / (ended - began),
                )

    def rival(self, name: str) -> Run:
        """Another program's ranks, of which each is a replica."""
        scale, dilation, links = self._scale, self._dilation, self._links
        settings = {
            "task": arguments(scale, dilation),
            "batch_size": scale.batch_size,
            "rate": RIVALS[name]["rate"],
            "warmup_steps": WARMUP_STEPS,
            "steps": scale.steps,
            "outer_rate": 0.7,
            "measure_every": scale.rival_measures_every,
            "seed": SEED,
        }
        limit = scale.limit_seconds * dilation
        with (
            tempfile.TemporaryDirectory() as folder,
            Ranks(
                Path(folder), links, REPLICAS, settings, torchft=RIVALS[name]["torchft"]
            ) as ranks,
        ):
            before, line = sent(links), dict[str, Any]()
            for line in ranks.lines(limit):
                if line["bits_per_byte"] <= self._target:
                    break
            assert line, ranks.printed()
            is_there, seconds = line["bits_per_byte"] <= self._target, line["seconds"]
            carried = sent(links) - before
            return Run(
                seconds=seconds / dilation if is_there else math.nan,
                samples=line["samples"],
                sent_bytes=carried,
                megabits=carried * 8e-6 / seconds,
            )

    def goodput(self) -> dict[str, Any]:
        """Useful samples while replicas are killed in turn, over those of an undisturbed run."""
        undisturbed = self._disturbed(kills=False)
        disturbed = self._disturbed(kills=True)
        return {
            "undisturbed": undisturbed,
            "disturbed": disturbed,
            "ratio": disturbed["samples"] / undisturbed["samples"],
        }

    def _disturbed(self, *, kills: bool) -> dict[str, Any]:
        """A run of some time, one of whose replicas is slow, without evaluations."""
        scale, dilation = self._scale, self._dilation
        held = CONTENDERS[HELD](scale)
        fields = self._fields(held, {"seconds": scale.goodput_seconds * dilation * 3})
        fields["spec.evaluation"] = None
        with (
            tempfile.TemporaryDirectory() as folder,
            DistantJob(Path(folder), self._links, REPLICAS, fields) as job,
        ):
            slow = job.replicas[-1]
            job.changed[slow] = {**job.changed[slow], SLOWER: str(SLOW)}
            job.start_all()
            job.wait_until(lambda status: status.get("liveReplicas") == REPLICAS)
            began = job.wait_trained()
            end = began + scale.goodput_seconds * dilation
            first = job.status()["samples"]
            turn = 0
            while (now := time.monotonic()) < end:
                job.assert_goes_on()
                due = began + (turn + 1) * scale.kill_seconds * dilation
                if kills and due <= now:
                    job.restart(job.replicas[turn % REPLICAS])
                    turn += 1
                time.sleep(0.05)
            status = job.status()
            times = [steps for name in job.replicas for steps in job.steps(name)]
            found = {
                "kills": turn,
                "samples": status["samples"] - first,
                "samples_requeued": status["samplesRequeued"],
                "seconds_in_which_nobody_trains": idle(times, began, end, dilation),
                "time_shares": status["timeShares"],
            }
            say(f"goodput: {found}")
            return found

    def _fields(self, strategy: Mapping[str, Any], stop: Mapping[str, Any]) -> dict[str, Any]:
        scale, dilation = self._scale, self._dilation
        return {
            "spec.task.arguments": arguments(scale, dilation),
            "spec.strategy": strategy,
            "spec.batchSize": scale.batch_size,
            "spec.seed": SEED,
            "spec.stop": stop,
            "spec.evaluation.everySeconds": scale.measure_seconds * dilation,
        }

    def _is_there(self, line: Mapping[str, Any]) -> bool:
        measured = line.get("evaluation")
        return measured is not None and measured["bits_per_byte"] <= self._target


def bars(
    found: Mapping[str, Run], goodput: Mapping[str, Any], ceiling: float, limit_seconds: float
) -> list[Bar]:
    """Against `HELD`: the default rule, by which each quarter of the model travels in its turn."""
    made = []
    own = found.get(HELD)
    others = [name for name in ("downpour", "ddp") if name in found]
    if own is not None:
        computes = "part of the time in which replicas compute, with evaluations"
        made.append(Bar(computes, own.time_shares["computing"], 0.95))
        for name in others:
            ratio = found[name].sent_bytes / own.sent_bytes
            made.append(Bar(f"bytes, {name} to local steps", ratio, 10.0))
            seconds = found[name].seconds
            # Who never came there took at least as long as it was given.
            ratio = (limit_seconds if math.isnan(seconds) else seconds) / own.seconds
            made.append(Bar(f"seconds, {name} to local steps", ratio, 5.0))
    if goodput:
        made.append(Bar("goodput", goodput["ratio"], 0.85))
        nobody = "seconds_in_which_nobody_trains"
        made.append(Bar(nobody, goodput["disturbed"][nobody], 0.0, at_least=False))
        computing = goodput["undisturbed"]["time_shares"]["computing"]
        made.append(Bar("part of the time in which replicas compute", computing, 0.95))
    if found:
        most = max(run.megabits for run in found.values())
        made.append(Bar("links without a rate, to the most carried", ceiling / most, 5.0))
    return made


if __name__ == "__main__":
    main()
