"""The commands about time against a whole system: schedules, calendars, versions, pauses, backfills, accounts."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from tests.support.command import Run, tidewheel, until

NOTHING = '{"argv": ["true"]}'


def made(run: Run, name: str, *options: str) -> None:
    done = run("job", "create", name, "--handler", "exec", "--payload", NOTHING, *options)
    assert done.code == 0, done.err


def test_a_union_is_registered_shown_on_one_line_and_changed_in_part(run: Run) -> None:
    times = ["--cron", "0 3 * * *", "--cron", "@hourly", "--every", "90m", "--every-weeks", "2", "--at", "in 400d"]
    made(run, "union", *times, "--zone", "Europe/Berlin", "--exclude-date", "*-12-25", "--max-runs", "9999")
    line = "0 3 * * * | @hourly | every 2 weeks in Europe/Berlin | every 1h30m | at "
    assert line in run("job", "get", "union").out
    changed = run("job", "update", "union", "--jitter", "10m", "--overlap", "buffer-all", "--max-buffered", "7")
    assert changed.code == 0, changed.err
    shown = run("job", "get", "union").out
    assert line in shown
    assert "; except *-12-25; at most 9999 runs; jitter up to 10m" in shown
    assert "buffer-all, at most 7 wait" in shown
    job = run("job", "get", "union", "-o", "json").document
    due, nominal = job["nextDue"], job["nextOccurrence"]
    assert datetime.fromisoformat(due) >= datetime.fromisoformat(nominal)
    assert run("job", "update", "union", "--exclude-date", "", "--end", "in 500d").code == 0
    schedule = run("job", "get", "union", "-o", "json").document["schedule"]
    assert "exclude" not in schedule
    assert len(schedule["every"]) == 2


def test_versions_are_listed_compared_and_restored(run: Run) -> None:
    made(run, "history", "--cron", "0 3 * * *")
    assert run("job", "update", "history", "--cron", "0 4 * * *", "--note", "after the backup").code == 0
    assert run("job", "pause", "history", "--note", "stocktaking").code == 0
    versions = run("job", "versions", "history", "-o", "json").document["versions"]
    assert [(one["version"], one["state"], one.get("note")) for one in versions] == [
        ("3", "JOB_STATE_PAUSED", "stocktaking"),
        ("2", "JOB_STATE_ACTIVE", "after the backup"),
        ("1", "JOB_STATE_ACTIVE", None),
    ]
    assert run("job", "diff", "history", "1", "2").out.splitlines() == [
        "schedule.cron",
        '  - ["0 3 * * *"]',
        '  + ["0 4 * * *"]',
    ]
    assert run("job", "restore", "history", "1", "--note", "as it was").code == 0
    assert run("job", "diff", "history", "1").out.splitlines() == [
        "state",
        '  - "JOB_STATE_ACTIVE"',
        '  + "JOB_STATE_PAUSED"',
    ]
    missing = run("job", "restore", "history", "99")
    assert missing.code == 3
    assert "tidewheel job versions" in missing.complaint


def test_jobs_with_a_label_are_paused_after_a_look_at_their_number(run: Run) -> None:
    for name in ("labelled-1", "labelled-2"):
        made(run, name, "--every", "1h", "--label", "team=counted")
    unasked = run("job", "pause", "--label", "team=counted", "--note", "moving")
    assert unasked.code == 2
    assert "pause 2 jobs (labelled-1, labelled-2)?" in unasked.complaint
    paused = run("job", "pause", "--label", "team=counted", "--note", "moving", "--yes")
    assert paused.code == 0, paused.err
    assert "2 of 2" in paused.out
    for name in ("labelled-1", "labelled-2"):
        assert run("job", "get", name, "-o", "json").document["state"] == "JOB_STATE_PAUSED"
    again = run("job", "pause", "--label", "team=counted", "--note", "moving", "--yes")
    assert (again.code, again.out.strip()) == (0, "no job to pause")
    resumed = run("job", "resume", "--label", "team=counted", "--note", "moved", "--yes", "--catch-up", "-o", "json")
    assert resumed.document["count"] == "2"


def test_a_calendar_shapes_a_job_and_a_change_of_it_reaches_the_job(run: Run, tmp_path: Path) -> None:
    assert run("calendar", "create", "off", "--day-off", "2030-12-24/2030-12-26=Christmas").code == 0
    windows = tmp_path / "nights.toml"
    windows.write_text(
        'name = "nights"\n[windows]\naction = "defer"\nwindows = [{ cron = "0 2 * * *", duration = "90m" }]\n',
        encoding="utf-8",
    )
    assert run("calendar", "create", "--file", str(windows)).code == 0
    made(run, "shaped", "--cron", "30 2 * * *", "--exclude-calendar", "off", "--window", "nights")

    def preview() -> list[tuple[str, str, list[str]]]:
        options = ["--from", "2030-12-23T00:00:00Z", "--to", "2030-12-28T00:00:00Z", "--include-excluded"]
        shown = run("schedule", "preview", "--job", "shaped", *options, "-o", "json").document
        return [(one["at"], one["dueAt"], one.get("marks", [])) for one in shown]

    before = preview()
    assert [(at[8:10], marks) for at, _, marks in before] == [
        ("23", ["MARK_DEFERRED"]),
        ("24", ["MARK_EXCLUDED"]),
        ("25", ["MARK_EXCLUDED"]),
        ("26", ["MARK_EXCLUDED"]),
        ("27", ["MARK_DEFERRED"]),
    ]
    assert before[0][:2] == ("2030-12-23T02:30:00Z", "2030-12-23T03:30:00Z")
    changed = run("calendar", "update", "off", "--remove", "2030-12-24/2030-12-26", "--day-off", "2030-12-27", "--wait")
    assert changed.code == 0, changed.err
    assert "1 of 1 reached" in changed.out
    assert [at[8:10] for at, _, marks in preview() if marks == ["MARK_EXCLUDED"]] == ["27"]
    refused = run("calendar", "delete", "off")
    assert refused.code == 1
    assert "'shaped'" in refused.complaint
    explained = run("job", "explain", "shaped", "--at", "2030-12-27T02:30:00Z")
    assert "calendar off" in explained.out
    assert "fires     no" in explained.out


def test_a_comparison_shows_what_an_update_would_do(run: Run) -> None:
    made(run, "compared", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    window = ["--from", "2030-06-05T00:00:00Z", "--span", "4d"]
    shown = run("schedule", "compare", "compared", "--cron", "30 3 * * mon-fri", *window, "-o", "json").document
    assert [change["kind"].rpartition("_")[2] for change in shown["changes"]] == ["MOVED", "MOVED", "MOVED", "LOST"]
    assert run("schedule", "compare", "compared", "--gap", "skip", *window).code == 0
    assert run("job", "get", "compared", "-o", "json").document["version"] == "1"


def test_the_past_is_made_up_for_and_accounted_for(run: Run) -> None:
    made(run, "yesterdays", "--cron", "0 */6 * * *", "--overlap", "buffer-all")
    period = ["--from", "2026-06-01T00:00:00Z", "--to", "2026-06-03T00:00:00Z"]
    assert "would make 8 runs" in run("job", "backfill", "yesterdays", *period, "--dry-run").out
    too_many = run("job", "backfill", "yesterdays", *period, "--max-runs", "7")
    assert too_many.code == 1
    done = run("job", "backfill", "yesterdays", *period, "--rate", "100", "--wait", "--note", "after the repair")
    assert done.code == 0, done.err
    assert "8 of 8" in done.out
    until(lambda: run("run", "list", "yesterdays", "--state", "succeeded", "-o", "json").out.count('"runId"') == 8)
    entries = run("job", "ledger", "yesterdays", *period, "--check", "-o", "json").document["entries"]
    assert sum(len(entry["backfillRunIds"]) for entry in entries) == 8
    again = run("job", "backfill", "yesterdays", *period, "--wait")
    assert "0 of 0" in again.out


def test_every_second_is_accounted_for_over_a_pause(run: Run) -> None:
    made(run, "ticking", "--every", "1s", "--overlap", "allow")
    until(lambda: run("run", "list", "ticking", "--state", "succeeded", "-o", "json").out.count('"runId"') >= 2)
    assert run("job", "pause", "ticking").code == 0
    until(lambda: '"LEDGER_KIND_PAUSED"' in run("job", "ledger", "ticking", "-o", "json").out)
    assert run("job", "resume", "ticking").code == 0
    before = run("run", "list", "ticking", "-o", "json").out.count('"runId"')
    until(lambda: run("run", "list", "ticking", "--state", "succeeded", "-o", "json").out.count('"runId"') > before)
    ledger = run("job", "ledger", "ticking", "--check", "-o", "json").document
    counts = {count["kind"]: int(count["occurrences"]) for count in ledger["counts"]}
    assert (
        {"LEDGER_KIND_RUN", "LEDGER_KIND_PAUSED"}
        <= set(counts)
        <= {
            "LEDGER_KIND_RUN",
            "LEDGER_KIND_PAUSED",
            "LEDGER_KIND_DUE",
        }
    )
    assert run("job", "delete", "ticking").code == 0


def test_a_draft_is_previewed_without_any_server() -> None:
    options = ["--cron", "30 2 * * *", "--zone", "America/New_York", "--after", "2026-03-08T06:30:00Z", "--count", "3"]
    shown = json.loads(tidewheel("schedule", "preview", *options, "--output", "json").out)
    assert [one["at"] for one in shown] == ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]
    shifted = json.loads(tidewheel("schedule", "preview", *options, "--gap", "shift", "--output", "json").out)
    assert shifted[0]["at"] == "2026-03-08T07:30:00Z"
    for wrong in (["--cron", "61 * * * *"], ["--cron", "* * * * *", "--zone", "Mars/Olympus"]):
        refused = tidewheel("schedule", "preview", *wrong, "--output", "json")
        assert refused.code == 2
        assert refused.complaint
        assert refused.out == ""
