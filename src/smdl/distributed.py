"""Ranks of torch.distributed."""

import torch


def check_one_rank() -> None:
    """Refuse several ranks: without selection across ranks, each would silently train on the same batches."""
    ranks = torch.distributed
    if ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1:
        raise RuntimeError(
            f"smdl does not split batches between ranks yet, and this process group has {ranks.get_world_size()}: every"
            " rank would train on the same batches. Use one process"
        )
