"""Where loaders are reached, and the keys of a client: the rules and words of loader/protocol/endpoint.c and keys.c."""
from __future__ import annotations

import ipaddress
import os
import stat
import struct
from typing import NamedTuple, Optional

import zmq
import zmq.utils.z85

_PATH_MAX = 108  # of a socket's address, with its final NUL byte


class Endpoint(NamedTuple):
    name: str  # for messages: ipc://DIR, tcp://HOST:PORT
    address: str  # for ZeroMQ: ipc://DIR/data.sock, tcp://HOST:PORT
    directory: Optional[str]  # of ipc

    def check(self) -> None:
        """Refuses a directory that other users could have made or may enter."""
        if self.directory is None:
            return
        try:
            status = os.lstat(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(f"'{self.directory}' is not a directory: ipc://DIR is that of a running loader")
        if os.path.exists(f"{self.directory}/dataset.jsonl"):
            raise ValueError(f"'{self.directory}' is a dataset, not the endpoint of a loader: start one by `millrace serve "
                             f"{self.directory}`, which prints it")
        if status.st_uid != os.geteuid():
            raise PermissionError(f"'{self.directory}' belongs to user {status.st_uid}, this process runs as "
                                  f"{os.geteuid()}: choose another endpoint")
        if status.st_mode & 0o077:
            raise PermissionError(f"'{self.directory}' is open to others (mode {status.st_mode & 0o777:o}): "
                                  "chmod 700 it")


def _is_loopback(host: str) -> bool:
    """Only addresses and the name "localhost" count as this machine: what a looked-up name resolves to can change."""
    try:
        return host in ("localhost", "[::1]") or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def _parse_tcp(address: str, keys: bool) -> Endpoint:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not host or len(host) > 63 or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"'{address}' is not an endpoint: tcp://HOST:PORT, with a PORT from 1 to 65535")
    if not keys and not _is_loopback(host):
        raise PermissionError(f"'{address}' is reachable from other machines: that needs keys (millrace keygen)")
    return Endpoint(address, f"tcp://{'127.0.0.1' if host == 'localhost' else host}:{port}", None)


def _parse_ipc(path: str) -> Endpoint:
    directory = path.rstrip("/") or path[:1]
    if not directory:
        raise ValueError("the endpoint has an empty directory name: write ipc://DIR")
    if len(os.fsencode(directory)) + len("/data.sock") >= _PATH_MAX:
        raise ValueError(f"'{directory}' is too long for a socket: at most {_PATH_MAX - len('/data.sock') - 1} bytes")
    return Endpoint(f"ipc://{directory}", f"ipc://{directory}/data.sock", directory)


def _parse(address: str, keys: bool) -> Endpoint:
    if address.startswith("tcp://"):
        return _parse_tcp(address, keys)
    if not address.startswith(("ipc://", "/", ".")):
        raise ValueError(f"'{address}' is not an endpoint: ipc://DIR, tcp://HOST:PORT, or a directory as /DIR or ./DIR")
    return _parse_ipc(address.removeprefix("ipc://"))


def parse_endpoints(addresses: Optional[str], keys: bool) -> list[Endpoint]:
    """Endpoints separated by commas; None is the default directory of this user."""
    if addresses is None:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        return [_parse_ipc(f"{runtime}/millrace" if runtime else f"/tmp/millrace-{os.geteuid()}")]
    return [_parse(address.strip(), keys) for address in addresses.split(",")]


class Keys(NamedTuple):
    """The keys of a CURVE connection, in Z85."""

    loader: bytes
    public: bytes
    secret: bytes


def _check_key(text: str, where: str) -> bytes:
    key = text.encode()
    try:
        if len(key) == 40 and len(zmq.utils.z85.decode(key)) == 32:
            return key
    except (KeyError, struct.error):
        pass
    raise ValueError(f"{where} is not a key: expected 40 characters as printed by `millrace keygen`")


def read_keys(key_file: Optional[str], loader_key: Optional[str]) -> Optional[Keys]:
    if not key_file and not loader_key:
        return None
    if not key_file or not loader_key:
        raise ValueError("a key file and the loader's public key must be given together")
    loader = _check_key(loader_key, "the loader's public key")
    with open(key_file, encoding="utf-8", errors="replace") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise PermissionError(f"other users may read the secret key in '{key_file}': chmod 600 it")
        words = file.read(4096).split()
    if len(words) < 2:
        raise ValueError(f"'{key_file}' is not a key file of `millrace keygen`")
    public, secret = _check_key(words[0], key_file), _check_key(words[1], key_file)
    if zmq.curve_public(secret) != public:
        raise ValueError(f"'{key_file}': its public key, the first line, is not that of its secret key")
    return Keys(loader, public, secret)
