"""Reading crontabs: what a line becomes, what holds for the lines after it, and what is reported."""

from __future__ import annotations

import pytest

from core.schedule import Schedule
from tests.support.instants import us
from tools.crontab import ImportedJob, Problem, needs_shell, parse_crontab, split_percent
from tools.crontab_names import JobNames

ANCHOR = us("2026-06-01T12:00:00Z")


def read(text: str, *, system: bool = False, default_zone: str = "UTC") -> list[ImportedJob | Problem]:
    return parse_crontab(text, system=system, anchor_us=ANCHOR, default_zone=default_zone)


def jobs(text: str, *, system: bool = False, default_zone: str = "UTC") -> list[ImportedJob]:
    found = read(text, system=system, default_zone=default_zone)
    assert all(isinstance(result, ImportedJob) for result in found), found
    return [result for result in found if isinstance(result, ImportedJob)]


def job(text: str, *, system: bool = False) -> ImportedJob:
    (only,) = jobs(text, system=system)
    return only


def problem(text: str, *, system: bool = False) -> Problem:
    (only,) = read(text, system=system)
    assert isinstance(only, Problem), only
    return only


def test_a_users_line() -> None:
    found = job("*/5 8-18 * jan-jun MON-fri  /usr/local/bin/sync.sh --fast  'two words'\n")
    assert found.schedule == Schedule(cron=("*/5 8-18 * jan-jun MON-fri",))
    assert found.argv == ("/usr/local/bin/sync.sh", "--fast", "two words")
    assert (found.shell_command, found.stdin, found.user, dict(found.env)) == ("", None, None, {})
    assert (found.name, found.line_no, found.notes) == ("sync", 1, ())


def test_a_system_line_has_a_user() -> None:
    found = job("17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly", system=True)
    assert found.schedule.cron == ("17 * * * *",)
    assert (found.user, found.argv) == ("root", ())
    assert (found.shell, found.shell_command) == ("/bin/sh", "cd / && run-parts --report /etc/cron.hourly")
    assert found.name == "run-parts"
    assert found.notes == ("runs as the worker's own user, not as root",)


def test_shorthands_and_every() -> None:
    found = jobs("@daily root /bin/a\n@every 2s root /bin/b\n@Hourly root /bin/c x", system=True)
    assert [each.schedule for each in found] == [
        Schedule(cron=("@daily",)),
        Schedule(cron=("@every 2s",), anchor_us=ANCHOR),
        Schedule(cron=("@Hourly",)),
    ]
    assert [each.argv for each in found] == [("/bin/a",), ("/bin/b",), ("/bin/c", "x")]


def test_seconds_need_the_directive() -> None:
    found = jobs("0 0 * * * /bin/a\n# tidewheel: seconds\n*/10 * * * * * /bin/b\n@daily /bin/c\n")
    assert [each.schedule.cron for each in found] == [("0 0 * * *",), ("*/10 * * * * *",), ("@daily",)]
    assert [each.description for each in found] == ["", "", ""]


def test_environment_holds_for_the_lines_after_it() -> None:
    first, second, third = jobs(
        """
        0 1 * * * /bin/a
        PATH=/usr/bin:/bin
        "GREETING" = 'hello  world '
        0 2 * * * /bin/b
        EMPTY=
        SHELL=/bin/bash
        PATH = /opt/bin
        0 3 * * * echo $GREETING
        """
    )
    assert dict(first.env) == {}
    assert dict(second.env) == {"PATH": "/usr/bin:/bin", "GREETING": "hello  world "}
    assert dict(third.env) == {"PATH": "/opt/bin", "GREETING": "hello  world ", "EMPTY": "", "SHELL": "/bin/bash"}
    assert (third.shell, third.shell_command) == ("/bin/bash", "echo $GREETING")


def test_cron_tz_sets_the_zone_of_the_times_and_tz_the_commands() -> None:
    found = jobs(
        "0 1 * * * /bin/a\nCRON_TZ=America/New_York\n0 1 * * * /bin/b\nTZ=Asia/Tokyo\n0 1 * * * /bin/c\nCRON_TZ=\n"
        "0 1 * * * /bin/d",
        default_zone="Europe/Berlin",
    )
    assert [each.schedule.zone for each in found] == ["Europe/Berlin", "America/New_York", "America/New_York", "UTC"]
    assert [dict(each.env) for each in found] == [{}, {}, {"TZ": "Asia/Tokyo"}, {"TZ": "Asia/Tokyo"}]
    assert found[2].notes == (
        "TZ is the command's own zone; the times are read in America/New_York (CRON_TZ would set that)",
    )


