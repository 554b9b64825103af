"""What becomes of words that could not be recorded as they came: judged by the runs' rows, never "stale" unread.

A word may name an attempt that this process does not hold: of a run that has moved on (its worker is redirected), or of
one that is about to come home here. The second is taken home first, then the word is acted upon (rule of ownership 13).
Called by the completion loop, and by the worker link for heartbeats of strangers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from core.errors import OutcomeUnknown, Unavailable
from core.states import RunState
from core.store.completion import Completion, RunHolding
from dispatcher.endings import Lost, Word
from dispatcher.holdings import HeldTerm, Key
from dispatcher.redirects import Redirects
from dispatcher.runtime import Memory, Runtime
from dispatcher.session import WorkerSession
from dispatcher.verdicts import verdict_on

TakeHome = Callable[[HeldTerm, Sequence[UUID]], Awaitable[object]]


@dataclass(slots=True)
class Submission:
    """One word on its way: who said it (None: the owner itself), and the proof it brought.

    `lease_until_us` is the end of the lease that the owner saw pass; a lease that was extended since is not lost.
    """

    run_id: UUID
    attempt: int
    token: bytes | None
    word: Word
    session: WorkerSession | None
    lease_until_us: int = 0


class Judge:
    """Reads the rows behind words, takes runs home whose time has come, and answers the rest."""

    def __init__(
        self, runtime: Runtime, memory: Memory, store: Completion, redirects: Redirects, take_home: TakeHome
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._store = store
        self._redirects = redirects
        self._take_home = take_home

    async def judge(self, submissions: Sequence[Submission], *, take_home: bool) -> list[Submission]:
        """Answer these words; returns those whose runs have come home meanwhile, to be recorded after all.

        Without `take_home` every one is answered now. Raises Unavailable or OutcomeUnknown.
        """
        sent_s = self._runtime.clock.monotonic_s()
        holdings = await self._store.holdings([s.run_id for s in submissions])
        for run_id in {s.run_id for s in submissions}:
            live = self._memory.attempts.get(run_id)
            if live is not None:
                self._redirects.follow(live, holdings.get(run_id), sent_s)
        home: set[UUID] = set()
        if take_home:
            home = await self._bring_home(submissions, holdings)
        answered = [s for s in submissions if s.run_id not in home]
        answer((s, *self._verdict(s, holdings.get(s.run_id))) for s in answered)
        return [s for s in submissions if s.run_id in home]

    async def judge_heartbeats(self, session: WorkerSession, refs: Sequence[tuple[UUID, pb.AttemptRef]]) -> None:
        """Settle heartbeats for attempts that this process does not hold; they were told to try again.

        An attempt that is taken home is this worker's from here on, and its next heartbeat is acknowledged.
        """
        words = [Submission(run_id, ref.attempt, ref.token, Lost(), session) for run_id, ref in refs]
        try:
            holdings = await self._store.holdings([word.run_id for word in words])
            home = await self._bring_home(words, holdings)
        except (Unavailable, OutcomeUnknown):
            return
        for word in words:
            live = self._memory.attempts.get(word.run_id)
            if live is not None and word.token is not None and live.proves(word.token):
                live.holder = session
        judged = [(w, *self._verdict(w, holdings.get(w.run_id))) for w in words if w.run_id not in home]
        answer(item for item in judged if item[1] in (pb.VERDICT_REDIRECT, pb.VERDICT_STALE))

    def _is_current(self, submission: Submission, holding: RunHolding) -> bool:
        """Whether the word's attempt goes on, as its row says."""
        verdict = self._verdict_at(submission, holding, at_home=True)
        return holding.state is RunState.LEASED and verdict == pb.VERDICT_RETRY

    def _verdict(self, submission: Submission, holding: RunHolding | None) -> tuple[pb.Verdict, str]:
        at_home = holding is not None and holding.owner == self._runtime.dispatcher_id
        verdict = self._verdict_at(submission, holding, at_home=at_home)
        if verdict != pb.VERDICT_REDIRECT or holding is None:
            return verdict, ""
        address = self._redirects.address_for(holding)
        return (verdict, address) if address else (pb.VERDICT_RETRY, "")

    def _verdict_at(self, submission: Submission, holding: RunHolding | None, *, at_home: bool) -> pb.Verdict:
        return verdict_on(submission.word, submission.attempt, submission.token, holding, at_home=at_home)

    # --- taking home ---

    async def _bring_home(self, words: Iterable[Submission], holdings: Mapping[UUID, RunHolding]) -> set[UUID]:
        """Take the runs of these words home that are, or are to be, at home here; returns those memory holds then."""
        wanted: dict[Key, set[UUID]] = defaultdict(set)
        for word in words:
            holding = holdings.get(word.run_id)
            if holding is None or self._memory.attempts.get(word.run_id) is not None:
                continue
            held = self._home_for(holding)
            if held is not None and self._is_current(word, holding):
                wanted[held.key].add(word.run_id)
        for key, run_ids in wanted.items():
            held = self._memory.holdings.get(key)
            if held is not None:
                await self._take_home(held, sorted(run_ids))
        return {i for run_ids in wanted.values() for i in run_ids if self._memory.attempts.get(i) is not None}

    def _home_for(self, holding: RunHolding) -> HeldTerm | None:
        """The term of ours that answers, or is to answer, for a run; None where that is another's."""
        at_home = self._memory.holdings.get((holding.shard, holding.home_term))
        if at_home is not None:
            return at_home if at_home.acting else None
        acting = [held for held in self._memory.holdings.of_shard(holding.shard) if held.acting]
        if not acting:
            return None
        newest = max(acting, key=lambda held: held.from_bucket)
        older = holding.home_from is None or holding.home_from < newest.from_bucket
        return newest if older else None


Answer = tuple[Submission, pb.Verdict, str]


def answer(answers: Iterable[Answer]) -> None:
    """Hand verdicts, with the owner's address where there is one, to the sessions that asked."""
    by_session: dict[WorkerSession, list[pb.Acknowledgement]] = defaultdict(list)
    for said, verdict, address in answers:
        if said.session is not None:
            item = pb.Acknowledgement(
                run_id=str(said.run_id), attempt=said.attempt, verdict=verdict, owner_address=address
            )
            by_session[said.session].append(item)
    for session, items in by_session.items():
        session.acknowledge(items)
