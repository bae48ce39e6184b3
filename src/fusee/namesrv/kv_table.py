"""Namespaced keys and values that survive a restart (Java: KVConfigManager).

The file is the Java name server's kvConfig.json, `{"configTable":{namespace:{key:value}}}`, so a Java
name server can be replaced in its place and back. Every change is on disk before it is visible: when
saving fails, the change is taken back and the caller gets the error. (The Java name server logs it,
answers success, and forgets at restart.)

A namespace exists from its first key on, and stays, empty, when its last key is deleted, as in Java.
`version` grows with every change, so that what was derived from the table can be kept until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.errors import ConfigError, FuseeError
from fusee.namesrv.config import KvLimits
from fusee.wire.lenient_json import SIZE_MAX, decode_json, dumps_fastjson

if TYPE_CHECKING:
    from fusee.namesrv.saved_file import SavedFile

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the order configuration: topic to `broker:queues;broker:queues`."""


class KvError(FuseeError):
    """A change of the key/value configuration that breaks a limit or could not be saved."""


class _Document(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]] = {}


class KvTable:
    """The table, its limits and its file; without a file it lives in memory."""

    def __init__(self, *, limits: KvLimits | None = None, file: SavedFile | None = None) -> None:
        self._limits = limits if limits is not None else KvLimits()
        self._file = file
        self._namespaces: dict[str, dict[str, str]] = {}
        self._keys = 0
        self.version = 0

    def load(self) -> None:
        """Take over what the file holds. Raises ConfigError when neither it nor its backup can be read."""
        document = self._file.load(_decode) if self._file is not None else None
        if document is None:
            return
        self._namespaces = document.config_table
        self._keys = sum(len(keys) for keys in self._namespaces.values())
        self.version += 1

    def get(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """A copy of the keys and values of a namespace, or None when it never had any."""
        keys = self._namespaces.get(namespace)
        return None if keys is None else dict(keys)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set the value, and return when it is saved. Raises KvError; then nothing has changed."""
        self._check(namespace, key, value)
        known = self._namespaces.get(namespace)
        before = None if known is None else known.get(key)
        keys = self._namespaces.setdefault(namespace, {})
        keys[key] = value
        try:
            self._save()
        except KvError:
            if known is None:
                del self._namespaces[namespace]
            elif before is None:
                del keys[key]
            else:
                keys[key] = before
            raise
        self._keys += before is None
        self.version += 1

    def delete(self, namespace: str, key: str) -> None:
        """Remove the key if it is there, and return when that is saved. Raises as `put`."""
        keys = self._namespaces.get(namespace)
        if keys is None or key not in keys:
            return
        before = dict(keys)
        del keys[key]
        try:
            self._save()
        except KvError:
            self._namespaces[namespace] = before
            raise
        self._keys -= 1
        self.version += 1

    def _check(self, namespace: str, key: str, value: str) -> None:
        limits = self._limits
        if not namespace or not key:
            raise KvError("a key/value entry needs a namespace and a key; one of them is empty")
        if "$ref" in (namespace, key):
            raise KvError("'$ref' cannot be a namespace or key: in the file it would read back as a reference")
        for what, text, length_max, setting in (
            ("namespace", namespace, limits.kv_name_length_max, "kvNameLengthMax"),
            ("key", key, limits.kv_name_length_max, "kvNameLengthMax"),
            ("value", value, limits.kv_value_length_max, "kvValueLengthMax"),
        ):
            if len(text) > length_max:
                raise KvError(
                    f"{what} {text[:60]!r}... has {len(text)} characters; the limit is {setting}={length_max}"
                )
        known = self._namespaces.get(namespace)
        if known is None and len(self._namespaces) >= limits.kv_namespaces_max:
            raise KvError(f"no room for namespace {namespace!r}: kvNamespacesMax={limits.kv_namespaces_max} is reached")
        if (known is None or key not in known) and self._keys >= limits.kv_keys_max:
            raise KvError(f"no room for key {key!r}: kvKeysMax={limits.kv_keys_max} is reached")

    def _save(self) -> None:
        content = dumps_fastjson(_Document(self._namespaces))
        if len(content) > SIZE_MAX:
            # More could neither be read back at the next start nor be answered in one frame.
            raise KvError(f"the change is not made, because the table would grow over {SIZE_MAX} bytes")
        if self._file is None:
            return
        try:
            self._file.save(content)
        except OSError as error:
            raise KvError(f"the change is not made, because {self._file.path} could not be saved: {error}") from error


def _decode(content: bytes) -> _Document:
    if not content.strip():
        raise ConfigError("the file is empty")
    return decode_json(content, _Document)
