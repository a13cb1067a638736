"""How gradients and parameters travel: the section, and the text that is short for its kind."""

import json
from pathlib import Path

import pytest

from builders.jobs import SMALL, a_job, complaints
from disttrain.job import defaults, rules
from disttrain.job.finding import Severity
from disttrain.job.parsing import parse_job
from disttrain.job.spec import DistTrainJob
from disttrain.job.transport import Encryption, Transport, TransportChoice

RECORDED = sorted((Path(__file__).parents[2] / "golden").glob("*/jobs/*.json"))
SHORT = f"{SMALL}  transport: tcp\n"


def test_tcp_is_encrypted_unless_the_manifest_says_otherwise() -> None:
    assert a_job().spec.transport == Transport(kind=TransportChoice.AUTO, encryption=Encryption.TLS)
    assert not a_job("spec.transport={encryption: none}").spec.transport.is_encrypted


@pytest.mark.parametrize("kind", TransportChoice)
def test_a_text_is_short_for_its_kind(kind: TransportChoice) -> None:
    expected = Transport(kind=kind)
    assert a_job(f"spec.transport={kind}").spec.transport == expected
    assert parse_job(SHORT.replace("tcp", kind)).spec.transport == expected


def test_a_field_of_the_section_is_set_beside_what_a_text_says() -> None:
    plain = Transport(kind=TransportChoice.TCP, encryption=Encryption.NONE)
    assignment = "spec.transport.encryption=none"
    assert parse_job(SHORT, assignments=[assignment]).spec.transport == plain
    assert a_job("spec.transport=tcp", assignment).spec.transport == plain
    assert a_job(assignment).spec.transport == Transport(encryption=Encryption.NONE)


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parts[-3]} {file.stem}")
def test_a_job_that_was_recorded_before_there_was_a_section_is_read(file: Path) -> None:
    recorded = json.loads(file.read_text())
    assert recorded["spec"]["transport"] == "auto"
    manifest = {name: recorded[name] for name in ("apiVersion", "kind", "spec")}
    text = json.dumps({**manifest, "metadata": {"name": "counting"}})
    assert DistTrainJob.model_validate_json(text).spec.transport == Transport()


def test_what_is_written_for_processes_is_the_section() -> None:
    written = defaults.written_out(parse_job(SHORT))["spec"]
    assert isinstance(written, dict)
    assert written["transport"] == {"kind": "tcp", "encryption": "tls"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("udp", "spec.transport: must be a mapping or one of 'auto', 'tcp', 'sharedMemory', got"),
        ("5", "spec.transport: must be a mapping, got 5 (number)"),
        ("null", "spec.transport: must be a mapping, got nothing (null)"),
        ("{kind: udp}", "spec.transport.kind: must be one of 'auto', 'tcp' or 'sharedMemory', got"),
        ("{encryption: off}", "spec.transport.encryption: must be one of 'tls' or 'none', got"),
        ("{encrypted: tls}", "spec.transport.encrypted: unknown field; did you mean 'encryption'?"),
    ],
)
def test_what_is_wrong_with_it_is_named_beside_everything_else(value: str, expected: str) -> None:
    found = complaints(f"{SMALL}  transport: {value}\n", "spec.batchSize=0")
    assert len(found) == 2
    (said,) = [each for each in found if "batchSize" not in each]
    assert expected in said
    assert said.startswith("job.yaml:11: ")


@pytest.mark.parametrize("kind", TransportChoice)
def test_an_open_port_is_warned_of(kind: TransportChoice) -> None:
    found = rules.check(a_job(f"spec.transport={{kind: {kind}, encryption: none}}"))
    if kind is TransportChoice.SHARED_MEMORY:
        assert found == []
        return
    (finding,) = found
    assert finding.severity is Severity.WARNING
    assert "spec.transport.encryption: is none, so whoever reaches a TCP port" in str(finding)
    assert "every user" in str(finding)
    assert "NetworkPolicy" in str(finding)
