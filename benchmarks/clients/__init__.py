"""Benchmark programs of clients, which report as RocketMQ's own do: a line with the rate of the last nine seconds."""
