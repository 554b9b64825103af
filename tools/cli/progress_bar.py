"""A progress bar on a terminal, silence in a pipe. Called by whatever waits for the server's work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.cli.commands import Call


class ProgressBar:
    """Grows while something is waited for; on anything but a terminal it is not there."""

    def __init__(self, call: Call) -> None:
        self._progress: Any = None
        self._task: Any = None
        if call.printer.terminal and not call.as_json:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                transient=True,
            )

    def __enter__(self) -> ProgressBar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """So much of it is done; `what` is said at the first call."""
        if self._progress is None:
            return
        if self._task is None:
            self._task = self._progress.add_task(what)
        self._progress.update(self._task, completed=done, total=max(total, 1))
