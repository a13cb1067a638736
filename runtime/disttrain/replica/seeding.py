"""Seeds of everything random in a replica, derived from the job's seed and the place in the data.

So the random numbers of a batch do not depend on which replica processes it, nor on when.
"""

import hashlib
import random

import numpy as np
import torch


def seed_model(seed: int) -> None:
    """Seed what `model()` draws from: the job's seed itself, so that a plain loop starts alike."""
    seed_everything(seed)


def batch_seed(seed: int, epoch: int, portion: int, offset: int) -> int:
    text = f"{seed} {epoch} {portion} {offset}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def seed_step(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


def seed_everything(seed: int) -> None:
    seed_step(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
