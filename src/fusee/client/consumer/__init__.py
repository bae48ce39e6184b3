"""Consumers: what they fetch, hand to listeners, commit, and how the members of a group divide the queues."""
