"""The reaper: attempts whose lease has ended are taken back; attempts that ran too long are told to stop.

An attempt is requeued only when its lease ends or its worker gives it up, never for a broken stream alone; one that was
leased and certainly never sent is taken back at once and does not count. An attempt
past its start-to-close timeout is canceled through its worker first; only a worker that ignores that loses it, one
lease later.
"""

from __future__ import annotations

from core.clock import US_PER_S
from core.tasks import Wake
from dispatcher.attempts import LiveAttempt
from dispatcher.completion import CompletionLoop
from dispatcher.endings import GivenBack, Lost
from dispatcher.judgement import Submission
from dispatcher.runtime import Memory, Runtime

_STEP_S = 0.25


class Reaper:
    """Looks at every attempt whose alarm has come."""

    def __init__(self, runtime: Runtime, memory: Memory, completion: CompletionLoop) -> None:
        self._runtime = runtime
        self._memory = memory
        self._completion = completion

    async def run(self) -> None:
        """For ever, a few times a second."""
        wake = Wake()
        while True:
            await self.step()
            await wake.wait(self._runtime.clock, _STEP_S)

    async def step(self) -> None:
        """Look once."""
        if self._runtime.clock.holding:
            return
        now_us = self._runtime.clock.now_us()
        for live in self._memory.attempts.due_for_check(now_us):
            held = self._memory.holdings.get((live.shard, live.term))
            if held is None:
                # Its term was dropped while the assignment was on its way; the run may be at home in another of ours.
                self._memory.attempts.remove(live)
                others = self._memory.holdings.of_shard(live.shard)
                if others:
                    self._memory.doubt([other.key for other in others], self._runtime.clock.monotonic_s())
            elif held.acting and (live.unsent or live.lease_until_us <= now_us):
                # Comes back if the ending is refused or the database is away.
                self._memory.attempts.check_again(live, now_us + US_PER_S)
                word = GivenBack() if live.unsent else Lost()
                if live.holder is not None and not live.unsent:
                    live.holder.went_silent()
                lost = Submission(live.run_id, live.attempt, None, word, None, lease_until_us=live.lease_until_us)
                await self._completion.submit(lost)
            elif not live.timed_out and live.timeout_at_us <= now_us:
                self._time_out(live, now_us)
            else:
                self._memory.attempts.check_again(live, now_us + US_PER_S)

    def _time_out(self, live: LiveAttempt, now_us: int) -> None:
        live.timed_out = True
        # Heartbeats go on extending the lease of a handler that does not listen: from here on it is one lease at most.
        live.lease_fixed = True
        live.lease_until_us = min(live.lease_until_us, now_us + self._runtime.lease_us)
        if live.holder is not None:
            live.holder.cancel(live.run_id, live.attempt, "timed out")
        self._memory.attempts.check_again(live, live.lease_until_us)
