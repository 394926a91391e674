"""The messages of protocol "GLD1", version 3, as loader/protocol/wire.h specifies them."""
import struct
from collections import namedtuple

MAGIC, MAJOR = 0x31444C47, 3
HELLO, WELCOME, GET, BATCH, ERROR, NOTICE, STATS, BYE, CONTROL = range(1, 10)
CODES = ("?", "PROTO", "VOCAB", "DATASET", "RANGE", "SLOT", "DATA", "IO", "BUSY", "SHUTDOWN", "AUTH")
TRAIN, VAL = 0, 1
MODES = {"crop": 0, "sequential": 3, "epoch": 6, "shifted": 7, "documents": 8, "permuted": 9}
BATCH_REPLACED = 1
PAYLOAD_MAX = 64 << 20

_HEADER = struct.Struct("<I4B2I6Q")
_HELLO = struct.Struct("<4I32s16x")
_WELCOME = struct.Struct("<IBBH5Q2I32s32s56sI4x")
_GET = struct.Struct("<8s2Q2I2B2x2I20x")
_BATCH = struct.Struct("<Q8IQI12x")
_ERROR = struct.Struct("<H2xI200s")
CTL_ATTACH = struct.Struct("<I2HQ2IQ")
CTL_REPLY = struct.Struct("<I2H3Q")

Header = namedtuple("Header", "type session req_id sent_ns instance attach_id")
Welcome = namedtuple("Welcome", "window ring train_tokens val_tokens eot_id vocab_size vocab_fp fingerprint name")
Batch = namedtuple("Batch", "first_sample rows sequence_tokens slot generation offset length payload_crc produce_us "
                            "epoch flags")
Error = namedtuple("Error", "code detail text")


class ProtocolError(Exception):
    """A message of another protocol version."""


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _encode(type_, session, req_id=0, attach_id=0, body=b""):
    fields = [MAGIC, MAJOR, 0, type_, 0, 0, len(body), session, req_id, 0, 0, attach_id, 0]
    fields[5] = crc32c(_HEADER.pack(*fields) + body)
    return _HEADER.pack(*fields) + body


def hello(session, req_id, vocab_size, sequence_tokens, max_rows, window, vocab_fp):
    return _encode(HELLO, session, req_id, 0, _HELLO.pack(vocab_size, sequence_tokens, max_rows, window, vocab_fp))


def get(session, req_id, attach_id, fingerprint, seed, first_sample, rows, sequence_tokens, split, mode, slot,
        generation):
    body = _GET.pack(fingerprint[:8], seed, first_sample, rows, sequence_tokens, split, mode, slot, generation)
    return _encode(GET, session, req_id, attach_id, body)


def bye(session):
    return _encode(BYE, session)


def _text(raw):
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _welcome(body):
    window, ring, _, _, train, val, _, _, _, eot_id, vocab_size, vocab_fp, fingerprint, name, _ = _WELCOME.unpack(body)
    return Welcome(window, ring, train, val, eot_id, vocab_size, vocab_fp, fingerprint, _text(name))


def _error(body):
    code, detail, text = _ERROR.unpack(body)
    return Error(CODES[code] if code < len(CODES) else "?", detail, _text(text))


_BODIES = {WELCOME: (_WELCOME, _welcome), BATCH: (_BATCH, lambda body: Batch(*_BATCH.unpack(body))),
           ERROR: (_ERROR, _error), NOTICE: (_ERROR, _error)}


def decode(frame):
    """(Header, body), or None for a message that is damaged or that only a loader receives."""
    if len(frame) < _HEADER.size:
        return None
    magic, major, _, type_, flags, crc, body_len, session, req_id, sent_ns, instance, attach_id, zero = _HEADER.unpack(
        frame[: _HEADER.size])
    if magic != MAGIC or body_len != len(frame) - _HEADER.size or crc32c(frame[:8] + bytes(4) + frame[12:]) != crc:
        return None
    if major != MAJOR:
        raise ProtocolError(f"the loader has protocol version {major}, this client version {MAJOR}: "
                            "use a client and a loader of the same release")
    if type_ not in _BODIES or _BODIES[type_][0].size != body_len or flags or zero:
        return None
    return Header(type_, session, req_id, sent_ns, instance, attach_id), _BODIES[type_][1](frame[_HEADER.size :])
