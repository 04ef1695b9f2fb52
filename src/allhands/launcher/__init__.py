"""Starting ranks: what the command line and programs that start ranks share."""

__all__: list[str] = []
