"""Key names and documents: what we write comes back, and nothing else is believed (threat T21)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.coord.layout import Assignment, Document, Layout, LeaderInfo, Member, Owner, Plan, encode
from core.errors import Invalid

LAYOUT = Layout("prod-1")
MEMBER = Member("d1", "10.0.0.7:7001", "", 1_767_225_600_000_000)
OWNER = Owner(shard=63, term=9, from_bucket=353_445_120, dispatcher_id="d1")
LEADER = LeaderInfo("r1", "control.example:7000")
PLAN = Plan(4, (Assignment(0, "d1", 0, ""), Assignment(63, "d2", 9, "d1")))
PLACES: list[tuple[str, Document]] = [
    (LAYOUT.member("d1"), MEMBER),
    (LAYOUT.owner(63), OWNER),
    (LAYOUT.election + "694d9b", LEADER),
    (LAYOUT.plan, PLAN),
]


def test_keys_stand_under_the_cluster() -> None:
    assert [key for key, _ in PLACES] == [
        "/tidewheel/prod-1/members/d1",
        "/tidewheel/prod-1/owners/63",
        "/tidewheel/prod-1/election/694d9b",
        "/tidewheel/prod-1/plan",
    ]


@pytest.mark.parametrize(("key", "document"), PLACES)
def test_a_document_comes_back_from_its_key(key: str, document: Document) -> None:
    assert LAYOUT.read(key, encode(document)) == document


def test_the_largest_plan_fits_into_one_request() -> None:
    long_id = "dispatcher-" + "x" * 52
    plan = Plan(2**62, tuple(Assignment(shard, long_id, 2**62, long_id) for shard in range(1024)))
    assert len(encode(plan)) < 1_400_000
    assert LAYOUT.read(LAYOUT.plan, encode(plan)) == plan


def _changed(document: Document, **changes: object) -> bytes:
    return json.dumps(json.loads(encode(document)) | changes).encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (LAYOUT.plan, b""),
        (LAYOUT.plan, b"\xff\xfe"),
        (LAYOUT.plan, b"[]"),
        (LAYOUT.plan, b"[" * 100_000),
        (LAYOUT.plan, b"9" * 10_000),
        (LAYOUT.plan, b'{"version":1}'),
        (LAYOUT.plan, b'{"version":1,"version":2,"assignments":[]}'),
        (LAYOUT.plan, b'{"version":NaN,"assignments":[]}'),
        (LAYOUT.plan, _changed(PLAN, version=0)),
        (LAYOUT.plan, _changed(PLAN, version=True)),
        (LAYOUT.plan, _changed(PLAN, version="4")),
        (LAYOUT.plan, _changed(PLAN, assignments={})),
        (LAYOUT.plan, _changed(PLAN, assignments=[1])),
        (LAYOUT.plan, _changed(PLAN, assignments=[json.loads(encode(OWNER))])),
        (LAYOUT.plan, _changed(PLAN, extra=1)),
        (LAYOUT.member("d1"), _changed(MEMBER, address="10.0.0.7")),
        (LAYOUT.member("d1"), _changed(MEMBER, address="10.0.0.7:99999")),
        (LAYOUT.member("d1"), _changed(MEMBER, address="a b:1")),
        (LAYOUT.member("d1"), _changed(MEMBER, started_us=-1)),
        (LAYOUT.member("d1"), _changed(MEMBER, started_us=1.5)),
        (LAYOUT.member("d1"), _changed(MEMBER, metrics_address=None)),
        (LAYOUT.member("d1"), _changed(MEMBER, dispatcher_id="x" * 9000)),
        (LAYOUT.member("d2"), encode(MEMBER)),
        (LAYOUT.owner(63), _changed(OWNER, term=2**63)),
        (LAYOUT.owner(63), _changed(OWNER, shard=-63)),
        (LAYOUT.owner(62), encode(OWNER)),
        (LAYOUT.owners + "063", encode(OWNER)),
        (LAYOUT.election + "1", encode(OWNER)),
        (LAYOUT.prefix + "plan2", encode(PLAN)),
        ("/tidewheel/prod-2/plan", encode(PLAN)),
    ],
)
def test_nonsense_is_invalid(key: str, value: bytes) -> None:
    with pytest.raises(Invalid):
        LAYOUT.read(key, value)


def test_a_plan_assigns_each_shard_once() -> None:
    with pytest.raises(Invalid, match="twice"):
        Plan(1, (Assignment(1, "d1", 0, ""), Assignment(1, "d2", 0, "")))


@pytest.mark.parametrize("cluster", ["", "Prod", "a/b", "-a", "a" * 64, "a\n"])
def test_a_cluster_name_cannot_leave_its_prefix(cluster: str) -> None:
    with pytest.raises(Invalid):
        Layout(cluster)


@pytest.mark.parametrize("dispatcher_id", ["", "../plan", "a/b", "d1\n"])
def test_a_dispatcher_name_cannot_leave_its_prefix(dispatcher_id: str) -> None:
    with pytest.raises(Invalid):
        LAYOUT.member(dispatcher_id)


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(place=st.sampled_from(PLACES), value=st.binary())
def test_any_bytes_are_read_or_invalid(place: tuple[str, Document], value: bytes) -> None:
    _read_or_invalid(place[0], value)


@given(place=st.sampled_from(PLACES), name=st.integers(0, 9), found=_json_values)
def test_a_document_with_any_field_replaced_is_read_or_invalid(
    place: tuple[str, Document], name: int, found: object
) -> None:
    key, document = place
    body = json.loads(encode(document))
    body[sorted(body)[name % len(body)]] = found
    _read_or_invalid(key, json.dumps(body).encode())


def _read_or_invalid(key: str, value: bytes) -> None:
    try:
        document = LAYOUT.read(key, value)
    except Invalid:
        return
    assert LAYOUT.read(key, encode(document)) == document
