"""Memory that is used again and again, so that large answers and requests need none of their own."""

from __future__ import annotations

import numpy as np


class SpareMemory:
    """Grows to the largest that was asked for, and a little more."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def of(self, size: int) -> memoryview:
        """So many bytes of it, with whatever they hold; those that were given before are overwritten."""
        if len(self._memory) < size:
            self._memory = np.empty(size + size // 8, np.uint8)
        return memoryview(self._memory)[:size]  # type: ignore[arg-type]
