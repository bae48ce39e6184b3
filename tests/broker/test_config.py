"""Settings of broker and store from one file, environment and flags; spelling; what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusee.broker.config import BrokerConfig, Settings, load_settings, spelled
from fusee.config import parse_properties
from fusee.errors import ConfigError
from fusee.store.config import FlushDiskType, StoreConfig
from tests.golden import frames

JAVA_FILE = """\
# The broker of a user
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
brokerIP1=10.1.2.3
listenPort=10921
deleteWhen=02;14
fileReservedTime=48\x20
autoCreateTopicEnable=FALSE
checkCRCOnRecover=false
sendMessageThreadPoolNums=16
useEpollNativeSelector=true
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
"""
OURS = {
    "bulkReadBytesMax",
    "bulkReadBytesMaxInDisk",
    "bulkReadEnable",
    "bulkReadLocalEnable",
    "handoverEnable",
    "stagedApplicationsMax",
    "stagedBytesMax",
    "stagedPartsMax",
    "stagedReservedTime",
    "stagedTimeOut",
    "stagedTransactionsMax",
    "brokerConfigPath", "clientsPerGroupMax", "connectionsMax", "diskFreeBytesEnough", "diskFreeBytesMin",
    "fastListenPort", "frameSizeMax", "groupsMax", "haMasterAddress", "offsetsMax", "openFilesMax",
    "subscriptionsPerGroupMax",
    "suspendTimeoutMax", "tlsServerCertPath", "tlsServerKeyPath", "tlsServerMode", "topicsMax",
    "transactionSegmentEntries",
}  # fmt: skip


def write(folder: Path, text: str, name: str = "broker.conf") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_java_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path, JAVA_FILE + f"storePathRootDir={tmp_path}/store\n")
    settings = load_settings(file=file)
    assert settings.broker.broker_ip1 == "10.1.2.3"
    assert settings.broker.listen_port == 10921
    assert settings.broker.name_servers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert not settings.broker.auto_create_topic_enable
    assert settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert settings.store.file_reserved_time == 48
    assert settings.store.delete_when == "02;14"
    assert not settings.store.check_crc_on_recover
    assert settings.store_path == f"{tmp_path}/store"
    assert settings.ignored == ("sendMessageThreadPoolNums", "useEpollNativeSelector")
    assert settings.origins["listen_port"] == settings.origins["store_path"] == str(file)
    assert settings.origins["broker_permission"] == "default"


def test_defaults_are_the_reference_s() -> None:
    settings = load_settings()
    assert settings.broker == BrokerConfig()
    assert settings.store == StoreConfig()
    assert settings.store_path == str(Path("~/store").expanduser())
    assert set(settings.origins.values()) == {"default"}


def test_later_sources_win(tmp_path: Path) -> None:
    file = write(tmp_path, "listenPort=1\nbrokerName=file\nmaxMessageSize=1024\n")
    settings = load_settings(
        file=file,
        environment={"FUSEE_BROKER_BROKER_NAME": "environment", "FUSEE_BROKER_MAX_MESSAGE_SIZE": "2048", "PATH": "x"},
        flags={"max_message_size": 4096, "store_path": "/data", "broker_id": None},
    )
    assert settings.broker.listen_port == 1
    assert settings.broker.broker_name == "environment"
    assert settings.store.max_message_size == 4096
    assert settings.store_path == "/data"
    assert settings.origins["max_message_size"] == "command line"
    assert settings.origins["broker_name"] == "environment FUSEE_BROKER_BROKER_NAME"


def test_name_servers_come_from_java_s_variable_when_nothing_else_names_them(tmp_path: Path) -> None:
    environment = {"NAMESRV_ADDR": "ns:9876"}
    settings = load_settings(environment=environment)
    assert settings.broker.namesrv_addr == "ns:9876"
    assert settings.origins["namesrv_addr"] == "environment NAMESRV_ADDR"
    file = write(tmp_path, "namesrvAddr=other:9876")
    assert load_settings(file=file, environment=environment).broker.namesrv_addr == "other:9876"


def test_toml_takes_both_spellings_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    file = write(tmp_path, 'broker_name = "a"\nbrokerIP2 = "10.0.0.9"\nflush_disk_type = "SYNC_FLUSH"\n', "b.toml")
    settings = load_settings(file=file)
    assert settings.broker.broker_ip2 == "10.0.0.9"
    assert settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    with pytest.raises(ConfigError, match="brokerNam"):
        load_settings(file=write(tmp_path, 'brokerNam = "a"', "c.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listenPort=many", "listen_port = 'many' .*broker.conf"),
        ("listenPort=70000", "listenPort=70000"),
        ("flushDiskType=SOMETIMES", "flush_disk_type"),
        ("mappedFileSizeConsumeQueue=21", "mappedFileSizeConsumeQueue=21"),
        ("storePathRootDir=/data\nstorePathCommitLog=/fast/commitlog", "/data/commitlog"),
        ("storePathCommitLog=/a,/b", "storePathCommitLog=/a,/b"),
        ("brokerConfigPath=/etc/changes.toml", "properties"),
    ],
)
def test_value_that_cannot_be_is_an_error_that_names_the_setting(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(file=write(tmp_path, text))


def test_unknown_environment_variable_is_an_error() -> None:
    with pytest.raises(ConfigError, match="FUSEE_BROKER_NO_SUCH"):
        load_settings(environment={"FUSEE_BROKER_NO_SUCH": "1"})


def test_usual_place_of_the_log_may_be_written_down(tmp_path: Path) -> None:
    file = write(tmp_path, f"storePathRootDir={tmp_path}\nstorePathCommitLog={tmp_path}/commitlog/\n")
    settings = load_settings(file=file)
    assert settings.ignored == ()
    assert "store_path_commit_log" not in settings.origins


def test_changes_that_were_saved_win_over_the_file_and_not_over_flags(tmp_path: Path) -> None:
    saved = write(tmp_path, "fileReservedTime=10\nbrokerPermission=4\n", "changes.properties")
    file = write(tmp_path, f"fileReservedTime=20\ndeleteWhen=05\nbrokerConfigPath={saved}\n")
    settings = load_settings(file=file, flags={"broker_permission": 6})
    assert settings.store.file_reserved_time == 10
    assert settings.store.delete_when == "05"
    assert settings.broker.broker_permission == 6
    assert settings.origins["file_reserved_time"] == str(saved)


def test_saved_changes_may_be_in_the_file_itself_or_not_there_yet(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"brokerConfigPath={file}\nfileReservedTime=20\nunknown=1\n")
    assert load_settings(file=file).ignored == ("unknown",)
    settings = load_settings(flags={"broker_config_path": str(tmp_path / "none.properties")})
    assert settings.store == StoreConfig()


def test_properties_have_every_setting_in_the_reference_s_spelling_and_read_back(tmp_path: Path) -> None:
    settings = Settings(
        broker=BrokerConfig(broker_name="a", broker_ip1="10.0.0.1"),
        store=StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH),
        store_path="/data",
        origins={},
        ignored=(),
    )
    text = settings.to_properties({"listen_port": "20911"})
    lines = text.splitlines()
    assert lines == sorted(lines)
    entries = parse_properties(text)
    assert entries["brokerIP1"] == "10.0.0.1"
    assert entries["flushDiskType"] == "SYNC_FLUSH"
    assert entries["autoCreateTopicEnable"] == "true"
    assert entries["storePathRootDir"] == "/data"
    assert entries["listenPort"] == "20911"
    back = load_settings(file=write(tmp_path, settings.to_properties()))
    assert (back.broker, back.store, back.store_path) == (settings.broker, settings.store, "/data")
    assert back.ignored == ()


def test_every_setting_that_is_not_ours_is_one_of_the_reference_s() -> None:
    [text] = [f.body_text for f in frames() if f.request_code == 26 and f.role == "response"]
    assert text is not None
    known = set(parse_properties(text))
    ours = {spelled(name) for name in load_settings().values()}
    assert ours - known <= OURS
