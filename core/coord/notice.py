"""One log line when a condition begins or changes, one when it ends; never one per try."""

from __future__ import annotations

import logging

from core.errors import OutcomeUnknown, Unavailable


class Notice:
    """Speaks for one activity, such as "keeping the lease".

    Being unable to reach etcd at all is not its business: endpoints.py says that, once for the whole process.
    """

    def __init__(self, log: logging.Logger, activity: str) -> None:
        self._log = log
        self._activity = activity
        self._said = ""

    def failed(self, error: Exception) -> None:
        """The activity failed; it will be tried again."""
        if isinstance(error, (Unavailable, OutcomeUnknown)):
            self._log.debug("%s: %s", self._activity, error)
            return
        said = f"{type(error).__name__}: {error}"
        if said != self._said:
            self._said = said
            self._log.error("%s failed: %s; trying on", self._activity, said)

    def worked(self) -> None:
        """The activity works (again)."""
        if self._said:
            self._said = ""
            self._log.warning("%s works again", self._activity)
