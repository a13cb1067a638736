import subprocess
import sys

import disttrain
from disttrain.task import task


def test_the_public_names_are_these() -> None:
    names = ["Batch", "Client", "DownpourOptimizer", "InputPipeline", "JobEnded", "Loss"]
    names += ["LossContext", "ParameterGroup", "ParquetRows", "Sources", "Split", "TarSamples"]
    assert disttrain.__all__ == [*names, "Task", "TextBlocks", "TextLines"]


def test_every_public_name_is_found_and_listed() -> None:
    assert disttrain.Task is task.Task
    assert disttrain.Split is task.Split
    for name in disttrain.__all__:
        assert hasattr(disttrain, name)
        assert name in dir(disttrain)


def test_another_name_is_an_attribute_error() -> None:
    assert not hasattr(disttrain, "Taks")


def test_importing_disttrain_does_not_import_torch() -> None:
    program = "import sys, disttrain; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
