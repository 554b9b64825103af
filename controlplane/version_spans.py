"""Which version of a job answers for which nominal instants. Pure.

Versions tile time: each answers for what lies after its beginning, up to that of the next one. It begins at its
cut-over, but for two: a version that goes on with a pause, or that catches up on one, begins where the pause began; and
one-offs that were given for the past are the new version's, each by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.civil import END_US
from core.states import JobState
from core.store.ledger import LedgerVersion


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """`version` answers for the nominal instants in (after_us, until_us]; None: there was none yet."""

    version: LedgerVersion | None
    after_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class PastOneOff:
    """A one-off instant of `version` that was past already when it was given."""

    version: LedgerVersion
    at_us: int


def spans_of(versions: Sequence[LedgerVersion]) -> list[VersionSpan]:
    """The spans of consecutive versions, in order, without those that are empty; the last one has no end.

    Where the first version is the job's first one, a span without a version comes before it.
    """
    begins = _beginnings(versions)
    spans = [
        VersionSpan(version, after_us, until_us)
        for version, (after_us, until_us) in zip(versions, pairwise([*begins, END_US]), strict=True)
        if after_us < until_us
    ]
    if versions and versions[0].version == 1:
        spans.insert(0, VersionSpan(None, -1, begins[0]))
    return spans


def span_at(spans: Iterable[VersionSpan], instant_us: int) -> VersionSpan | None:
    """The span that holds an instant."""
    return next((span for span in spans if span.after_us < instant_us <= span.until_us), None)


def past_one_offs(versions: Sequence[LedgerVersion], befores: Mapping[int, LedgerVersion]) -> dict[int, PastOneOff]:
    """The one-offs that were past when they were given, by instant.

    `befores` holds the versions before those that `unknown_befores` names.
    """
    found: dict[int, PastOneOff] = {}
    for version, before in _with_before(versions):
        if before is not None and _goes_on(before, version):
            kept = frozenset(_one_offs(version))
            carried = [each for each in found.values() if each.version is before and each.at_us in kept]
            found.update((each.at_us, PastOneOff(version, each.at_us)) for each in carried)
        elif version.from_us < version.cutover_us:
            known = frozenset(_one_offs(before or befores.get(version.version)))
            given = [at_us for at_us in _one_offs(version) if version.from_us < at_us <= version.cutover_us]
            found.update((at_us, PastOneOff(version, at_us)) for at_us in given if at_us not in known)
    return found


def unknown_befores(versions: Sequence[LedgerVersion]) -> list[int]:
    """The versions that reach back, and of which the one before is not among `versions`."""
    return [
        version.version
        for version, before in _with_before(versions)
        if before is None and version.version > 1 and version.from_us < version.cutover_us
    ]


def _with_before(versions: Sequence[LedgerVersion]) -> Iterator[tuple[LedgerVersion, LedgerVersion | None]]:
    """Each version with the one before it, None where that is not among them."""
    before: LedgerVersion | None = None
    for version in versions:
        yield version, before if before is not None and before.version == version.version - 1 else None
        before = version


def _goes_on(before: LedgerVersion, version: LedgerVersion) -> bool:
    """Whether a version answers for the pause of the one before it."""
    return before.state is JobState.PAUSED and before.from_us == version.from_us


def _beginnings(versions: Sequence[LedgerVersion]) -> list[int]:
    begins: list[int] = []
    for version, before in _with_before(versions):
        goes_on = before is not None and _goes_on(before, version)
        begins.append(begins[-1] if goes_on else version.cutover_us)
    return begins


def _one_offs(version: LedgerVersion | None) -> Sequence[int]:
    if version is None or version.spec is None or version.spec.schedule is None:
        return ()
    return version.spec.schedule.at_us
