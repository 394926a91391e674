"""The messages of protocol "GLD1", version 4, as loader/protocol/wire.h specifies them."""
from __future__ import annotations

import operator
import struct
from typing import Iterable, NamedTuple, Optional, Union

from .checksum import Buffer, crc32c
from .errors import LoaderError

MAGIC, MAJOR, MINOR = 0x31444C47, 4, 0
HELLO, WELCOME, GET, BATCH, ERROR, NOTICE, STATS, BYE, CONTROL = range(1, 10)
CODES = ("?", "PROTO", "VOCAB", "DATASET", "RANGE", "SLOT", "DATA", "IO", "BUSY", "SHUTDOWN", "AUTH")
SPLITS = {"train": 0, "val": 1}
MODES = {"crop": 0, "sequential": 3, "epoch": 6, "shifted": 7, "documents": 8, "permuted": 9}
MODES_THAT_END = ("sequential", "permuted")  # after one pass over the split; all sources of a mixture are joined
BATCH_REPLACED = 1
ROWS_MAX = TOKENS_MAX = 1 << 20
WINDOW_MAX = 64
PAYLOAD_MAX = 64 << 20
IDS_MAX = 1 << 20  # of a vocabulary
MESSAGE_MAX = 7 << 20  # of a part: the schedule of a WELCOME
NAME_MAX = 63  # bytes of the name of a client

_HEADER = struct.Struct("<I4B2I6Q")
_HELLO = struct.Struct("<4I32s8s8x64s")
_WELCOME = struct.Struct("<IBBH5Q2I32s32s56sI4x")
_SOURCE = struct.Struct("<56s4Q")
_WEIGHTS = struct.Struct("<Q16I32x")
_GET = struct.Struct("<8s2Q2I2BH2I20x")
_BATCH = struct.Struct("<Q8IQI12x")
_ERROR = struct.Struct("<H2xI200s")
CTL_ATTACH = struct.Struct("<I2HQ2IQ")
CTL_REPLY = struct.Struct("<I2H3Q")


def check_range(name: str, value: int, low: int, high: int, hint: str = "") -> None:
    if type(value).__name__ in ("bool", "bool_"):  # Python's and NumPy's, which some versions accept as 0 and 1
        raise TypeError(f"{name} is a number, not True or False")
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} {value!r} is not a whole number")
    if not low <= operator.index(value) <= high:
        raise ValueError(f"{name} {value} is not from {low} to {high}{hint}")


def id_bytes(vocab_size: int) -> int:
    """The bytes of an id in rows of a dataset with so many."""
    return 4 if vocab_size > 1 << 16 else 2


def check_word(name: str, word: str, words: Iterable[str]) -> None:
    if word not in words:
        raise ValueError(f"{name} {word!r} is not one of {', '.join(words)}")


class Header(NamedTuple):
    type: int
    session: int
    req_id: int
    sent_ns: int
    instance: int
    attach_id: int


class Source(NamedTuple):
    """A dataset of a mixture."""

    name: str
    train_tokens: int
    val_tokens: int
    train_documents: int
    val_documents: int


class Welcome(NamedTuple):
    """What a loader serves. `schedule` has (first sample, weight of each source) for each change of the weights."""

    window: int
    ring: int
    train_tokens: int
    val_tokens: int
    same_samples: int
    eot_id: int
    vocab_size: int
    vocab_fp: bytes
    fingerprint: bytes
    name: str
    sources: tuple[Source, ...]
    schedule: tuple[tuple[int, tuple[int, ...]], ...]


class Batch(NamedTuple):
    first_sample: int
    rows: int
    sequence_tokens: int
    slot: int
    generation: int
    offset: int
    length: int
    payload_crc: int
    produce_us: int
    epoch: int
    flags: int


class Error(NamedTuple):
    code: str
    detail: int
    text: str


class Request(NamedTuple):
    """The rows of a GET."""

    split: int
    mode: int
    source: int
    rows: int
    sequence_tokens: int
    seed: int
    first_sample: int


def _encode(kind: int, session: int, req_id: int = 0, attach_id: int = 0, body: bytes = b"") -> bytes:
    def header(crc: int) -> bytes:
        return _HEADER.pack(MAGIC, MAJOR, MINOR, kind, 0, crc, len(body), session, req_id, 0, 0, attach_id, 0)

    return header(crc32c(header(0) + body)) + body


def hello(session: int, req_id: int, vocab_size: int, sequence_tokens: int, max_rows: int, window: int,
          vocab_fp: bytes, dataset_fp: bytes, name: bytes) -> bytes:
    body = _HELLO.pack(vocab_size, sequence_tokens, max_rows, window, vocab_fp, dataset_fp[:8], name)
    return _encode(HELLO, session, req_id, 0, body)


def get(session: int, req_id: int, attach_id: int, fingerprint: bytes, what: Request, slot: int,
        generation: int) -> bytes:
    body = _GET.pack(fingerprint[:8], what.seed, what.first_sample, what.rows, what.sequence_tokens, what.split,
                     what.mode, what.source, slot, generation)
    return _encode(GET, session, req_id, attach_id, body)


def bye(session: int) -> bytes:
    return _encode(BYE, session)


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def _welcome(body: bytes, part: Buffer) -> Optional[Welcome]:
    (window, ring, sources, entries, train, val, _, _, same, eot_id, vocab_size, vocab_fp, fingerprint, name,
     crc) = _WELCOME.unpack(body)
    end = sources * _SOURCE.size
    if len(part) != end + entries * _WEIGHTS.size or crc32c(part) != crc:
        return None
    rows = tuple(Source(_text(raw), *numbers) for raw, *numbers in _SOURCE.iter_unpack(part[:end]))
    schedule = tuple((row[0], row[1 : 1 + sources]) for row in _WEIGHTS.iter_unpack(part[end:]))
    return Welcome(window, ring, train, val, same, eot_id, vocab_size, vocab_fp, fingerprint, _text(name), rows,
                   schedule)


def _batch(body: bytes, _: Buffer) -> Batch:
    return Batch(*_BATCH.unpack(body))


def _error(body: bytes, _: Buffer) -> Error:
    code, detail, text = _ERROR.unpack(body)
    return Error(CODES[code] if code < len(CODES) else "?", detail, _text(text))


_BODIES = {WELCOME: (_WELCOME.size, _welcome), BATCH: (_BATCH.size, _batch), ERROR: (_ERROR.size, _error),
           NOTICE: (_ERROR.size, _error)}


def decode(frame: bytes, part: Buffer = b"") -> Optional[tuple[Header, Union[Welcome, Batch, Error]]]:
    """None for a message that is damaged or that only a loader receives. `part` is the second part of the message;
    the rows of a BATCH are for the caller to check."""
    if len(frame) < _HEADER.size:
        return None
    magic, major, _, kind, flags, crc, size, session, req_id, sent_ns, instance, attach_id, zero = _HEADER.unpack(
        frame[: _HEADER.size])
    if magic != MAGIC or size != len(frame) - _HEADER.size or crc32c(frame[:8] + bytes(4) + frame[12:]) != crc:
        return None
    if major != MAJOR:
        raise LoaderError(f"the loader has protocol version {major}, this client version {MAJOR}: "
                          "use a client and a loader of the same release")
    body_size, body_of = _BODIES.get(kind, (-1, _error))
    body = body_of(frame[_HEADER.size :], part) if body_size == size and not flags and not zero else None
    return (Header(kind, session, req_id, sent_ns, instance, attach_id), body) if body else None
