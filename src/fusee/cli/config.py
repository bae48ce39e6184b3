"""`fusee config`: settings of brokers and name servers, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, Cluster, DryRun, NameServers, Yes, complete_broker, confirm, run
from fusee.cli.render import AsJson, note, output, print_json, table
from fusee.cli.tree import subcommands
from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fusee.connection import Connection

app = subcommands("config")

Where = Annotated[
    str | None,
    typer.Option("--broker", "-b", metavar="NAME|HOST:PORT", help="Only this broker.", autocompletion=complete_broker),
]
OfNameServers = Annotated[bool, typer.Option("--name-servers", help="The name servers' settings, not the brokers'.")]
# What the machine, the version or the path of an installation decides; it differs without meaning anything.
_OWN = frozenset({"brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort", "fastListenPort"})


@app.command("show")
def show_config(
    broker: Where = None,
    of_name_servers: OfNameServers = False,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Settings that have their default, too.")] = False,
    match: Annotated[str, typer.Option("--match", "-m", metavar="TEXT", help="Only names with this in them.")] = "",
    cluster: Cluster = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show **the settings** of every broker, or of the name servers, by RocketMQ's names.

    Those that differ from Fusee's default are shown, with that default beside them; servers do not tell by which file
    or flag a value came. What a server says at start-up, with origins, is `fusee broker --print-config`.

    Example: `fusee config show --broker broker-a --match flush`
    """
    found = run(name_servers, lambda mq: _settings(mq, broker, cluster, of_name_servers=of_name_servers))
    wanted = {
        who: {name: value for name, value in settings.items() if match.lower() in name.lower()}
        for who, settings in found.items()
    }
    defaults = _name_server_defaults() if of_name_servers else _broker_defaults()
    if as_json:
        print_json(
            {
                who: {
                    name: {
                        "value": value,
                        "default": defaults.get(name),
                        "origin": "default" if defaults.get(name) == value else "set",
                    }
                    for name, value in settings.items()
                }
                for who, settings in wanted.items()
            }
        )
        return
    out = output()
    for who, settings in wanted.items():
        rows = table("setting", "value", "default", title=who)
        for name, value in settings.items():
            default = defaults.get(name)
            is_default = default == value
            if is_default and not everything:
                continue
            rows.add_row(
                Text(name, style="" if is_default else "bold"),
                Text(value),
                Text("" if is_default else default or "-", style="dim"),
            )
        out.print(rows)
        out.print()
    if not everything:
        note("only what differs from the defaults; --all shows everything")


@app.command("get")
def get_config(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A setting, e.g. flushDiskType.")],
    broker: Where = None,
    of_name_servers: OfNameServers = False,
    cluster: Cluster = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """Get **one setting** of every broker, or of one.

    Example: `fusee config get flushDiskType --broker broker-a`
    """
    found = run(name_servers, lambda mq: _settings(mq, broker, cluster, of_name_servers=of_name_servers))
    values = {who: _value(name, settings, who) for who, settings in found.items()}
    if as_json:
        print_json(values)
    elif len(values) == 1:
        output().print(Text(next(iter(values.values()))))
    else:
        rows = table("server", name)
        for who, value in values.items():
            rows.add_row(who, Text(value))
        output().print(rows)


@app.command("set")
def set_config(
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="What to change.")],
    broker: Where = None,
    of_name_servers: OfNameServers = False,
    cluster: Cluster = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Change settings** of one broker, of every master, or of the name servers, while they run.

    Shows each value before and after, and asks. A broker refuses what must not be changed from afar.

    Example: `fusee config set autoCreateTopicEnable=false --broker broker-a`
    """
    from fusee.cli.topic import pairs

    wanted = pairs(settings, "NAME=VALUE")

    async def look(mq: Connection) -> dict[str, dict[str, str]]:
        return await _settings(mq, broker, cluster, of_name_servers=of_name_servers, masters_only=True)

    found = run(name_servers, look)
    changes = [
        {"server": who, "name": name, "before": _value(name, present, who), "after": value}
        for who, present in found.items()
        for name, value in wanted.items()
    ]
    if not as_json:
        rows = table("server", "setting", "before", "after")
        for change in changes:
            style = "dim" if change["before"] == change["after"] else ""
            rows.add_row(change["server"], change["name"], change["before"], change["after"], style=style)
        output().print(rows)
    if not dry_run:
        confirm(f"Change this on {len(found)} servers?", yes=yes)

        async def change_all(mq: Connection) -> None:
            if of_name_servers:
                await mq.admin.update_name_server_config(wanted)
            else:
                await mq.admin.update_broker_config(wanted, cluster=cluster, broker=broker)

        run(name_servers, change_all)
        now = run(name_servers, look)
        ignored = [
            f"{name} at {who}"
            for who, present in now.items()
            for name, value in wanted.items()
            if present.get(name) != value
        ]
        if ignored:
            raise ConfigError(
                f"not taken over: {', '.join(ignored)}; the server has another form for the value, or reads it only "
                "when it starts"
            )
    if as_json:
        print_json({"changes": changes, "dryRun": dry_run})
    else:
        note("nothing was changed" if dry_run else "changed")


# Within


async def _settings(
    mq: Connection, broker: str | None, cluster: str | None, *, of_name_servers: bool, masters_only: bool = False
) -> dict[str, dict[str, str]]:
    """By server, as people call it."""
    if of_name_servers:
        return await mq.admin.name_server_configs()
    if broker is not None:
        return {broker: await mq.admin.broker_config(broker)}
    places = {place.address: place for place in await mq.admin.brokers(cluster=cluster, slaves=True)}
    found = await mq.admin.broker_configs(cluster=cluster)
    return {
        str(places[address]): settings
        for address, settings in found.items()
        if places[address].is_master or not masters_only
    }


def _value(name: str, settings: Mapping[str, str], who: str) -> str:
    if name not in settings:
        close = [known for known in settings if name.lower() in known.lower()]
        hint = f"; is it {', '.join(close[:5])}?" if close else "; `fusee config show --all` lists those that it has"
        raise ConfigError(f"{who} has no setting {name!r}{hint}")
    return settings[name]


def _broker_defaults() -> dict[str, str]:
    from fusee.broker.config import load_settings, spelled

    loaded = load_settings(file=None, environment={}, flags={})
    return {spelled(name): _plain(value) for name, value in loaded.values().items() if spelled(name) not in _OWN}


def _name_server_defaults() -> dict[str, str]:
    from dataclasses import asdict

    from fusee.config import camel
    from fusee.namesrv import NameServerConfig

    return {camel(name): _plain(value) for name, value in asdict(NameServerConfig()).items()}


def _plain(value: Any) -> str:
    from enum import Enum

    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else str(value)
