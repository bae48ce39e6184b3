"""The storage engine: bytes at rest, in the format of RocketMQ."""
