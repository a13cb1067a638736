"""An update rule is two files: nothing else of the product names it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from disttrain.job.strategies.downpour import UPDATE_RULES
from disttrain.parameter_server.arithmetic import rule_for

PRODUCT = Path(__file__).parents[3] / "runtime/disttrain"

MANIFEST = '''
"""SGD with half the rate."""

from disttrain.job.update_rule import UpdateRule


class HalfRate(UpdateRule):
    """Half the rate."""

    name = "half_rate"
'''
ARITHMETIC = '''
"""SGD with half the rate."""

from disttrain.job.update_rules.half_rate import HalfRate
from disttrain.parameter_server.update_rule import Rule


class HalfRateRule(Rule[HalfRate]):
    of = HalfRate

    def apply(self, chunk, gradient, push):
        chunk.parameters.add_(gradient, alpha=-0.5 * push.rate)
'''
PROGRAM = """
import sys

from disttrain.job import update_rules as manifests
from disttrain.parameter_server import update_rules as arithmetic

manifests.__path__.append(sys.argv[1])
arithmetic.__path__.append(sys.argv[2])

import torch

from builders.jobs import a_job
from builders.transports import a_chunk_header
from builders import placements
from disttrain.job import fields
from disttrain_generators import crd_file, reference_page
from disttrain.parameter_server import strategies
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.holder_side import ShardState
from disttrain.transport.header import Verb

job = a_job("spec.strategy.downpour.optimizer={halfRate: {learningRate: 1.0}}")
state = ShardState(index=0, incarnation=1, is_initialised=True)
shard = Shard(strategies.stages(job.spec, state, Records(incarnation=1)))
shard.configure(placements.a_placement({placements.PARAMETERS: 4}, 1), 16)
shard.admit(SenderIncarnation(0, 1))
push = a_chunk_header(Verb.PUSH, 4, incarnation=1, receiver_incarnation=1, sequence=1)
list(shard.handle(push, torch.ones(4).numpy().data.cast("B")))
assert state.values.tensor(placements.PARAMETERS).tolist() == [-0.5] * 4
for text in (crd_file.plain(), reference_page.page(), fields.schema_text()):
    assert "halfRate" in text
assert next(iter(strategies.makers(job.spec))) == "half_rate"
"""


def test_two_files_are_a_new_rule(tmp_path: Path) -> None:
    for folder, content in (("job", MANIFEST), ("shard", ARITHMETIC)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "half_rate.py").write_text(content)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "job"), str(tmp_path / "shard")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_no_other_file_of_the_product_names_a_rule() -> None:
    name = "rmsprop"
    naming = {
        path.relative_to(PRODUCT).as_posix()
        for path in PRODUCT.rglob("*.py")
        if path.name != "torch_optimizers.py"  # Whose classes are called so, too.
        and name in path.read_text().lower()
    }
    assert naming == {f"{of}/update_rules/{name}.py" for of in ("job", "parameter_server")}


def test_every_rule_has_a_name_and_arithmetic_of_its_own() -> None:
    assert len({rule.name for rule in UPDATE_RULES}) == len(UPDATE_RULES)
    for rule in UPDATE_RULES:
        assert re.fullmatch("[a-z][a-z_]{0,31}", rule.name), "no checkpoint can hold it"
        assert type(rule_for(rule(learning_rate=1.0))).of is rule
