"""The agenda: every due row at most once, in order of time, and never again once it is gone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core.store.discovery import DueRow
from dispatcher.agenda import Agenda
from tests.support.dispatcher_parts import NOW_US, due_row


def test_rows_leave_in_order_of_time_and_not_before_it() -> None:
    agenda = Agenda()
    rows = [due_row(NOW_US + after) for after in (30, 10, 20, 40)]
    agenda.begin_scan()
    assert agenda.end_scan(rows) == 4
    assert agenda.next_due_us == NOW_US + 10
    assert agenda.take_due(NOW_US + 9, 10) == []
    assert [r.due_at_us - NOW_US for r in agenda.take_due(NOW_US + 30, 2)] == [10, 20]
    assert [r.due_at_us - NOW_US for r in agenda.take_due(NOW_US + 30, 2)] == [30]
    assert len(agenda) == 1


def test_a_row_that_is_known_is_not_taken_up_again_while_a_statement_acts_on_it() -> None:
    agenda, row = Agenda(), due_row()
    assert agenda.add(row)
    (taken,) = agenda.take_due(NOW_US, 10)
    agenda.begin_scan()
    assert agenda.end_scan([row]) == 0
    assert not agenda.add(row)
    agenda.put_back(taken)
    assert agenda.take_due(NOW_US, 10) == [row]


def test_a_row_consumed_during_a_scan_is_not_brought_back_by_that_scan() -> None:
    agenda, row = Agenda(), due_row()
    agenda.add(row)
    (taken,) = agenda.take_due(NOW_US, 10)
    agenda.begin_scan()  # its snapshot still shows the row
    agenda.done(taken)
    assert agenda.end_scan([row]) == 0
    assert len(agenda) == 0


def test_a_row_that_stands_again_is_found_by_the_next_scan() -> None:
    agenda, row = Agenda(), due_row()
    agenda.add(row)
    agenda.done(agenda.take_due(NOW_US, 10)[0])
    agenda.begin_scan()
    assert agenda.end_scan([row]) == 1


def test_a_failed_scan_remembers_nothing() -> None:
    agenda, row = Agenda(), due_row()
    agenda.add(row)
    taken = agenda.take_due(NOW_US, 10)
    agenda.begin_scan()
    agenda.done(taken[0])
    assert agenda.end_scan([]) == 0
    agenda.begin_scan()
    assert agenda.end_scan([row]) == 1


def test_a_postponed_row_stays_known_and_comes_back_at_its_new_time() -> None:
    agenda, row = Agenda(), due_row()
    agenda.add(row)
    (taken,) = agenda.take_due(NOW_US, 10)
    agenda.postpone(taken, NOW_US + 60)
    agenda.begin_scan()
    assert agenda.end_scan([row]) == 0
    assert agenda.take_due(NOW_US + 59, 10) == []
    assert agenda.take_due(NOW_US + 60, 10) == [row]


def test_a_lost_range_is_forgotten_and_the_rest_stays() -> None:
    agenda = Agenda()
    below, inside, above, elsewhere = (
        due_row(bucket=9),
        due_row(bucket=10),
        due_row(bucket=20),
        due_row(bucket=10, shard=1),
    )
    for row in (below, inside, above, elsewhere):
        agenda.add(row)
    agenda.drop_uncovered(0, 10, 20)
    assert set(agenda.take_due(NOW_US, 10)) == {below, above, elsewhere}
    assert agenda.add(inside), "a forgotten row may be taken up again when the range comes back"


class Table:
    """What `due` holds, and what a scan that has begun will answer: its snapshot."""

    def __init__(self, rows: list[DueRow]) -> None:
        self.rows = list(rows)
        self.snapshot: list[DueRow] | None = None


@settings(max_examples=200)
@given(st.data())
def test_whatever_the_order_every_row_is_acted_on_once(data: st.DataObject) -> None:
    table, agenda = Table([due_row(NOW_US + n % 5) for n in range(8)]), Agenda()
    acting: list[DueRow] = []
    consumed: list[DueRow] = []
    for _ in range(60):
        match data.draw(st.sampled_from(("begin", "end", "take", "consume", "refuse"))):
            case "begin" if table.snapshot is None:
                agenda.begin_scan()
                table.snapshot = list(table.rows)
            case "end" if table.snapshot is not None:
                agenda.end_scan(table.snapshot)
                table.snapshot = None
            case "take":
                acting += agenda.take_due(NOW_US + 10, 3)
            case "consume" if acting:
                row = acting.pop(data.draw(st.integers(0, len(acting) - 1)))
                assert row in table.rows, "acted on a row that is gone"
                table.rows.remove(row)
                consumed.append(row)
                agenda.done(row)
            case "refuse" if acting:
                agenda.put_back(acting.pop())
    if table.snapshot is None:
        agenda.begin_scan()
        table.snapshot = list(table.rows)
    agenda.end_scan(table.snapshot)
    left = acting + agenda.take_due(NOW_US + 10, 100)
    assert sorted(r.id for r in consumed + left) == sorted(r.id for r in consumed + table.rows)
