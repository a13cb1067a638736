"""What a job trains is what a plain PyTorch loop over the same batches trains."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, MultiStepLR

from builders.at_night import at_night, others_at_night
from builders.runs import RunningJob, set_field, set_shards
from disttrain import Batch
from disttrain.checkpoint import stores
from oracles import serial
from oracles.serial import Course
from tasks.proving import WIDTH, Everything, Proving

pytestmark = [pytest.mark.landing, pytest.mark.usefixtures("one_thread")]

JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: proving}
spec:
  task: {entrypoint: proving:Proving}
  strategy:
    downpour:
      maxInFlight: 0
      optimizer: {sgd: {learningRate: 0.05}}
  batchSize: 8
  portionSize: 80
  stop: {epochs: 2}
  evaluation: null
  coordinator: {heartbeatSeconds: 0.2}
  parameterServer: {threads: 1}
  replicas: {count: 1, device: cpu, threads: 1}
"""
SAMPLES = 800
STEPS = 200
SAMPLES_IN_SHORT_LAST_BATCH = 796

MakeOptimizer = Callable[[Iterator[nn.Parameter]], Optimizer]


def trained(folder: Path, *assignments: str) -> tuple[dict[str, Tensor], RunningJob]:
    """The exported model of a job that ran to its end."""
    with RunningJob(folder, assignments, JOB) as job:
        assert job.wait() == 0
        assert job.summary()["steps"] == STEPS
        return load_file(job.output / "model.safetensors"), job


def assert_same_bits(found: dict[str, Tensor], model: nn.Module) -> None:
    wanted = model.state_dict()
    assert found.keys() == wanted.keys()
    different = [name for name in wanted if not torch.equal(found[name], wanted[name])]
    assert different == []


@pytest.mark.parametrize(
    ("shards", "transport"),
    [
        (1, "sharedMemory"),
        (3, "tcp"),
        *at_night((1, "tcp"), (3, "sharedMemory")),
    ],
)
def test_plain_sgd_gives_the_bits_of_a_plain_loop(
    tmp_path: Path, shards: int, transport: str
) -> None:
    found, _ = trained(
        tmp_path,
        f"spec.parameterServer.shards={shards}",
        f"spec.transport={transport}",
        f"spec.task.arguments={{samples: {SAMPLES_IN_SHORT_LAST_BATCH}}}",
    )
    course = Course(task=Proving(samples=SAMPLES_IN_SHORT_LAST_BATCH))
    assert_same_bits(found, serial.plain_loop(course, partial(SGD, lr=0.05)))


def test_computing_in_bfloat16_gives_the_bits_of_a_plain_loop_under_autocast(
    tmp_path: Path,
) -> None:
    found, job = trained(
        tmp_path,
        "spec.strategy.downpour.precision=bfloat16",
        "spec.parameterServer.shards=2",
        "spec.task.arguments={model: everything}",
    )
    course = Course(task=UnderAutocast("everything"))
    model = serial.plain_loop(course, partial(SGD, lr=0.05))
    assert_same_bits(found, model)

    measured = serial.evaluated(course.task, model)
    assert job.summary()["finalMeasures"]["accuracy"] == measured["accuracy"]
    assert job.summary()["finalLoss"] == pytest.approx(measured["loss"], rel=1e-5)


@pytest.mark.parametrize(("shards", "transport"), [(2, "sharedMemory"), (3, "tcp")])
def test_half_of_the_bits_on_the_way_give_the_bits_of_a_loop_that_rounds(
    tmp_path: Path, shards: int, transport: str
) -> None:
    found, _ = trained(
        tmp_path,
        "spec.strategy.downpour.pushAs=bfloat16",
        "spec.strategy.downpour.fetchAs=bfloat16",
        f"spec.parameterServer.shards={shards}",
        f"spec.transport={transport}",
    )
    assert_same_bits(found, serial.rounding_loop(Course(task=Proving()), rate=0.05))


