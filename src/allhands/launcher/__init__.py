"""Starting ranks: what the command line and programs that start ranks share."""

from allhands.launcher.api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
