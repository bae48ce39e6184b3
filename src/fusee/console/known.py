"""An answer, or why there is none: what cannot be learnt is shown as unknown, never as 0 or as empty."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Known(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """`value` when it is known; otherwise None, and the `cause`."""

    value: T | None = None
    cause: str = ""

    @property
    def is_known(self) -> bool:
        return not self.cause


def known(value: T) -> Known[T]:
    """An answer."""
    return Known(value=value)