class UnderAutocast(Proving):
    """As people write it without a manifest."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().loss(model, batch)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return super().measure(model, batch)


@pytest.mark.parametrize(("shards", "transport"), [(2, "sharedMemory"), (3, "tcp")])
def test_buffers_tied_and_frozen_parameters_and_dropout_are_those_of_a_plain_loop(
    tmp_path: Path, shards: int, transport: str
) -> None:
    found, job = trained(
        tmp_path,
        f"spec.parameterServer.shards={shards}",
        f"spec.transport={transport}",
        "spec.task.arguments={model: everything}",
        "spec.seed=3",
    )
    course = Course(task=Proving("everything"), seed=3)
    model = serial.plain_loop(course, partial(SGD, lr=0.05))
    assert_same_bits(found, model)
    assert int(found["norm.num_batches_tracked"]) == STEPS

    measured = serial.evaluated(course.task, model)
    summary = job.summary()
    assert summary["finalMeasures"]["accuracy"] == measured["accuracy"]
    assert summary["finalLoss"] == pytest.approx(measured["loss"], rel=1e-5)


@pytest.mark.parametrize("transport", others_at_night("tcp", "sharedMemory"))
def test_frozen_parameters_of_each_replica_give_the_same_bits_and_are_in_no_file(
    tmp_path: Path, transport: str
) -> None:
    found, job = trained(
        tmp_path,
        f"spec.transport={transport}",
        "spec.task.arguments={model: everything}",
        "spec.task.frozen=own",
        "spec.seed=3",
        "spec.evaluation={everyEpochs: 1, keepBest: {name: accuracy}}",
    )
    course = Course(task=Proving("everything"), seed=3)
    wanted = serial.plain_loop(course, partial(SGD, lr=0.05)).state_dict()
    frozen = {name for name in wanted if name.startswith("frozen.")}
    assert found.keys() == wanted.keys() - frozen
    assert [name for name in found if not torch.equal(found[name], wanted[name])] == []

    assert load_file(job.output / "best.safetensors").keys() == found.keys()
    assert job.summary()["finalMeasures"]["accuracy"] > 0.5, "measured with the frozen ones"
    manifest = stores.in_folder(job.output / "checkpoints").list()[-1].manifest
    assert not [tensor.name for tensor in manifest.tensors if tensor.name in frozen]


class Case(NamedTuple):
    """An update rule in the manifest, and the same in PyTorch."""

    manifest: str
    optimizer: MakeOptimizer
    scheduler: "Callable[[Optimizer], LRScheduler | BackToParameters] | None" = None
    clip_norm: float | None = None
    staleness: str = ""
    """The remedy, by its name in the manifest."""


def warm_up(steps: int, optimizer: Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, lambda step: min(1.0, step / steps))


class BackToParameters:
    """Once all is done: what torch keeps is ahead by momentum times the velocity."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        (group,) = self._optimizer.param_groups
        for parameter in group["params"] if self._steps == STEPS else ():
            velocity = self._optimizer.state[parameter]["momentum_buffer"]
            parameter.data.add_(velocity, alpha=group["lr"] * group["momentum"])


