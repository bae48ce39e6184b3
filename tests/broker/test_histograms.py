from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.histograms import SIZE_EDGES, Histogram, by_bit_length


@given(
    st.lists(
        st.one_of(
            st.integers(1, 1 << 23), st.sampled_from(SIZE_EDGES), st.sampled_from(SIZE_EDGES).map(lambda n: n + 1)
        )
    )
)
def test_both_ways_to_count_tell_how_many_were_at_most_each_edge(values: list[int]) -> None:
    histogram = Histogram(SIZE_EDGES)
    counts = [0] * 64
    for value in values:
        histogram.add(value)
        counts[(value - 1).bit_length()] += 1
    found = histogram.distribution()
    assert found.at_most == tuple(sum(value <= edge for value in values) for edge in SIZE_EDGES)
    assert (found.count, found.total) == (len(values), sum(values))
    assert by_bit_length(counts, SIZE_EDGES, sum(values)) == found
