"""Loads the configuration: flags before environment before file before default. The values are core/config.py's.

Every key of every section can be given in each of the four ways. An unknown key or variable is refused with the nearest
known one, a value of the wrong type with the type that was expected: a configuration that is misread silently is worse
than none. Called by the commands that start a role, and for the address that the others talk to.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from core.config import Settings
from core.errors import Invalid
from tools.cli.exits import Failure, usage

PREFIX = "TIDEWHEEL_"
CONFIG_VARIABLE = "TIDEWHEEL_CONFIG"
# Variables of ours that are no key of a section: read by the command line itself, or given to commands that it starts.
OTHER_VARIABLES = frozenset(
    {
        CONFIG_VARIABLE,
        "TIDEWHEEL_ADDRESS",
        "TIDEWHEEL_NAMESPACE",
        "TIDEWHEEL_JOB",
        "TIDEWHEEL_RUN_ID",
        "TIDEWHEEL_ATTEMPT",
        "TIDEWHEEL_FENCING_TOKEN",
        "TIDEWHEEL_SCHEDULED_FOR",
        "TIDEWHEEL_WORKER",
        "TIDEWHEEL_DEMO_LOG",
        "TIDEWHEEL_FAILPOINTS",
    }
)
# The standard variables of others that set a key of ours too, the stronger ones last; our own name for it wins.
STANDARD_VARIABLES = MappingProxyType(
    {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "telemetry.otlp_endpoint",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "telemetry.otlp_endpoint",
    }
)
# What Kubernetes puts into every pod's environment for a service whose name begins with tidewheel.
_SERVICE_LINK = re.compile(
    r"TIDEWHEEL_(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT=\w+://.*|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?=.*)"
)

TYPE_NAMES = MappingProxyType(
    {str: "text", bool: "true or false", int: "a whole number", float: "a number", tuple[str, ...]: "a list of texts"}
)


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be configured."""

    section: str
    name: str
    kind: Any

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return f"{PREFIX}{self.section}_{self.name}".upper()


@cache
def known_keys() -> Mapping[str, Key]:
    """Every key by its path, in the order of core/config.py."""
    keys = {}
    for section, kind in get_type_hints(Settings).items():
        if not is_dataclass(kind):
            raise TypeError(f"section {section} of Settings is no dataclass")
        hints = get_type_hints(kind)
        for field in fields(kind):
            key = Key(section, field.name, hints[field.name])
            keys[key.path] = key
    return MappingProxyType(keys)


def load(
    *,
    flags: Mapping[str, Any] | None = None,
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings, checked as a whole. Raises Failure(USAGE) that names the key, where it stands and the rule.

    `flags` maps paths such as "database.url" to typed values; None there means not given. `file` defaults to the one
    that TIDEWHEEL_CONFIG names; with neither there is none.
    """
    environ = os.environ if environ is None else environ
    chosen = file or environ.get(CONFIG_VARIABLE)
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    layers = [(_from_file(Path(chosen)), str(chosen))] if chosen else []
    layers += [(_from_environment(environ), "the environment"), (_from_flags(flags or {}), "a flag")]
    for layer, place in layers:
        values.update(layer)
        places.update(dict.fromkeys(layer, place))
    try:
        return _built(values)
    except Invalid as error:
        raise usage(f"{error.field}: {error.rule}", f"set in {places.get(error.field, 'the defaults')}") from error


def control_plane_address(flag: str | None = None, *, environ: Mapping[str, str] | None = None) -> str:
    """Where the control planes are, with commas between several: flag, TIDEWHEEL_ADDRESS, configuration, default."""
    environ = os.environ if environ is None else environ
    given = flag or environ.get("TIDEWHEEL_ADDRESS")
    if given:
        return given
    settings = load(environ=environ).controlplane
    return settings.advertise or settings.listen


def parsed(key: Key, text: str) -> Any:
    """The value that `text` stands for, as it comes from a flag or the environment. Raises ValueError."""
    if key.kind is str:
        return text
    if key.kind is bool:
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse()
    if key.kind is int:
        return int(text)
    if key.kind is float:
        return float(text)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def assignments(pairs: list[str]) -> dict[str, Any]:
    """The values of `--set section.key=value` flags by path."""
    values = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals:
            raise usage(f"--set {pair}: takes section.key=value", "for example --set dispatcher.tick_s=0.5")
        values[path] = _checked(_key(path, "--set"), text, "--set")
    return values


def _refuse() -> Any:
    raise ValueError("not a value of this type")


def _built(values: Mapping[str, Any]) -> Settings:
    sections: dict[str, Any] = {}
    for section, kind in get_type_hints(Settings).items():
        given = {
            key.name: values[path] for path, key in known_keys().items() if key.section == section and path in values
        }
        sections[section] = kind(**given)
    return Settings(**sections)


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {_key(path, "a flag").path: value for path, value in flags.items() if value is not None}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    by_variable = {key.variable: key for key in known_keys().values()}
    values: dict[str, Any] = {}
    for variable, path in STANDARD_VARIABLES.items():
        if environ.get(variable):
            values[path] = environ[variable]
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if _SERVICE_LINK.fullmatch(f"{variable}={text}"):
            continue
        key = by_variable.get(variable)
        if key is None:
            raise _unknown(variable, [*by_variable, *OTHER_VARIABLES], "the environment")
        values[key.path] = _checked(key, text, variable)
    return values


def _from_file(file: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise usage(f"{file}: cannot be read: {error.strerror}", f"given by --config or {CONFIG_VARIABLE}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise usage(f"{file}: is not TOML: {error}") from error
    values = {}
    for section, table in document.items():
        if section not in _sections():
            raise _unknown(section, _sections(), str(file))
        if not isinstance(table, dict):
            raise usage(f"{file}: {section} must be a table", f"write [{section}] on a line of its own")
        for name, value in table.items():
            key = _key(f"{section}.{name}", str(file))
            values[key.path] = _typed(key, value, str(file))
    return values


def _sections() -> list[str]:
    return list(dict.fromkeys(key.section for key in known_keys().values()))


def _key(path: str, place: str) -> Key:
    key = known_keys().get(path)
    if key is None:
        raise _unknown(path, list(known_keys()), place)
    return key


def _unknown(name: str, known: list[str], place: str) -> Failure:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return usage(f"{place}: unknown key {name}", f"did you mean {nearest[0]}?")


def _typed(key: Key, value: Any, place: str) -> Any:
    """A value of a TOML file, which has types of its own."""
    if key.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if key.kind == tuple[str, ...]:
        fits = isinstance(value, list) and all(isinstance(part, str) for part in value)
        value = tuple(value) if fits else value
    else:
        fits = type(value) is key.kind
    if not fits:
        raise usage(f"{place}: {key.path} must be {TYPE_NAMES[key.kind]}, not {value!r}")
    return _bounded(key, value, place)


def _checked(key: Key, text: str, place: str) -> Any:
    try:
        value = parsed(key, text)
    except ValueError as error:
        raise usage(f"{place}: {key.path} must be {TYPE_NAMES[key.kind]}, not {text!r}") from error
    return _bounded(key, value, place)


def _bounded(key: Key, value: Any, place: str) -> Any:
    """Every number of the configuration is a size, a count, a share or a time: none is below zero or endless."""
    if isinstance(value, int | float) and (not math.isfinite(value) or value < 0):
        raise usage(f"{place}: {key.path} must not be negative or endless, not {value}")
    return value
