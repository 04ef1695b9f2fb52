"""A pytest plugin: ranks that are threads make worlds of backend gloo."""

from harness import thread_ranks

thread_ranks.become("gloo")
