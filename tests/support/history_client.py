"""The client of an episode: registers jobs, then edits, pauses, triggers and deletes them, and keeps a log of it all.

load = Load(client, log, Random(seed), begins_us=…, ends_us=…)
await load.register(steady=250, busy=20)
await load.trouble(until_us)

What a call came to is written down as the client knows it: acknowledged, refused, or unknown, after which it leaves
that job alone. All schedules have an anchor and an end of their own, so that what occurs is plain arithmetic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from uuid import UUID

from tidewheel import Client, Every, RetryPolicy
from tidewheel.errors import Conflict, InvalidArgument, NotFound, TidewheelError
from tidewheel.records import Run

from tests.support.history import Outcome, Periodic, Said
from tests.support.live_system import US, now_us

# Calls of one kind under way at once while jobs are registered.
_CROWD = 16
# A call may take so long, with all its repetitions; a killed leader has to be replaced meanwhile.
CALL_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Wish:
    """A job to be registered; without a period it runs only when it is triggered."""

    name: str
    handler: str
    every_us: int | None
    payload: str | None = None
    overlap: str = "allow"


class Load:
    """Jobs that fire until `ends_us`, and a client who keeps changing some of them."""

    def __init__(self, client: Client, log: Path, rand: Random, *, begins_us: int, ends_us: int) -> None:
        self._client = client
        self._log = log
        self._rand = rand
        self._begins_us = begins_us
        self._ends_us = ends_us
        self._registered: list[str] = []
        self._changing: list[str] = []
        self._triggered: list[str] = []
        self._paused: set[str] = set()
        self._left_alone: set[str] = set()
        self._calls: set[asyncio.Task[None]] = set()

    # ---- jobs ----

    async def register(self, *, steady: int, busy: int = 8) -> None:
        """`steady` jobs that fire each second and are left in peace; `busy` of each kind that are not."""
        wanted = [Wish(f"steady-{n}", "quick", US) for n in range(steady)]
        for n in range(busy):
            wanted += [
                Wish(f"changing-{n}", "quick", US),
                Wish(f"slow-{n}", "slow", 4 * US, payload="2.5"),
                Wish(f"flaky-{n}", "flaky", 2 * US),
                Wish(f"narrow-{n}", "slow", US, payload="1.2", overlap="skip"),
                Wish(f"triggered-{n}", "quick", None),
            ]
            self._changing.append(f"changing-{n}")
            self._triggered.append(f"triggered-{n}")
        gate = asyncio.Semaphore(_CROWD)

        async def one(wish: Wish) -> None:
            async with gate:
                await self._create(wish)

        await asyncio.gather(*map(one, wanted))

    async def _create(self, wish: Wish) -> None:
        self._registered.append(wish.name)
        schedule = None if wish.every_us is None else self._periodic(wish.every_us)
        retry = RetryPolicy(max_attempts=6, first_delay=timedelta(seconds=0.5), factor=1.0, jitter=0.0)

        async def call(request_id: str) -> None:
            await self._client.create_job(
                wish.name,
                handler=wish.handler,
                schedule=None if schedule is None else _every(schedule),
                payload=wish.payload,
                overlap=wish.overlap,
                retry=retry,
                request_id=request_id,
            )

        await self._say("create", wish.name, call, schedule=schedule, overlap=wish.overlap)

    def _periodic(self, every_us: int) -> Periodic:
        return Periodic(self._begins_us + self._rand.randrange(every_us), every_us, self._ends_us)

    async def end(self) -> None:
        """Delete every job, so that nothing more becomes due."""
        gate = asyncio.Semaphore(_CROWD)

        async def one(name: str) -> None:
            async with gate:
                await self._change(name, "delete")

        await asyncio.gather(*map(one, self._registered))

    # ---- trouble ----

    async def trouble(self, until_us: int, *, per_s: float = 4.0) -> None:
        """Change and trigger jobs at random moments, about `per_s` calls a second."""
        while now_us() < until_us:
            await asyncio.sleep(self._rand.expovariate(per_s))
            self._start(self._one_change())
        if self._calls:
            await asyncio.wait(self._calls, timeout=CALL_WITHIN_S + 5)

    def _start(self, call: Awaitable[None]) -> None:
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _one_change(self) -> None:
        verb = self._rand.choice(["trigger", "trigger", "trigger", "edit", "edit", "pause", "pause", "delete"])
        if verb == "trigger":
            await self.trigger(self._rand.choice(self._triggered), delay_s=self._rand.choice([0.0, 0.0, 1.5, 4.0]))
            return
        # One call at a time for each job, so that the client knows in which order they took effect.
        free = [name for name in self._changing if name not in self._left_alone]
        if not free:
            return
        name = self._rand.choice(free)
        self._left_alone.add(name)
        if verb == "delete" and len(free) < len(self._changing) // 2:
            verb = "edit"
        if verb == "pause" and name in self._paused:
            verb = "resume"
        if await self._change(name, verb) and verb != "delete":
            self._left_alone.discard(name)

    async def _change(self, name: str, verb: str) -> bool:
        """Returns whether the client knows what became of it."""
        schedule = self._periodic(self._rand.choice([US, 2 * US])) if verb == "edit" else None

        async def call(request_id: str) -> None:
            match verb:
                case "edit":
                    assert schedule is not None
                    await self._client.update_job(name, schedule=_every(schedule), request_id=request_id)
                case "pause":
                    await self._client.pause_job(name, request_id=request_id)
                case "resume":
                    await self._client.resume_job(name, request_id=request_id)
                case "delete":
                    await self._client.delete_job(name, request_id=request_id)

        said = await self._say(verb, name, call, schedule=schedule)
        if said.outcome is Outcome.ACKNOWLEDGED and verb in ("pause", "resume"):
            (self._paused.add if verb == "pause" else self._paused.discard)(name)
        return said.outcome is not Outcome.UNKNOWN

    async def trigger(self, name: str, *, delay_s: float = 0.0) -> None:
        """Make one run, now or later."""

        async def call(request_id: str) -> Run:
            delay = timedelta(seconds=delay_s) if delay_s else None
            return await self._client.trigger_job(name, delay=delay, allow_overlap=True, request_id=request_id)

        await self._say("trigger", name, call)

    # ---- the log ----

    async def _say(
        self,
        verb: str,
        job: str,
        call: Callable[[str], Awaitable[Run | None]],
        *,
        schedule: Periodic | None = None,
        overlap: str = "allow",
    ) -> Said:
        request_id = str(UUID(int=self._rand.getrandbits(128), version=4))
        called_us, outcome, run_id, error = now_us(), Outcome.ACKNOWLEDGED, "", ""
        try:
            async with asyncio.timeout(CALL_WITHIN_S):
                made = await call(request_id)
            run_id = "" if made is None else made.run_id
        except (Conflict, InvalidArgument, NotFound) as refusal:
            outcome, error = Outcome.REFUSED, str(refusal)
        except (TidewheelError, TimeoutError) as trouble:
            outcome, error = Outcome.UNKNOWN, str(trouble)
        said = Said(verb, job, request_id, called_us, now_us(), outcome, schedule, overlap, run_id, error)
        with self._log.open("a") as log:
            log.write(said.line() + "\n")
        return said


def _every(schedule: Periodic) -> Every:
    return Every(
        timedelta(microseconds=schedule.every_us), anchor=_time(schedule.anchor_us), end=_time(schedule.end_us)
    )


def _time(at_us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)
