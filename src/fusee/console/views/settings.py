"""Configuration of brokers and name servers, and the log of what was changed by the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fusee.admin.fan_out import ask_all
from fusee.console.audit import Entry
from fusee.console.known import Known, known

if TYPE_CHECKING:
    from fusee.admin import Admin
    from fusee.console.context import Asked, Context


class SettingLine(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: its value at each server; `is_mixed` when they differ."""

    name: str
    values: tuple[str | None, ...]
    is_mixed: bool


class ConfigurationPage(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every broker, those that differ first, and of every name server."""

    brokers: Known[tuple[str, ...]]
    settings: tuple[SettingLine, ...]
    missing: tuple[str, ...]
    """Brokers that did not tell."""
    name_servers: Known[tuple[str, ...]]
    name_server_settings: tuple[SettingLine, ...]
    search: str


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """The newest changes."""

    entries: tuple[Entry, ...]
    is_durable: bool


async def configuration(context: Context, asked: Asked) -> ConfigurationPage:
    """Settings side by side; `search` is a part of a name."""
    search, link = asked.text("search"), context.link
    answer = await link.ask("broker configs", _broker_configs, fresh_seconds=2)
    servers = await link.ask("name server configs", lambda admin: admin.name_server_configs(), fresh_seconds=2)
    configs, missing = answer.value if answer.value is not None else ({}, ())
    return ConfigurationPage(
        brokers=known(tuple(configs)) if answer.is_known else Known(cause=answer.cause),
        settings=_lines(configs, search),
        missing=missing,
        name_servers=known(tuple(servers.value or ())) if servers.is_known else Known(cause=servers.cause),
        name_server_settings=_lines(servers.value or {}, search),
        search=search,
    )


async def audit(context: Context, asked: Asked) -> AuditPage:
    """What was changed by this console: who, what, when, how it ended."""
    return AuditPage(entries=context.audit.newest(), is_durable=context.audit.is_durable)


async def _broker_configs(admin: Admin) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    brokers = await admin.brokers()
    answers = (await ask_all(brokers, lambda broker: admin.broker_config(broker.address))).some("tell their settings")
    configs = {
        f"{place.broker_name}{'' if place.is_master else f' (slave {place.broker_id})'}": settings
        for place, settings in answers.answers
    }
    return configs, tuple(f"{failure.broker_name or failure.address}: {failure.cause}" for failure in answers.failures)


def _lines(configs: dict[str, dict[str, str]], search: str) -> tuple[SettingLine, ...]:
    names = sorted({name for settings in configs.values() for name in settings})
    lines = []
    for name in names:
        if search.lower() not in name.lower():
            continue
        values = tuple(settings.get(name) for settings in configs.values())
        lines.append(SettingLine(name=name, values=values, is_mixed=len(set(values)) > 1))
    return tuple(lines)
