"""What a request names: its faults are noted before those of all other fields. Pure."""

from __future__ import annotations

from controlplane.api.violations import Violations
from core.jobspec import check_job_name, check_namespace


def faults_of_namespace(namespace: str, within: str = "") -> Violations:
    """What is wrong with the namespace; `within` is the path of the message that holds it, such as "job."."""
    faults = Violations()
    with faults.noted():
        check_namespace(namespace, f"{within}namespace")
    return faults


def faults_of_name(namespace: str, name: str, within: str = "") -> Violations:
    """What is wrong with the namespace, and with the name of a job or a calendar in it."""
    faults = faults_of_namespace(namespace, within)
    with faults.noted():
        check_job_name(name, f"{within}name")
    return faults
