"""Whether a store was closed, was not, or is open at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusee.store.offline.files import OfflineStore


def state_of(store: OfflineStore) -> str:
    """clean; unclean: its owner did not come to close it; open: a process holds it now."""
    if store.holder() is not None:
        return "open"
    return "unclean" if store.is_unclean else "clean"
