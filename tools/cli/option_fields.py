"""Options that are declared as data, so that several commands can take the same ones, and read as what they mean.

A command gets those that were given as one dict; a `Reader` makes instants, lengths and enum values of them, and each
failure names its option. Called by job_options.py, schedule_options.py and the commands that take such options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.exits import usage
from tools.cli.instants import read_instant, read_length
from tools.cli.words import name_of, words_of

if TYPE_CHECKING:
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper


@dataclass(frozen=True, slots=True)
class Field:
    """One option; absent and empty lists are left out of what a command is given."""

    name: str
    annotation: Any

    @property
    def parameter(self) -> inspect.Parameter:
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=self.annotation)


def option(name: str, kind: Any, panel: str, what: str, metavar: str = "TEXT") -> Field:
    """An option of `kind`, which may be a list: then it may be repeated."""
    shown = typer.Option(help=what, rich_help_panel=panel, metavar=metavar, show_default=False)
    return Field(name, Annotated[kind | None, shown])


def takes_options(fields: Iterable[Field]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give an async command these options; it receives what was given of them as one dict, `given`."""
    kept = tuple(fields)
    names = {field.name for field in kept}

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(body, eval_str=True)
        head, *own = [parameter for parameter in signature.parameters.values() if parameter.name != "given"]

        async def command(call: Any, **values: Any) -> None:
            given = {name: values.pop(name, None) for name in names}
            await body(call, **values, given={name: value for name, value in given.items() if value not in (None, [])})

        options = [*own, *(field.parameter for field in kept)]
        rest = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in options]
        command.__signature__ = inspect.Signature([head, *rest])  # type: ignore[attr-defined]
        command.__doc__ = body.__doc__
        return command

    return decorate


class Reader:
    """The given options, read as what they mean. An empty text stands for nothing: it takes away what was there."""

    def __init__(self, given: dict[str, Any], now: datetime) -> None:
        self.given = given
        self._now = now

    def any(self, *names: str) -> bool:
        return any(name in self.given for name in names)

    def texts(self, name: str) -> list[str]:
        """Every text that is not empty."""
        return [text for text in self.given.get(name, ()) if text]

    def put_instant(self, message: Any, name: str) -> None:
        """Set the field `name` to the instant that was given, or clear it; leave it where none was given."""
        from tidewheel.schedules import timestamp

        if name not in self.given:
            return
        message.ClearField(name)
        if self.given[name]:
            getattr(message, name).CopyFrom(timestamp(name, read_instant(self.given[name], flag(name), self._now)))

    def instants(self, name: str) -> list[Any]:
        from tidewheel.schedules import timestamp

        return [timestamp(name, read_instant(text, flag(name), self._now)) for text in self.texts(name)]

    def put_number(self, message: Any, field: str, name: str) -> None:
        """Set `field` to the number that was given; leave it where none was given."""
        if name in self.given:
            set_number(message, field, self.given[name], flag(name))

    def length(self, name: str) -> Any:
        from tidewheel.schedules import duration

        return duration(read_length(self.given[name], flag(name)))

    def word(self, name: str, kind: EnumTypeWrapper) -> Any:
        full = name_of(kind.DESCRIPTOR, self.given[name])
        if full is None:
            raise usage(
                f"{flag(name)}: must be one of {', '.join(words_of(kind.DESCRIPTOR))}, not {self.given[name]!r}"
            )
        return kind.Value(full)


def flag(name: str) -> str:
    """How the option is typed."""
    return f"--{name.replace('_', '-')}"


def set_number(message: Any, field: str, number: float, what: str) -> None:
    """Set a field to a number. Raises Failure(USAGE) for one that no message can hold; ranges are the server's."""
    try:
        setattr(message, field, number)
    except ValueError:
        raise usage(f"{what}: {number} is out of any range") from None
