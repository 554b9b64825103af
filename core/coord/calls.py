"""One call to etcd, from the first try to the answer: deadlines, rotation, tokens, and what may be sent again.

A read is tried again at another endpoint until its total time is over. A write is tried again only while it is certain
that nothing was applied; once its answer is lost it raises OutcomeUnknown and is never sent a second time. Called by
client.py and watch.py only.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from core.clock import Clock
from core.coord import etcd_pb2 as pb
from core.coord import wire
from core.coord.config import EtcdConfig, EtcdUser
from core.coord.endpoints import Endpoint, Endpoints
from core.coord.faults import AccessDenied, Fault, Verdict, judge_error
from core.errors import OutcomeUnknown, TidewheelError, Unavailable
from core.rand import Rand
from core.tasks import Tasks

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Metadata = tuple[tuple[str, str], ...]

# A member cut off from its leader refuses at once instead of keeping us waiting, on streams as on single calls.
_HAS_LEADER = ("hasleader", "true")


class Backoff:
    """Growing, jittered waits between tries."""

    def __init__(self, config: EtcdConfig, clock: Clock, rand: Rand) -> None:
        self._config = config
        self._clock = clock
        self._rand = rand
        self._next_s = config.retry_min_s

    def reset(self) -> None:
        """Start again from the shortest wait."""
        self._next_s = self._config.retry_min_s

    async def wait(self, at_most_s: float | None = None) -> None:
        """Wait the next time, between half and all of it."""
        wait_s = self._rand.uniform(self._next_s / 2, self._next_s)
        self._next_s = min(self._next_s * 2, self._config.retry_max_s)
        await self._clock.sleep(wait_s if at_most_s is None else min(wait_s, at_most_s))


class Tokens:
    """The token of our user, fetched when first needed and again when the server no longer takes it."""

    def __init__(self, user: EtcdUser | None) -> None:
        self._user = user
        self._token: str | None = None
        self._off = user is None
        self._lock = asyncio.Lock()

    @property
    def has_user(self) -> bool:
        """Whether there is anybody to authenticate as."""
        return self._user is not None

    def drop_if_refused(self, used: Metadata, fault: Fault) -> None:
        """Forget the token that was refused, unless another caller has replaced it meanwhile.

        A denied permission counts as well: on watches, old servers report an expired token that way.
        """
        refused = fault.verdict is Verdict.TOKEN or isinstance(fault.error, AccessDenied)
        if not refused:
            return
        if self._token is None or ("token", self._token) in used:
            self._token = None
            self._off = self._user is None

    async def metadata(self, endpoint: Endpoint, timeout_s: float) -> Metadata:
        """The headers of the next call; raises AioRpcError as that call would."""
        async with self._lock:
            if self._token is None and not self._off:
                await self._authenticate(endpoint, timeout_s)
        return (_HAS_LEADER, ("token", self._token)) if self._token else (_HAS_LEADER,)

    async def _authenticate(self, endpoint: Endpoint, timeout_s: float) -> None:
        assert self._user is not None
        rpc = wire.AUTHENTICATE
        request = pb.AuthenticateRequest(name=self._user.name, password=self._user.password)
        try:
            answer = await endpoint.unary(rpc.path, rpc.encode, rpc.decode)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            if "authentication is not enabled" not in (error.details() or ""):
                raise
            self._off = True
            return
        self._token = answer.token


class Calls:
    """Runs calls against whichever endpoint answers."""

    def __init__(self, config: EtcdConfig, endpoints: Endpoints, tokens: Tokens, clock: Clock, rand: Rand) -> None:
        self._config = config
        self._endpoints = endpoints
        self._tokens = tokens
        self._clock = clock
        self._rand = rand
        self._tries = Tasks()

    async def read(self, rpc: wire.Rpc[Request, Response], request: Request) -> Response:
        """Run a call that may be applied twice; raises Unavailable when its total time is over."""
        return await self._run(rpc, request, writes=False)

    async def write(self, rpc: wire.Rpc[Request, Response], request: Request) -> Response:
        """Run a call that must not be applied twice; raises Unavailable, or OutcomeUnknown once the answer is lost."""
        return await self._run(rpc, request, writes=True)

    async def keep_alive(self, lease: int, timeout_s: float, patience_s: float) -> int:
        """Renew a lease within `timeout_s`; the TTL in seconds that it has again, 0 when it is gone.

        Whoever is silent for `patience_s` is joined by the next endpoint, and the first answer counts: a member that
        froze, or that waits for a leader who did, must not use up the time that the lease has.
        """
        answers: asyncio.Queue[int | TidewheelError] = asyncio.Queue()
        tries: dict[asyncio.Task[None], Endpoint] = {}
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    endpoint = self._endpoints.current
                    asking = self._renew_into(answers, endpoint, lease, timeout_s)
                    tries[self._tries.spawn(asking, name=f"renewal of {lease:x} at {endpoint.target}")] = endpoint
                    try:
                        async with asyncio.timeout(patience_s):
                            answer = await answers.get()
                    except TimeoutError:
                        self._endpoints.pass_over(endpoint)
                        continue
                    if isinstance(answer, TidewheelError):
                        raise answer
                    return answer
        except TimeoutError:
            silent = Unavailable(f"etcd did not renew the lease within {timeout_s:.1f} s")
            for endpoint in dict.fromkeys(tries.values()):
                self._endpoints.failed(endpoint, str(silent))
            raise silent from None
        finally:
            for each in tries:
                each.cancel()

    async def close(self) -> None:
        """End what nobody waits for any more."""
        await self._tries.close()

    async def _renew_into(
        self, answers: asyncio.Queue[int | TidewheelError], endpoint: Endpoint, lease: int, timeout_s: float
    ) -> None:
        """One try at one endpoint, its end put into `answers`."""
        try:
            await endpoint.wait_ready(min(timeout_s, self._config.connect_timeout_s))
            answers.put_nowait(await self._renew(endpoint, lease, timeout_s, may_authenticate=self._tokens.has_user))
        except Unavailable as error:
            self._endpoints.failed(endpoint, str(error))
            answers.put_nowait(error)
        except TidewheelError as error:
            answers.put_nowait(error)

    async def _renew(self, endpoint: Endpoint, lease: int, timeout_s: float, *, may_authenticate: bool) -> int:
        rpc = wire.KEEP_ALIVE
        metadata: Metadata = ()
        try:
            metadata = await self._tokens.metadata(endpoint, timeout_s)
            stream = endpoint.channel.stream_stream(rpc.path, rpc.encode, rpc.decode)(
                iter([pb.LeaseKeepAliveRequest(id=lease)]), timeout=timeout_s, metadata=metadata
            )
            try:
                async for answer in stream:
                    self._endpoints.answered(endpoint)
                    return int(answer.ttl)
            finally:
                stream.cancel()
        except grpc.aio.AioRpcError as error:
            fault = judge_error(error)
            self._tokens.drop_if_refused(metadata, fault)
            if fault.error is None:
                raise Unavailable(fault.reason) from None
            self._endpoints.answered(endpoint)
            if fault.verdict is not Verdict.TOKEN or not may_authenticate:
                raise fault.error from None
        else:
            raise Unavailable(f"etcd at {endpoint.target} ended the stream without an answer")
        return await self._renew(endpoint, lease, timeout_s, may_authenticate=False)

    async def _run(self, rpc: wire.Rpc[Request, Response], request: Request, *, writes: bool) -> Response:
        give_up_s = self._clock.monotonic_s() + self._config.total_timeout_s
        backoff = Backoff(self._config, self._clock, self._rand)
        reauthenticated = False
        while True:
            endpoint = self._endpoints.current
            outcome = await self._try(endpoint, rpc, request, give_up_s - self._clock.monotonic_s())
            if not isinstance(outcome, Fault):
                self._endpoints.answered(endpoint)
                return outcome
            self._raise_if_final(endpoint, outcome, writes=writes)
            if outcome.verdict is Verdict.TOKEN:
                if reauthenticated or not self._tokens.has_user:
                    raise outcome.error or AccessDenied(outcome.reason)
                reauthenticated = True
                continue
            everywhere = self._endpoints.failed(endpoint, outcome.reason)
            if everywhere:
                await backoff.wait(give_up_s - self._clock.monotonic_s())
            if self._clock.monotonic_s() >= give_up_s:
                raise Unavailable(f"etcd: {outcome.reason}")

    def _raise_if_final(self, endpoint: Endpoint, fault: Fault, *, writes: bool) -> None:
        if fault.verdict is Verdict.FINAL:
            self._endpoints.answered(endpoint)
            raise fault.error or Unavailable(fault.reason)
        if fault.verdict is Verdict.ANSWER_LOST and writes:
            self._endpoints.failed(endpoint, fault.reason)
            raise OutcomeUnknown(f"etcd: {fault.reason}")

    async def _try(
        self, endpoint: Endpoint, rpc: wire.Rpc[Request, Response], request: Request, left_s: float
    ) -> Response | Fault:
        """One try at one endpoint: the answer, or what its failure means."""
        if self._endpoints.closed:
            return Fault(Verdict.FINAL, "closed", Unavailable("this etcd client is closed"))
        try:
            await endpoint.wait_ready(min(left_s, self._config.connect_timeout_s))
        except Unavailable as error:
            return Fault(Verdict.NOT_APPLIED, str(error))
        timeout_s = min(left_s, self._config.call_timeout_s)
        try:
            metadata = await self._tokens.metadata(endpoint, timeout_s)
        except grpc.aio.AioRpcError as error:
            fault = judge_error(error)
            return fault if fault.verdict is Verdict.FINAL else Fault(Verdict.NOT_APPLIED, fault.reason)
        try:
            answer: Response = await endpoint.unary(rpc.path, rpc.encode, rpc.decode)(
                request, timeout=timeout_s, metadata=metadata
            )
        except grpc.aio.AioRpcError as error:
            fault = judge_error(error)
            self._tokens.drop_if_refused(metadata, fault)
            return fault
        return answer
