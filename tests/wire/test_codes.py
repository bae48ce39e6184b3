"""Numbers of the protocol against captured frames."""

from __future__ import annotations

from fusee.wire.codes import LanguageCode, RequestCode, ResponseCode
from tests.golden import frames


def test_golden_names_of_requests_are_ours() -> None:
    seen = set()
    for frame in frames():
        for code, name in ((frame.code, frame.code_name), (frame.request_code, frame.request_code_name)):
            if name is not None and not (frame.role == "response" and code == frame.code):
                assert RequestCode[name] == code
                seen.add(name)
    assert len(seen) > 60


def test_golden_names_of_responses_are_ours() -> None:
    seen = set()
    for frame in frames():
        if frame.role == "response" and frame.code_name is not None:
            assert ResponseCode[frame.code_name] == frame.code
            seen.add(frame.code_name)
    assert len(seen) > 10


def test_golden_languages_are_ours() -> None:
    assert {frame.header.language for frame in frames()} <= set(LanguageCode.__members__)


def test_numbers_are_given_once() -> None:
    for codes in (RequestCode, ResponseCode, LanguageCode):
        assert len(codes.__members__) == len(set(codes))