CASES = {
    "sgd, weight decay, clipping": Case(
        "sgd: {learningRate: 0.05, weightDecay: 0.01, clipNorm: 0.5}",
        partial(SGD, lr=0.05, weight_decay=0.01),
        clip_norm=0.5,
    ),
    "momentum": Case(
        "momentum: {learningRate: 0.01, momentum: 0.8}", partial(SGD, lr=0.01, momentum=0.8)
    ),
    "momentum, steps, clipping": Case(
        "momentum: {learningRate: 0.01, clipNorm: 0.3, "
        "schedule: {steps: {atSamples: [400, 1000], factor: 0.5}}}",
        partial(SGD, lr=0.01, momentum=0.9),
        partial(MultiStepLR, milestones=[50, 125], gamma=0.5),
        clip_norm=0.3,
    ),
    "nesterov, weight decay, cosine": Case(
        "momentum: {learningRate: 0.02, momentum: 0.9, nesterov: true, weightDecay: 0.001, "
        "schedule: {cosine: {samples: 1600, finalFraction: 0.1}}}",
        partial(SGD, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.001),
        partial(CosineAnnealingLR, T_max=200, eta_min=0.002),
    ),
    "predicted without staleness": Case(
        "momentum: {learningRate: 0.02}",
        partial(SGD, lr=0.02, momentum=0.9, nesterov=True),
        BackToParameters,
        staleness="predict",
    ),
    "scaled without staleness": Case(
        "sgd: {learningRate: 0.05}", partial(SGD, lr=0.05), staleness="scaleRate"
    ),
    "adagrad": Case("adagrad: {learningRate: 0.05}", partial(Adagrad, lr=0.05, eps=1e-10)),
    "adagrad, weight decay, warm-up, clipping": Case(
        "adagrad: {learningRate: 0.03, epsilon: 0.001, weightDecay: 0.01, clipNorm: 0.4, "
        "initialAccumulator: 0.1, schedule: {linearWarmup: {samples: 480}}}",
        partial(Adagrad, lr=0.03, eps=0.001, weight_decay=0.01, initial_accumulator_value=0.1),
        partial(warm_up, 60),
        clip_norm=0.4,
    ),
    "adam, weight decay": Case(
        "adam: {learningRate: 0.01, weightDecay: 0.01, beta1: 0.8}",
        partial(Adam, lr=0.01, weight_decay=0.01, betas=(0.8, 0.999)),
    ),
    "adamw, warm-up, clipping": Case(
        "adamw: {learningRate: 0.01, weightDecay: 0.1, clipNorm: 0.4, "
        "schedule: {warmup: {epochs: 0.6}, constant: {}}}",
        partial(AdamW, lr=0.01, weight_decay=0.1),
        partial(warm_up, 60),
        clip_norm=0.4,
    ),
    "rmsprop": Case("rmsprop: {learningRate: 0.01}", partial(RMSprop, lr=0.01)),
    "rmsprop, centered": Case(
        "rmsprop: {learningRate: 0.01, centered: true}", partial(RMSprop, lr=0.01, centered=True)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_update_rules_and_schedules_agree_with_torch(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    found, _ = trained(
        tmp_path,
        f"spec.strategy.downpour.optimizer={{{case.manifest}}}",
        "spec.parameterServer.shards=2",
        *([f"spec.strategy.downpour.staleness.{case.staleness}={{}}"] * bool(case.staleness)),
    )

    def clip(model: nn.Module) -> None:
        if case.clip_norm is not None:
            clip_grad_norm_(model.parameters(), case.clip_norm)

    def schedule(optimizer: Optimizer) -> Callable[[], None]:
        made = None if case.scheduler is None else case.scheduler(optimizer)
        return lambda: None if made is None else made.step()

    model = serial.plain_loop(Course(task=Proving()), case.optimizer, clip, schedule)
    assert serial.distance(found, model) <= 1e-6


@pytest.mark.parametrize("adaptive", ["", "adaptive: {}"])
def test_compensation_without_delay_gives_the_bits_of_a_plain_loop(
    tmp_path: Path, adaptive: str
) -> None:
    found, _ = trained(
        tmp_path,
        "spec.strategy.downpour.optimizer={sgd: {learningRate: 0.05, weightDecay: 0.01}}",
        f"spec.strategy.downpour.staleness.delayCompensation={{{adaptive}}}",
        "spec.parameterServer.shards=2",
    )
    plain = serial.plain_loop(Course(task=Proving()), partial(SGD, lr=0.05, weight_decay=0.01))
    assert_same_bits(found, plain)


class Algorithm4(Optimizer):
    """Of Sato et al. 2017: the model computes at w + mu M; `end` gives it w.

    With a strength as section 4 proposes: gradients are corrected by the error of the prediction,
    which is all of mu M, since nobody else pushes. The strength may be `adaptive`.
    """

    def __init__(
        self,
        parameters: Iterator[nn.Parameter],
        rate: float,
        momentum: float,
        strength: float = 0.0,
        *,
        adaptive: bool = False,
    ) -> None:
        super().__init__(parameters, {})
        self.rate, self.momentum = rate, momentum
        self.strength, self.adaptive = strength, adaptive
        self.kept = [
            (each, each.detach().clone(), torch.zeros_like(each), torch.zeros_like(each))
            for group in self.param_groups
            for each in group["params"]
        ]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        del closure
        for parameter, w, velocity, mean in self.kept:
            assert parameter.grad is not None
            squares = parameter.grad**2
            mean.mul_(0.95).add_(squares, alpha=0.05)
            strength = self.strength / (mean + 1e-7).sqrt() if self.adaptive else self.strength
            corrected = parameter.grad + strength * squares * (w - parameter)
            velocity.mul_(self.momentum).add_(corrected, alpha=-self.rate)
            w.add_(velocity)
            parameter.copy_(torch.add(w, velocity, alpha=self.momentum))

    @torch.no_grad()
    def end(self) -> None:
        for parameter, w, *_ in self.kept:
            parameter.copy_(w)


def by_algorithm_4(strength: float = 0.0, *, adaptive: bool = False) -> nn.Module:
    """What `plain_loop` trains by it."""
    made: list[Algorithm4] = []

    def optimizer(parameters: Iterator[nn.Parameter]) -> Optimizer:
        made.append(Algorithm4(parameters, 0.02, 0.8, strength, adaptive=adaptive))
        return made[0]

    model = serial.plain_loop(Course(task=Proving()), optimizer)
    made[0].end()
    return model


PREDICTED = (
    "spec.strategy.downpour.optimizer={momentum: {learningRate: 0.02, momentum: 0.8}}",
    "spec.parameterServer.shards=2",
)


def test_prediction_without_staleness_gives_the_bits_of_algorithm_4(tmp_path: Path) -> None:
    found, _ = trained(tmp_path, *PREDICTED, "spec.strategy.downpour.staleness.predict={}")

    assert_same_bits(found, by_algorithm_4())


@pytest.mark.parametrize(("strength", "adaptive"), [(20.0, False), (2.0, True)])
def test_prediction_and_compensation_are_those_of_a_serial_loop(
    tmp_path: Path, strength: float, *, adaptive: bool
) -> None:
    settings = f"{{strength: {strength}{', adaptive: {}' * adaptive}}}"
    found, _ = trained(
        tmp_path, *PREDICTED, f"spec.strategy.downpour.staleness.predictAndCompensate={settings}"
    )

    corrected = by_algorithm_4(strength, adaptive=adaptive)
    assert serial.distance(found, corrected) <= 1e-6
    assert serial.distance(found, by_algorithm_4()) > 1e-3


def grouped(
    make: Callable[..., Optimizer], rate: float, decay: float
) -> Callable[[Iterator[nn.Parameter]], Optimizer]:
    """As the task's groups: biases without decay, the first weight with factors of its own."""

    def made(parameters: Iterator[nn.Parameter]) -> Optimizer:
        first, *others = parameters
        biases = [each for each in others if each.ndim == 1]
        weights = [each for each in others if each.ndim > 1]
        return make(
            [
                {"params": [first], "lr": 0.25 * rate, "weight_decay": 3 * decay},
                {"params": biases, "lr": rate, "weight_decay": 0.0},
                {"params": weights, "lr": rate, "weight_decay": decay},
            ]
        )

    return made


GROUPED = {
    "sgd: {learningRate: 0.05, weightDecay: 0.02}": grouped(SGD, 0.05, 0.02),
    "momentum: {learningRate: 0.01, weightDecay: 0.02, nesterov: true}": grouped(
        partial(SGD, momentum=0.9, nesterov=True), 0.01, 0.02
    ),
    "adagrad: {learningRate: 0.05, weightDecay: 0.02}": grouped(Adagrad, 0.05, 0.02),
    "adamw: {learningRate: 0.01, weightDecay: 0.2}": grouped(AdamW, 0.01, 0.2),
    "rmsprop: {learningRate: 0.01, weightDecay: 0.02}": grouped(RMSprop, 0.01, 0.02),
}


@pytest.mark.parametrize("rule", GROUPED)
def test_parameter_groups_are_those_of_torch(tmp_path: Path, rule: str) -> None:
    found, job = trained(
        tmp_path,
        f"spec.strategy.downpour.optimizer={{{rule}}}",
        "spec.parameterServer.shards=3",
        "spec.task.arguments={groups: true}",
    )

    wanted = serial.plain_loop(Course(task=Proving()), GROUPED[rule])
    assert serial.distance(found, wanted) <= 1e-6
    manifest = stores.in_folder(job.output / "checkpoints").list()[-1].manifest
    assert [tuple(each) for each in manifest.placement.factors] == [
        (0, 37 * 12, 0.25, 3.0),
        *((first, first + bias, 1.0, 0.0) for first, bias in ((444, 37), (1332, 23), (1470, 5))),
    ]


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_adamw_goes_on_as_torch_with_another_number_of_shards(
    tmp_path: Path, before: int, after: int
) -> None:
    case = CASES["adamw, warm-up, clipping"]
    assignments = [
        f"spec.strategy.downpour.optimizer={{{case.manifest}}}",
        f"spec.parameterServer.shards={before}",
        f"spec.stop={{steps: {STEPS // 2 + 7}}}",
        "spec.task.arguments={groups: true}",
    ]
    with RunningJob(tmp_path, assignments, JOB) as job:
        assert job.wait() == 0
    set_shards(job.output, after)
    set_field(job.output, "stop", {"epochs": 2})
    with RunningJob.resumed(job.output) as job:
        assert job.wait() == 0
        assert job.summary()["steps"] == STEPS
        found = load_file(job.output / "model.safetensors")
        job.assert_promises_held()

    def clip(model: nn.Module) -> None:
        clip_grad_norm_(model.parameters(), 0.4)

    def schedule(optimizer: Optimizer) -> Callable[[], None]:
        return warm_up(60, optimizer).step

    optimizer = grouped(AdamW, 0.01, 0.1)
    model = serial.plain_loop(Course(task=Proving()), optimizer, clip, schedule)
    assert serial.distance(found, model) <= 1e-6


def constantly(_samples: int) -> float:
    return 0.05


def warming_up(samples: int) -> float:
    return 0.05 * min(1.0, samples / 1200)


def in_steps(samples: int) -> float:
    return 0.05 * 0.5 ** sum(samples >= point for point in (400, 1000))


def growing_and_falling(samples: int) -> float:
    """Of two epochs of 800 samples."""
    return 0.05 * min(samples / 200, 1.0, 0.1 + 0.9 * (1600 - samples) / 800)


RATES = {
    "constant: {}": constantly,
    "linearWarmup: {samples: 1200}": warming_up,
    "steps: {atSamples: [400, 1000], factor: 0.5}": in_steps,
    "warmup: {epochs: 0.25}, warmupStableDecay: {decay: {fraction: 0.5}, finalFraction: 0.1}": (
        growing_and_falling
    ),
}


@pytest.mark.parametrize(
    ("push_every", "fetch_every", "schedule"),
    [
        (3, 2, "constant: {}"),
        (2, 5, "constant: {}"),
        (3, 2, "linearWarmup: {samples: 1200}"),
        (2, 5, "steps: {atSamples: [400, 1000], factor: 0.5}"),
        (
            3,
            2,
            "warmup: {epochs: 0.25}, "
            "warmupStableDecay: {decay: {fraction: 0.5}, finalFraction: 0.1}",
        ),
    ],
)
def test_accrued_gradients_and_local_steps_are_those_of_algorithm_1_1(
    tmp_path: Path, push_every: int, fetch_every: int, schedule: str
) -> None:
    found, _ = trained(
        tmp_path,
        f"spec.strategy.downpour.optimizer.sgd.schedule={{{schedule}}}",
        f"spec.strategy.downpour.pushEvery={push_every}",
        f"spec.strategy.downpour.fetchEvery={fetch_every}",
        "spec.parameterServer.shards=2",
    )
    course, rate = Course(task=Proving()), RATES[schedule]
    wanted = serial.algorithm_1_1(course, rate, push_every=push_every, fetch_every=fetch_every)
    every_step = serial.plain_loop(course, partial(SGD, lr=0.05))
    assert serial.distance(found, wanted) <= 1e-6
    assert serial.distance(found, every_step) > 1e-4


def test_running_statistics_of_several_replicas_are_shared(tmp_path: Path) -> None:
    found, job = trained(
        tmp_path,
        "spec.task.arguments={model: everything}",
        "spec.replicas.count=2",
        "spec.parameterServer.shards=2",
        "spec.strategy.downpour.maxInFlight=1",
    )
    model = Everything()
    model.load_state_dict(found)
    steps = int(found["norm.num_batches_tracked"])
    assert STEPS / 2 <= steps <= STEPS
    assert found["norm.running_mean"].abs().max() < 1.0
    assert found["norm.running_var"].gt(0).all()
    assert found["norm.running_var"].lt(1.0).all()
    assert found["norm.running_mean"].shape == (WIDTH,)

    measured = serial.evaluated(Proving("everything"), model)
    assert measured["accuracy"] == job.summary()["finalMeasures"]["accuracy"]
    assert measured["accuracy"] > 0.6
