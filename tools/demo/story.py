"""What happens in the demo: jobs fire, one dispatcher is killed, later it is started again, then all is judged.

The verdict is taken over a window that ends at a given instant while everything goes on: what fell due before it has
had its time when the judge looks, and what falls due later is not missed by anybody.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidewheel.errors import TidewheelError
from tidewheel.v1 import job_pb2

from tools.demo.judge import Expectation, Verdict, crash_cost, expectation, judge
from tools.demo.observer import ENDED, Observer
from tools.demo.oracle import US_PER_S, occurrences
from tools.demo.pending import Pending
from tools.demo.run_log import RunLog, Start
from tools.demo.screen import LATE_US, ProcessRow, View
from tools.demo.shows import Show
from tools.demo.summary import Crash, Outcome
from tools.demo.system import DemoSystem
from tools.demo.tally import Tally
from tools.ending import Asked
from tools.fleet import Member

STEP_S = 0.2
# Without an end of its own the story has the pace of a minute.
ENDLESS_PACE_S = 60.0
OVERDUE_US = US_PER_S
# How long the last runs may take until they are called lost; a lost attempt is repeated within its lease and delay.
SETTLE_S = 45.0
# Whoever presses Ctrl-C does not want to wait: what fell due this long before has had its time.
CUT_SHORT_US = 3 * US_PER_S
COST_SPAN_US = 10 * US_PER_S


@dataclass(slots=True)
class Killed:
    """The dispatcher that was killed, and what it owned."""

    member: Member
    at_us: int
    shards: frozenset[int]
    taken_over_s: float | None = None
    started_again: bool = False


@dataclass(slots=True)
class Story:
    """One telling. `seconds` is None where only Ctrl-C ends it."""

    system: DemoSystem
    observer: Observer
    jobs: Sequence[job_pb2.Job]
    seconds: float | None
    show: Show
    starts: list[Start] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=10))
    killed: Killed | None = None

    async def tell(self, asked: Asked) -> Outcome:
        """Everything from the first run to the verdict."""
        log = RunLog(self.system.run_log)
        began_us = now_us()
        end_us = began_us + round(self.seconds * US_PER_S) if self.seconds else None
        pending = Pending(self.jobs, horizon_us=end_us)
        looking = asyncio.ensure_future(self._keep_looking())
        try:
            while not asked.told and (end_us is None or now_us() < end_us):
                await self._step(log, pending, began_us)
                await asyncio.sleep(STEP_S)
            cut_short = asked.told
            judged_until_us = end_us if end_us is not None and not cut_short else self._last_settled_us()
            await self._settle(log, pending, began_us, judged_until_us, 0.0 if cut_short else SETTLE_S)
            states = await self._states(judged_until_us, 0.0 if cut_short else SETTLE_S)
        finally:
            looking.cancel()
            self.show.close()
        await self.observer.look()
        return self._outcome(judged_until_us, began_us, states, cut_short)

    async def _step(self, log: RunLog, pending: Pending, began_us: int) -> None:
        new = log.new()
        self.starts += new
        pending.settle(new)
        rows = [self.observer.place(start, self.system.fleet.members) for start in new]
        self.tally.add(rows)
        self.show.started(rows)
        self.system.fleet.check()
        await self._act((now_us() - began_us) / US_PER_S)
        self._watch_takeover()
        self.show.draw(self._view(pending, began_us))

    async def _act(self, elapsed_s: float) -> None:
        """The crash after a third, the return after two."""
        pace_s = self.seconds or ENDLESS_PACE_S
        if self.killed is None and elapsed_s >= pace_s / 3:
            await self._kill()
        elif self.killed is not None and not self.killed.started_again and elapsed_s >= pace_s * 2 / 3:
            self.killed.started_again = True
            self.system.fleet.start_dispatcher(self.killed.member.name)
            self._say(f"{self.killed.member.name} is started again")

    async def _kill(self) -> None:
        await self.observer.look()
        owned = self.observer.ownership
        dispatchers = [member for member in self.system.fleet.members if member.role == "dispatcher"]
        # The busier one: its loss can be seen.
        victim = max(dispatchers, key=lambda member: self.tally.fired[member.name])
        shards = frozenset(owned.shards_of(victim.address))
        who = f"{victim.name} (pid {victim.child.pid})"
        self._say(f"kill -9 of {who} on purpose; {len(shards)} shards have no owner")
        self.system.fleet.kill(victim)
        self.killed = Killed(victim, now_us(), shards)

    def _watch_takeover(self) -> None:
        killed = self.killed
        if killed is None or killed.taken_over_s is not None:
            return
        owners = self.observer.ownership.owners
        if all(owners.get(shard, killed.member.address) not in ("", killed.member.address) for shard in killed.shards):
            killed.taken_over_s = (now_us() - killed.at_us) / US_PER_S
            self._say(f"the {len(killed.shards)} shards were taken over within {killed.taken_over_s:.1f} s")

    async def _keep_looking(self) -> None:
        while True:
            await self.observer.look()
            await asyncio.sleep(STEP_S)

    async def _settle(self, log: RunLog, pending: Pending, began_us: int, until_us: int, within_s: float) -> None:
        """Wait until everything that fell due in the window has started, or too much time has passed."""
        deadline_s = time.monotonic() + within_s
        while True:
            await self._step(log, pending, began_us)
            if not pending.before(until_us) or time.monotonic() >= deadline_s:
                return
            await asyncio.sleep(STEP_S)

    async def _states(self, until_us: int, within_s: float) -> Counter[int]:
        """The states of the window's runs, once all of them have ended or too much time has passed."""
        names = sorted({start.job for start in self.starts})
        deadline_s = time.monotonic() + within_s
        states: Counter[int] = Counter()
        while True:
            try:
                states = await self.observer.run_states(names, until_us)
            except TidewheelError as error:
                self._say(f"the runs could not be read: {error}")
            else:
                if set(states) <= ENDED:
                    return states
            if time.monotonic() >= deadline_s:
                return states
            await asyncio.sleep(STEP_S)

    def _last_settled_us(self) -> int:
        settled_us = now_us() - CUT_SHORT_US
        if self.killed is not None and self.killed.at_us > settled_us - CUT_SHORT_US:
            return self.killed.at_us - OVERDUE_US
        return settled_us

    def _outcome(self, until_us: int, began_us: int, states: Counter[int], cut_short: bool) -> Outcome:
        expectations: list[Expectation] = [expectation(job, until_us, occurrences) for job in self.jobs]
        verdict: Verdict = judge(expectations, self.starts)
        members = [member for member in self.system.fleet.members if member.role == "dispatcher"]
        seconds = max(0, until_us - began_us) / US_PER_S
        ownership = self.observer.ownership
        return Outcome(verdict, states, seconds, len(self.jobs), self._crash(), ownership, members, cut_short)

    def _crash(self) -> Crash | None:
        killed = self.killed
        if killed is None:
            return None
        cost = crash_cost(
            self.starts,
            lambda start: self.observer.shard_of(start) in killed.shards,
            killed.at_us,
            span_us=COST_SPAN_US,
            late_us=LATE_US,
        )
        return Crash(killed.member.name, len(killed.shards), killed.taken_over_s, cost)

    def _say(self, text: str) -> None:
        stamped = f"{time.strftime('%H:%M:%S', time.gmtime())} {text}"
        self.events.append(stamped)
        self.show.event(stamped)

    def _view(self, pending: Pending, began_us: int) -> View:
        tally = self.tally
        at_us = now_us()
        return View(
            elapsed_s=(at_us - began_us) / US_PER_S,
            total_s=self.seconds,
            servers=self.system.server_names,
            fired=len(tally.late_us),
            late_p50_us=tally.quantile_us(0.5),
            late_p99_us=tally.quantile_us(0.99),
            late_max_us=tally.quantile_us(1.0),
            overdue=len(pending.before(at_us - OVERDUE_US)),
            doubled=tally.doubled,
            early=tally.early,
            upcoming=pending.next_words(at_us),
            processes=self._process_rows(),
            recent=list(tally.recent),
            events=list(self.events),
        )

    def _process_rows(self) -> list[ProcessRow]:
        owned = self.observer.ownership
        rows = []
        for member in self.system.fleet.members:
            serves = member.role == "dispatcher"
            shards = owned.shards_of(member.address) if serves else None
            rows.append(
                ProcessRow(
                    name=member.name,
                    pid=member.child.pid,
                    state="running",
                    shards=None if shards is None else len(shards),
                    terms=owned.terms_of(member.address) if serves else "",
                    ran=self.tally.fired[member.name] if serves else self.tally.ran[member.name],
                )
            )
        if self.killed is not None and not self.killed.started_again:
            dead = self.killed.member
            rows.append(ProcessRow(dead.name, dead.child.pid, "killed", 0))
        return sorted(rows, key=lambda row: (row.shards is None, row.name))


def now_us() -> int:
    """The machine's clock: the same that the commands read."""
    return time.time_ns() // 1000
