"""Which processes a job has, and what each is told."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from builders.jobs import a_job
from disttrain.job import certificates, names
from disttrain.job.credentials import Credentials
from disttrain.job.location import Location
from disttrain.job.transport import Encryption
from disttrain.launch import config as launch_config
from disttrain.launch.errors import InvalidLaunchConfig
from disttrain.launcher.fork_messages import Preload
from disttrain.launcher.plan import (
    COMPILER,
    Place,
    Threads,
    identities,
    needs_credentials,
    plan,
    preload,
    share_out,
    warning_of_joiners,
)
from disttrain.launcher.plan import joining as joining_config
from disttrain.transport.config import TransportKind

JOB = a_job("spec.transport=tcp", "spec.replicas.count=2")
ISSUED = certificates.issue(identities(JOB, "one"))


def a_place(cores: int = 2, issued: Mapping[str, Credentials] | None = None) -> Place:
    return Place(
        run_folder=Path("/runs/one"),
        task_folder=Path("/tasks"),
        job_uid="one",
        sockets=Path("/tmp/s"),
        coordinator_port=4711,
        cores=cores,
        credentials=issued or {},
    )


def test_one_coordinator_and_as_many_members_as_the_manifest_says() -> None:
    job = a_job("spec.replicas.count=3", "spec.parameterServer.shards=2")
    shards, replicas = ["shard-0", "shard-1"], ["replica-0", "replica-1", "replica-2"]
    assert list(plan(job, a_place())) == ["coordinator", *shards, *replicas]


@pytest.mark.parametrize(
    ("assignments", "libraries"),
    [
        ((), ()),
        (("spec.replicas.partitions=2",), (COMPILER,)),
        (("spec.strategy={localSteps: {steps: 2, optimizer: {name: AdamW}}}",), (COMPILER,)),
    ],
)
def test_what_all_replicas_import_is_imported_once(
    assignments: tuple[str, ...], libraries: tuple[str, ...]
) -> None:
    found = preload(a_job(*assignments).spec, Path("/tasks"))
    assert found == Preload(libraries=libraries, module="digits", folder="/tasks")


def test_shared_memory_is_the_default_and_listens_on_unix_sockets() -> None:
    configs = plan(a_job(), a_place())
    assert {config.transport for config in configs.values()} == {TransportKind.SHARED_MEMORY}
    assert configs["coordinator"].listen_address == "ipc:///tmp/s/coordinator"
    assert configs["replica-0"].coordinator_address == "ipc:///tmp/s/coordinator"
    assert configs["shard-0"].listen_address == "ipc:///tmp/s/shard-0"
    assert configs["replica-0"].listen_address is None


def test_tcp_stays_on_the_loopback() -> None:
    configs = plan(a_job("spec.transport=tcp"), a_place())
    assert configs["coordinator"].listen_address == "tcp://127.0.0.1:4711"
    assert configs["shard-0"].listen_address == "tcp://127.0.0.1:0"


def test_over_tcp_each_process_has_credentials_of_its_own() -> None:
    configs = plan(JOB, a_place(issued=ISSUED))
    assert set(configs) | {names.LAUNCHER, "replica"} == set(ISSUED)
    for name, config in configs.items():
        assert config.transport_config.credentials == ISSUED[name]
    assert len({one.certificate for one in ISSUED.values()}) == len(ISSUED)


def test_certificates_say_which_process_they_are_of() -> None:
    found = {name: str(one) for name, one in identities(JOB, "one").items()}
    assert found.pop("coordinator") == "coordinator-0"
    assert found.pop("replica") == "replica of loop"
    assert found == {name: name for name in found}
    assert joining_config(JOB, a_place()).new_instance().startswith("loop.")


def test_without_encryption_nobody_has_any() -> None:
    job = a_job("spec.transport={kind: tcp, encryption: none}")
    assert needs_credentials(a_job("spec.transport=tcp"))
    assert not needs_credentials(job)
    assert not needs_credentials(a_job())
    for config in plan(job, a_place()).values():
        told = config.transport_config
        assert (told.encryption, told.credentials) == (Encryption.NONE, None)


def test_a_process_without_credentials_is_not_told_to_do_without_encryption() -> None:
    for config in plan(a_job("spec.transport=tcp"), a_place()).values():
        with pytest.raises(InvalidLaunchConfig, match=r"was given no credentials, .* is tls"):
            _ = config.transport_config
    for config in plan(a_job("spec.transport.encryption=tls"), a_place()).values():
        # Unix sockets need none.
        assert config.transport_config.credentials is None


def test_a_loop_of_the_users_own_has_a_replicas_credentials_and_no_index() -> None:
    joining = joining_config(JOB, a_place(issued=ISSUED))
    assert (joining.process, joining.credentials) == ("replica", ISSUED["replica"])


def test_a_config_with_credentials_survives_its_file(tmp_path: Path) -> None:
    for name, config in plan(JOB, a_place(issued=ISSUED)).items():
        launch_config.write(tmp_path / name, config)
        assert launch_config.read(tmp_path / name) == config
        assert config.credentials is not None
        assert config.credentials.key[40:80] not in repr(config)


@pytest.mark.parametrize("keys", [b"null", b'{"public": "p", "secret": "s"}'])
def test_a_config_of_a_version_with_other_keys_can_be_read(keys: bytes) -> None:
    config = plan(a_job(), a_place())["shard-0"]
    content = launch_config.to_json(config).replace(b'"credentials": null', b'"keys": ' + keys)
    assert b"keys" in content
    assert launch_config.from_json(content) == config


@pytest.mark.parametrize("wrong", [b'"key"', b'"authority"'])
def test_a_wrong_config_shows_no_key(wrong: bytes) -> None:
    config = plan(JOB, a_place(issued=ISSUED))["shard-0"]
    content = launch_config.to_json(config).replace(wrong, b'"other"')
    with pytest.raises(InvalidLaunchConfig, match="credentials") as raised:
        launch_config.from_json(content)
    assert "PRIVATE KEY" not in str(raised.value)


def test_a_config_survives_its_file(tmp_path: Path) -> None:
    for name, config in plan(a_job("spec.evaluation=null"), a_place()).items():
        launch_config.write(tmp_path / name, config)
        assert launch_config.read(tmp_path / name) == config


def test_a_config_with_a_wrong_or_unknown_field_is_refused() -> None:
    content = launch_config.to_json(plan(a_job(), a_place())["shard-0"])
    wrong = content.replace(b'"index": 0', b'"index": "0", "colour": "red"')
    with pytest.raises(InvalidLaunchConfig, match=r"index: .*colour: "):
        launch_config.from_json(wrong)


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("checkpoints/", "/runs/one/checkpoints"),
        ("/disk/c", "/disk/c"),
        ("file:///disk/my%20c", "/disk/my c"),
    ],
)
def test_the_folder_of_checkpoints_begins_at_the_run_folder(uri: str, folder: str) -> None:
    config = plan(a_job(f"spec.checkpoint.uri={uri}"), a_place())["shard-0"]
    assert config.checkpoints == Location(Path(folder))


@pytest.mark.parametrize(
    ("cores", "shards", "replicas", "threads"),
    [
        (1, 1, 1, 1),
        (2, 1, 1, 2),
        (2, 2, 2, 1),
        (2, 2, 3, 1),
        (4, 1, 1, 3),
        (16, 2, 3, 4),
        (16, 9, 4, 3),
        (64, 1, 100, 1),
    ],
)
def test_replicas_divide_the_cores_that_shards_leave(
    cores: int, shards: int, replicas: int, threads: int
) -> None:
    job = a_job(f"spec.parameterServer.shards={shards}", f"spec.replicas.count={replicas}")
    assert share_out(job.spec, cores) == Threads(shard=1, replica=threads)


def test_the_manifests_threads_hold() -> None:
    job = a_job("spec.parameterServer.threads=3", "spec.replicas.threads=5")
    assert share_out(job.spec, 2) == Threads(shard=3, replica=5)


@pytest.mark.parametrize(
    ("strategy", "remedy"),
    [
        ("downpour={}", "train by spec.strategy.localSteps"),
        ("localSteps={steps: 4, optimizer: {name: SGD, arguments: {lr: 1}}}", "bound them by spec"),
        (
            "localSteps={steps: 4, outer: {blend: {}}, optimizer: {name: SGD, arguments: {lr: 1}}}",
            "take an outer rule of differences",
        ),
    ],
)
def test_who_lets_others_join_hears_that_their_pushes_may_be_of_any_size(
    strategy: str, remedy: str
) -> None:
    said = warning_of_joiners(a_job("spec.strategy={}", f"spec.strategy.{strategy}"))
    assert said is not None
    assert remedy in said

    if remedy.startswith("bound"):
        bounded = "spec.strategy.localSteps.maximumNorm=2.5"
        job = a_job("spec.strategy={}", f"spec.strategy.{strategy}", bounded)
        assert warning_of_joiners(job) is None
