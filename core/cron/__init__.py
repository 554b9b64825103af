"""Cron lines: from text to bit masks (tokens -> fields -> days -> expression). Pure; knows no zones and no clock."""

from core.cron.expression import CronLine, EveryLine, parse_line
from core.cron.slots import uses_slots

__all__ = ["CronLine", "EveryLine", "parse_line", "uses_slots"]
