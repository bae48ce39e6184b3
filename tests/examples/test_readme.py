"""The README's program runs as it stands, against name servers at the addresses it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from fusee.namesrv import NameServer, NameServerConfig
from fusee.service import run

README = Path(__file__).parents[2] / "README.md"


def test_readme_program_runs() -> None:
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None

    async def scenario() -> tuple[int, str, str]:
        import asyncio

        server = NameServer(NameServerConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=""))
        await server.start()
        # One address answers; the other is closed, so the program has to move on when it starts there.
        program = found[1].replace("127.0.0.1:9876;127.0.0.1:9877", f"{server.address};127.0.0.1:1")
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
        )
        await server.stop()
        return done.returncode, done.stdout, done.stderr

    code, stdout, stderr = run(scenario())
    assert code == 0, stderr
    assert stdout.startswith("ClusterInfo(")
