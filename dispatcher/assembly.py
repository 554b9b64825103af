"""The parts of one dispatcher and how they are connected; nothing here runs yet.

Called by process.py, which starts and stops what is assembled here, and by tests that look at one part at work.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from tidewheel.v1 import worker_service_pb2_grpc

from core.config import DispatcherSettings
from core.coord.ports import DispatcherCoord
from core.hint_post import HintPost
from core.keepalive import PATIENT_ANSWER_MS, PATIENT_MS, accepts_pings, pings
from core.store.completion import Completion
from core.store.database import Database
from core.store.discovery import Discovery
from core.store.firing import Firing
from core.store.gates import GateKeeper
from core.store.job_lookup import JobLookup
from core.store.leases import Leases
from core.store.marks import MarkKeeper
from core.store.open_runs import OpenRuns
from core.store.terms import Terms
from core.tasks import Tasks
from core.wire import internal_pb2_grpc
from dispatcher.adoption import Adoption
from dispatcher.agenda import Agenda
from dispatcher.ailments import Ailments, Signs
from dispatcher.attempts import Attempts
from dispatcher.claims import Claims
from dispatcher.completion import CompletionLoop
from dispatcher.delivery import Delivery
from dispatcher.discovery import DiscoveryLoop
from dispatcher.fence_watch import FenceWatch
from dispatcher.firing import DueLoop
from dispatcher.gatekeeper import GateLoop
from dispatcher.gates import Gates
from dispatcher.handoff import HandoffLoop
from dispatcher.hints import Hints
from dispatcher.holdings import Holdings
from dispatcher.jobs import Jobs
from dispatcher.judgement import Judge
from dispatcher.loads import Loads
from dispatcher.matching import MatchLoop
from dispatcher.neighbours import Neighbours
from dispatcher.ownership import Ownership
from dispatcher.progress import ProgressLoop
from dispatcher.reaper import Reaper
from dispatcher.redirects import Redirects
from dispatcher.renewals import RenewalLoop
from dispatcher.reports import Reports
from dispatcher.routes import Routes
from dispatcher.runtime import Memory, Runtime
from dispatcher.worker_link import WorkerLink


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a dispatcher, built and not yet running."""

    due: DueLoop
    matching: MatchLoop
    gates: GateLoop
    discovery: DiscoveryLoop
    progress: ProgressLoop
    completion: CompletionLoop
    redirects: Redirects
    renewals: RenewalLoop
    reaper: Reaper
    ownership: Ownership
    ailments: Ailments
    handoffs: HandoffLoop
    neighbours: Neighbours
    reports: Reports

    def start(self, tasks: Tasks) -> None:
        tasks.spawn(self.ownership.run(), name="ownership")
        tasks.spawn(self.handoffs.run(), name="hand-offs")
        tasks.spawn(self.neighbours.run(), name="hints to neighbours")
        tasks.spawn(self.discovery.run(), name="discovery")
        tasks.spawn(self.due.run(), name="due loop")
        tasks.spawn(self.matching.run(), name="matching")
        tasks.spawn(self.gates.run(), name="gates")
        tasks.spawn(self.completion.run(), name="completion")
        tasks.spawn(self.completion.send_on(), name="sending words on")
        tasks.spawn(self.redirects.run(), name="redirects")
        tasks.spawn(self.renewals.run(), name="renewals")
        tasks.spawn(self.reaper.run(), name="reaper")
        tasks.spawn(self.progress.run(), name="progress")
        tasks.spawn(self.ailments.run(), name="ailments")
        tasks.spawn(self.reports.run(), name="reports")


@dataclass(frozen=True, slots=True)
class Assembly:
    """One dispatcher: its surroundings, its memory, its loops."""

    runtime: Runtime
    memory: Memory
    loops: Loops


