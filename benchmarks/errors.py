"""Measurements that could not be made, and why."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A measurement could not be made; the message names the cause and, where there is one, the fix."""


class DisturbedError(BenchmarkError):
    """Other processes kept the server from answering at all; the same run may succeed later."""
