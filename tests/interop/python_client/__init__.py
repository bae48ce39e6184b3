"""Our client among the others: its program for the common orders, and a Java peer for what those do not cover."""

import pytest

# They hold assertions of the tests; a failure shall show both sides.
pytest.register_assert_rewrite("tests.interop.python_client.mixed", "tests.interop.python_client.forms")
