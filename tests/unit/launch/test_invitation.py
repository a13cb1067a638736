"""When a token lets somebody join: decided from what the run keeps of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.launch import invitation
from disttrain.launch.invitation import Invitation

TOKEN = invitation.new_token("ab" * 32)
KEPT = Invitation(job_uid="one", role="replica", digest=TOKEN.digest, expires=100.0)


def test_a_good_token_is_taken() -> None:
    assert invitation.refusal(KEPT, TOKEN.secret, "one", 99.0) == ""


@pytest.mark.parametrize(
    ("kept", "secret", "uid", "now", "why"),
    [
        (None, TOKEN.secret, "one", 0.0, "not one of this run"),
        (KEPT, "guessed", "one", 0.0, "not one of this run"),
        (KEPT, TOKEN.secret, "two", 0.0, "another job"),
        (replace(KEPT, role="shard"), TOKEN.secret, "one", 0.0, "the role shard"),
        (replace(KEPT, is_used=True), TOKEN.secret, "one", 0.0, "used before"),
        (KEPT, TOKEN.secret, "one", 100.0, "expired"),
    ],
    ids=["unknown", "guessed", "other job", "other role", "used", "expired"],
)
def test_another_token_is_refused_with_the_reason(
    kept: Invitation | None, secret: str, uid: str, now: float, why: str
) -> None:
    assert why in invitation.refusal(kept, secret, uid, now)


def test_a_token_is_read_as_it_was_printed() -> None:
    assert invitation.parse_token(f" {TOKEN}\n") == TOKEN


@pytest.mark.parametrize("text", ["", "dt1", str(TOKEN)[:-1], f"{TOKEN}x", "../../etc/passwd"])
def test_another_text_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--token: this is no token") as refused:
        invitation.parse_token(text)

    assert not text or text not in str(refused.value)


def test_the_run_keeps_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "invitations"
    invitation.write(folder, TOKEN.invitation, KEPT)

    (file,) = folder.iterdir()
    assert TOKEN.secret not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert invitation.read(folder, TOKEN.invitation) == KEPT
    assert invitation.read(folder, "another") is None
