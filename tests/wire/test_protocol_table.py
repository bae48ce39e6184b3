"""The table is complete, agrees with itself, and with the document made from it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.lenient_json import decode_json, dumps_browser, dumps_fastjson
from fusee.wire.protocol_table import EXTENSIONS, SERVED, TABLE, BodyKind, Conversation, Node, Status, entries_of
from fusee.wire.response_table import RESPONSES
from scripts import make_docs
from tests.golden import frames


def test_every_request_code_has_one_entry() -> None:
    assert list(TABLE) == sorted(RequestCode)
    assert all(entry.code is code for code, entry in TABLE.items())


def test_every_response_code_has_a_meaning() -> None:
    assert set(RESPONSES) == set(ResponseCode)


def test_served_codes_belong_to_their_node() -> None:
    for node, codes in SERVED.items():
        assert codes <= {entry.code for entry in entries_of(node)}


def test_name_server_serves_all_of_its_codes() -> None:
    assert all(entry.status_at(Node.NAME_SERVER) is Status.SERVED for entry in entries_of(Node.NAME_SERVER))


def test_status_when_code_is_of_another_node_is_not_served() -> None:
    entry = TABLE[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    assert entry.status is Status.SERVED
    assert entry.status_at(Node.BROKER) is Status.NOT_SERVED


def test_status_when_only_one_of_two_nodes_serves_is_served() -> None:
    entry = TABLE[RequestCode.BROKER_HEARTBEAT]
    assert entry.nodes == (Node.NAME_SERVER, Node.CONTROLLER)
    assert entry.status_at(Node.CONTROLLER) is Status.PLANNED
    assert entry.status is Status.SERVED


def test_reserved_codes_are_those_without_a_node() -> None:
    for entry in TABLE.values():
        assert (entry.conversation is Conversation.RESERVED) == (not entry.nodes)
        if not entry.nodes:
            assert entry.status is Status.NOT_SERVED
            assert entry.request_header is None
            assert entry.response_header is None


def test_only_json_bodies_have_a_type() -> None:
    for entry in TABLE.values():
        for body in (entry.request_body, entry.response_body):
            assert body.type is None or body.kind is BodyKind.JSON, entry.name


def test_every_golden_answer_comes_from_a_node_of_the_table() -> None:
    names = {"namesrv": Node.NAME_SERVER, "broker": Node.BROKER, "slave": Node.BROKER}
    names |= {"client": Node.CLIENT, "mqadmin": Node.CLIENT}
    for frame in frames():
        if frame.role == "response" and frame.code == ResponseCode.SUCCESS and frame.request_code is not None:
            assert names[frame.sender] in TABLE[RequestCode(frame.request_code)].nodes, frame.id


def test_golden_json_bodies_decode_to_the_types_of_the_table_and_back() -> None:
    checked: set[tuple[int, str]] = set()
    for frame in frames():
        code = frame.code if frame.request_code is None else frame.request_code
        if code not in RequestCode.__members__.values() or not frame.body_length:
            continue
        entry = TABLE[RequestCode(code)]
        body = entry.response_body if frame.role == "response" else entry.request_body
        is_json = frame.body is not None or (frame.body_text is not None and frame.body_text[:1] == "{")
        if body.kind is not BodyKind.JSON:
            continue
        if not is_json:
            assert code == RequestCode.REGISTER_BROKER, frame.id  # which may be compressed
            continue
        if body.type is not None:
            value = decode_json(frame.body_bytes, body.type)
            written = (dumps_fastjson(value), dumps_browser(value))
            assert frame.body_bytes in written, frame.id
            checked.add((code, frame.role))
    assert len(checked) > 30


def test_struct_types_of_bodies_declare_their_fields_in_wire_order() -> None:
    for entry in TABLE.values():
        for body in (entry.request_body, entry.response_body):
            if isinstance(body.type, type) and issubclass(body.type, msgspec.Struct):
                names = list(body.type.__struct_encode_fields__)
                assert names == sorted(names), body.type


def test_compatibility_document_is_up_to_date() -> None:
    assert make_docs.main(["--check"]) == 0, "run `make docs`"


def test_make_docs_when_document_is_stale_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make_docs.main(["--check"], root=tmp_path) == 1
    assert "make docs" in capsys.readouterr().err
    assert make_docs.main([], root=tmp_path) == 0
    assert make_docs.main(["--check"], root=tmp_path) == 0
    document = tmp_path / "docs" / "compatibility.md"
    document.write_text(document.read_text().replace("**served**", "planned", 1))
    assert make_docs.main(["--check"], root=tmp_path) == 1


def test_compatibility_document_names_every_code() -> None:
    text = make_docs.compatibility()
    for name in [code.name for code in RequestCode] + [code.name for code in ResponseCode]:
        assert f"`{name}`" in text
    served = {code for codes in SERVED.values() for code in codes if code not in EXTENSIONS}
    assert f"Fusee serves {len(served)} of them" in text


def test_compatibility_document_links_to_headers_it_has() -> None:
    text = make_docs.compatibility()
    for entry in TABLE.values():
        for header in (entry.request_header, entry.response_header):
            if header is not None:
                assert f'<a id="{header.__name__.lower()}"></a>' in text


def test_extensions_are_ours_and_nothing_of_the_reference_is() -> None:
    extensions = {entry.code for entry in TABLE.values() if entry.is_extension}
    assert RequestCode.BULK_READ in extensions
    assert not extensions & {RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.SWITCH_TIMER_ENGINE}
    assert all(entry.status is Status.SERVED for entry in TABLE.values() if entry.is_extension)
