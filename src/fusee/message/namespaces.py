"""Namespaces of the first form: `namespace%name`, written into topic and group names by the client.

A retry or dead-letter prefix stays in front: `%RETRY%ns%group`. Names of the system are never wrapped. (The
second form carries the namespace in the header fields `ns` and `nsd` and leaves names alone.) Java:
NamespaceUtil.
"""

from __future__ import annotations

from fusee.message.topics import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic


def with_namespace(namespace: str, name: str) -> str:
    """The name within the namespace; unchanged when it is already there, empty, or the system's own."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split_prefix(name)
    if bare.startswith(namespace + "%"):
        return name
    return f"{prefix}{namespace}%{bare}"


def without_namespace(name: str, namespace: str | None = None) -> str:
    """The name without its namespace; with `namespace` given, only when it is that one."""
    if not name or namespace == "" or (namespace is None and _is_system(name)):
        return name
    prefix, bare = _split_prefix(name)
    if namespace is not None and not bare.startswith(namespace + "%"):
        return name
    space, separator, rest = bare.partition("%")
    return prefix + rest if separator and space else name


def namespace_of(name: str) -> str:
    """The namespace in this name, or the empty string."""
    if not name or _is_system(name):
        return ""
    space, separator, _ = _split_prefix(name)[1].partition("%")
    return space if separator else ""


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or is_system_group(name)
