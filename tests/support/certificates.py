"""An authority of a test's own, with certificates for etcd's members and for clients: by openssl, valid for a day.

The program is `openssl` on PATH, else the distribution's own, unpacked under build/ (tools/unpack_debian.sh).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.servers.etcd_cluster import EtcdTlsFiles

_UNPACK = Path(__file__).parents[2] / "tools" / "unpack_debian.sh"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CONFIG = "[req]\ndistinguished_name = name\n[name]\n[ca]\nbasicConstraints = critical,CA:true\n"
# A member is a server to clients and both to its peers.
_MEMBER = "subjectAltName = IP:127.0.0.1,DNS:localhost\nextendedKeyUsage = serverAuth,clientAuth\n"
_CLIENT = "extendedKeyUsage = clientAuth\n"


class Authority:
    """Signs certificates under `home`."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._openssl = _openssl()
        self.cert = home / "ca.pem"
        self._key = home / "ca.key"
        self._config = home / "openssl.cnf"
        self._config.write_text(_CONFIG)
        subject = ("-subj", "/CN=authority of a test", "-days", "1", "-extensions", "ca")
        self._run("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.cert, *subject)

    def member(self) -> tuple[Path, Path]:
        """Certificate and key of etcd's members on loopback."""
        return self._signed("member", _MEMBER)

    def client(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of a client whose common name is `name`."""
        return self._signed(name, _CLIENT)

    def etcd_files(self) -> EtcdTlsFiles:
        """What a cluster with TLS needs. The client's common name is no user of etcd's."""
        return EtcdTlsFiles(self.cert, *self.member(), *self.client("operator"))

    def _signed(self, name: str, extensions: str) -> tuple[Path, Path]:
        cert, key, request = (self._home / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        wanted = self._home / f"{name}.ext"
        wanted.write_text(extensions)
        self._run("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        by = ("-CA", self.cert, "-CAkey", self._key, "-CAcreateserial", "-days", "1", "-extfile", wanted)
        self._run("x509", "-req", "-in", request, "-out", cert, *by)
        return cert, key

    def _run(self, verb: str, *arguments: str | Path) -> None:
        config = ("-config", str(self._config)) if verb == "req" else ()
        done = subprocess.run(
            [self._openssl, verb, *config, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def signing_keys(home: Path) -> tuple[Path, Path]:
    """A public and a private RSA key, as etcd signs its JWT with."""
    public, private = home / "jwt.pub", home / "jwt.key"
    openssl = _openssl()
    subprocess.run([openssl, "genrsa", "-out", private, "2048"], capture_output=True, check=True)
    subprocess.run([openssl, "rsa", "-in", private, "-pubout", "-out", public], capture_output=True, check=True)
    return public, private


def _openssl() -> str:
    found = shutil.which("openssl")
    if found is None:
        unpacked = subprocess.run([_UNPACK, "openssl", "usr/bin/openssl"], capture_output=True, text=True, check=False)
        found = unpacked.stdout.strip()
    if not found:
        pytest.skip("certificates cannot be made: no openssl here, and none can be fetched")
    return found
