"""A process that campaigns and, while it leads, writes one plan after the other; it ends when its leadership is lost.

python -m tests.support.plan_writer ENDPOINTS CLUSTER NAME. A plan that etcd took is a line on stdout, "wrote VERSION";
the last line says "lost: " and why. Plans are for a dispatcher of the writer's name, so that etcd's history tells whose
they are. Used by tests that freeze one writer in the middle of it.
"""

from __future__ import annotations

import asyncio
import sys

from core.clock import SystemClock
from core.coord.config import EtcdConfig, SessionConfig
from core.coord.coord import EtcdCoord
from core.coord.faults import LeadershipLost
from core.coord.layout import Assignment, LeaderInfo, Plan
from core.errors import Conflict, OutcomeUnknown, Unavailable
from core.rand import SystemRand


async def main(endpoints: str, cluster: str, name: str) -> None:
    """Campaign, then write until that is refused."""
    clock = SystemClock()
    etcd = EtcdConfig(tuple(endpoints.split(",")))
    session = SessionConfig(ttl_s=5, renew_s=0.5, margin_s=0.5)
    coord = EtcdCoord(etcd, session, cluster, clock, SystemRand())
    coord.start()
    leadership = await coord.campaign(LeaderInfo(name, "127.0.0.1:7000"))
    while True:
        plan = Plan(clock.now_us(), (Assignment(0, name, 0, ""),))
        try:
            # Without a look at `valid` before: what is shown here is that the write itself is refused.
            await coord.write_plan(leadership, plan)
        except LeadershipLost as lost:
            print(f"lost: {lost}", flush=True)
            break
        except (Conflict, OutcomeUnknown, Unavailable) as error:
            print(f"not written: {error}", flush=True)
        else:
            print(f"wrote {plan.version}", flush=True)
    await coord.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
