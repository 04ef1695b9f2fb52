# What stubgen cannot see: slots of types.
allhands._C.Work._outputs:
    @property
    def _outputs(self) -> list[object]:
        """The arrays that it writes."""

allhands._C.Work._limit:
    @property
    def _limit(self) -> float:
        """The seconds of its own time limit."""

allhands._C.Work._read:
    @property
    def _read(self) -> type | None:
        """The type of an array that it reads; None: unknown."""

allhands._C.Request.__call__:
    def __call__(self) -> None:
        """See PersistentRequest.__call__."""
