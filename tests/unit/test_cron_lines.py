"""What a cron line may say, what it means, and what is refused, with the field named."""

from __future__ import annotations

import itertools

import pytest

from core.cron import CronLine, EveryLine, parse_line, uses_slots
from core.cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND, FieldSpec, range_mask
from core.errors import Invalid
from core.schedule import Schedule
from tests.support.instants import rfc3339, us


def line(text: str, hash_key: str | None = None) -> CronLine:
    parsed = parse_line(text, "line", hash_key)
    assert isinstance(parsed, CronLine)
    return parsed


def values(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def days_of(text: str, year: int, month: int) -> list[int]:
    """The days of one month on which `0 0 <text>` fires; text is `dom * dow`."""
    schedule = Schedule(cron=(f"0 0 {text}",))
    first = f"{year}-{month:02}-01T00:00:00Z"
    after = f"{year + month // 12}-{month % 12 + 1:02}-01T00:00:00Z"
    return [int((rfc3339(at) or "")[8:10]) for at in schedule.between(us(first), us(after), 40)]


@pytest.mark.parametrize("spec", [SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK], ids=lambda spec: spec.name)
def test_ranges_are_expanded_as_counting_says(spec: FieldSpec) -> None:
    """Every range, also those that wrap round, under several steps."""
    circle = list(range(spec.low, spec.high + 1))
    for first, last, step in itertools.product(circle, circle, (1, 2, 3, 5, 7, 30)):
        if step > spec.max_step:
            continue
        turn = circle[first - spec.low :] + circle[: first - spec.low]
        counted = turn[: turn.index(last) + 1 : step]
        assert values(range_mask(spec, first, last, step)) == sorted(counted), (first, last, step)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("*", list(range(60))), ("0", [0]), ("05", [5]), ("5,3,5", [3, 5]), ("10-13", [10, 11, 12, 13]), ("7-7", [7]),
        ("*/20", [0, 20, 40]), ("5/20", [5, 25, 45]), ("10-20/5", [10, 15, 20]), ("58-1", [0, 1, 58, 59]),
        ("56-4/3", [2, 56, 59]), ("10-20/15", [10]), ("1,2-4,50/5", [1, 2, 3, 4, 50, 55]), ("0-59", list(range(60))),
        ("*/59", [0, 59]), ("*,5", list(range(60))),
    ],
)  # fmt: skip
def test_minutes(text: str, minutes: list[int]) -> None:
    assert values(line(f"{text} 0 1 1 *").minutes) == minutes


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("7", [0]), ("0-7", [0, 1, 2, 3, 4, 5, 6]), ("5-7", [0, 5, 6]), ("sat-sun", [0, 6]), ("FRI-mon", [0, 1, 5, 6]),
        ("7-2", [0, 1, 2]), ("1-7/2", [0, 1, 3, 5]), ("0-7/2", [0, 2, 4, 6]), ("Sun,wED", [0, 3]),
        ("*/2", [0, 2, 4, 6]), ("6-7", [0, 6]), ("7-7", [0]), ("fri-mon/2", [0, 5]), ("2/2", [2, 4, 6]),
        ("sun-sat", [0, 1, 2, 3, 4, 5, 6]),
    ],
)  # fmt: skip
def test_weekdays(text: str, weekdays: list[int]) -> None:
    # February 2026 has four whole weeks and begins on a Sunday.
    assert days_of(f"* 2 {text}", 2026, 2) == [1 + week * 7 + day for week in range(4) for day in weekdays]


def test_months_by_name_and_wrapping() -> None:
    months = [1, 2, 6, 11, 12]
    every_year = [12 * year + month - 1 for year in range(230) for month in months]
    assert values(line("0 0 1 nov-FEB,6 *").live) == every_year
    assert values(line("0 0 0 1 nov-FEB,6 * 1972").live) == [24 + month - 1 for month in months]
    assert values(line("0 0 31 nov-FEB,6 *").live)[:4] == [0, 11, 12, 23], "months without that day are left out"


