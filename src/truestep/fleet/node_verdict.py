# SPDX-License-Identifier: Apache-2.0
"""What the prolog of a node is told: one signed line in a file, which needs no database to read.

    truestep1 node=n0 outcome=fail reason=retest_failed serial=17 issued_s=… expires_s=…
    <Ed25519 signature of that line with its line feed, in base64>

The epilog of the node, as root, verifies it with `openssl` and puts it into a cache of root's.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from truestep.errors import ConfigError, RecordError
from truestep.store.durable import read_regular, refused_as_record_error, write_atomically
from truestep.verdict import Outcome

VALID_S = 30 * 86_400.0
"""How long a verdict counts. A node that the controller has forgotten takes jobs again."""

PRIVATE_KEY, PUBLIC_KEY = "signing-key.pem", "signing-key.pub"
_LIMIT_BYTES = 4096
_READABLE = 0o644
_LINE = re.compile(
    r"truestep1 node=([A-Za-z0-9._-]{1,255}) outcome=(pass|fail|unknown) reason=([a-z0-9_]{1,64}) "
    r"serial=(\d{1,18}) issued_s=(\d{1,12}) expires_s=(\d{1,12})\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """What a node's prolog shall know.

    Attributes:
        node: What the scheduler calls the node.
        outcome: A fail keeps jobs off the node; all else lets them on.
        reason: A reason code.
        serial: Grows with every verdict; an older one never replaces a newer one.
        issued_s, expires_s: From when to when it counts, seconds since the epoch.
    """

    node: str
    outcome: Outcome
    reason: str
    serial: int
    issued_s: int
    expires_s: int

    @property
    def line(self) -> bytes:
        """The line that is signed.

        Raises:
            ConfigError: The node's name or the reason cannot stand in it.
        """
        text = (
            f"truestep1 node={self.node} outcome={self.outcome} reason={self.reason} "
            f"serial={self.serial} issued_s={self.issued_s} expires_s={self.expires_s}\n"
        )
        if not _LINE.fullmatch(text):
            raise ConfigError(
                f"a verdict's node must be letters, digits, dots, dashes and underscores, got "
                f"{self.node!a:.80}."
            )
        return text.encode()


def new_key(folder: Path) -> None:
    """Make the key that signs, for the owner only, and beside it the one that nodes verify with.

    Raises:
        RecordError: They cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with refused_as_record_error(folder, "No key was made."):
        write_atomically(folder / PRIVATE_KEY, private)
        write_atomically(folder / PUBLIC_KEY, public)
        (folder / PUBLIC_KEY).chmod(_READABLE)


def publish(folder: Path, verdict: NodeVerdict, key: Path) -> Path:
    """Sign a verdict and put it where the node's epilog finds it; whole, or not at all.

    Raises:
        RecordError: The key or the folder cannot be used.
    """
    line = verdict.line
    path = folder / f"{verdict.node}.verdict"
    with refused_as_record_error(key, "The verdict was not published."):
        private = load_pem_private_key(read_regular(key, limit_bytes=_LIMIT_BYTES), password=None)
    if not isinstance(private, Ed25519PrivateKey):
        raise RecordError(f"{key} must be an Ed25519 key, got another. Make one with fleet init.")
    with refused_as_record_error(folder, "The verdict was not published."):
        folder.mkdir(mode=0o755, exist_ok=True)
        write_atomically(path, line + base64.b64encode(private.sign(line)) + b"\n")
        path.chmod(_READABLE)
    return path


def publisher(folder: Path, key: Path) -> Callable[[str, Outcome, str], None]:
    """What tells a node's prolog an outcome and its reason, signed, with the next serial."""

    def tell(node: str, outcome: Outcome, reason: str) -> None:
        now_s = int(time.time())
        verdict = NodeVerdict(
            node=node,
            outcome=outcome,
            reason=reason,
            serial=next_serial(folder, node),
            issued_s=now_s,
            expires_s=now_s + int(VALID_S),
        )
        publish(folder, verdict, key)

    return tell


def read(path: Path, key: Path) -> NodeVerdict:
    """The verdict in a file, if it was signed with the private half of this key.

    Raises:
        RecordError: It is no verdict, or another key signed it.
    """
    with refused_as_record_error(path, "Nothing was changed."):
        public = load_pem_public_key(read_regular(key, limit_bytes=_LIMIT_BYTES))
        line, _, rest = read_regular(path, limit_bytes=_LIMIT_BYTES).partition(b"\n")
    match = _LINE.fullmatch(f"{line.decode('ascii', 'replace')}\n")
    if match is None or not _is_signed(line + b"\n", rest.removesuffix(b"\n"), public):
        raise RecordError(
            f"{path} must be a verdict signed by the controller, got another. Remove it."
        )
    node, outcome, reason, serial, issued_s, expires_s = match.groups()
    return NodeVerdict(
        node=node,
        outcome=Outcome(outcome),
        reason=reason,
        serial=int(serial),
        issued_s=int(issued_s),
        expires_s=int(expires_s),
    )


def _is_signed(line: bytes, signature: bytes, key: object) -> bool:
    if not isinstance(key, Ed25519PublicKey):
        return False
    try:
        key.verify(base64.b64decode(signature, validate=True), line)
    except (InvalidSignature, ValueError):
        return False
    return True


def next_serial(folder: Path, node: str) -> int:
    """One more than that of the newest verdict of a node; 1 where there is none."""
    try:
        line = read_regular(folder / f"{node}.verdict", limit_bytes=_LIMIT_BYTES)
    except (OSError, RecordError):
        return 1
    found = re.search(rb" serial=(\d{1,18}) ", line)
    return int(found[1]) + 1 if found else 1
