"""What can go wrong with a cluster on this machine."""

from __future__ import annotations

from fusee.errors import FuseeError


class ClusterError(FuseeError):
    """The cluster, or a node of it, cannot do what was asked; says why, and which command helps."""