def test_lines_after_an_unknown_zone_are_not_run_in_another_one() -> None:
    found = read("CRON_TZ=europe/berlin\n0 1 * * * /bin/a\nCRON_TZ=Europe/Berlin\n0 1 * * * /bin/b\n")
    assert isinstance(found[0], Problem)
    assert found[0].line_no == 1
    assert found[0].reason.endswith("did you mean Europe/Berlin?")
    assert isinstance(found[1], Problem)
    assert found[1].reason == "zone: CRON_TZ of line 1 names no time zone, so the times mean nothing"
    assert isinstance(found[2], ImportedJob)
    assert found[2].schedule.zone == "Europe/Berlin"


def test_what_cron_would_have_mailed_or_put_off_is_noted() -> None:
    first, second = jobs(
        'MAILTO=ops@example.com\nSTART_HOURS_RANGE=3-22\n0 1 * * * /bin/a\nMAILTO=""\n0 1 * * * /bin/b\n'
    )
    assert first.notes == (
        "START_HOURS_RANGE (line 2): the range of starting hours is not kept",
        "output is not mailed to ops@example.com: its tail is kept with the run",
    )
    assert second.notes == first.notes[:1]
    assert "MAILTO" not in first.env
    assert "START_HOURS_RANGE" not in first.env


def test_a_random_delay_becomes_jitter_of_the_lines_after_it() -> None:
    found = jobs("0 1 * * * /bin/a\nRANDOM_DELAY=45\n@every 1h /bin/b\nRANDOM_DELAY=0\n0 3 * * * /bin/c\n")
    assert [each.schedule.jitter_us for each in found] == [0, 45 * 60 * 1_000_000, 0]
    assert all("RANDOM_DELAY" not in each.env for each in found)
    assert found[1].notes == ()


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("mail -s hi root%Dear root,%%good night", "mail -s hi root", "Dear root,\n\ngood night\n"),
        (r"date +\%Y-\%m-\%d", "date +%Y-%m-%d", None),
        (r"cat%100\% sure", "cat", "100% sure\n"),
        ("cat%", "cat", ""),
        ("cat%a%", "cat", "a\n"),
        (r"echo a\\%b", "echo a\\\\", "b\n"),
        (r"grep '\.log' x\ ", r"grep '\.log' x\ ".rstrip(), None),
        ("ends with \\", "ends with \\", None),
    ],
)
def test_percent_signs(text: str, command: str, stdin: str | None) -> None:
    assert split_percent(text) == (command, stdin)


def test_percent_signs_in_a_line() -> None:
    found = job(r"0 3 * * * tar czf /backup/$(date +\%F).tgz /srv%yes%no")
    assert found.shell_command == "tar czf /backup/$(date +%F).tgz /srv"
    assert found.stdin == "yes\nno\n"


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        ("/bin/true", False), ("/bin/a --x=1 'b c' \"d\"", False), ("/bin/a -m user@example.com,b:c", False),
        ("a | b", True), ("a > /dev/null 2>&1", True), ("a && b", True), ("a $HOME", True), ("a *.txt", True),
        ("a ~/x", True), ("FOO=1 a", True), ("cd /tmp", True), (". /etc/profile", True), ("a 'open", True),
        ("a `b`", True), ("a # b", True), ("a; b", True),
    ],
)  # fmt: skip
def test_a_shell_is_used_only_where_it_makes_a_difference(command: str, shell: bool) -> None:
    assert needs_shell(command) == shell


