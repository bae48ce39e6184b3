"""The example in docs/formats/frames.md is a real frame."""

from __future__ import annotations

import re
from pathlib import Path

from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder, HeaderForm, encode_frame

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "frames.md"


def test_example_frame_is_what_the_document_says() -> None:
    found = re.search(r"```hex\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    frame = bytes.fromhex("".join(re.split(r"\s{2,}", line)[0] for line in found[1].splitlines()))
    (command,) = FrameDecoder().feed(frame)
    assert (command.code, command.opaque, command.all_fields()) == (105, 7, {"topic": "T"})
    assert encode_frame(Command(105, 7, ext_fields={"topic": "T"}), HeaderForm.BINARY) == frame
