"""The servers that the matrix is run against: ours or the real ones, plain or with TLS, all with the same settings.

`FUSEE_INTEROP_BROKER=java` puts the real broker in the place of ours, as `FUSEE_INTEROP_NAMESRV=java` does for the name
server: the whole matrix must pass then too.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.interop.harness.cluster import SUBJECT_VARIABLE
from tests.interop.harness.servers import FuseeBroker, FuseeNameServer, JavaBroker, JavaNameServer
from tests.interop.harness.toolchain import Runtime

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.servers import NameServer

BROKER_VARIABLE: Final = "FUSEE_INTEROP_BROKER"

# Levels 1 and 2 are for delayed messages; consumers retry from level 3 on.
DELAYS_S: Final = (1, 2, *[1] * 16)

SETTINGS: Final = {
    "messageDelayLevel": " ".join(f"{delay_s}s" for delay_s in DELAYS_S),
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    # By default decisions gather for three seconds, in which even a decided transaction is asked about.
    "transactionOpBatchInterval": "100",
}


def make_of(variable: str) -> str:
    """`fusee` or `java`, as the environment says."""
    make = os.environ.get(variable, "fusee")
    if make not in ("fusee", "java"):
        raise ValueError(f"{variable}={make}: expected fusee or java")
    return make


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> Certificate:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .sign(key, hashes.SHA256())
        )
        made = cls(folder / "certificate.pem", folder / "key.pem")
        made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return made

    def server_properties(self, mode: str) -> dict[str, str]:
        """System properties of a Java server."""
        return {
            "tls.server.mode": mode,
            "tls.test.mode.enable": "false",
            "tls.server.certPath": str(self.certificate),
            "tls.server.keyPath": str(self.key),
        }

    def server_settings(self, mode: str) -> dict[str, str]:
        """Settings of our servers, which have them in their file."""
        return {
            "tlsServerMode": mode,
            "tlsServerCertPath": str(self.certificate),
            "tlsServerKeyPath": str(self.key),
        }

    def client_properties(self) -> dict[str, str]:
        """System properties of a Java client that trusts this certificate and no other."""
        return {
            "tls.test.mode.enable": "false",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.certificate),
        }


class TlsFuseeNameServer(FuseeNameServer):
    """Our name server, taking TLS beside plain connections."""

    def __init__(self, fleet: Fleet, name: str, certificate: Certificate) -> None:
        super().__init__(fleet, name)
        self._certificate = certificate

    def _command(self, folder: Path) -> list[str]:
        config = folder / "namesrv.conf"
        settings = self._certificate.server_settings("permissive")
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return [*super()._command(folder), "-c", str(config)]


@dataclass(frozen=True)
class TlsRuntime(Runtime):
    """A class path whose programs get the system properties of TLS."""

    tls: dict[str, str]

    @classmethod
    def of(cls, runtime: Runtime, tls: dict[str, str]) -> TlsRuntime:
        return cls(runtime.name, runtime.java, runtime.classpath, tls)

    def command(
        self,
        main_class: str,
        *arguments: str,
        home_dir: Path,
        heap_mb: int = 128,
        log_level: str = "INFO",
        properties: dict[str, str] | None = None,
    ) -> list[str]:
        return super().command(
            main_class,
            *arguments,
            home_dir=home_dir,
            heap_mb=heap_mb,
            log_level=log_level,
            properties={**(properties or {}), **self.tls},
        )


@dataclass(frozen=True)
class Servers:
    """A name server and a broker, all that a client needs to know."""

    name_server: NameServer
    broker: JavaBroker

    @classmethod
    def plain(cls, fleet: Fleet, runtime: Runtime) -> Servers:
        name_server: NameServer = (
            JavaNameServer(fleet, "matrix-namesrv", runtime)
            if make_of(SUBJECT_VARIABLE) == "java"
            else FuseeNameServer(fleet, "matrix-namesrv")
        )
        make = JavaBroker if make_of(BROKER_VARIABLE) == "java" else FuseeBroker
        return cls(name_server, make(fleet, runtime, [name_server], name="matrix-broker", settings=SETTINGS))

    @classmethod
    def with_tls(cls, fleet: Fleet, runtime: Runtime, certificate: Certificate) -> Servers:
        """A name server that takes both and a broker that takes TLS only."""
        name_server: NameServer = (
            JavaNameServer(fleet, "tls-namesrv", TlsRuntime.of(runtime, certificate.server_properties("permissive")))
            if make_of(SUBJECT_VARIABLE) == "java"
            else TlsFuseeNameServer(fleet, "tls-namesrv", certificate)
        )
        if make_of(BROKER_VARIABLE) == "java":
            enforcing = TlsRuntime.of(runtime, certificate.server_properties("enforcing"))
            return cls(name_server, JavaBroker(fleet, enforcing, [name_server], name="tls-broker", settings=SETTINGS))
        settings = {**SETTINGS, **certificate.server_settings("enforcing")}
        return cls(name_server, FuseeBroker(fleet, runtime, [name_server], name="tls-broker", settings=settings))

    def start(self) -> None:
        """Starts both and waits until the broker is registered, which it is when it serves."""
        self.name_server.start()
        self.name_server.await_ready()
        self.broker.start()
        self.broker.await_registration(self.name_server)

    def assert_running(self) -> None:
        """Fails with exit code and last words of a server that has ended."""
        for server in (self.name_server, self.broker):
            assert server._child is not None
            server._child.assert_running()
