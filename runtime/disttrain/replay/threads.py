"""How many threads PyTorch computes with in one thread of a replay."""

import torch


def compute_with(threads: int) -> None:
    """Let this thread's operations use so many threads, whatever other threads use."""
    torch.set_num_threads(threads)
    # A thread's first large operation takes the number that was set last in any thread, unless the
    # thread has asked for the number before.
    torch.get_num_threads()
