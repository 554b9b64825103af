"""What each failure of etcd means: above all, whether a write may have happened."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from core.coord.faults import AccessDenied, Compacted, LeaseGone, Verdict, judge
from core.coord.versions import complaint
from core.errors import Conflict, Invalid, Unavailable


@pytest.mark.parametrize(
    ("code", "details", "verdict"),
    [
        (StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: …", Verdict.NOT_APPLIED),
        (StatusCode.UNAVAILABLE, "DNS resolution failed for nowhere:1", Verdict.NOT_APPLIED),
        (StatusCode.UNAVAILABLE, "etcdserver: no leader", Verdict.NOT_APPLIED),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests", Verdict.NOT_APPLIED),
        (StatusCode.UNAVAILABLE, "Socket closed", Verdict.ANSWER_LOST),
        (StatusCode.UNAVAILABLE, "etcdserver: request timed out", Verdict.ANSWER_LOST),
        (StatusCode.UNAVAILABLE, "etcdserver: leader changed", Verdict.ANSWER_LOST),
        (StatusCode.UNAVAILABLE, "etcdserver: server stopped", Verdict.ANSWER_LOST),
        (StatusCode.UNAVAILABLE, "", Verdict.ANSWER_LOST),
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", Verdict.ANSWER_LOST),
        (StatusCode.UNKNOWN, "raft proposal dropped", Verdict.ANSWER_LOST),
        (StatusCode.CANCELLED, "context canceled", Verdict.ANSWER_LOST),
        (StatusCode.INTERNAL, "RST_STREAM", Verdict.ANSWER_LOST),
        (StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token", Verdict.TOKEN),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", Verdict.TOKEN),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", Verdict.TOKEN),
    ],
)
def test_a_failure_says_whether_a_write_may_have_happened(code: StatusCode, details: str, verdict: Verdict) -> None:
    assert judge(code, details).verdict is verdict


@pytest.mark.parametrize(
    ("code", "details", "error"),
    [
        (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", AccessDenied),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password", AccessDenied),
        (StatusCode.NOT_FOUND, "etcdserver: requested lease not found", LeaseGone),
        (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", Compacted),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: too many operations in txn request", Invalid),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Unavailable),
        (StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists", Conflict),
    ],
)
def test_a_refusal_is_named_by_what_to_do_next(code: StatusCode, details: str, error: type[Exception]) -> None:
    fault = judge(code, details)
    assert fault.verdict is Verdict.FINAL
    assert isinstance(fault.error, error)


@pytest.mark.parametrize("version", ["3.5.30", "3.5.31", "3.6.11", "3.6.12", "3.7.0", "4.0.0", "3.6.11-rc.1"])
def test_servers_fit_for_production_pass_in_silence(version: str) -> None:
    assert complaint(version) is None


@pytest.mark.parametrize("version", ["3.4.23", "3.4.45", "3.5.1", "3.5.29", "3.6.10", "3.3.0", "2.3.8", "", "master"])
def test_older_servers_are_named_in_one_line(version: str) -> None:
    said = complaint(version)
    assert said is not None
    assert "3.5.30 or 3.6.11" in said
    assert "\n" not in said
