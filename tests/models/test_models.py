"""The protocol of ownership as two Spin models: the right ones have no error, each planted defect breaks an assertion.

What the models cover and leave out is in docs/models.md. A search that did not visit every state proves nothing, so it
fails too, and so does a machine without `spin` or a C compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
UNPACKED = HERE.parents[1] / "build" / "spin" / "usr" / "bin" / "spin"
TIMEOUT_S = 900

TILES = "state[1]!=0"
LEASES = "attempt[0]!=0"
# For each defect: a piece of the assertion that it must break, as the verifier prints it.
HANDOFF = {
    "NO_FENCE": "state[s_term[me]]==1",
    "RANGE_TEST_INCLUDES_END": "s_bucket[me]<to[s_term[me]]",
    "BOUNDARY_OFF_BY_ONE": TILES,
    "SCAN_BEFORE_FLOOR": "bucket[1]>=watermark",
    "LANDING_WITHOUT_FLOOR": "bucket[1]>=floor",
    "LANDING_WITHOUT_LOCK": "bucket[1]>=floor",
    "NEXT_OCCURRENCE_BELOW_FLOOR": "bucket[0]>=floor",
    "FINISH_OUTSIDE_RANGE": "from[t]<=floor",
    "WATERMARK_READ_BEFORE_CLOSING": TILES,
    "RESUME_TERM_AFTER_RESTART": "owner[t]==me",
    "EXTEND_OLD_TERM_AGAIN": TILES,
    "CLAIM_NAMES_NO_ROW": TILES,
    "OPEN_IN_ANOTHER_TRANSACTION": TILES,
}
ATTEMPTS = {
    "REQUEUE_ON_BROKEN_STREAM": LEASES,
    "STALE_UNREAD": "run_attempt==attempt[0]",
    "ADOPTION_WITHOUT_FENCE": "term[s_term[me]]==1",
    "CLOSE_WITH_RUNS_AT_HOME": "run_home==1",
    "REAP_AWAY_FROM_HOME": "term[run_home]==1",
    "ADOPTION_WITHOUT_MARGIN": LEASES,
    "MARGIN_FROM_SENDING": LEASES,
    "RENEWAL_UNPROVEN": LEASES,
    "PROOF_BY_DIVIDED_TERM": LEASES,
    "RENEWAL_WHILE_REAPING": LEASES,
    "RENEWAL_PAST_SLOT": "other_runs",
    "COMPLETION_WITHOUT_TOKEN": "run_attempt==s_attempt[me]",
    "RELEASE_OF_ANY_HOLDER": "other_runs",
}
# These need no fault of the surroundings: without one the verifier comes upon them sooner.
NEED_NO_FAULT = {"MARGIN_FROM_SENDING", "PROOF_BY_DIVIDED_TERM", "RENEWAL_PAST_SLOT", "RELEASE_OF_ANY_HOLDER"}

MODELS = {"handoff": HANDOFF, "attempts": ATTEMPTS}
VARIANTS = [(model, defect) for model, defects in MODELS.items() for defect in defects]


@dataclass(frozen=True, slots=True)
class Search:
    """What the verifier said."""

    output: str

    @property
    def errors(self) -> int:
        found = re.search(r"errors: (\d+)", self.output)
        assert found is not None, self.output
        return int(found[1])

    @property
    def states(self) -> int:
        found = re.search(r"(\d+) states, stored", self.output)
        assert found is not None, self.output
        return int(found[1])

    @property
    def violated(self) -> str:
        found = re.search(r"assertion violated (.*)", self.output)
        return "" if found is None else found[1]


def _spin() -> str:
    named = os.environ.get("SPIN_BIN") or shutil.which("spin") or (str(UNPACKED) if UNPACKED.exists() else "")
    if not named:
        pytest.fail(
            "no `spin` here: run tools/spin_for_tests.sh as root, install Debian's package spin, or set SPIN_BIN"
        )
    if shutil.which("gcc") is None:
        pytest.fail("no `gcc` here: spin's verifiers are C programs")
    return named


def _search(model: str, folder: Path, *defines: str, optimise: str) -> Search:
    """Build the verifier of a model and run it to its end, or to the first error."""
    source = HERE / f"{model}.pml"
    spin = [_spin(), *(f"-D{define}" for define in defines), "-a", str(source)]
    made = subprocess.run(spin, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    # -w: gcc takes some indices that never occur for possible. Safety only: a deadlock is the observer's to judge (-E).
    flags = ["-DSAFETY", "-DNOCLAIM", "-DNOBOUNDCHECK", "-DMEMLIM=2000", "-w", optimise]
    subprocess.run(["gcc", *flags, "-o", "pan", "pan.c"], cwd=folder, timeout=TIMEOUT_S, check=True)
    ran = subprocess.run(
        ["./pan", "-E", "-m20000", "-w20"], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return Search(ran.stdout + ran.stderr)


@pytest.mark.parametrize("model", MODELS)
def test_the_protocol_holds_in_every_state(model: str, tmp_path: Path) -> None:
    search = _search(model, tmp_path, optimise="-O1")
    assert search.errors == 0, search.output
    for cut_short in ("max search depth too small", "out of memory", "MEMLIM", "Search not completed"):
        assert cut_short not in search.output, search.output
    assert search.states > 100_000, search.output


@pytest.mark.parametrize(("model", "defect"), VARIANTS)
def test_a_planted_defect_breaks_an_assertion(model: str, defect: str, tmp_path: Path) -> None:
    faults = ["FAULTS=0"] if defect in NEED_NO_FAULT else []
    search = _search(model, tmp_path, f"DEFECT_{defect}", *faults, optimise="-O0")
    assert search.errors == 1, search.output
    assert MODELS[model][defect] in search.violated, search.output


@pytest.mark.parametrize("model", MODELS)
def test_every_defect_of_a_model_is_tried(model: str) -> None:
    planted = set(re.findall(r"\bDEFECT_(\w+)", (HERE / f"{model}.pml").read_text(encoding="utf-8")))
    assert planted == MODELS[model].keys()


@pytest.mark.parametrize("model", MODELS)
def test_every_defect_is_described(model: str) -> None:
    page = (HERE.parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
    assert [defect for defect in MODELS[model] if f"`{defect}`" not in page] == []