@pytest.mark.parametrize(
    ("fields", "year", "month", "days"),
    [
        ("L * *", 2024, 2, [29]), ("L-3 * *", 2024, 2, [26]), ("L-30 * *", 2024, 1, [1]), ("LW * *", 2026, 5, [29]),
        ("LW * *", 2026, 1, [30]), ("15W * *", 2024, 6, [14]), ("16W * *", 2024, 6, [17]), ("1W * *", 2026, 8, [3]),
        ("31W * *", 2026, 5, [29]), ("1W,15W * *", 2026, 8, [3, 14]), ("1,L * *", 2025, 6, [1, 30]),
        ("28-3 * *", 2026, 1, [1, 2, 3, 28, 29, 30, 31]), ("31W,1 * *", 2026, 6, [1]),
        ("l-1,lw * *", 2026, 5, [29, 30]),
        ("* * 5#2", 2026, 5, [8]), ("* * 1,5#2", 2026, 5, [4, 8, 11, 18, 25]), ("* * 1#1,5#2", 2026, 5, [4, 8]),
        ("* * 5L", 2026, 5, [29]), ("* * friL,7L", 2026, 5, [29, 31]), ("* * mon#5", 2026, 5, []),
        ("* * sun#5", 2026, 5, [31]),
        ("? * 1", 2026, 6, [1, 8, 15, 22, 29]), ("13 * ?", 2026, 6, [13]), ("13 * 5", 2026, 6, [5, 12, 13, 19, 26]),
        ("*/2 * 5", 2026, 6, [5, 19]), ("13 * */6", 2026, 6, [13]), ("1-31 * 5", 2026, 2, list(range(1, 29))),
        ("*,13 * 5", 2026, 6, [5, 12, 19, 26]), ("13,* * 5", 2026, 6, list(range(1, 31))),
    ],
)  # fmt: skip
def test_days(fields: str, year: int, month: int, days: list[int]) -> None:
    assert days_of(fields, year, month) == days


def test_seconds_come_first_and_years_last() -> None:
    schedule = Schedule(cron=("15,45 59 23 31 dec ? 2027-2099/72",))
    assert [rfc3339(at) for at in schedule.between(0, us("2199-12-31T00:00:00Z"), 9)] == [
        "2027-12-31T23:59:15Z", "2027-12-31T23:59:45Z", "2099-12-31T23:59:15Z", "2099-12-31T23:59:45Z",
    ]  # fmt: skip
    assert Schedule(cron=("0 0 0 1 1 ? 2199",)).next_after(0) == us("2199-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("@monthly", "0 0 1 * *"), ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@hourly", "0 * * * *"), ("@DAILY", "0 0 * * *"),
        ("  0\t0  *  * * ", "0 0 * * *"), ("0 0 0 * * *", "0 0 * * *"), ("0 0 0 * * * *", "0 0 * * *"),
    ],
)  # fmt: skip
def test_other_spellings(text: str, same_as: str) -> None:
    assert parse_line(text) == parse_line(same_as)


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("1s", 1), ("2s", 2), ("90m", 5400), ("1h30m", 5400), ("1H2M3S", 3723), ("8760h", 31_536_000)],
)
def test_every(duration: str, seconds: int) -> None:
    assert parse_line(f"@every {duration}") == EveryLine(seconds)


@pytest.mark.parametrize(
    "text",
    ["@every", "@every 0s", "@every 500ms", "@every 1.5h", "@every -1s", "@every 1m1h", "@every 1", "@every s",
     "@every 1s 2s", "@every 1d", "@every 99999999999h", "@every 9999999999h"],
)  # fmt: skip
def test_every_refuses(text: str) -> None:
    with pytest.raises(Invalid, match=r"^line: .*@every"):
        parse_line(text, "line")


def test_wildcard_lines_are_those_whose_minute_or_hour_starts_with_a_star() -> None:
    for text in ("* 1 * * *", "*/5 1 * * *", "1 * * * *", "1 */2 * * *", "0 * 1 * * *"):
        assert line(text).wildcard, text
    for text in ("0-59 1 * * *", "0 0-23 * * *", "* 1 1 * * *", "0/5 0/1 * * *"):
        assert not line(text).wildcard, text


