"""Three examples, each with every strategy that has a parameter server, held at a gate."""

import copy
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
TASKS: Final = Path(__file__).parents[1] / "tasks"
CODE: Final = (
    TASKS / "held_examples.py",
    *(each for name in ("digits", "speech", "language") for each in (EXAMPLES / name).glob("*.py")),
)
"""What has to lie in one folder, with the examples' data beside that folder."""
STRATEGIES: Final[dict[str, dict[str, Any]]] = {
    "downpour": {"downpour": {"optimizer": {"adamw": {"learningRate": 0.003}}}},
    "prediction": {
        "downpour": {
            "optimizer": {"momentum": {"learningRate": 0.01, "momentum": 0.9}},
            "staleness": {"predict": {}},
        }
    },
    "compensation": {
        "downpour": {
            "optimizer": {"momentum": {"learningRate": 0.01, "momentum": 0.9}},
            "staleness": {"predictAndCompensate": {}},
        }
    },
    "local-steps": {
        "localSteps": {"steps": 8, "optimizer": {"name": "AdamW", "arguments": {"lr": 0.003}}}
    },
    "decoupled-diloco": {
        "localSteps": {
            "steps": 8,
            "fragments": 2,
            "quorum": 2,
            "outer": {"nesterov": {"learningRate": 0.7}},
            "optimizer": {"name": "AdamW", "arguments": {"lr": 0.003}},
        }
    },
    "sandblaster": {"sandblaster": {"optimizer": {"lbfgs": {"history": 5}}}},
}
_PORTION_SAMPLES: Final = {"digits": 128, "language": 1152, "speech": 512}
"""Some twelve portions are the data."""
ALL: Final = sorted(product(("digits", "language", "speech"), STRATEGIES))


class HeldJob(NamedTuple):
    """An example with a strategy."""

    example: str
    strategy: str

    @property
    def name(self) -> str:
        """Of the job."""
        return f"{self.example}-{self.strategy}"

    @property
    def is_a_batch_method(self) -> bool:
        return self.strategy == "sandblaster"

    def manifest(self, gate: str) -> dict[str, Any]:
        """The small form of the example, with this strategy instead of its own."""
        text = (EXAMPLES / self.example / "job-small.yaml").read_text()
        manifest: dict[str, Any] = yaml.safe_load(text)
        spec = manifest["spec"]
        manifest["metadata"]["name"] = self.name
        # Of each process: two pushes of local steps, or most of an evaluation of a batch method.
        steps = 10 if self.is_a_batch_method else 20
        spec["task"] = {
            "entrypoint": f"held_examples:{self.example.title()}",
            "arguments": {**spec["task"]["arguments"], "gate": gate, "steps": steps},
        }
        spec["strategy"] = copy.deepcopy(STRATEGIES[self.strategy])
        if self.is_a_batch_method:
            del spec["batchSize"]
            spec["strategy"]["sandblaster"]["portionSize"] = _PORTION_SAMPLES[self.example]
            spec["stop"] = {"iterations": 4}
        spec["audit"] = "full"
        spec["checkpoint"] = {"everySeconds": 1}
        return manifest

    def has_learned_something(self, status: dict[str, Any]) -> bool:
        """Every role has done some work; at the gate this holds sooner or later."""
        if status.get("liveReplicas") != 2 or not status.get("checkpoints"):
            return False
        if self.is_a_batch_method:
            return bool(status.get("sandblaster", {}).get("evaluation", 0) >= 1)
        return bool(status.get("samples", 0) > 0)
