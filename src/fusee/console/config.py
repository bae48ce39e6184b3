"""Settings of a console."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD_VARIABLE: Final = "FUSEE_CONSOLE_PASSWORD"
PASSWORD_FILE_VARIABLE: Final = "FUSEE_CONSOLE_PASSWORD_FILE"
DEFAULT_PORT: Final = 8080


@dataclass(frozen=True)
class ConsoleConfig:
    """Where a console listens, what it shows, and who may use it. Raises ConfigError."""

    name_servers: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    password: str = ""
    """The password or its hash; needed when `host` is reachable from elsewhere."""
    data: Path | None = None
    """Where the audit log is kept; in memory without it."""
    pipelines: Path | None = None
    """A folder with checkpoints of Spark streams."""

    def __post_init__(self) -> None:
        if not self.is_local and not self.password:
            raise ConfigError(
                f"a console on {self.host} can be reached from elsewhere, and needs a password: give it by "
                f"--password-file, {PASSWORD_FILE_VARIABLE} or {PASSWORD_VARIABLE}; or use --host 127.0.0.1"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def needs_login(self) -> bool:
        return bool(self.password)


def find_password(file: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """The password from a file, or the environment; empty when there is none. Raises ConfigError."""
    if file is None and environment.get(PASSWORD_FILE_VARIABLE):
        file = Path(environment[PASSWORD_FILE_VARIABLE])
    if file is None:
        return environment.get(PASSWORD_VARIABLE, "")
    try:
        password = file.read_text().strip()
    except OSError as error:
        raise ConfigError(f"the password file {file} cannot be read: {error.strerror or error}") from error
    if not password:
        raise ConfigError(f"the password file {file} is empty")
    return password
