"""The broker: stores messages of producers, serves them to consumers."""

from fusee.broker.config import BrokerConfig
from fusee.broker.server import Broker

__all__ = ["Broker", "BrokerConfig"]
