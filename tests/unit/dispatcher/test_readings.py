"""Reads under way: what is outdated while one lasts is left out of that one alone."""

from __future__ import annotations

from dispatcher.readings import Readings
from tests.support.dispatcher_parts import new_id


def test_a_read_learns_of_what_is_outdated_while_it_lasts() -> None:
    readings, before, meanwhile, after = Readings(), new_id(), new_id(), new_id()
    readings.outdate(before)
    with readings.begin() as outdated:
        readings.outdate(meanwhile)
    readings.outdate(after)
    assert outdated == {meanwhile}


def test_each_of_two_reads_learns_of_what_came_after_its_own_beginning() -> None:
    readings, first, second = Readings(), new_id(), new_id()
    with readings.begin() as long:
        readings.outdate(first)
        with readings.begin() as short:
            readings.outdate(second)
        assert short == {second}
    assert long == {first, second}
