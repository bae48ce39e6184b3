"""Whom we are measured beside: the bare event loop, and the original."""
