"""How a command that talks to a control plane is declared: what they all take, and what they are handed.

A command is written as an async function whose first parameter is a `Call`; `client_command` puts the options that all
of them share beside its own, opens the connection, and closes it. Called by the modules of the groups.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.printing import Printer

if TYPE_CHECKING:
    from tools.cli.api import Api

SHARED_PANEL = "Connection and output"


class Output(StrEnum):
    """What is printed."""

    TABLE = "table"
    JSON = "json"


@dataclass(slots=True)
class Call:
    """What a command works with: the connection, the namespace it speaks of, and where its answer goes."""

    api: Api
    namespace: str
    output: Output
    printer: Printer = field(default_factory=Printer)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def as_json(self) -> bool:
        return self.output is Output.JSON


Body = Callable[..., Awaitable[None]]


def group(what: str) -> typer.Typer:
    """A group of commands about one thing."""
    return typer.Typer(help=what, no_args_is_help=True)


def client_command(app: typer.Typer, name: str) -> Callable[[Body], Body]:
    """Register an async function as the command `name` of `app`."""

    def register(body: Body) -> Body:
        def run(
            *,
            address: str | None,
            namespace: str,
            output: Output,
            timeout: float,
            debug: bool,
            **own: Any,
        ) -> None:
            asyncio.run(_run(body, own, address, namespace, output, timeout))

        own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*own, *_SHARED]]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = body.__doc__
        app.command(name)(run)
        return body

    return register


async def _run(
    body: Body, own: dict[str, Any], address: str | None, namespace: str, output: Output, timeout_s: float
) -> None:
    from tools.cli.api import open_api

    async with open_api(address, timeout_s) as api:
        await body(Call(api, namespace, output), **own)


def _shared(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


DebugOption = Annotated[bool, typer.Option("--debug", help="Show the trace of an error.", rich_help_panel=SHARED_PANEL)]

_SHARED = (
    _shared(
        "address",
        Annotated[
            str | None,
            typer.Option(
                metavar="HOST:PORT",
                help="A control plane, or several with commas. Else TIDEWHEEL_ADDRESS, else 127.0.0.1:7233.",
                rich_help_panel=SHARED_PANEL,
            ),
        ],
        None,
    ),
    _shared(
        "namespace",
        Annotated[
            str,
            typer.Option(
                "--namespace", "-n", envvar="TIDEWHEEL_NAMESPACE", help="Whose jobs.", rich_help_panel=SHARED_PANEL
            ),
        ],
        "default",
    ),
    _shared(
        "output",
        Annotated[
            Output,
            typer.Option("--output", "-o", help="For people, or protobuf JSON.", rich_help_panel=SHARED_PANEL),
        ],
        Output.TABLE,
    ),
    _shared(
        "timeout",
        Annotated[
            float,
            typer.Option(min=0.1, help="Seconds until a call that gets no answer fails.", rich_help_panel=SHARED_PANEL),
        ],
        5.0,
    ),
    _shared("debug", DebugOption, False),
)
