"""Real clients of five makes behind one set of orders, and the cells of the table of client x feature."""

import pytest

# They hold the assertions of the tests; a failure shall show both sides.
pytest.register_assert_rewrite(
    "tests.interop.clients.receiving", "tests.interop.clients.sending", "tests.interop.clients.stage"
)