def assemble(runtime: Runtime, database: Database, coord: DispatcherCoord, *, report_interval_s: float) -> Assembly:
    """Build every part over one database and one view of etcd."""
    owner = runtime.dispatcher_id
    lookup = JobLookup(database, owner)
    limit = runtime.settings.waiting_limit
    memory = Memory(Holdings(), Agenda(), Jobs(lookup, runtime.enumerator), Routes(limit), Attempts(), Gates(limit))
    watch = FenceWatch(runtime, memory)
    leases, discovery, marks = Leases(database, owner), Discovery(database), MarkKeeper(database, owner)
    open_runs = OpenRuns(database, owner)
    delivery = Delivery(runtime, memory)

    def address_of(dispatcher_id: str) -> str:
        member = coord.members().get(dispatcher_id)
        return "" if member is None or dispatcher_id == owner else member.address

    due = DueLoop(runtime, memory, Firing(database, owner), lookup, delivery, watch)
    ending = Completion(database, owner)
    redirects = Redirects(runtime, memory, ending, address_of, lambda shard: coord.owners().get(shard))
    adoption = Adoption(runtime, memory, open_runs, watch)
    judge = Judge(runtime, memory, ending, redirects, adoption.adopt_named)
    completion = CompletionLoop(runtime, memory, ending, watch, judge, redirects)
    scanning = DiscoveryLoop(runtime, memory, discovery)
    terms = Terms(database)
    neighbours = Neighbours(owner, memory, coord, HintPost(coord, runtime.clock))
    claims = Claims(runtime, memory, coord, terms, neighbours)
    ownership = Ownership(runtime, memory, coord, claims, marks, adoption)
    handoffs = HandoffLoop(runtime, memory, neighbours, terms, marks, adoption)
    progress = ProgressLoop(runtime, memory, marks, discovery, open_runs, watch)
    ownership.quiet = progress.quiet = handoffs.quiet = due.quiet
    ownership.leave, due.landed_after = completion.leave, neighbours.landed_after
    signs = Signs(
        database_s=lambda: max([ownership.read_s, *(held.proven_s for held in memory.holdings)]),
        due_loop_s=lambda: min(due.passed_s, scanning.tried_s),
    )
    ailments = Ailments(runtime, memory, signs)
    loops = Loops(
        due=due,
        matching=MatchLoop(runtime, memory, leases, delivery, watch),
        gates=GateLoop(runtime, memory, GateKeeper(database, owner), watch),
        discovery=scanning,
        progress=progress,
        completion=completion,
        redirects=redirects,
        renewals=RenewalLoop(runtime, memory, leases, watch, redirects.doubt, redirects.elsewhere),
        reaper=Reaper(runtime, memory, completion),
        ownership=ownership,
        ailments=ailments,
        handoffs=handoffs,
        neighbours=neighbours,
        reports=Reports(
            runtime,
            memory,
            coord,
            interval_s=report_interval_s,
            draining=lambda: ownership.draining,
            last_pass_s=lambda: scanning.last_pass_s,
            loads=Loads(runtime.clock, runtime.scale, memory),
            ailments=ailments,
        ),
    )
    return Assembly(runtime, memory, loops)


async def serve_streams(built: Assembly, settings: DispatcherSettings, tasks: Tasks) -> tuple[grpc.aio.Server, str]:
    """Serve workers and hints on `settings.listen`; returns the server and the address that was bound."""
    limit = settings.max_message_bytes
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            *accepts_pings(),
            *pings(PATIENT_MS, PATIENT_ANSWER_MS),
        )
    )
    loops = built.loops
    link = WorkerLink(built.runtime, built.memory, loops.matching, loops.completion, loops.renewals, tasks)
    worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(link, server)
    internal_pb2_grpc.add_DispatcherServiceServicer_to_server(Hints(built.memory, loops.neighbours), server)
    host, _, _ = settings.listen.rpartition(":")
    port = server.add_insecure_port(settings.listen)
    await server.start()
    return server, f"{host}:{port}"
