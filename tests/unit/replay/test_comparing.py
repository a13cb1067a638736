"""A replayed replica is held to its log, event by event."""

import numpy as np
import pytest

from disttrain.coordinator.protocol.fields import START
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replay.comparing import ComparingLedger, Differences, RecordContradicted
from disttrain.replica.ledger import RECORD, Gradient, Kind


def a_log(*events: tuple[Kind, int, float]) -> ComparingLedger:
    records = np.zeros(len(events), RECORD)
    for place, (kind, number, loss) in enumerate(events):
        records["kind"][place], records["number"][place] = kind, number
        records["loss"][place] = loss
    return ComparingLedger(SenderIncarnation(3, 1), records, Differences())


def differences(ledger: ComparingLedger, loss: float) -> list[str]:
    found = ledger._differences
    ledger.computed(Gradient(4, 8, loss, 0.0, is_finite=True), START)
    return found.found


def test_the_same_loss_is_no_difference() -> None:
    assert differences(a_log((Kind.COMPUTED, 4, 0.1)), 0.1) == []


def test_a_loss_that_differs_in_its_last_bit_is_a_difference() -> None:
    found = differences(a_log((Kind.COMPUTED, 4, 0.1)), float(np.nextafter(0.1, 1)))

    assert len(found) == 1
    assert "replica-3 (incarnation 1) step 4" in found[0]


def test_a_loss_that_is_not_a_number_twice_is_no_difference() -> None:
    assert differences(a_log((Kind.NOT_FINITE, 4, float("nan"))), float("nan")) == []


def test_another_event_than_the_logged_one_contradicts_the_record() -> None:
    ledger = a_log((Kind.ADOPTED, 2, 0.0))

    with pytest.raises(RecordContradicted, match="FLUSHED 0, where its log has ADOPTED"):
        ledger.mark(Kind.FLUSHED)


def test_more_than_the_log_holds_contradicts_the_record() -> None:
    with pytest.raises(RecordContradicted, match="where its log has the end"):
        a_log().mark(Kind.ADOPTED, 1)
