"""The missed-fire watch over real processes: a frozen dispatcher cannot hide what it does not fire."""

from __future__ import annotations

from functools import partial

from tidewheel import Cron
from tidewheel.v1 import admin_service_pb2

from tests.support.live_system import LiveSystem, Size
from tests.support.monitor import scrape
from tests.support.polling import eventually
from tools.cli.api import open_api
from tools.fleet import Member
from tools.servers.homes import temporary_home

AFTER_S = 4
JOBS = 10


async def test_a_frozen_dispatcher_is_told_of_by_every_replica_and_counted_by_one() -> None:
    environ = {"TIDEWHEEL_CONTROLPLANE_MISSED_FIRE_AFTER_S": str(AFTER_S)}
    with temporary_home() as home:
        async with LiveSystem(home, environ, Size(dispatchers=1)) as system, system.client() as client:
            for number in range(JOBS):
                await client.create_job(
                    f"tick-{number}", handler="record", schedule=Cron("* * * * * *"), overlap="allow"
                )
            for number in range(JOBS):
                await eventually(partial(_ran, system, f"tick-{number}"), within_s=30)
            await eventually(partial(_is_well, system), within_s=60, what="nothing is missed so far")

            (dispatcher,) = system.dispatchers
            dispatcher.child.freeze()
            try:
                await eventually(
                    partial(_all_missed, system), within_s=60, what="every job's overdue occurrence is counted"
                )
                for member in system.control_planes:
                    await eventually(
                        partial(_tells_of_silence, member), within_s=60, what=f"{member.name} says what is overdue"
                    )
            finally:
                dispatcher.child.thaw()
            await eventually(partial(_is_well, system), within_s=60, what="nothing is missed any more")
            log = "".join(member.child.log.read_text() for member in system.control_planes)
            assert log.count("the owner of the shard is not heard of: default/tick-") == 1, "the leader tells it once"
            assert "nothing is missed any more" in log


def _ran(system: LiveSystem, job: str) -> bool:
    return len(system.starts(job)) > 3


async def _missed(system: LiveSystem, reason: str) -> float:
    """What the replicas count together: of one reason, or of all."""
    labels = {"reason": reason} if reason else {}
    pages = [await scrape(system.monitor_address(member)) for member in system.control_planes]
    return sum(page.total("tidewheel_missed_fires", **labels) for page in pages)


async def _all_missed(system: LiveSystem) -> bool:
    return await _missed(system, "owner_silent") == JOBS == await _missed(system, "")


async def _problems(member: Member) -> list[str]:
    async with open_api(member.address, 5.0) as api:
        status = await api.admin("GetClusterStatus", admin_service_pb2.GetClusterStatusRequest())
    return list(status.problems)


async def _tells_of_silence(member: Member) -> bool:
    beginning = f"{JOBS} overdue by more than {AFTER_S} s, the owner of the shard is not heard of: default/tick-"
    return any(line.startswith(beginning) for line in await _problems(member))


async def _is_well(system: LiveSystem) -> bool:
    lines = [line for member in system.control_planes for line in await _problems(member)]
    return not lines and await _missed(system, "") == 0
