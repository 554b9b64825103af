"""Watches the list of dispatchers on whichever control plane answers. Called by worker.py.

The last list stays valid while every control plane is away: dispatchers go on without them, and so do workers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import grpc.aio

from tidewheel.channels import stream_channel
from tidewheel.clock import Clock
from tidewheel.v1.discovery_service_pb2 import DispatcherList, WatchDispatchersRequest
from tidewheel.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
FIRST_LIST_WITHIN_S = 3.0


class DispatcherWatch:
    """The list of dispatchers' addresses, told to `listed` at once and at each change."""

    def __init__(self, control_planes: Sequence[str], clock: Clock, listed: Callable[[Sequence[str]], None]) -> None:
        self._control_planes = tuple(control_planes)
        self._clock = clock
        self._listed = listed

    async def run(self) -> None:
        """Watch until cancelled, one control plane after the other."""
        # A random first one, so that many workers spread over the control planes.
        at = random.randrange(len(self._control_planes))  # noqa: S311
        pause_s = FIRST_PAUSE_S
        while True:
            heard = await self._watch(self._control_planes[at])
            at = (at + 1) % len(self._control_planes)
            pause_s = FIRST_PAUSE_S if heard else min(LONGEST_PAUSE_S, pause_s * 1.5)
            await self._clock.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311

    async def _watch(self, address: str) -> bool:
        """One stream until it breaks; whether it brought a list."""
        heard = False
        async with stream_channel(address) as channel:
            call: Any = DiscoveryServiceStub(channel).WatchDispatchers(WatchDispatchersRequest())
            try:
                # A control plane that is frozen accepts calls and says nothing.
                async with asyncio.timeout(FIRST_LIST_WITHIN_S):
                    answer = await call.read()
                while answer is not grpc.aio.EOF:
                    heard = True
                    self._take(answer)
                    answer = await call.read()
            except TimeoutError:
                log.info("control plane at %s says nothing", address)
            except grpc.aio.AioRpcError as error:
                log.info("control plane at %s does not answer: %s", address, error.details() or error.code().name)
            finally:
                call.cancel()
        return heard

    def _take(self, answer: DispatcherList) -> None:
        self._listed([dispatcher.address for dispatcher in answer.dispatchers if dispatcher.address])
