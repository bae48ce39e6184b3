"""Users and their rights."""

from __future__ import annotations

import msgspec


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user of access control. The brokers tell the password; it is not kept here."""

    username: str
    user_type: str = "Normal"
    status: str = "enable"


class AccessRule(msgspec.Struct, frozen=True, kw_only=True):
    """Actions on a resource, from where, allowed or denied."""

    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...] = ()
    decision: str = "Allow"
    policy_type: str = "Custom"


class AccessView(msgspec.Struct, frozen=True, kw_only=True):
    """What a subject (`User:name`) may do."""

    subject: str
    rules: tuple[AccessRule, ...]
