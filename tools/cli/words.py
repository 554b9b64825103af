"""The words that stand for the values of an enum: `buffer-one` for OVERLAP_POLICY_BUFFER_ONE.

What every value of an enum begins with is left out, and so is the `first` of an order. Read by options and files,
written by views. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor

_UNSPECIFIED = "UNSPECIFIED"


def words_of(enum: EnumDescriptor) -> list[str]:
    """The words of all values but the unspecified one, in the order of their numbers."""
    return [_word(enum, value.name) for value in enum.values if value.number]


def word_of(enum: EnumDescriptor, number: int) -> str:
    """The word of one value; empty for the unspecified one. A value of a newer server is its number."""
    value = enum.values_by_number.get(number)
    if value is None:
        return str(number)
    return _word(enum, value.name) if number else ""


def name_of(enum: EnumDescriptor, word: str) -> str | None:
    """The full name of the value that `word` stands for, itself included; None where it stands for none."""
    if word in enum.values_by_name:
        return word
    plain = word.lower().replace("_", "-").removesuffix("-first")
    return next((value.name for value in enum.values if value.number and _word(enum, value.name) == plain), None)


def _word(enum: EnumDescriptor, name: str) -> str:
    prefix = enum.values[0].name.removesuffix(_UNSPECIFIED)
    return name.removeprefix(prefix).lower().replace("_", "-").removesuffix("-first")