def test_comments_directly_above_describe_the_job() -> None:
    found = jobs(
        """# /etc/crontab: system-wide crontab

# Nightly backup
# of the order database
30 1 * * * /bin/backup
15 1 * * * /bin/other
# m h dom mon dow command
# *  *  *  *  *  command to be executed
# |  .---- hour (0 - 23)
#------------
#0 4 * * * /bin/switched-off
# @daily /bin/off
# Weekly
0 1 * * 0 /bin/weekly
# lost by the blank line

0 1 * * 1 /bin/last
"""
    )
    assert [each.description for each in found] == [
        "Nightly backup\nof the order database",
        "",
        "m h dom mon dow command\nWeekly",
        "",
    ]
    assert [each.line_no for each in found] == [5, 6, 14, 17]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@reboot /bin/a", "schedule: @reboot cannot be kept"),
        ("@fortnightly /bin/a", "schedule: a shorthand is one of"),
        ("61 * * * * /bin/a", "minute: 61 is out of bounds"),
        ("0 0 31 2 * /bin/a", "day_of_month: never fires"),
        ("0 0 * * *", "line: needs 5 time fields and a command"),
        ("0 0 * * /bin/a", "line: needs 5 time fields and a command"),
        ("@daily", "line: has no command"),
        ("@every 2s", "line: has no command"),
        ("0 0 * * * %input", "command: is missing"),
        ("hello", "line: needs 5 time fields and a command"),
        ("# tidewheel: secs", "directive: the one directive is"),
        ("0~30 * * * * /bin/a", "minute: '0~30' is not understood"),
        ('""=x', "environment: a variable needs a name"),
        ("RANDOM_DELAY=1441", "RANDOM_DELAY: must be a number of minutes from 0 to 1440"),
        ("RANDOM_DELAY=soon", "RANDOM_DELAY: must be a number of minutes from 0 to 1440"),
    ],
)
def test_what_cannot_be_kept_is_reported_with_its_line(text: str, reason: str) -> None:
    found = problem(f"\n\n{text}\n")
    assert (found.line_no, found.text) == (3, text)
    assert found.reason.startswith(reason)


def test_a_users_crontab_read_as_a_system_one_is_noticed() -> None:
    assert problem("0 0 * * * /usr/bin/a b", system=True).reason.startswith("user: '/usr/bin/a' is no user name")
    assert problem("0 0 * * * root", system=True).reason == "line: needs 5 time fields, a user and a command"


def test_one_bad_line_leaves_the_others_alone() -> None:
    kept = [type(result) for result in read("0 0 * * * /bin/a\n99 0 * * * /bin/b\n0 0 * * * /bin/c\n")]
    assert kept == [ImportedJob, Problem, ImportedJob]


def test_names_are_unique_and_untouched_by_bad_lines() -> None:
    found = read("0 0 * * * /bin/a\n99 0 * * * /bin/a\n0 1 * * * /bin/a.sh\n0 2 * * * /opt/a-2\n0 3 * * * a\n")
    assert [result.name for result in found if isinstance(result, ImportedJob)] == ["a", "a-2", "a-2-2", "a-3"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3 -u /srv/app/monthly_report.py --all", "monthly-report"),
        ("certbot renew -q", "certbot-renew"),
        ("pg_dump -Fc orders > /backup/orders.dump", "pg-dump"),
        ("test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )", "run-parts"),
        ("cd /srv/shop && ./bin/clean.sh", "clean"),
        ("nice -n 10 /usr/local/bin/reindex --fast", "reindex"),
        ("flock -n /var/lock/sync.lock /opt/sync.sh", "sync"),
        ("FOO=1 BAR='x y' /bin/thing", "thing"),
        ("/usr/bin/curl -fsS https://example.com/ping >/dev/null 2>&1", "curl"),
        ("echo 'open", "echo"),
        ("'äöü'", "job"),
        ("x" * 200, "x" * 60),
        ("cd /tmp", "job"),
    ],
)
def test_names_come_from_the_command(command: str, name: str) -> None:
    assert JobNames().name(command) == name


def test_hash_slots_are_chosen_by_the_jobs_name() -> None:
    first, second = jobs("H H * * * /bin/a\nH H * * * /bin/b\n")
    assert (first.schedule.hash_key, second.schedule.hash_key) == ("a", "b")
    assert first.schedule.next_after(ANCHOR) != second.schedule.next_after(ANCHOR)


def test_odd_line_ends_and_the_leading_dash() -> None:
    found = jobs("0 0 * * * /bin/a\r\n-*/5 * * * * /bin/b")
    assert [each.argv for each in found] == [("/bin/a",), ("/bin/b",)]
    assert found[1].notes == ("the leading '-' (no syslog entry) means nothing here",)


def test_an_empty_crontab_has_no_results() -> None:
    assert read("") == read("\n# only a comment\n\nPATH=/bin\n") == []
