"""The script: every chapter in the order in which it is played."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.chapters import (
    clients,
    configuration,
    groups,
    later,
    offsets,
    pulling,
    queries,
    relays,
    resets,
    retries,
    sending,
    statistics,
    topics,
    transactions,
)
from tests.interop.differential.steps import Step

SCRIPT: Final[tuple[Step, ...]] = (
    *topics.BEGINNING,
    *groups.BEGINNING,
    *sending.PLAIN,
    *sending.MADE,
    *sending.BATCHES,
    *sending.REPLIES,
    *pulling.PLAIN,
    *pulling.TAGS,
    *pulling.SQL,
    *pulling.SUBSCRIBED,
    *pulling.HELD,
    *offsets.PLAIN,
    *pulling.PEEKS,
    *clients.HEARTBEATS,
    *clients.LOCKS,
    *clients.LEAVING,
    *retries.SEND_BACK,
    *retries.DELAYS,
    *transactions.DECIDED,
    *queries.QUERIES,
    *resets.RESETS,
    *relays.RELAYS,
    *statistics.STATISTICS,
    *transactions.ASKED,
    *configuration.CONFIGURATION,
    *resets.BY_CLIENTS,
    *configuration.AUTO_CREATE,
    *later.NEVER,
    *topics.END,
    *groups.END,
    *later.SYSTEM,
    *transactions.LAST,
    *later.NOT_YET,
)

# What needs no waiting: for a short look.
QUICK_SCRIPT: Final[tuple[Step, ...]] = (
    *topics.BEGINNING,
    *groups.BEGINNING,
    *sending.PLAIN,
    *sending.MADE,
    *sending.BATCHES,
    *pulling.PLAIN,
    *pulling.TAGS,
    *pulling.SQL,
    *offsets.PLAIN,
    *later.NEVER,
)
