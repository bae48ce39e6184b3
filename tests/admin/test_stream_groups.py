from __future__ import annotations

from fusee.admin import Admin
from fusee.admin.stream_groups import NAMESPACE, StreamMark
from tests.admin.scene import Scene, play


def test_marks_are_at_every_name_server_and_others_are_left_out() -> None:
    async def scene(on: Scene) -> None:
        assert await on.do(on.admin.stream_groups()) == {}
        mark = StreamMark(engine="spark", since_ms=5)
        await on.do(on.admin.mark_stream_group("reports", mark))
        await on.do(on.admin.mark_stream_group("archive", StreamMark(engine="spark", since_ms=6)))
        await on.do(on.admin.mark_stream_group("archive", StreamMark(engine="spark", since_ms=7)))
        await on.do(on.admin.put_kv(NAMESPACE, "other", '{"engine":5}'))
        for host in on.world.name_server_hosts:
            of_one = Admin(await on.world.session(name_servers=f"{host}:9876"))
            found = await on.do(of_one.stream_groups())
            assert list(found) == ["archive", "reports"]
            assert found["archive"].since_ms == 7
            assert found["reports"] == mark

    play(scene, name_servers=2)
