"""The completion loop: what workers say of their attempts is recorded, then acknowledged.

Words gather while a statement is under way and leave in hundreds. A word is acknowledged only once it is durable. A
word that was refused, or that names an attempt this process does not hold, is judged by the run's row (judgement.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from core.errors import OutcomeUnknown, Unavailable
from core.states import AttemptOutcome, RunState
from core.store.completion import Completion, Ended, Ending
from core.telemetry.dispatcher_metrics import RefusedWrite
from dispatcher.attempts import LiveAttempt
from dispatcher.delivery import run_ref
from dispatcher.endings import GivenBack, ending_of
from dispatcher.fence_watch import FenceWatch
from dispatcher.holdings import Key
from dispatcher.judgement import Judge, Submission, answer
from dispatcher.redirects import Redirects
from dispatcher.routes import WaitingRun
from dispatcher.runtime import Memory, RestingRun, Runtime
from dispatcher.session import WorkerSession

log = logging.getLogger(__name__)

_SEND_ON_EVERY_S = 0.5


class CompletionLoop:
    """Records endings in batches of distinct runs."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        store: Completion,
        watch: FenceWatch,
        judge: Judge,
        redirects: Redirects,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._store = store
        self._watch = watch
        self._judge = judge
        self._redirects = redirects
        self._queue: asyncio.Queue[Submission] = asyncio.Queue(maxsize=20 * runtime.settings.batch_limit)
        self._busy = False
        # What was handed in and is neither recorded nor answered, by identity.
        self._unanswered: dict[int, Submission] = {}

    async def submit(self, submission: Submission) -> None:
        """Hand in a word; waits while the queue is full, which slows the stream it came from."""
        self._unanswered[id(submission)] = submission
        await self._queue.put(submission)

    async def send_on(self) -> None:
        """For ever: words that are stuck here, as the database is out of reach for us alone, go to the shard's owner.

        The statement that they are stuck in may have succeeded or may still be refused; the owner judges by the row.
        """
        while True:
            await self._runtime.clock.sleep(_SEND_ON_EVERY_S)
            said = [(word, *self._unread(word)) for word in self._unanswered.values() if word.session is not None]
            redirected = [item for item in said if item[1] == pb.VERDICT_REDIRECT]
            for word, _, _ in redirected:
                del self._unanswered[id(word)]
            answer(redirected)

    def leave(self, key: Key) -> None:
        """A term of ours was closed or replaced: its attempts leave memory, and their workers are told where to turn.

        Words about them that wait here are judged by the runs' rows.
        """
        self._redirects.leave(key)

    async def judge_heartbeats(self, session: WorkerSession, refs: Sequence[tuple[UUID, pb.AttemptRef]]) -> None:
        """Settle heartbeats for attempts that memory does not hold."""
        await self._judge.judge_heartbeats(session, refs)

    @property
    def idle(self) -> bool:
        return not self._busy and self._queue.empty()

    async def run(self) -> None:
        """For ever: take what has gathered, record it, answer."""
        while True:
            batch = [await self._queue.get()]
            self._busy = True
            try:
                while len(batch) < self._runtime.settings.batch_limit and not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                await self._record(batch)
            finally:
                self._busy = False
                for submission in batch:
                    self._unanswered.pop(id(submission), None)

    async def _record(self, batch: list[Submission]) -> None:
        left = batch
        try:
            # What is taken home by the first round is ended by the second.
            for take_home in (True, False):
                known, unknown = self._split(left)
                left = [*unknown, *(await self._end(known) if known else ())]
                if not left:
                    break
                left = await self._judge.judge(left, take_home=take_home)
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("completion waits for the database: %s", error)
            is_unknown = isinstance(error, OutcomeUnknown)
            for submission in left:
                live = self._memory.attempts.get(submission.run_id)
                if live is not None:
                    live.ending = False
                    # A loss may be recorded yet: no heartbeat is acknowledged until the reaper's next word is settled.
                    live.loss_unsettled = live.loss_unsettled or (is_unknown and submission.token is None)
            answer((s, *self._unread(s)) for s in left if id(s) in self._unanswered)
            await self._runtime.clock.sleep(self._runtime.settings.tick_s)

    def _unread(self, submission: Submission) -> tuple[pb.Verdict, str]:
        """What to say while no row can be read: to ask again, or to ask whoever has the shard now."""
        live = self._memory.attempts.get(submission.run_id)
        address = "" if live is None else self._redirects.elsewhere(live)
        return (pb.VERDICT_REDIRECT, address) if address else (pb.VERDICT_RETRY, "")

    def _split(self, batch: list[Submission]) -> tuple[list[tuple[Submission, LiveAttempt]], list[Submission]]:
        known: list[tuple[Submission, LiveAttempt]] = []
        unknown: list[Submission] = []
        seen: set[UUID] = set()
        for submission in batch:
            live = self._memory.attempts.get(submission.run_id)
            known_here = live is not None and live.attempt == submission.attempt
            if submission.token is None and (live is None or not known_here or not _holds_still(submission, live)):
                continue  # an owner's word that was overtaken: by the worker's own, by a heartbeat, by a move
            proven = known_here and (submission.token is None or (live is not None and live.proves(submission.token)))
            if live is None or not proven or submission.run_id in seen:
                unknown.append(submission)
            else:
                seen.add(submission.run_id)
                live.ending = True
                known.append((submission, live))
        return known, unknown

    async def _end(self, known: list[tuple[Submission, LiveAttempt]]) -> list[Submission]:
        now_us = self._runtime.clock.now_us()
        items = [self._ending(submission, live, now_us) for submission, live in known]
        sent_s = self._runtime.clock.monotonic_s()
        ended = await self._store.end(items, now_us=now_us)
        self._watch.note([(i.shard, i.term) for i in items], ended.fences, sent_s=sent_s, kind=RefusedWrite.COMPLETE)
        accepted = []
        refused = []
        for position, (submission, live) in enumerate(known):
            if position in ended.states:
                self._memory.attempts.remove(live)
                self._memory.readings.outdate(live.run_id)
                accepted.append((submission, pb.VERDICT_ACCEPTED, ""))
                self._follow(items[position], live, ended.states[position], now_us)
            else:
                live.ending = live.loss_unsettled = False
                refused.append(submission)
        answer(accepted)
        self._count(items, ended)
        return refused

    def _ending(self, submission: Submission, live: LiveAttempt, now_us: int) -> Ending:
        spread = self._runtime.rand.uniform(-1.0, 1.0)
        return ending_of(
            submission.word,
            live,
            by_worker=submission.token is not None,
            now_us=now_us,
            spread=spread,
            scale=self._runtime.scale,
        )

    def _follow(self, item: Ending, live: LiveAttempt, state: RunState, now_us: int) -> None:
        """What memory and traces learn from an ending that committed."""
        if state is RunState.PENDING and item.retry_at_us > 0:
            self._memory.resting[live.run_id] = RestingRun(
                live.run_id, live.shard, live.term, live.job_id, live.scheduled_for_us, live.stands_open, live.attempt
            )
            self._memory.landed.add(live.shard)
            self._memory.wakes.discover.set()
        elif state is RunState.PENDING:
            self._memory.let_wait(_waiting_again(live, item))
        else:
            self._memory.run_ended(live.job_id)
        if self._runtime.tracing.enabled and item.uncounted == 0:
            self._trace(item, live, state, now_us)

    def _trace(self, item: Ending, live: LiveAttempt, state: RunState, now_us: int) -> None:
        ref, tracing = run_ref(live), self._runtime.tracing
        tracing.record_attempt(
            ref,
            attempt=live.attempt,
            worker=live.worker,
            outcome=item.outcome,
            leased_us=live.started_us,
            ended_us=now_us,
            error=item.error,
        )
        if state is not RunState.PENDING:
            tracing.record_run(
                ref,
                handler=live.job.spec.handler,
                scheduled_for_us=live.scheduled_for_us,
                ended_us=now_us,
                state=state,
                attempts=live.attempt,
                error=item.error,
            )

    def _count(self, items: list[Ending], ended: Ended) -> None:
        outcomes: dict[AttemptOutcome, list[int]] = defaultdict(lambda: [0, 0])
        states: dict[RunState, int] = defaultdict(int)
        for position, state in ended.states.items():
            if items[position].uncounted:
                continue
            counts = outcomes[items[position].outcome]
            counts[0] += 1
            counts[1] += state is RunState.PENDING
            if state is not RunState.PENDING:
                states[state] += 1
        for outcome, (attempts, to_retry) in outcomes.items():
            self._runtime.metrics.attempts_ended(outcome, attempts, to_retry=to_retry)
        for state, runs in states.items():
            self._runtime.metrics.runs_ended(state, runs)


def _holds_still(submission: Submission, live: LiveAttempt) -> bool:
    """Whether the owner's word is still true: nobody spoke for the attempt since it was said."""
    match submission.word:
        case GivenBack():
            return live.unsent
        case _:
            return live.lease_until_us <= submission.lease_until_us


def _waiting_again(live: LiveAttempt, item: Ending) -> WaitingRun:
    return WaitingRun(
        run_id=live.run_id,
        shard=live.shard,
        term=live.term,
        attempt=live.attempt,
        uncounted=live.uncounted + item.uncounted,
        scheduled_for_us=live.scheduled_for_us,
        due_at_us=live.due_at_us,
        job=live.job,
        trace=live.trace,
        payload=live.payload,
        progress=live.progress,
        stands_open=live.stands_open,
    )
