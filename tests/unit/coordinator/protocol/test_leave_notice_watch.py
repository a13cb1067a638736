"""Looks for leave notices beside the coordinator's loop."""

import threading
from typing import NoReturn

from disttrain.checkpoint.errors import StoreAway
from disttrain.coordinator.protocol.leave_notices import LeaveNotices, LeaveNoticeWatch


def test_a_store_that_cannot_be_opened_is_tried_again_in_the_other_thread_alone() -> None:
    openers: list[threading.Thread] = []
    tried = threading.Semaphore(0)

    def away() -> NoReturn:
        openers.append(threading.current_thread())
        tried.release()
        message = "no answer within 20 s"
        raise StoreAway(message)

    watch = LeaveNoticeWatch(LeaveNotices(away, 10.0))
    now, looks = 0.0, 0
    while looks < 2:
        assert watch.found(now) == {}
        looks += tried.acquire(timeout=0.01)
        now += 20.0
    assert threading.current_thread() not in openers
