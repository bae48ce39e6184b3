"""A name server in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.metrics.catalogue import NAME_SERVER
from fusee.metrics.families import Figures

if TYPE_CHECKING:
    from fusee.namesrv.server import NameServer


def name_server_figures(name_server: NameServer) -> Figures:
    """Everything about a name server that has been started. To be called on its loop."""
    figures = Figures(NAME_SERVER, {"cluster": "", "node_type": "namesrv", "node_id": name_server.address})
    info = name_server.route_table.cluster_info()
    figures.add("fusee_namesrv_up", 1)
    figures.add("fusee_namesrv_brokers", sum(len(group.broker_addrs) for group in info.broker_addr_table.values()))
    figures.add("fusee_namesrv_topics", len(name_server.route_table.all_topics().topic_list))
    return figures