REFUSED = {
    "line": [
        "", "   ", "@", "@reboot", "@daily 5", "@never", "TZ=0", "TZ=TZ=TZ=", "CRON_TZ=UTC", "TZ=UTC ",
        "TZ=UTC * * * * *", "*" * 10_240, "* " * 200, "* * * *", "* * * * * * * *", "\u0663 * * * *", "* * * * *\n",
        "0\x000 * * *", "0 0 * * m\xf6n", "0\xa00 * * *",
    ],
    "line.minute": [
        "1e1 * * * *", "R * * * *", "R(0-9) * * * *", "*/90 * * * *", "*/60 * * * *", "*/0 * * * *", "60 * * * *",
        "-1 * * * *", "+1 * * * *", "1- * * * *", "1--2 * * * *", "1-2-3 * * * *", "1/ * * * *", "1//2 * * * *",
        "/5 * * * *", "1, * * * *", ",1 * * * *", "1,,2 * * * *", "*-5 * * * *", "** * * * *", "? * * * *",
        "L * * * *", "000 * * * *", "99999999999999999999 * * * *", "1/99999999999999999999 * * * *",
    ],
    "line.hour": [
        "0 */25 * * *", "0 */24 * * *", "* ? * * *", "0 24 * * *", "0 mon * * *",
    ],
    "line.month": [
        "* * * ? *", "0 0 1 0 *", "0 0 1 13 *", "0 0 1 jam *", "0 0 1 mon *", "0 0 1 january *",
    ],
    "line.day_of_month": [
        "0 0 0 * *", "0 0 32 * *", "0 1 0/10 * *", "0 0 1-L * *", "0 0 L-31 * *", "0 0 W * *", "0 0 0W * *",
        "0 0 32W * *", "0 0 1-5W * *", "0 0 WL * *", "0 0 L/2 * *", "0 0 ?/2 * *", "0 0 ?,1 * *", "0 0 mon * *",
        "0 0 30 2 *", "0 0 31 2 *", "0 0 31 4,6,9,11 *", "0 0 L-30 4 *", "0 0 0 29 2 ? 2100", "0 0 31W 2 *",
        "0 0 */30 2 1#5",
    ],
    "line.day_of_week": [
        "0 0 * * 8", "0 0 * * L", "0 0 * * L5", "0 0 * * 5#0", "0 0 * * 5#6", "0 0 * * 5#", "0 0 * * 1-5#2",
        "0 0 * * 8#1", "0 0 * * jan#1", "0 0 * * 5W", "0 0 * * */7", "0 0 * * monday", "0 6 2 2 * 2030",
        "0 0 */30 2 */3#5",
    ],
    "line.year": [
        "0 0 0 1 1 ? 1969", "0 0 0 1 1 ? 2200", "0 0 0 1 1 ? 2030-2029", "0 0 0 1 1 ? 30", "0 0 0 1 1 ? H",
    ],
    "line.second": [
        "60 0 0 1 1 ?",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "text"),
    [(field, text) for field, texts in REFUSED.items() for text in texts],
    ids=lambda value: value[:24].encode("unicode_escape").decode(),
)
def test_b112_b113_b115_refuses_and_names_the_field(field: str, text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_line(text, "line")
    assert refusal.value.field == field
    assert len(refusal.value.rule) < 250
    assert "croniter" not in refusal.value.rule


def test_b112_a_day_that_exists_in_leap_years_only_is_accepted() -> None:
    assert Schedule(cron=("0 0 29 2 *",)).next_after(us("2026-01-01T00:00:00Z")) == us("2028-02-29T00:00:00Z")
    # Five Mondays in February: 2044 and 2072 only, far beyond what a walk over a few years would find.
    assert Schedule(cron=("0 0 * 2 1#5",)).next_after(us("2045-01-01T00:00:00Z")) == us("2072-02-29T00:00:00Z")


def test_h_is_a_stable_slot_of_its_key() -> None:
    assert line("H H * * *", "team/report") == line("H H * * *", "team/report")
    slots = {line("H H * * *", f"job {n}").minutes for n in range(600)}
    assert len(slots) == 60, "the keys spread over all minutes"
    # A stored schedule must fire at the same slot in every later release.
    assert (values(line("H H * * *", "fixed").minutes), values(line("H H * * *", "fixed").hours)) == ([33], [0])


def test_h_respects_its_range_and_step() -> None:
    for n in range(200):
        key = f"job {n}"
        assert values(line("H(10-19) 0 * * *", key).minutes)[0] in range(10, 20)
        quarter = values(line("H/15 0 * * *", key).minutes)
        assert len(quarter) == 4
        assert {late - early for early, late in itertools.pairwise(quarter)} == {15}
        ranged = values(line("0 H(8-17)/3 * * *", key).hours)
        assert ranged[0] in (8, 9, 10)
        assert max(ranged) <= 17
        assert days_of_hashed(key) <= 28
        assert line("H(0-29),30 0 * * *", key).minutes >> 30 == 1


def days_of_hashed(key: str) -> int:
    return max(mask.bit_length() for mask in line("0 0 H * *", key).days)


@pytest.mark.parametrize("text", ["H(29-0)", "H(0-60)", "H/60", "H(0-9)/10", "H(5)", "H5", "H-5", "H(1-2)(3-4)"])
def test_h_refuses(text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_line(f"{text} * * * *", "line", "key")
    assert refusal.value.field == "line.minute"


def test_lines_with_slots_are_known_by_their_h() -> None:
    assert all(uses_slots(text) for text in ("H * * * *", "0 h/2 * * *", "0 0 1,H(3-9) * *", "0 0 * * H"))
    assert not any(uses_slots(text) for text in ("@hourly", "0 0 * * thu", "@every 2h", "0 0 * mar THU#1"))


def test_h_without_a_key_is_refused() -> None:
    with pytest.raises(Invalid, match=r"line\.minute: H needs a hash_key"):
        parse_line("H * * * *", "line")
