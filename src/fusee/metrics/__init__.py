"""What servers tell Prometheus, in the names that RocketMQ 5 exports: read from their tables when it is asked for."""

from fusee.metrics.exposition import Exposition, Looking
from fusee.metrics.sources import BrokerSource, NameServerSource, Source

__all__ = ["BrokerSource", "Exposition", "Looking", "NameServerSource", "Source"]
