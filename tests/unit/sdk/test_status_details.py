"""The hand-written reader of google.rpc.BadRequest agrees with the real messages, and survives any bytes."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from tidewheel.errors import FieldViolation
from tidewheel.status_details import error_reason, field_violations


def packed(*messages: BadRequest | ErrorInfo, text: str = "refused") -> bytes:
    status = Status(code=3, message=text)
    for message in messages:
        wrapped = Any()
        wrapped.Pack(message)
        status.details.append(wrapped)
    return status.SerializeToString()


@given(st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300)), max_size=5))
def test_violations_are_read_as_they_were_written(pairs: list[tuple[str, str]]) -> None:
    request = BadRequest(field_violations=[BadRequest.FieldViolation(field=f, description=d) for f, d in pairs])
    assert field_violations(packed(request)) == tuple(FieldViolation(field, rule) for field, rule in pairs)


def test_other_details_are_stepped_over() -> None:
    request = BadRequest(field_violations=[BadRequest.FieldViolation(field="job.name", description="too long")])
    info = ErrorInfo(reason="X", domain="tidewheel", metadata={"a": "b"})
    assert field_violations(packed(info, request, info)) == (FieldViolation("job.name", "too long"),)
    assert field_violations(packed(info)) == ()
    assert error_reason(packed(request, info)) == "X"
    assert error_reason(packed(request)) == ""


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    field_violations(data)
    error_reason(data)


@given(st.integers(0, 60))
def test_a_truncated_trailer_gives_no_violations_or_whole_ones(length: int) -> None:
    request = BadRequest(field_violations=[BadRequest.FieldViolation(field="job.name", description="too long")])
    assert field_violations(packed(request)[:length]) in ((), (FieldViolation("job.name", "too long"),))
