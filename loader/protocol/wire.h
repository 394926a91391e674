// The wire "GLD1" between trainer (ZeroMQ DEALER, connects) and loader (ROUTER, binds). This comment and the structs
// are its specification; all integers little-endian, no padding beyond the named zero fields.
//
// The law: a batch is a pure function of (dataset fingerprint, split, mode, seed, first_sample, rows, T), see order.h.
// Nothing else may change a byte of it.
//
//   message = [header 64 | body]  [payload]      the second part only after HELLO, and after BATCH sent inline
//   HELLO   -> WELCOME or ERROR   who we are; the payload is the canonical text of the sampling spec (may be empty)
//   GET     -> BATCH or ERROR     a request is the credit: the loader never sends unasked
//   PING    -> PONG, STATS -> STATS, BYE (the trainer leaves)
//   NOTICE  the loader's own word: SHUTDOWN (it is going) or FP (another dataset: HELLO tells which)
//
// Header: `crc` is CRC32C of header and body, itself zero. `session` is the trainer's for life, over all its sockets;
// an answer carries the request's session, req_id and sent_ns. `loader_instance` is new in each loader process.
// `attach_id` names the ring a GET wants its rows in (ctl.sock below); 0 = inline.
// A resend is the same GET with the same req_id, slot and generation; a loader that answered it answers again without
// touching the slot. A GET with an older generation than one seen for its slot is dropped. Messages with a bad magic,
// length, crc or zero field are dropped and counted; unknown types of our major are dropped; another major gets
// ERROR PROTO.
//
// Ring: the trainer makes a memfd of slot_count slots of slot_bytes, sealed against resizing, and passes it over
// DIR/ctl.sock (SOCK_SEQPACKET, same uid): CtlAttach with the descriptor, answered by CtlReply. The attachment lives as
// long as the connection; its end tells each side that the other is gone. Rows are T+1 u16 ids, at the slot's start.
#pragma once

#include "common/bytes.h"

enum {
    WIRE_MAGIC = 0x31444C47, // "GLD1"
    WIRE_MAJOR = 1,
    WIRE_MINOR = 0,
    WIRE_ROWS_MAX = 1 << 20,
    WIRE_TOKENS_MAX = 1 << 20,  // T
    WIRE_PAYLOAD_MAX = 1 << 30, // rows * (T+1) * 2
    WIRE_SLOTS_MAX = 1024,
    WIRE_WINDOW_MAX = 64,
    WIRE_SPEC_MAX = 64 << 10,
    WIRE_REQUEST_MAX = 128 << 10, // what a loader receives
    WIRE_BATCH_REPLACED = 1       // of a dataset that another has replaced: HELLO tells which
};

typedef enum {
    WIRE_HELLO = 1,
    WIRE_WELCOME,
    WIRE_GET,
    WIRE_BATCH,
    WIRE_ERROR,
    WIRE_PING,
    WIRE_PONG,
    WIRE_STATS,
    WIRE_BYE,
    WIRE_NOTICE
} WireType;

typedef enum {
    WIRE_PROTO = 1, // another protocol, or a message that means nothing
    WIRE_AUTH,      // not allowed
    WIRE_VOCAB,     // another vocabulary
    WIRE_T,         // a block size the loader cannot serve
    WIRE_FP,        // that dataset is not served here: say HELLO again
    WIRE_RANGE,     // the split holds no such sample
    WIRE_SPEC,      // the sampling spec is not understood
    WIRE_SLOT,      // unknown attachment or slot: attach again
    WIRE_BUSY,      // ask again after retry_after_ms
    WIRE_IO,        // the data cannot be read; `detail` is the shard's number
    WIRE_TOKEN,     // an id of the data is not in the vocabulary
    WIRE_SHUTDOWN   // the loader is going
} WireCode;

typedef struct {
    uint32_t magic;
    uint8_t major, minor, type, flags;
    uint32_t crc, body_len;
    uint64_t session, req_id, sent_ns, loader_instance, attach_id, zero;
} WireHeader;

