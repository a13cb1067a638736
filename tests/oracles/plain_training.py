"""The plain PyTorch loop that benchmarks compare with: one process, torch.optim.Adagrad.

It has the rate, the first sums and the epsilon of the manifest's default; with `scheduled` also its
schedule, else the rate is constant.

Run as a process of its own, so that thread settings are those of a fresh interpreter:
`plain_training.py FOLDER MODULE:CLASS JSON`. Prints one JSON object.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from disttrain import Split, Task
from disttrain.job import schedule_kinds
from disttrain.job.length import UNKNOWN
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.update_rules.adagrad import Adagrad
from disttrain.task import checks
from disttrain.task.loading import load_task


def main() -> None:
    """Train as the JSON says; print samples per second and what each evaluation measured."""
    folder, entrypoint, text = sys.argv[1:]
    options = json.loads(text)
    torch.set_num_threads(options["threads"])
    task = load_task(entrypoint, options["arguments"], Path(folder))
    torch.manual_seed(options["seed"])
    json.dump(train(task, options), sys.stdout)


def train(task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """Train for `samples` or `epochs`, or to the target; evaluate by seconds, epochs or not at all.

    `seconds` of an evaluation count from the first step on, earlier evaluations included, as those
    of a job do; `training_seconds` leave them out.
    """
    model = task.model()
    if options["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    rule = Downpour().optimizer.rule
    assert isinstance(rule, Adagrad)
    optimizer = torch.optim.Adagrad(
        model.parameters(),
        lr=rule.learning_rate,
        initial_accumulator_value=rule.initial_accumulator,
        eps=rule.epsilon,
    )
    share = rule.schedule.rates(UNKNOWN) if options["scheduled"] else schedule_kinds.full_rate
    train_set: Any = task.dataset(Split.TRAIN)
    test_set: Any = task.dataset(Split.TEST)
    seconds, samples, evaluations = 0.0, 0, []
    every_seconds = options.get("evaluate_every_seconds") or math.inf
    epoch = len(train_set) // options["batch_size"] * options["batch_size"]
    every_samples = epoch * (options.get("evaluate_every_epochs") or math.inf)
    limit = epoch * options["epochs"] if "epochs" in options else options["samples"]
    next_seconds, next_samples = every_seconds, every_samples
    first = begin = time.perf_counter()
    for batch in batches(task, train_set, options["batch_size"]):
        optimizer.zero_grad()
        checks.check_loss(task.loss(model, batch)).mean.backward()  # type: ignore[no-untyped-call]
        optimizer.param_groups[0]["lr"] = rule.learning_rate * share(samples)
        optimizer.step()
        samples += len(batch[1])
        now = seconds + time.perf_counter() - begin
        if now >= next_seconds or samples >= next_samples:
            seconds = now
            accuracy = evaluate(task, model, test_set)
            figures = {"training_seconds": now, "samples": samples, "accuracy": accuracy}
            evaluations.append({"seconds": time.perf_counter() - first, **figures})
            next_seconds, next_samples = now + every_seconds, samples + every_samples
            begin = time.perf_counter()
            if accuracy >= options["target"]:
                break
        if samples >= limit:
            break
    total = evaluations[-1]["training_seconds"] if evaluations else now
    return {"samples_per_second": samples / total, "evaluations": evaluations}


def batches(task: Task, dataset: Any, size: int) -> Iterator[Any]:
    """Shuffled batches for ever, taken from memory at once, as fast as the data set allows."""
    while True:
        order = torch.randperm(len(dataset)).tolist()
        for first in range(0, len(order) - size + 1, size):
            yield task.collate(dataset.__getitems__(order[first : first + size]))


@torch.no_grad()
def evaluate(task: Task, model: torch.nn.Module, dataset: Any) -> float:
    model.eval()
    correct = 0.0
    for first in range(0, len(dataset), 256):
        indices = list(range(first, min(first + 256, len(dataset))))
        batch = task.collate(dataset.__getitems__(indices))
        correct += float(task.measure(model, batch)["accuracy"])
    model.train()
    return correct / len(dataset)


if __name__ == "__main__":
    main()
