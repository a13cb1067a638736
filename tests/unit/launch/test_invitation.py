"""When a token lets somebody join: decided from what the run keeps of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.launch import invitation
from disttrain.launch.invitation import Invitation

TOKEN = invitation.new_token("ab" * 32)
KEY = TOKEN.key
KEPT = Invitation(job_uid="one", key=KEY, role="replica", digest=TOKEN.digest, expires=100.0)


def test_a_good_token_is_taken() -> None:
    assert invitation.refusal(KEPT, TOKEN.secret, job_uid="one", key=KEY, now=99.0) == ""


@pytest.mark.parametrize(
    ("kept", "secret", "uid", "key", "now", "why"),
    [
        (None, TOKEN.secret, "one", KEY, 0.0, "not one of this run"),
        (KEPT, "guessed", "one", KEY, 0.0, "not one of this run"),
        (KEPT, TOKEN.secret, "two", KEY, 0.0, "another job"),
        (KEPT, TOKEN.secret, "one", "cd" * 32, 0.0, "before it was resumed"),
        (replace(KEPT, role="shard"), TOKEN.secret, "one", KEY, 0.0, "the role shard"),
        (replace(KEPT, is_used=True), TOKEN.secret, "one", KEY, 0.0, "used before"),
        (KEPT, TOKEN.secret, "one", KEY, 100.0, "expired"),
    ],
    ids=["unknown", "guessed", "other job", "resumed", "other role", "used", "expired"],
)
def test_another_token_is_refused_with_the_reason(
    kept: Invitation | None, secret: str, uid: str, key: str, now: float, why: str
) -> None:
    assert why in invitation.refusal(kept, secret, job_uid=uid, key=key, now=now)


def test_a_token_is_read_as_it_was_printed() -> None:
    assert invitation.parse_token(f" {TOKEN}\n") == TOKEN


@pytest.mark.parametrize("text", ["", "dt1", str(TOKEN)[:-1], f"{TOKEN}x", "../../etc/passwd"])
def test_another_text_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^this is no token") as refused:
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
