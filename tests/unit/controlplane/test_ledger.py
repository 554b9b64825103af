"""The account of an occurrence, by what stands of it in the rows."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from controlplane.ledger import Account, LedgerKind, Owned, Records, account, counts, joined, unaccounted
from core.marks import Entry
from core.states import JobState, RunCause, RunState, SkipReason
from core.store.ledger import Chain, RunRow, SkipRow

NOW = 1_000
ACTIVE, PAUSED = JobState.ACTIVE, JobState.PAUSED


def owned(at: int, *, due: int | None = None, excluded: str = "", state: JobState = ACTIVE, version: int = 1) -> Owned:
    return Owned(Entry(at, at if due is None else due, "", (), (), excluded), version, state)


def run(
    at: int, number: int = 0, *, cause: RunCause = RunCause.SCHEDULE, state: RunState = RunState.SUCCEEDED
) -> RunRow:
    return RunRow(UUID(int=number or at), at, at + 3, state, cause, 1)


def skip(first: int, last: int | None = None, reason: SkipReason = SkipReason.CATCH_UP) -> SkipRow:
    return SkipRow(first, first if last is None else last, reason, 1, NOW)


def the_account(of: Owned, records: Records) -> Account:
    (made,) = account([of], records, NOW)
    return made


class TestOneOccurrence:
    @pytest.mark.parametrize(
        ("of", "records", "kind"),
        [
            pytest.param(owned(10), Records([run(10)]), LedgerKind.RUN, id="has its run"),
            pytest.param(owned(10), Records([], [skip(10)]), LedgerKind.SKIPPED, id="is recorded as skipped"),
            pytest.param(owned(10), Records([], [skip(5, 20)]), LedgerKind.SKIPPED, id="lies in a recorded range"),
            pytest.param(
                owned(10), Records([], [skip(10, reason=SkipReason.PAUSED)]), LedgerKind.PAUSED, id="recorded as paused"
            ),
            pytest.param(owned(10, state=PAUSED), Records(), LedgerKind.PAUSED, id="the pause goes on"),
            pytest.param(owned(10, excluded="holiday"), Records(), LedgerKind.EXCLUDED, id="is taken away"),
            pytest.param(
                owned(10, excluded="holiday"),
                Records([], [skip(5, 20)]),
                LedgerKind.EXCLUDED,
                id="taken away, in a range",
            ),
            pytest.param(owned(NOW + 1), Records(), LedgerKind.NOT_YET_DUE, id="is to come"),
            pytest.param(owned(10, due=NOW + 1), Records(), LedgerKind.NOT_YET_DUE, id="is put off until later"),
            pytest.param(owned(NOW + 1, state=PAUSED), Records(), LedgerKind.NOT_YET_DUE, id="is to come, in a pause"),
            pytest.param(owned(NOW), Records(chains={1: Chain(NOW)}), LedgerKind.DUE, id="the chain stands at it"),
            pytest.param(owned(10), Records(chains={1: Chain(5)}), LedgerKind.DUE, id="the chain stands before it"),
            pytest.param(
                owned(10), Records(chains={1: Chain(50, 12, 8)}), LedgerKind.DUE, id="the chain will come back to it"
            ),
            pytest.param(
                owned(10), Records(chains={1: Chain(50, 9, 8)}), LedgerKind.MISSING, id="the chain came back past it"
            ),
            pytest.param(owned(10), Records(chains={1: Chain(11)}), LedgerKind.MISSING, id="the chain stands past it"),
            pytest.param(
                owned(10), Records(chains={2: Chain(5)}), LedgerKind.MISSING, id="only another version's chain"
            ),
            pytest.param(owned(10), Records(chains={}), LedgerKind.MISSING, id="no chain at all"),
            pytest.param(
                owned(10),
                Records([run(10, cause=RunCause.TRIGGER)], chains={}),
                LedgerKind.MISSING,
                id="only a trigger",
            ),
            pytest.param(
                owned(10),
                Records([run(10, cause=RunCause.BACKFILL)], chains={}),
                LedgerKind.MISSING,
                id="only a backfill",
            ),
        ],
    )
    def test_has_one_account(self, of: Owned, records: Records, kind: LedgerKind) -> None:
        made = the_account(of, records)
        assert (made.kind, made.from_us, made.to_us, made.occurrences) == (kind, *[of.entry.nominal_us] * 2, 1)

    def test_shows_its_run(self) -> None:
        made = the_account(owned(10), Records([run(10, 7, state=RunState.DEAD)]))
        assert (made.run_id, made.run_state, made.due_us) == (UUID(int=7), RunState.DEAD, 13)

    def test_says_why_it_was_skipped(self) -> None:
        for reason in SkipReason:
            assert the_account(owned(10), Records([], [skip(10, reason=reason)])).reason

    def test_of_nested_ranges_takes_the_inner_one(self) -> None:
        ranges = [skip(5, 20, SkipReason.PAUSED), skip(10, reason=SkipReason.OVERLAP)]
        assert the_account(owned(10), Records([], ranges)).kind is LedgerKind.SKIPPED
        assert the_account(owned(15), Records([], ranges)).kind is LedgerKind.PAUSED
        assert the_account(owned(21), Records([], ranges, {})).kind is LedgerKind.MISSING

    def test_shows_backfills_beside_its_own_account(self) -> None:
        made = the_account(owned(10), Records([run(10, 1), run(10, 2, cause=RunCause.BACKFILL)]))
        assert (made.run_id, made.backfill_run_ids) == (UUID(int=1), (UUID(int=2),))
        made = the_account(owned(10), Records([run(10, 2, cause=RunCause.BACKFILL)], [skip(10)]))
        assert (made.kind, made.backfill_run_ids) == (LedgerKind.SKIPPED, (UUID(int=2),))

    def test_of_a_job_that_is_set_aside_says_so(self) -> None:
        (made,) = account([owned(10)], Records(chains={1: Chain(10)}), NOW, "its calendar is gone")
        assert made.reason == "the job is set aside: its calendar is gone"

    @pytest.mark.parametrize(
        ("of", "records", "open_question"),
        [
            (owned(10), Records(), True),
            (owned(NOW), Records(), True),
            (owned(NOW + 1), Records(), False),
            (owned(10, due=NOW + 1), Records(), False),
            (owned(10), Records([run(10)]), False),
            (owned(10), Records([], [skip(10)]), False),
            (owned(10, excluded="x"), Records(), False),
            (owned(10, state=PAUSED), Records(), False),
            (owned(10), Records([run(10, cause=RunCause.BACKFILL)]), True),
        ],
    )
    def test_asks_for_chains_only_where_nothing_else_answers(
        self, of: Owned, records: Records, open_question: bool
    ) -> None:
        assert unaccounted([of], records, NOW) == ({1} if open_question else set())


class TestStrangers:
    @pytest.mark.parametrize(
        "beside",
        [
            pytest.param([], id="where there is no occurrence"),
            pytest.param([owned(10, excluded="holiday")], id="where it is taken away"),
            pytest.param([owned(10, state=PAUSED)], id="in a pause"),
        ],
    )
    def test_a_run_of_the_schedule_is_unexpected(self, beside: list[Owned]) -> None:
        made = account(beside, Records([run(10, 5)]), NOW)
        strangers = [each for each in made if each.kind is LedgerKind.UNEXPECTED]
        assert [(each.run_id, each.occurrences) for each in strangers] == [(UUID(int=5), 1)]
        assert len(made) == len(beside) + 1

    def test_the_second_run_of_an_occurrence_is_unexpected(self) -> None:
        made = account([owned(10)], Records([run(10, 1), run(10, 2)]), NOW)
        assert [each.kind for each in made] == [LedgerKind.RUN, LedgerKind.UNEXPECTED]

    def test_triggers_are_not_looked_at(self) -> None:
        assert account([], Records([run(10, cause=RunCause.TRIGGER)]), NOW) == []

    def test_what_only_a_backfill_made_counts_as_no_occurrence(self) -> None:
        backfills = [run(10, number, cause=RunCause.BACKFILL) for number in (1, 2)]
        (made,) = account([], Records(backfills), NOW)
        assert (made.kind, made.occurrences, made.run_id) == (LedgerKind.RUN, 0, UUID(int=2))
        assert made.backfill_run_ids == (UUID(int=1), UUID(int=2))


class TestRanges:
    def test_one_row_is_one_entry(self) -> None:
        (made,) = account([owned(at) for at in range(10, 20)], Records([], [skip(10, 19)]), NOW)
        assert (made.from_us, made.to_us, made.occurrences, made.due_us) == (10, 19, 10, None)

    def test_two_rows_are_two_entries(self) -> None:
        made = account([owned(10), owned(11)], Records([], [skip(10), skip(11)]), NOW)
        assert [(each.from_us, each.occurrences) for each in made] == [(10, 1), (11, 1)]

    def test_one_pause_is_one_entry_recorded_or_not(self) -> None:
        paused = [owned(at, state=PAUSED) for at in (10, 20, 30)]
        assert [each.occurrences for each in account(paused, Records(), NOW)] == [3]
        recorded = Records([], [skip(10, 30, SkipReason.PAUSED)])
        assert [each.occurrences for each in account(paused, recorded, NOW)] == [3]

    def test_pauses_of_two_versions_are_two_entries(self) -> None:
        paused = [owned(10, state=PAUSED), owned(20, state=PAUSED, version=2)]
        assert len(account(paused, Records(), NOW)) == 2

    def test_equal_exclusions_on_end_are_one_entry(self) -> None:
        taken = [
            owned(10, excluded="a"),
            owned(11, excluded="a"),
            owned(12, excluded="b"),
            owned(13),
            owned(14, excluded="b"),
        ]
        made = account(taken, Records([run(13)]), NOW)
        assert [(each.reason, each.occurrences) for each in made] == [("a", 2), ("b", 1), ("", 1), ("b", 1)]

    def test_a_run_within_a_range_divides_it(self) -> None:
        made = account([owned(10), owned(11), owned(12)], Records([run(11)], [skip(10, 12)]), NOW)
        assert [each.kind for each in made] == [LedgerKind.SKIPPED, LedgerKind.RUN, LedgerKind.SKIPPED]

    def test_what_a_backfill_made_stands_alone(self) -> None:
        records = Records([run(11, 7, cause=RunCause.BACKFILL)], [skip(10, 12)])
        made = account([owned(10), owned(11), owned(12)], records, NOW)
        assert [each.occurrences for each in made] == [1, 1, 1]

    def test_ranges_that_were_cut_join_again(self) -> None:
        whole = account([owned(at) for at in range(10, 20)], Records([], [skip(10, 19)]), NOW)
        parts = [
            each
            for low in (10, 15)
            for each in account([owned(at) for at in range(low, low + 5)], Records([], [skip(10, 19)]), NOW)
        ]
        assert len(parts) == 2
        assert joined(parts) == whole


def test_what_must_not_be_is_counted_first() -> None:
    kinds = [LedgerKind.RUN, LedgerKind.UNEXPECTED, LedgerKind.SKIPPED, LedgerKind.MISSING, LedgerKind.RUN]
    made = [Account(at, at, kind, 1) for at, kind in enumerate(kinds)]
    made.append(replace(made[2], occurrences=40))
    assert counts(made) == [
        (LedgerKind.MISSING, 1),
        (LedgerKind.UNEXPECTED, 1),
        (LedgerKind.RUN, 2),
        (LedgerKind.SKIPPED, 41),
    ]
