"""Bodies of access control: users and what they may do.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

import msgspec


class UserInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Codes 3001 and 3002, answers to 3004 and 3005. Types Super and Normal, states enable and disable."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None


class PolicyEntry(msgspec.Struct, rename="camel", kw_only=True):
    """One rule: actions on a resource, from where, allowed or denied (Java: AclInfo.PolicyEntryInfo)."""

    actions: list[str] = []
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class Policy(msgspec.Struct, rename="camel", kw_only=True):
    """Rules of one kind, Custom or Default (Java: AclInfo.PolicyInfo)."""

    entries: list[PolicyEntry] = []
    policy_type: str | None = None


class AclInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Codes 3006 and 3007, answers to 3009 and 3010. `subject` is `User:name`."""

    policies: list[Policy] = []
    subject: str | None = None
