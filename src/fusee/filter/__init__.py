"""Which messages a subscription wants: by tags, or by an SQL92 expression over properties."""

from fusee.filter.sql import Predicate, compile_sql
from fusee.filter.subscription import SQL92, TAG, Subscription, declared_subscription, parse_subscription

__all__ = [
    "SQL92",
    "TAG",
    "Predicate",
    "Subscription",
    "compile_sql",
    "declared_subscription",
    "parse_subscription",
]
