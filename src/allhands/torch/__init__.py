"""The native engine as a backend of torch.distributed.

Where the package is installed, torch knows the backend by name:

    torch.distributed.init_process_group("allhands")

makes groups whose operations on CPU tensors run on the native engine; everything that
is built on torch.distributed uses them as it uses Gloo's. Made for
torch 2.13.
"""

from allhands.torch.process_group import AllhandsProcessGroup, create

__all__ = ["AllhandsProcessGroup", "create"]
