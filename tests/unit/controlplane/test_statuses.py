"""The one table from errors to statuses: every error of the product has a code, and its details are readable."""

from __future__ import annotations

import inspect
from uuid import UUID

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from controlplane.api.status import Overloaded, internal_refusal, refusal_of
from controlplane.api.violations import BadRequest, Violations
from core import errors

CODES = [
    (errors.Invalid("job.name", "is bad"), "INVALID_ARGUMENT"),
    (BadRequest([errors.Invalid("a", "b")]), "INVALID_ARGUMENT"),
    (errors.NotFound("job", "x"), "NOT_FOUND"),
    (errors.AlreadyExists("x"), "ALREADY_EXISTS"),
    (errors.RequestReused("x"), "ALREADY_EXISTS"),
    (errors.StaleEtag("x"), "ABORTED"),
    (errors.StaleCount("x"), "ABORTED"),
    (errors.Conflict("x"), "FAILED_PRECONDITION"),
    (Overloaded("x"), "RESOURCE_EXHAUSTED"),
    (errors.Unavailable("x"), "UNAVAILABLE"),
    (errors.OutcomeUnknown("x"), "DEADLINE_EXCEEDED"),
]
# What a dispatcher or a defect raises is never a caller's business.
INTERNAL = {"TidewheelError", "FenceLost", "InvariantBroken"}


def details(refusal_details: bytes, kind: type) -> list[object]:
    found = []
    for packed in status_pb2.Status.FromString(refusal_details).details:
        message = kind()
        if packed.Unpack(message):
            found.append(message)
    return found


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
def test_each_error_has_its_code(error: errors.TidewheelError, code: str) -> None:
    refusal = refusal_of(error)
    assert refusal is not None
    assert refusal.code is grpc.StatusCode[code]
    status = status_pb2.Status.FromString(refusal.details)
    assert (status.code, status.message) == (refusal.code.value[0], refusal.message)
    assert len(details(refusal.details, error_details_pb2.ErrorInfo)) == 1


def test_no_error_was_forgotten() -> None:
    named = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert named - INTERNAL == {type(error).__name__ for error, _ in CODES} - {"BadRequest", "Overloaded"}
    assert refusal_of(errors.FenceLost(1, 2)) is None
    assert refusal_of(errors.InvariantBroken("x")) is None


def test_a_defect_tells_where_to_look_and_nothing_else() -> None:
    refusal = internal_refusal("abc123")
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert "abc123" in refusal.message


def test_every_field_at_fault_is_told_but_never_more_than_a_trailer_holds() -> None:
    faults = Violations()
    for number in range(100):
        faults.add(f"field{number}" * 50, "rule \ud800" * 500)
    with pytest.raises(BadRequest) as caught:
        faults.refuse()
    refusal = refusal_of(caught.value)
    assert refusal is not None
    assert len(refusal.details) < 7_000
    assert len(refusal.message) <= 500
    (bad,) = details(refusal.details, error_details_pb2.BadRequest)
    assert len(bad.field_violations) == 10  # type: ignore[attr-defined]


def test_what_may_be_tried_again_says_when() -> None:
    for error in (errors.Unavailable("x"), errors.OutcomeUnknown("x")):
        refusal = refusal_of(error)
        assert refusal is not None
        (retry,) = details(refusal.details, error_details_pb2.RetryInfo)
        assert retry.retry_delay.nanos > 0  # type: ignore[attr-defined]


def test_collected_faults_keep_their_order_and_let_other_errors_pass() -> None:
    faults = Violations()
    with faults.noted():
        raise errors.Invalid("a", "1")
    with faults.noted():
        raise BadRequest([errors.Invalid("b", "2"), errors.Invalid("c", "3")])
    with pytest.raises(errors.NotFound), faults.noted():
        raise errors.NotFound("run", str(UUID(int=0)))
    with pytest.raises(BadRequest) as caught:
        faults.refuse()
    assert [(each.field, each.rule) for each in caught.value.violations] == [("a", "1"), ("b", "2"), ("c", "3")]
