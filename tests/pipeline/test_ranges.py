from __future__ import annotations

import pickle

from fusee.pipeline.ranges import QueueRange


def test_range_travels_and_knows_its_count() -> None:
    piece = QueueRange("orders", "broker-a", 3, 10, 25)
    assert pickle.loads(pickle.dumps(piece)) == piece
    assert piece.count == 15
    assert QueueRange("orders", "broker-a", 3, 10, 5).count == 0
