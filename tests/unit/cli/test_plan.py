"""`disttrain plan` as it is called."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from torch import nn

from disttrain.cli import plan_picture, plan_text
from disttrain.cli.main import main
from disttrain.cli.plan_ranks import OfRank
from disttrain.job.roles import Inner, Replicas
from disttrain.parallel import Grid
from disttrain.parallel.pricing import PartitionCost, PlannedStep

TASKS = Path(__file__).parents[2] / "tasks"
JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {{name: small}}
spec:
  task: {{entrypoint: "small_images:{name}"}}
  strategy: {{downpour: {{}}}}
  batchSize: 8
  stop: {{epochs: 1}}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(TASKS))
    for name in ("Small", "Odd", "Pooled", "Around", "Huge"):
        (tmp_path / f"{name}.yaml").write_text(JOB.format(name=name))
    return tmp_path / "Small.yaml"


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", "plan", *map(str, arguments)])
    try:
        return int(main())
    except SystemExit as end:
        return int(end.code or 0)


def test_a_model_larger_than_this_machine_is_planned_without_its_values(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ("--partitions", "1,8", "--flops", "1e15", "--json")

    assert planned(monkeypatch, job.with_stem("Huge"), *said) == 0

    one, several = json.loads(capsys.readouterr().out)["steps"]
    assert one["parameters"] > 1 << 40
    assert several["parameters"] < one["parameters"] / 7


def test_it_says_what_partitions_gain(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = ("--flops", "1e9", "--bandwidth", "1Gb", "--latency", "0.07ms")

    assert planned(monkeypatch, job, "--partitions", "1,2,2x2", *machine) == 0

    head, titles, *rows, _one, _two, _four, _often, sentence = capsys.readouterr().out.splitlines()
    assert head == "a batch of 8, 1 GFLOP/s, 1 Gbit/s, 70 us, jitter 0%"
    assert titles.split()[:4] == ["partitions", "grid", "step", "speed-up"]
    assert [row.split()[:2] for row in rows] == [["1", "1x1"], ["2", "1x2"], ["4", "2x2"]]
    assert sentence.startswith(("Take", "Stay with 1 partition:"))


def test_jitter_makes_partitions_wait_for_the_slowest(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for jitter in ("0", "0.2"):
        said = ("--partitions", "1,2,2x2", "--flops", "1e9", "--jitter", jitter, "--json")
        assert planned(monkeypatch, job, *said) == 0
        steps = json.loads(capsys.readouterr().out)["steps"]
        found.append([(step["seconds"], step["waiting_seconds"]) for step in steps])

    steady, unsteady = found
    assert [waiting for _, waiting in steady] == [0.0, 0.0, 0.0]
    assert [waiting > 0.0 for _, waiting in unsteady] == [False, True, True]
    for (before, _), (after, waiting) in zip(steady, unsteady, strict=True):
        assert after == pytest.approx(before + waiting)


def test_json_has_every_figure(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(monkeypatch, job, "--partitions", "1,3,5", "--json") == 0

    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    first, second = found["steps"]
    assert first["speed_up"] == 1.0
    assert first["nbytes"] == 0
    assert second["messages"] > 0
    assert found["machine"]["flops_per_second"] > 1e6
    assert found["refused"] == [
        "1x5: layer 2: its output of 4 x 4 cannot be divided over 1 x 5 partitions; take fewer, or "
        "say partitioning.2: whole"
    ]


def a_model() -> nn.Module:
    """Three rows of 2 that are frozen, four rows of 5, and a bias of 4."""
    frozen = nn.Embedding(3, 2)
    frozen.requires_grad_(requires_grad=False)
    return nn.Sequential(frozen, nn.Linear(5, 4))


@pytest.mark.parametrize(
    ("inner", "parameters", "nbytes", "said"),
    [
        (Inner.FSDP2, 2 + 2 * 5 + 2, 4 * (2 + 2 * 2 * 5 + 2 * 2), "has at most 14 of 30"),
        (None, 30, 4 * (6 + 2 * 24), "each of 3 ranks (ddp) has 30 of 30 parameters"),
    ],
)
def test_a_rank_has_its_rows_or_all_and_its_part_of_a_batch(
    inner: Inner | None, parameters: int, nbytes: int, said: str
) -> None:
    found = OfRank.of(Replicas(ranks=3, inner=inner), a_model(), 8)
    assert found is not None
    assert (found.parameters, found.model_parameters, found.nbytes) == (parameters, 30, nbytes)
    assert found.samples == 3
    assert said in next(found.lines())
    assert OfRank.of(Replicas(inner=inner), a_model(), 8) is None


def test_what_ranks_have_is_told_before_the_partitions(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = ("--set", "spec.strategy={localSteps: {}}", "--set", "spec.replicas.ranks=2")
    said = (job, "--partitions", "1", "--flops", "1e9", *ranks)
    assert planned(monkeypatch, *said) == 0
    first, second, third, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("each of 2 ranks (ddp) has ")
    assert second.startswith("the time of ranks is not planned")
    assert third.startswith("a batch of 8")
    assert planned(monkeypatch, *said, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ranks"]["samples"] == 4


def test_it_says_what_a_job_moves_to_shards_and_partitions(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = (*("--partitions", "1,2,9x1", "--flops", "1e9", "--bandwidth", "1Gb"), "--set")

    assert planned(monkeypatch, job, *said, "spec.parameterServer.shards=2") == 0

    one, two, often, _refused = capsys.readouterr().out.splitlines()[-4:]
    # 4 filters of 9 and their biases; 10 outputs of 64 and theirs.
    assert one == (
        "1x1: a replica pushes to 2 of the shards: 0-1; a push is 2.76 kB, at one shard 1.41 kB; "
        "a fetch 2.76 kB, at one shard 1.41 kB"
    )
    # The first one has the filters and a half of the outputs.
    assert two == (
        "1x2: each partition pushes to 1 of the shards: partition 0 to 0, partition 1 to 1; a push "
        "is at most 1.46 kB, at one shard 1.46 kB; a fetch at most 1.46 kB, at one shard 1.46 kB; "
        "before a step the first gives each other one 160 B"
    )
    assert often == "in a step, 1 of a push is done, and 1 of a fetch"


def test_a_few_partitions_are_named_with_their_shards(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(job.read_text().replace("small_images:Small", "small_images:Huge"))
    said = ("--partitions", "1,3,10", "--flops", "1e15", "--set", "spec.parameterServer.shards=5")
    assert planned(monkeypatch, job, *said) == 0
    lines = capsys.readouterr().out.splitlines()
    assert planned(monkeypatch, job, *said, "--json") == 0
    told = json.loads(capsys.readouterr().out)["job"]["replica"]

    _, *several = (each["partitions"] for each in told)
    for grid, partitions in zip(("1x3", "2x5"), several, strict=True):
        (line,) = (each for each in lines if each.startswith(f"{grid}: "))
        for rank, partition in enumerate(partitions[:8]):
            first, last = (partition["shards"][end] for end in (0, -1))
            numbers = f"{first}" if first == last else f"{first}-{last}"
            assert f"partition {rank} to {numbers}" in line
        assert "partition 8" not in line
        assert ("the others: --json" in line) is (len(partitions) > 8)


def test_what_is_sent_is_of_the_partition_that_sends_most(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ("--partitions", "3", "--flops", "1e9")
    assert planned(monkeypatch, job, *said) == 0
    _, titles, row, *_ = capsys.readouterr().out.splitlines()
    assert planned(monkeypatch, job, *said, "--json") == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]

    sent = [each["nbytes"] for each in step["costs"]]
    assert max(sent) > min(sent)
    assert (step["nbytes"], step["nbytes_of_all"]) == (max(sent), sum(sent))
    assert titles.split()[-2:] == ["sent", "messages"]
    assert row.split("#")[0].split()[-3:] == [
        *plan_text.byte_size(max(sent)).split(),
        str(max(each["messages"] for each in step["costs"])),
    ]


def test_it_divides_as_the_manifest_says(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replicas = 'replicas: {partitions: 2, partitioning: {"4": whole}}'
    job.write_text(job.read_text() + f"  {replicas}\n")

    assert planned(monkeypatch, job, "--partitions", "2", "--flops", "1e9", "--json") == 0

    (step,) = json.loads(capsys.readouterr().out)["steps"]
    # Both have the filters; the first one has the whole Linear.
    assert step["parameters"] == 40 + 650


def test_a_layer_is_planned_over_a_grid_of_its_own(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replicas = 'replicas: {partitions: 2, partitioning: {"2": 2x1}}'
    job.write_text(job.read_text() + f"  {replicas}\n")

    assert planned(monkeypatch, job, "--partitions", "1,2,3", "--flops", "1e9", "--json") == 0
    one, two, _ = json.loads(capsys.readouterr().out)["steps"]
    assert planned(monkeypatch, job, "--partitions", "3", "--flops", "1e9") == 0

    assert one["messages_of_all"] == 0
    # Columns of samples, rows of the convolution, features and the output; and gradients but of the
    # samples go back.
    assert [each["messages"] for each in two["costs"]] == [1 + 2 * 1 + 2 * 1 + 1, 2 * 1 + 2 * 1 + 1]
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("1x3, partition") for line in lines) == 3


def test_layers_that_lie_whole_on_partitions_are_planned_in_slices(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replicas = 'replicas: {partitions: 2, wholeOn: {"0": 0, "2": 0, "4": 1}, microBatches: 4}'
    job.write_text(job.read_text() + f"  {replicas}\n")
    # The convolution has 2 * 8 * 64 * 4 * 9 products, its gradient too.
    said = ("--partitions", "1,2", "--flops", "1e9", "--latency", "0", "--bandwidth", "1000Gb")

    assert planned(monkeypatch, job, *said, "--json") == 0
    one, two = json.loads(capsys.readouterr().out)["steps"]
    assert planned(monkeypatch, job, *said) == 0
    first, second = (
        line for line in capsys.readouterr().out.splitlines() if line.startswith("1x2, partition")
    )

    assert [each["parameters"] for each in two["costs"]] == [40, 650]
    assert one["costs"][0]["parameters"] == 690
    # Four slices with 64 numbers of each sample, and 10 of the output at once; and back.
    assert [each["messages"] for each in two["costs"]] == [4 + 1, 4 + 1]
    assert [each["nbytes"] for each in two["costs"]] == [4 * 8 * (64 + 10)] * 2
    # The first one's gradient is of its weights alone, the other's of its input, too.
    first_stage, second_stage = 8 * 2 * 64 * 36 * 1e-9, 8 * 2 * 640 * 1e-9
    assert two["idle_seconds"] == pytest.approx((1 + 2) * second_stage / 4)
    layers = two["seconds"] - sum(two["beside"].values())
    assert layers == pytest.approx(2 * first_stage + 3 * second_stage / 4, rel=1e-3)
    assert first.startswith("1x2, partition 0: 7.37e-05 GFLOP, 40 parameters, activations ")
    assert second.endswith("sends 2.37 kB in 5 messages")


def test_a_step_has_what_goes_to_shards_and_partitions(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ("--partitions", "1,2", "--flops", "1e9", "--latency", "0", "--bandwidth", "1MB")
    often, seldom = (
        "strategy: {downpour: {}}",
        "strategy: {downpour: {pushEvery: 4, fetchEvery: 2}}",
    )
    found = []
    for strategy in (often, seldom, seldom[:-2] + ", pushAs: bfloat16}}"):
        job.write_text(job.read_text().replace(often, strategy))
        often = strategy
        assert planned(monkeypatch, job, *said, "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["steps"])

    # Of one process 690 parameters in single precision; the first of two has all filters.
    for steps, (pushes, fetches) in zip(
        found, ((1, 1), (1 / 4, 1 / 2), (1 / 8, 1 / 2)), strict=True
    ):
        seconds = [4 * each * (pushes + fetches) / 1e6 for each in (690, 365)]
        assert [step["beside"]["pushes and fetches"] for step in steps] == pytest.approx(seconds)
        # The filters.
        assert [step["beside"]["shared values"] for step in steps] == [0.0, 4 * 40 / 1e6]
        assert steps[0]["seconds"] == pytest.approx(steps[0]["flops"] / 1e9 + seconds[0])


def test_where_replicas_share_shards_a_step_takes_longer(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for replicas in (1, 6):
        said = ("--partitions", "1", "--flops", "1e9", "--latency", "0", "--json", "--set")
        assert planned(monkeypatch, job, *said, f"spec.replicas.count={replicas}") == 0
        (step,) = json.loads(capsys.readouterr().out)["steps"]
        found.append(step["beside"]["pushes and fetches"])

    assert found[1] == pytest.approx(6 * found[0])


def test_the_stacks_of_an_autoencoder_are_planned_jointly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[3] / "examples/autoencoder/job-small.yaml"

    assert planned(monkeypatch, example, "--partitions", "1,2x2", "--flops", "1e9") == 0

    _, _, one, four, *_, note, _, _, _, _ = capsys.readouterr().out.splitlines()
    assert [one.split()[:2], four.split()[:2]] == [["1", "1x1"], ["4", "2x2"]]
    assert note == "planned are all stacks, which are trained jointly"


def test_inference_has_fewer_products_and_less_memory(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for more in ((), ("--inference",)):
        said = ("--partitions", "2", "--flops", "1e9", "--json", *more)
        assert planned(monkeypatch, job, *said) == 0
        found.append(json.loads(capsys.readouterr().out)["steps"][0])

    training, inference = found
    assert training["flops"] / 3 <= inference["flops"] < training["flops"] / 2
    assert 0 < inference["nbytes"] < training["nbytes"]
    # Parameters without gradients, and the activations of two layers.
    assert 4 * inference["parameters"] < inference["memory_bytes"]
    assert inference["memory_bytes"] < training["memory_bytes"] / 2 + training["activation_bytes"]


def test_a_picture_shows_each_number_of_partitions(
    job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "gains.svg"

    said = ("--partitions", "1,2,4", "--flops", "1e9", "--plot", file)
    assert planned(monkeypatch, job, *said) == 0

    picture = ElementTree.fromstring(file.read_text())  # noqa: S314  It is our own.
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "small: training"
    assert {"1", "2", "4", "partitions"} <= set(texts)
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 3


def test_a_picture_of_one_number_of_partitions_is_no_error() -> None:
    assert plan_picture.draw([(4, 1.0)], "a < b").count("a &lt; b") == 1


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (("--plot", "gains.pdf"), "--plot: 'gains.pdf' does not end with .svg"),
        (("--partitions", "1,x"), "'x' is neither a number of partitions nor a grid"),
        (("--partitions", "0"), "'0' is neither"),
        (("--partitions", "64x64"), "64x64 are more than 256"),
        (("--partitions", "1" + 30 * "0"), "is neither a number"),
        (("--bandwidth", "fast"), "'fast' is no bandwidth"),
        (("--latency", "50ns"), "'50ns' is no time of at most 1000 s; write 50us"),
    ],
)
def test_a_mistake_is_named(
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: tuple[str, ...],
    wanted: str,
) -> None:
    assert planned(monkeypatch, job, *said) == 2
    assert wanted in capsys.readouterr().err


def a_step(grid: tuple[int, int], seconds: float) -> PlannedStep:
    cost = PartitionCost(
        flops=seconds, parameters=1, activation_bytes=1, memory_bytes=1, nbytes=0, messages=0
    )
    return PlannedStep(
        grid=Grid(*grid),
        seconds=seconds,
        waiting_seconds=0.0,
        crossing_seconds=0.0,
        idle_seconds=0.0,
        costs=(cost,),
        notes=(),
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ((1.0, 0.4, 0.39), "Take 2 partitions, 2.5 times as fast as 1: more hardly help. Of a"),
        ((1.0, 0.4, 0.6), "Take 2 partitions, 2.5 times as fast as 1: with 4 a step takes 1.5"),
        (
            (1.0, 0.4, 0.25),
            "Take 4 partitions, 4 times as fast as 1: from 2 to 4 a step becomes",
        ),
        ((1.0, 0.97, 0.96), "Stay with 1 partition: more hardly help. Of a step with 4, messages"),
        ((1.0, 0.97, 1.2), "Stay with 1 partition: with 4 a step takes 1.2 times as long."),
        ((0.0, 0.0, 0.0), "The model has no dense products"),
        ((1.0,), "Name several numbers"),
    ],
)
def test_the_advice_is_what_the_figures_say(seconds: tuple[float, ...], said: str) -> None:
    grids = ((1, 1), (1, 2), (2, 2))
    steps = [a_step(grid, each) for grid, each in zip(grids, seconds, strict=False)]

    assert plan_text.advice(steps).startswith(said)


def test_a_model_without_products_is_told(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ("--partitions", "2,1,2", "--flops", "1e9")

    assert planned(monkeypatch, job.with_name("Pooled.yaml"), *said) == 0

    _, _, first, second, *_, sentence = capsys.readouterr().out.splitlines()
    assert [first.split()[0], second.split()[0]] == ["1", "2"]
    assert sentence.startswith("The model has no dense products")


def test_a_loss_that_goes_by_the_model_is_told(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(monkeypatch, job.with_name("Around.yaml"), "--flops", "1e9") == 1
    assert "Task.loss() does not call the model" in capsys.readouterr().err


def test_a_model_that_cannot_be_divided_is_told(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(monkeypatch, job.with_name("Odd.yaml"), "--flops", "1e9") == 2
    assert "the model is a Conv2d; only an nn.Sequential" in capsys.readouterr().out
