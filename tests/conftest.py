"""Settings of every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from fusee.compiled import form

# No deadline: a loaded machine is no failure. CI draws the same examples each time; a person draws new ones.
settings.register_profile("person", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("person"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "person")


def pytest_report_header() -> str:
    return f"fusee: {form()}"
