"""What people get wrong is refused with a sentence that helps, and nothing of theirs is lost."""

from pathlib import Path

import pytest

from builders.commands import disttrain
from builders.runs import RunningJob

pytestmark = pytest.mark.landing

JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: faulty}
spec:
  task: {entrypoint: faulty:Faulty}
  strategy: {downpour: {optimizer: {sgd: {learningRate: 0.1}}}}
  batchSize: 8
  stop: {epochs: 1}
  replicas: {device: cpu}
"""

TWO_STRATEGIES = "strategy: {downpour: {optimizer: {sgd: {learningRate: 0.1}}}, sandblaster: {}}"


def test_every_mistake_of_a_manifest_is_named_with_its_path(tmp_path: Path) -> None:
    bad = JOB.replace("batchSize: 8", "batchsize: 8").replace("epochs: 1", "epochs: soon")
    bad = bad.replace("{learningRate: 0.1}", "{learningRate: -1}")
    (tmp_path / "job.yaml").write_text(bad)

    for arguments in (("validate", "job.yaml"), ("run", "job.yaml", "--output", "out")):
        code, out, err = disttrain(*arguments, folder=tmp_path)
        said = out + err
        assert code == 2
        assert "spec.batchsize: unknown field; did you mean 'batchSize'?" in said
        assert "spec.batchSize: required" in said
        assert "spec.stop.epochs: must be a whole number, got 'soon'" in said
        assert "sgd.learningRate: must be more than 0, got -1" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (JOB.replace(JOB.splitlines()[5].strip(), TWO_STRATEGIES), "spec.strategy.sandblaster"),
        (JOB.replace("sgd: {learningRate: 0.1}", "sgd: {learningRate: 0.1}, momentum: {}"), "sgd"),
        (JOB.replace("  batchSize: 8", "\tbatchSize: 8"), "job.yaml:7: not YAML at column 1"),
        ("", "job.yaml: the file is empty; a job was expected"),
    ],
    ids=["two strategies", "two update rules", "a tab", "an empty file"],
)
def test_a_manifest_that_means_nothing_is_refused(tmp_path: Path, manifest: str, said: str) -> None:
    (tmp_path / "job.yaml").write_text(manifest)
    code, out, err = disttrain("validate", "job.yaml", folder=tmp_path)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in err


TASK_FAULTS = {
    "no such module": (
        ("spec.task.entrypoint=fawlty:Faulty",),
        ("spec.task.entrypoint: there is no module 'fawlty' in ", "did you mean 'faulty'?"),
    ),
    "module does not import": (
        ("spec.task.entrypoint=broken_import:Task",),
        (
            "importing 'broken_import' raised ModuleNotFoundError",
            "No module named 'a_module_that_nobody_has'",
        ),
    ),
    "no such class": (
        ("spec.task.entrypoint=faulty:Fault",),
        ("defines no 'Fault'; did you mean 'Faulty'?",),
    ),
    "not a task": (
        ("spec.task.entrypoint=faulty:NotATask",),
        ("'NotATask' in ", "must be a class that extends disttrain.Task"),
    ),
    "unknown argument": (
        ("spec.task.arguments={falt: none}",),
        ("spec.task.arguments.falt: Faulty takes no such argument; did you mean 'fault'?",),
    ),
    "constructor raises": (
        ("spec.task.arguments={fault: constructor}",),
        ('faulty.py", line ', "in _read_settings", "FileNotFoundError: no file settings.toml"),
    ),
    "empty data": (
        ("spec.task.arguments={fault: empty data}",),
        ("Task.dataset('train') is empty",),
    ),
    "batch larger than the data": (
        ("spec.batchSize=65",),
        ("spec.batchSize: must be at most the number of training samples, 64, got 65",),
    ),
    "loss that is no scalar": (
        ("spec.task.arguments={fault: loss of a batch}",),
        ("Task.loss() must return a scalar, got a tensor of shape (8,); take the mean",),
    ),
    "loss raises": (
        ("spec.task.arguments={fault: loss raises}",),
        ("Faulty.loss() raised ValueError", "ValueError: cannot use a batch of 8"),
    ),
    "gradient raises": (
        ("spec.task.arguments={fault: gradient raises}",),
        ("the loss's backward() raised NotImplementedError", "nobody has worked it out"),
    ),
    "sample raises": (
        ("spec.task.arguments={fault: sample raises}",),
        ("Torn.__getitem__(41) raised OSError", "in _read", "OSError: 41.png is torn"),
    ),
    "sample raises in a worker": (
        ("spec.task.arguments={fault: sample raises, workers: 1}",),
        ("Torn.__getitem__(41) raised OSError", "in _read", "OSError: 41.png is torn"),
    ),
    "loss that is not finite": (
        (
            "spec.task.arguments={fault: infinite loss}",
            "spec.failurePolicy.maxNonFiniteGradients=3",
        ),
        ("Failed (Diverged)", "gradients were not finite (replica-0: ", "learningRate or clipNorm"),
    ),
    "no trainable parameters": (
        ("spec.task.arguments={fault: frozen model}",),
        ("the model Linear has no trainable parameter (2 frozen)",),
    ),
    "frozen parameter that the loss changes": (
        ("spec.task.arguments={fault: frozen teacher}",),
        ("the loss changes the parameter 'teacher', which is frozen", "register_buffer"),
    ),
    "parameter that is not float32": (
        ("spec.task.arguments={fault: double model}",),
        ("the parameter 'weight' is float64; parameters must be float32",),
    ),
}


@pytest.mark.parametrize("fault", TASK_FAULTS)
def test_a_task_that_cannot_train_fails_the_job_with_its_reason(tmp_path: Path, fault: str) -> None:
    assignments, said = TASK_FAULTS[fault]
    with RunningJob(tmp_path, assignments, JOB) as job:
        assert job.wait() == 1
        printed = job.printed()
        assert [text for text in said if text not in printed] == []
        assert printed.count(said[-1]) == 1, "said twice"
        assert "disttrain/replica" not in printed, "frames that are not the user's"
        summary = job.summary()
        diverged = fault == "loss that is not finite"
        reason = "Diverged" if diverged else "TaskError"
        assert (summary["phase"], summary["reason"]) == ("Failed", reason)
        assert sum(summary.get("restarts", {}).values()) == 0


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    (tmp_path / "job.yaml").write_text(JOB)
    code, _, said = disttrain("run", "job.yaml", "--output", "out", folder=tmp_path)
    assert code == 2
    assert "out is not empty; choose another folder with --output" in said
    assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [
        ("thesis.txt", "mine")
    ]
