# What stubgen cannot see: slots of types.
allhands._C.Request.__call__:
    def __call__(self) -> None:
        """See PersistentRequest.__call__."""
