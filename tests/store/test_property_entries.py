"""Property strings split all at once, against the decoder that splits one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.properties import decode_properties, encode_properties
from fusee.store.property_entries import PropertyEntries, last_wins, split_entries
from tests.message import strategies

strings = st.one_of(strategies.properties.map(encode_properties), strategies.untidy_properties)


def split(raws: list[bytes]) -> tuple[bytes, PropertyEntries]:
    joined = b"".join(raws)
    offsets = np.cumsum([0, *map(len, raws)]).astype(np.int32)
    return joined, split_entries(np.frombuffer(joined, np.uint8), offsets)


def shown(raws: list[bytes]) -> list[list[tuple[bytes, bytes]]]:
    """Names and values of each string, in order."""
    joined, entries = split(raws)
    bounds = entries.row_offsets.tolist()
    pairs = [
        (joined[name_start:name_end], joined[value_start:value_end])
        for name_start, name_end, value_start, value_end in zip(
            entries.name_start.tolist(),
            entries.name_end.tolist(),
            entries.value_start.tolist(),
            entries.value_end.tolist(),
            strict=True,
        )
    ]
    assert bounds[0] == 0
    assert bounds[-1] == len(pairs)
    return [pairs[start:end] for start, end in pairwise(bounds)]


@given(st.lists(strings, min_size=1, max_size=8))
def test_split_when_strings_are_tidy_or_not_gives_what_the_decoder_reads(raws: list[bytes]) -> None:
    for raw, pairs in zip(raws, shown(raws), strict=True):
        # malformed UTF-8 is another module's matter: Latin-1 has none
        expected = decode_properties(raw.decode("latin-1").encode())
        assert {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs} == expected


def test_split_when_the_last_separator_is_missing_keeps_rows_apart() -> None:
    raws = [b"a\x01b", b"", b"\x02c\x01d\x02", b"e\x01f", b"g\x01h\x02i", b""]
    assert shown(raws) == [[(b"a", b"b")], [], [(b"c", b"d")], [(b"e", b"f")], [(b"g", b"h")], []]


def test_split_when_entries_are_no_entries_leaves_them_out() -> None:
    assert shown([b"\x01v\x02n\x01\x02alone\x02\x02a\x01b\x01c\x02"]) == [[(b"a", b"b\x01c")]]
    assert shown([b"a\x02", b"\x01b\x02"]) == [[], []]


def test_split_when_all_strings_are_empty_gives_no_entries() -> None:
    assert shown([b"", b""]) == [[], []]


@given(st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=12), st.sampled_from([7, 1000]))
def test_last_wins_when_names_repeat_does_as_a_dict(names_by_row: list[list[int]], name_count: int) -> None:
    rows = np.array([row for row, names in enumerate(names_by_row) for _ in names], np.int64)
    names = np.array([name for names in names_by_row for name in names], np.int64)
    folded: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    for entry, pair in enumerate(zip(rows.tolist(), names.tolist(), strict=True)):
        folded[pair] = entry
        first.setdefault(pair, entry)
    found = last_wins(rows, names, name_count)
    if len(folded) == len(rows):
        assert found is None
    else:
        assert found is not None
        assert found[0].tolist() == list(first.values())
        assert found[1].tolist() == list(folded.values())
