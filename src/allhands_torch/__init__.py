"""Makes the backend "allhands" known to torch.distributed as torch is imported.

torch loads this by an entry point, in every process that imports it, so it imports
nothing of the package, unless ALLHANDS_REPLACE_GLOO asks for it, and never raises: a
broken installation of this package must not break torch.
"""

import logging
import os
from typing import Any

__all__ = ["register"]


def register() -> None:
    """Register the backend; without torch.distributed there is nothing to do."""
    try:
        import torch.distributed

        if torch.distributed.is_available():
            torch.distributed.Backend.register_backend(
                "allhands", _create, extended_api=True, devices=["cpu", "cuda"]
            )
            if os.environ.get("ALLHANDS_REPLACE_GLOO"):
                from allhands.torch.gloo import replace_gloo

                replace_gloo()
    except Exception:
        logging.getLogger("allhands").warning(
            "torch.distributed goes on without allhands", exc_info=True
        )


def _create(options: Any, pg_options: Any) -> Any:
    from allhands.torch import create

    return create(options, pg_options)
