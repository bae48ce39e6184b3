"""Request and response bodies as data."""
