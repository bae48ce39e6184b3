from __future__ import annotations

from tests.cli.scene import Terminal, server


def test_a_healthy_cluster_and_one_whose_broker_is_away() -> None:
    with server(topics={"orders": 1}) as here, here.connect() as mq:
        terminal = Terminal(here.name_server)
        well = terminal.json("doctor")
        assert well["healthy"] is True
        assert {"name server", "address", "disk", "clock", "route", "group"} <= {
            finding["check"] for finding in well["findings"]
        }
        assert terminal.ok("doctor").splitlines()[-1] == "nothing is wrong"
        assert terminal.ok("doctor", "--quiet").strip() == "nothing is wrong"
        assert terminal.json("cluster", "health")["healthy"] is True
        (cluster,) = terminal.json("cluster", "list")
        assert [entry["broker"]["broker_name"] for entry in cluster["brokers"]] == ["embedded"]
        assert "master" in terminal.ok("cluster", "list")

        mq.admin.update_topic("orders", perm="r")
        answer = terminal.run("doctor")
        assert answer.exit_code == 1
        assert "nothing can be sent to it" in " ".join(answer.output.split())
        assert "fix: " in answer.output


def test_a_name_server_that_is_away_is_a_finding_and_no_crash() -> None:
    with server() as here:
        gone = here.name_server
    answer = Terminal(gone).run("doctor", "--json")
    assert answer.exit_code == 1
    (finding,) = answer.data["findings"]
    assert (finding["check"], finding["severity"]) == ("name server", "error")
    assert "--namesrv" in finding["fix"]
