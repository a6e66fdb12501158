"""Save a run of EM to a checkpoint, and resume it from there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from evoem import validation
from evoem.checkpoints import Checkpoint, fingerprint, settings_of
from evoem.data import Data
from evoem.em_state import EMState, StepInfo
from evoem.evolution import Evolution
from evoem.models.base import Model
from evoem.runtime import interrupts
from evoem.runtime.interrupts import Interrupts, Termination
from evoem.shares import Layout


class Signals(NamedTuple):
    """What is noted while a run is kept."""

    termination: Termination
    interrupts: Interrupts

    def came(self) -> tuple[bool, bool]:
        """Whether SIGTERM did, and whether Ctrl-C did."""
        return self.termination.came, self.interrupts.number > 0


class KeptRun:
    """A run that is kept in a file, or, without a `checkpoint`, is not.

    Parameters
    ----------
    model, data, state, evolution : Model, Data, EMState, Evolution
    checkpoint : str or Path, optional
    every : float
    resume : bool
        As `em.run` takes them.
    layout : Layout
        Where the rows of this process stand among all.
    """

    def __init__(
        self,
        model: Model,
        data: Data,
        state: EMState,
        evolution: Evolution,
        checkpoint: str | Path | None,
        every: float,
        resume: bool,
        layout: Layout,
    ) -> None:
        self.model, self.data, self.first = model, data, state
        self.file: Checkpoint | None = None
        validation.resumable(checkpoint, resume)
        if checkpoint is not None:
            settings = settings_of(model, state, evolution, len(layout.parts), layout.n_rows)
            identity = fingerprint(data.X, data.observed, data.numbers, layout.comm)
            self.file = Checkpoint(checkpoint, every, resume, settings, identity, layout.comm)

    def start(self, max_iter: int) -> tuple[EMState, list[StepInfo]]:
        """Where the run goes on: at the checkpoint if there is one to resume, else at its start."""
        saved = self.file.load(self.data.numbers) if self.file is not None else None
        if saved is None:
            return self.first, []
        validation.integer("max_iter", max_iter, len(saved.infos), reason=" to resume")
        return saved.state(self.model, self.data, self.first.params), saved.infos

    def save(self, state: EMState, infos: list[StepInfo], *, ended: bool = False) -> None:
        """Keep where the run is, if the last time is long ago or the run has ended."""
        if self.file is not None and (ended or self.file.is_due()):
            self.file.save("learning", state, infos, self.data.numbers)

    @contextmanager
    def guarded(self) -> Iterator[Signals]:
        """Name the file in whatever ends the run; the first SIGTERM or Ctrl-C waits until the file
        is written, at the end of an iteration: within one, what is kept is where it began.
        """
        if self.file is None:
            yield Signals(Termination(), Interrupts())
            return
        try:
            with interrupts.termination_noted() as termination, interrupts.noted() as noted:
                yield Signals(termination, noted)
        except BaseException as error:
            if self.file.path.exists():
                error.add_note(f"To continue, resume from {self.file.path}.")
            raise
