"""How the ranks of a job meet: their common store, and the processes of the ranks."""

from __future__ import annotations

from allhands.rendezvous.handlers import register_rendezvous_handler, rendezvous

__all__ = ["register_rendezvous_handler", "rendezvous"]
