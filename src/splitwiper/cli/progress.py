"""Progress bars with the time left, on standard error, for people only."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from splitwiper.cli.output import errors


class Bars:
    """One line that shows what is being done; it is gone when the work is.

    An instance is what `Federation` takes as ``progress``. It shows nothing when told to be quiet or when standard
    error is not a terminal.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        console = errors()
        self._shown: Progress | None = None
        self._now = ""  # the kind of work that the line shows
        self._task = TaskID(0)
        if not quiet and console.is_terminal:
            self._shown = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[steps]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
                # what is printed meanwhile goes where it was sent: rich would draw standard output on standard error
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Bars:
        if self._shown:
            self._shown.start()
            self("starting", 0, 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._shown.stop()

    def __call__(self, task: str, done: int, total: int, /, loss: float | None = None) -> None:
        """Show that ``done`` of ``total`` steps are done, and the loss; a total of 0 is unknown."""
        if self._shown is None:
            return
        steps = f"{done} of {total}, time left" if total else ""
        if loss is not None:
            steps = f"loss {loss:.3g}, {steps}"
        if task != self._now:  # one line at a time, since the next kind of work follows the last
            if self._now:
                self._shown.remove_task(self._task)
            self._now = task
            self._task = self._shown.add_task(task, total=total or None, steps=steps)
        self._shown.update(self._task, completed=done, total=total or None, steps=steps)
