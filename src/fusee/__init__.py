"""A distributed message queue, compatible with Apache RocketMQ on the wire and on disk."""

__version__ = "0.1.0"
