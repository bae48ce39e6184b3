from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.namespaces import namespace_of, with_namespace, without_namespace

plain = st.text("abc019_-", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("namespace", "name", "wrapped"),
    [
        ("ns", "orders", "ns%orders"),
        ("ns", "%RETRY%billing", "%RETRY%ns%billing"),
        ("ns", "%DLQ%billing", "%DLQ%ns%billing"),
        ("ns", "ns%orders", "ns%orders"),
        ("ns", "%RETRY%ns%billing", "%RETRY%ns%billing"),
        ("ns", "TBW102", "TBW102"),
        ("ns", "rmq_sys_x", "rmq_sys_x"),
        ("ns", "CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("", "orders", "orders"),
        ("ns", "", ""),
    ],
)
def test_with_namespace_when_applied_keeps_prefix_and_system_names(namespace: str, name: str, wrapped: str) -> None:
    assert with_namespace(namespace, name) == wrapped


@pytest.mark.parametrize(
    ("name", "namespace", "bare"),
    [
        ("ns%orders", None, "orders"),
        ("%RETRY%ns%billing", None, "%RETRY%billing"),
        ("orders", None, "orders"),
        ("ns%orders", "ns", "orders"),
        ("ns%orders", "other", "ns%orders"),
        ("%RETRY%ns%billing", "ns", "%RETRY%billing"),
        ("ns%orders", "", "ns%orders"),
        ("%LMQ%q", None, "%LMQ%q"),
        ("", None, ""),
    ],
)
def test_without_namespace_when_applied_removes_only_the_namespace(name: str, namespace: str | None, bare: str) -> None:
    assert without_namespace(name, namespace) == bare


@given(plain, plain, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_namespace_when_wrapped_is_found_and_undone(namespace: str, name: str, prefix: str) -> None:
    wrapped = with_namespace(namespace, prefix + name)
    assert namespace_of(wrapped) == namespace
    assert without_namespace(wrapped) == without_namespace(wrapped, namespace) == prefix + name
    assert with_namespace(namespace, wrapped) == wrapped


def test_namespace_of_when_there_is_none_is_empty() -> None:
    assert [namespace_of(name) for name in ("", "orders", "%RETRY%billing", "TBW102", "%LMQ%q")] == [""] * 5
