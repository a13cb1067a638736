import os
import signal
from pathlib import Path

from disttrain.parameter_server.acknowledged import AcknowledgedFile, Count
from disttrain.parameter_server.deliveries import SenderLife


def test_the_counts_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "acknowledged.bin"
    child = os.fork()
    if child == 0:
        file = AcknowledgedFile(path)
        for sender in range(300):
            for pushes in range(1, 4):
                file.store(SenderLife(sender, 1 + sender % 2), Count(pushes, 10 * pushes))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    file = AcknowledgedFile(path)
    assert file.counts() == {SenderLife(s, 1 + s % 2): Count(3, 30) for s in range(300)}
    file.close()


def test_a_later_life_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for pushes in (1, 2):
        file = AcknowledgedFile(tmp_path / "acknowledged.bin")
        file.store(SenderLife(0, pushes), Count(pushes, pushes))
        file.close()
    again = AcknowledgedFile(tmp_path / "acknowledged.bin")
    assert again.counts() == {SenderLife(0, 1): Count(1, 1), SenderLife(0, 2): Count(2, 2)}
    assert again.count(SenderLife(9, 9)) == Count(0, 0)
    again.close()
