"""Bodies of staged batches: which transactions a commit is of, here and at other brokers."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Int32


class StagedPart(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """A transaction as far as one broker has it: how many parts were staged there."""

    parts: Int32
    transaction: str


class StagedParts(msgspec.Struct, rename="camel", kw_only=True):
    """What a commit is of.

    `transactions` are this broker's; `others` has those of other brokers by name, which the commit decides about too.
    """

    others: dict[str, list[StagedPart]] = {}
    transactions: list[StagedPart] = []


class StagedTransactions(msgspec.Struct, rename="camel", kw_only=True):
    """What is to be dropped."""

    transactions: list[str] = []