typedef struct {
    uint16_t proto_min, proto_max; // majors spoken
    uint32_t vocab_size;           // the model's: at least the dataset's
    uint32_t sequence_tokens;      // the largest T of the run
    uint32_t max_rows, window;     // of a GET; GETs out at once
    uint32_t slot_bytes, slot_count;
    uint32_t rank, world;
    uint8_t want_ring, dtype_mask; // bit 0 = u16
    uint8_t zero[10];
    uint8_t vocab_fp[32];  // zero = any
    uint8_t want_fp[32];   // the dataset wanted, zero = any; WELCOME names what is served
    uint8_t spec_hash[32]; // SHA-256 of the spec, zero = none
} WireHello;

typedef struct {
    uint16_t proto;
    uint8_t dtype, ring;              // 1 = u16; 1 = ctl.sock takes rings
    uint32_t window;                  // granted
    uint64_t tokens[2], documents[2]; // train, val
    uint32_t eot_id, vocab_size;
    uint8_t vocab_fp[32], dataset_fp[32], spec_hash[32];
    char name[56]; // of the dataset, NUL-terminated
} WireWelcome;

typedef struct {
    uint8_t dataset_fp8[8]; // the fingerprint's first bytes
    uint64_t seed, first_sample;
    uint32_t rows, sequence_tokens;
    uint8_t split, mode;         // 0 train 1 val; 0 crop 1 epoch 3 sequential
    uint8_t document_flags, pad; // none yet
    uint32_t slot, generation, spec_id;
    uint64_t step; // step, micro, rank: for logs only
    uint32_t micro, rank;
    uint8_t zero[32];
} WireGet;

typedef struct {
    uint64_t first_sample;
    uint32_t rows; // fewer than asked only at the end of a sequential split
    uint32_t sequence_tokens, slot, generation;
    uint32_t length, payload_crc; // bytes and CRC32C of the rows
    uint16_t dtype, flags;        // flags: WIRE_BATCH_REPLACED
    uint32_t boundaries;          // document boundaries that follow the rows: none yet
    uint64_t epoch;               // of the first row
    uint32_t produce_us, queue_us;
    uint64_t zero;
} WireBatch;

typedef struct { // ERROR and NOTICE
    uint16_t code, retry_after_ms;
    uint32_t detail;
    char text[200]; // one sentence, NUL-terminated, no paths
} WireError;

typedef struct {
    uint64_t batches, tokens, payload_bytes, errors, dropped, repeated, frames_decoded, produce_ns, sessions, uptime_ns;
    uint64_t zero[2];
} WireStats;

typedef struct {
    uint32_t magic; // WIRE_MAGIC
    uint16_t major, zero;
    uint64_t session;
    uint32_t slot_bytes, slot_count;
    uint64_t zero2;
} CtlAttach;

typedef struct {
    uint32_t magic;
    uint16_t major, code; // 0, or a WireCode
    uint64_t attach_id, loader_instance, zero;
} CtlReply;

_Static_assert(sizeof(WireHeader) == 64, "layout");
_Static_assert(sizeof(WireHello) == 144, "layout");
_Static_assert(sizeof(WireWelcome) == 200, "layout");
_Static_assert(sizeof(WireGet) == 96, "layout");
_Static_assert(sizeof(WireBatch) == 64, "layout");
_Static_assert(sizeof(WireError) == 208, "layout");
_Static_assert(sizeof(WireStats) == 96, "layout");
_Static_assert(sizeof(CtlAttach) == 32 && sizeof(CtlReply) == 32, "layout");

typedef struct {
    WireHeader header;
    union {
        WireHello hello;
        WireWelcome welcome;
        WireGet get;
        WireBatch batch;
        WireError error;
        WireStats stats;
    };
} WireMessage;

// Fills magic, version, body_len and crc of `message`, whose type and ids are set, and returns the bytes to send: the
// message's own first bytes.
Bytes wire_encode(WireMessage *message);

typedef enum { WIRE_FINE, WIRE_BAD, WIRE_OTHER_MAJOR } WireVerdict;

// Checks foreign bytes: sizes, crc, every field's range; `message` is valid only when FINE (the header also for
// OTHER_MAJOR). Texts come out NUL-terminated and printable.
WireVerdict wire_decode(Bytes frame, WireMessage *message);

const char *wire_code_name(unsigned code);
