"""The engines behind the groups, one file each, loaded by name (see `backend`)."""
