"""Whose ailments cost it its shards: judged by comparing dispatchers with each other. No I/O.

A dispatcher that hangs although it reports, or that alone cannot reach the database, loses its shards at once: others
take them over, and the fence keeps out what it still writes. One that workers cannot reach while others have workers
for its queues loses them by planned moves. What ails everybody costs nobody anything, so a database that is down for
all causes no move, whoever notices first and whoever hears last that it is back. Asked by membership.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from core.ailments import AilmentKind

# An ailment that lasts so long costs the shards, if there is somebody without any of these. Reports name an ailment a
# second earlier and more, so that two dispatchers that fall ill together are not taken for a sick and a well one.
SEIZE_AFTER_S: Mapping[AilmentKind, float] = {
    AilmentKind.DATABASE: 3.0,
    AilmentKind.EVENT_LOOP: 3.0,
    AilmentKind.DUE_LOOP: 5.0,
}
# And only if that somebody has been well for so long beside it: when all fall ill together, one of them says so first.
ALONE_S = 2.0
# So long instead, after an ailment that all had: when a database that was away comes back, one of them hears of
# it first, and another one waits until a statement and a connection of its own have run into their deadlines.
ALONE_AFTER_ALL_S = 10.0
# Workers come back by themselves after most faults, and their runs wait meanwhile: no hurry.
WORKERS_AFTER_S = 10.0
# A sick dispatcher counts as well again when it has had no ailment for so long.
WELL_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class Condition:
    """What a dispatcher last said of itself: ailments with their age in seconds; workers; queues by their marks."""

    ailments: Mapping[AilmentKind, float] = field(default_factory=dict)
    workers: int = 0
    served: frozenset[int] = frozenset()
    unserved: frozenset[int] = frozenset()


WELL = Condition()


@dataclass(slots=True)
class _Patient:
    """`well_since_s`: it has shown no ailment since. `lacking`: since when it lacks workers others have, by queue."""

    kind: AilmentKind | None = None
    well_since_s: float = 0.0
    # Since when it has had an ailment while somebody is well.
    alone_since_s: float | None = None
    # Nobody was well for a time since it fell ill.
    with_all: bool = False
    lacking: dict[int, float] = field(default_factory=dict)


class Sickness:
    """Remembers who is sick over one tenure."""

    def __init__(self) -> None:
        self._patients: dict[str, _Patient] = {}

    def judge(self, conditions: Mapping[str, Condition], now_s: float) -> dict[str, AilmentKind]:
        """Who is sick now, and of what; to be called with everybody who reports and is to stay.

        To be called several times a second, whatever the caller waits for: what ails all for a while is to be seen.
        """
        self._patients = {each: self._patients.get(each, _Patient()) for each in conditions}
        for each, patient in self._patients.items():
            others = [condition for other, condition in conditions.items() if other != each]
            self._note_workers(patient, conditions[each], others, now_s)
            self._judge_one(patient, conditions[each], others, now_s)
        return {each: patient.kind for each, patient in self._patients.items() if patient.kind is not None}

    def paused(self, gap_s: float) -> None:
        """Nobody was listened to for so long: that time proves nothing of anybody."""
        for patient in self._patients.values():
            patient.well_since_s += gap_s
            if patient.alone_since_s is not None:
                patient.alone_since_s += gap_s
            patient.lacking = {queue: since_s + gap_s for queue, since_s in patient.lacking.items()}

    def _judge_one(self, patient: _Patient, own: Condition, others: Collection[Condition], now_s: float) -> None:
        self._note_company(patient, own, others, now_s)
        alone_s = 0.0 if patient.alone_since_s is None else now_s - patient.alone_since_s
        if alone_s >= (ALONE_AFTER_ALL_S if patient.with_all else ALONE_S):
            for kind, after_s in SEIZE_AFTER_S.items():
                if own.ailments.get(kind, 0.0) >= after_s:
                    patient.kind, patient.well_since_s = kind, now_s
                    return
        if any(now_s - since_s >= WORKERS_AFTER_S for since_s in patient.lacking.values()):
            patient.kind, patient.well_since_s = patient.kind or AilmentKind.WORKERS, now_s
            return
        if patient.kind in own.ailments and patient.kind in SEIZE_AFTER_S and others:
            patient.well_since_s = now_s
        if now_s - patient.well_since_s >= WELL_AFTER_S:
            patient.kind = None

    @staticmethod
    def _note_company(patient: _Patient, own: Condition, others: Collection[Condition], now_s: float) -> None:
        """Whether it is ill alone. Who was taken for that, and then all others fell ill too, only said it first."""
        if _is_well(own):
            patient.alone_since_s, patient.with_all = None, False
        elif not any(_is_well(other) for other in others):
            patient.alone_since_s, patient.with_all = None, True
            if patient.kind in SEIZE_AFTER_S:
                patient.kind = None
        elif patient.alone_since_s is None:
            patient.alone_since_s = now_s

    @staticmethod
    def _note_workers(patient: _Patient, own: Condition, others: Collection[Condition], now_s: float) -> None:
        """What it lacks stays noted until it serves that itself or nobody does: once its shards are gone, no run of
        theirs waits here any more, and it must not get them back for that."""
        elsewhere = frozenset[int]().union(*(other.served for other in others))
        wanted = own.unserved if own.workers else elsewhere
        lacks = (wanted | patient.lacking.keys()) & elsewhere - own.served
        patient.lacking = {queue: patient.lacking.get(queue, now_s) for queue in lacks}


def _is_well(condition: Condition) -> bool:
    return not condition.ailments.keys() & SEIZE_AFTER_S.keys()
