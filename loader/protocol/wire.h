// The protocol "GLD1", version 4, between a trainer and a loader. This comment and the structs below specify it; with
// sampling.h they are enough to write a client in another language.
//
// THE LAW. A batch is a pure function of (dataset fingerprint, source, split, sampling mode, seed, first_sample, rows,
// T): see sampling.h, and mixture.h for several datasets. Nothing else may change a byte of it, so any request may be
// repeated, on any connection, at any time.
//
// SOCKETS. The loader binds a ZeroMQ ROUTER socket, the trainer connects a DEALER socket with a routing id that is new
// for each connection. With ipc, the endpoint is a directory DIR (mode 0700): the ZeroMQ socket is ipc://DIR/data.sock,
// and DIR/ctl.sock receives rings (below). With tcp there is no ring. A loader with keys accepts only CURVE connections
// whose public key is on its allow-list (ZAP, ZeroMQ RFC 27); other peers fail in the ZeroMQ handshake. Keys are texts
// of 40 characters (Z85). The allow-list has one a line, the rest of the line is a comment; at SIGHUP the loader reads
// it again, and a message of a key that is gone gets ERROR AUTH. A session belongs to the key that opened it: a message
// of another key gets ERROR PROTO.
//
// MESSAGES. A message is one ZeroMQ message part, a WireHeader followed by the body of its type. A BATCH that is sent
// inline has a second part, a piece of the rows, unless it has no rows. WELCOME has one, its sources, the reply to
// STATS one, its tables (also when they are empty), and CONTROL one. All integers are little-endian, the structs have
// no padding, and fields named `zero` are reserved: the sender sets them to 0. Token ids are u16, or u32 if the
// vocabulary of the dataset has more than 65,536 (WELCOME). A text in a struct ends with a NUL byte.
//
//   type       body         to       meaning
//   1 HELLO    WireHello    loader   opens or renews a session; the reply is WELCOME or ERROR
//   2 WELCOME  WireWelcome  trainer  describes the dataset that is served
//   3 GET      WireGet      loader   requests rows; the reply is BATCH or ERROR
//   4 BATCH    WireBatch    trainer  the rows, inline in pieces or already written to a slot of the ring
//   5 ERROR    WireError    trainer  the request failed: WireCode tells why
//   6 NOTICE   WireError    trainer  not a reply. Code SHUTDOWN: the loader stops. DATASET: it serves another dataset
//   7 STATS    WireStats    both     the request has all counters 0; the reply contains the loader's
//   8 BYE      no body      loader   ends the session; there is no reply
//   9 CONTROL  WireControl  both     `millrace swap`, also of weights alone; the reply reports the result
//
// HEADER. `magic`, `major` and `crc` are at the same offsets in every version. `crc` is CRC32C (reflected, initial
// value and final exclusive or ~0; the CRC of "123456789" is E3069283) of header and body with `crc` itself 0.
// `session` is a random number other than 0 that the trainer keeps for its whole run, over all its sockets. A reply
// carries the request's session, req_id, sent_ns (a time of the trainer's own clock) and attach_id. `loader_instance`
// is random and new in each loader process; it is 0 in messages to the loader.
//
// ERRORS. A receiver drops and counts a message with a wrong magic, length or CRC, or with session 0. A loader does so
// with a part of more than WIRE_REQUEST_MAX bytes, with more parts than the type has, and with a second part where the
// type has none. A part of more than WIRE_PART_MAX bytes ends the connection, without an answer or a count. ZeroMQ
// hands a message over when it is whole. So a loader closes a connection on which more than 2 MiB arrive between two
// messages, or more than 16 KiB while all connections together have 16 MiB, and counts it as dropped. A message of
// another major version is refused with ERROR PROTO; a trainer that receives one of another version gives up. An intact
// message with a field value that the loader does not accept (an unknown type or mode, a reserved field that is not 0)
// gets ERROR PROTO, which names the field. Newer minor versions may give a meaning to reserved fields.
//
// LIMITS. In HELLO, max_rows * (sequence_tokens + 1) * bytes of an id is at most WIRE_PAYLOAD_MAX; `slot` of a GET is
// below WIRE_SLOTS_MAX, also with attach_id 0. Other values get ERROR PROTO. The names of WELCOME and STATS are cut at
// 55 bytes, perhaps inside a character, and may repeat. `same_samples` is 2^64-1 if dataset_fp8 is of the dataset that
// is served, and 0 if it is not of its schedule. Only the last replaced dataset is still served.
//
// REQUESTS. A trainer may have up to `window` unanswered GETs. A GET needs no HELLO on its connection, but its
// `dataset_fp8` must be of a dataset that the loader serves. Answers come in any order; a trainer accepts a BATCH
// only when session, req_id, attach_id, first_sample, sequence_tokens, slot and generation are equal to an unanswered
// request's. When nothing arrives for a while, the trainer sends its unanswered GETs again (same req_id, slot and
// generation), and then opens a new socket and sends HELLO and the GETs. This project's trainer waits 50 ms (ipc) or
// 500 ms (tcp), or 5 times the longest wait that ended with a BATCH; the wait doubles with each new socket, up to 10 s.
//
// INLINE ROWS (attach_id 0). The rows of a GET are sent as BATCH messages of WIRE_PIECE_MAX bytes, the last one
// shorter, with ascending `offset`, so that progress is visible on a slow connection: a trainer does not resend while
// pieces arrive. After a resend, pieces that have arrived before are dropped. Unread answers are limited to `window`
// batches of `max_rows` and to WIRE_PAYLOAD_MAX bytes, but at least one batch: a GET beyond that gets ERROR BUSY. The
// unread bytes of all connections together are limited to a quarter of the loader's cache, but at least 64 MiB. A GET
// that exceeds this gets the same ERROR BUSY. One for at most one piece is exempt if its connection has no other
// unread bytes.
//
// RING. For ipc, if WELCOME offers it. The trainer creates a memfd of slot_count slots of slot_bytes (a multiple of
// 4096), sealed with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL. It connects to DIR/ctl.sock (SOCK_SEQPACKET, same
// user) and sends one CtlAttach with the descriptor (SCM_RIGHTS). The CtlReply contains the attach_id; a loader that
// refuses the ring closes the connection without a reply. The rows of a GET with this attach_id in its header are
// written to slot `slot`, from its first byte, and the BATCH has no second part. The attachment lives as long as the
// connection: its end tells each side that the other is gone. A GET for one that ended is dropped, a GET for one that
// never was gets ERROR SLOT. `generation` counts the uses of a slot. A GET with an older generation than one seen for
// its slot is dropped; one with the generation and req_id of the last answer is answered again without writing to the
// slot.
//
// STATS. A row of T+1 ids is T `tokens`, and `payload_bytes` are the bytes of ids, without headers. A GET for a source
// alone, or in a mode that ends, is an evaluation: it counts in `batches`, not in the `tokens` of a source.
//
// CONTROL. The second part of the request has `words` texts, each with a NUL byte at its end, also the last; other
// bytes are refused (76). SWAP: the datasets to serve from now on, DIR or DIR:WEIGHT as on the command line of `loader
// serve`, then the path of a schedule when `has_schedule` is 1. REWEIGHT: a weight for each source of the mixture that
// is served; they hold from `from_sample` on (0: the loader chooses), and the loader appends them to its schedule. The
// reply comes when the loader has made or refused the change; its second part is one sentence without a NUL byte, its
// `exit_code` is 0 or says why not (common/exit_codes.def). It is 76 for datasets with another vocabulary, and 65 for a
// split that is too short for a live session. It is 2 for weights of a single dataset, of a mixture that was served
// without a schedule, or from a sample that may have been requested. Paths are on the loader's machine, so CONTROL is
// refused (77) except over ipc, and from a peer that has the loader's own key.
#pragma once

#include "common/bytes.h"
#include "common/id_array.h"
#include "loader/protocol/mixture.h"

enum {
    WIRE_MAGIC = 0x31444C47, // "GLD1"
    WIRE_MAJOR = 4,
    WIRE_MINOR = 0,
    WIRE_ROWS_MAX = 1 << 20,
    WIRE_TOKENS_MAX = 1 << 20,   // T
    WIRE_PAYLOAD_MAX = 64 << 20, // rows * (T+1) * bytes of an id
    WIRE_PIECE_MAX = 64 << 10,   // of a BATCH that is sent inline
    WIRE_SAMPLE_MAX_BITS = 63,   // of first_sample
    WIRE_SLOTS_MAX = 1024,
    WIRE_WINDOW_MAX = 64,
    WIRE_WORDS_MAX = MIXTURE_SOURCES_MAX + 1, // of CONTROL: the sources of a mixture, and a schedule
    WIRE_WELCOME_MAX = 7 << 20,               // bytes of the second part of WELCOME: 65,535 entries
    WIRE_REQUEST_MAX = 4096,                  // bytes of a part of a message to the loader; a larger one is dropped
    WIRE_PART_MAX = 64 << 10,                 // a part of more bytes ends the connection
    WIRE_CLIENT_NAME = 64,                    // bytes of a trainer's name, with its NUL byte
    WIRE_ADDRESS = 48,                        // bytes of a trainer's address, with its NUL byte
    WIRE_BATCH_REPLACED = 1                   // BATCH.flags: of a dataset that another has replaced; HELLO tells which
};

typedef enum {
    WIRE_HELLO = 1,
    WIRE_WELCOME,
    WIRE_GET,
    WIRE_BATCH,
    WIRE_ERROR,
    WIRE_NOTICE,
    WIRE_STATS,
    WIRE_BYE,
    WIRE_CONTROL
} WireType;

// The reaction of a trainer to an ERROR: "stop" means that the same request fails again.
typedef enum {
    WIRE_PROTO = 1, // stop: another protocol version, or a field value that the loader does not accept
    WIRE_VOCAB,     // stop: the dataset has another vocabulary
    WIRE_DATASET,   // send HELLO: this dataset is not served here
    WIRE_RANGE,     // stop: the split is too short for one sample
    WIRE_SLOT,      // attach the ring again: unknown attachment, or the rows do not fit the slot
    WIRE_DATA,      // stop: the data is damaged; `detail` is the number of the shard in its split
    WIRE_IO,        // stop: the data cannot be read (disk, network file system); `detail` as for DATA
    WIRE_BUSY,      // wait: too many answers are unread; send the request again when they have arrived
    WIRE_SHUTDOWN,  // NOTICE only: the loader is stopping, wait for another
    WIRE_AUTH       // stop: the trainer's key has been removed from the allow-list
} WireCode;

typedef struct {
    uint32_t magic;
    uint8_t major, minor, type, flags; // flags: 0
    uint32_t crc, body_len;
    uint64_t session, req_id, sent_ns, loader_instance, attach_id, zero;
} WireHeader;

typedef struct {
    uint32_t vocab_size;      // of the model: at least the dataset's
    uint32_t sequence_tokens; // the largest T of the run
    uint32_t max_rows;        // the largest GET
    uint32_t window;          // GETs without an answer, 1 to WIRE_WINDOW_MAX
    uint8_t vocab_fp[32];     // of the model's vocabulary; all 0 = accept any
    uint8_t dataset_fp8[8];   // of the dataset whose samples the trainer has used last; 0 = none
    uint8_t zero[8];
    char name[WIRE_CLIENT_NAME]; // of the trainer, for people: HOST:PID and the name of its run; may be empty
} WireHello;

typedef struct {
    uint32_t window;                  // granted
    uint8_t ring;                     // 1 = ctl.sock receives rings
    uint8_t sources;                  // datasets in the second part, at least 1
    uint16_t entries;                 // of the schedule in the second part, at least 1
    uint64_t tokens[2], documents[2]; // train, val
    uint64_t same_samples;            // train samples before this number are as in HELLO's dataset_fp8 (mixture.h)
    uint32_t eot_id, vocab_size;
    uint8_t vocab_fp[32], dataset_fp[32];
    char name[56];              // of the dataset
    uint32_t sources_crc, zero; // CRC32C of the second part
} WireWelcome;

// The second part of WELCOME: `sources` of these, ...
typedef struct {
    char name[56];
    uint64_t tokens[2], documents[2]; // train, val
} WireSource;

// ... then `entries` of these, the schedule of mixture.h. A single source has one entry, with its whole weight.
typedef struct {
    uint64_t from;
    uint32_t weights[MIXTURE_SOURCES_MAX]; // their sum is MIXTURE_SUM
    uint8_t fingerprint[32];               // of the mixture up to this entry (mixture.h); of the last one: dataset_fp
} WireWeights;

typedef struct {
    uint8_t dataset_fp8[8]; // the first bytes of the dataset's fingerprint
    uint64_t seed, first_sample;
    uint32_t rows, sequence_tokens; // at least 1 each
    uint8_t split, mode;            // split: 0 train, 1 val; mode: a number of SAMPLING_ALL_MODES
    uint16_t source;                // 0: the mixture, or the dataset; i: its source i alone, the first being 1
    uint32_t slot, generation;      // with attach_id 0 they are only repeated in the answer
    uint8_t zero[20];
} WireGet;

typedef struct {
    uint64_t first_sample;
    uint32_t rows; // fewer than requested only at the end of a mode that ends, 0 past it; rest has one row
    uint32_t sequence_tokens, slot, generation;
    uint32_t offset, length; // the bytes of this message; all rows have rows * (sequence_tokens + 1) ids
    uint32_t payload_crc;    // CRC32C of these bytes
    uint32_t produce_us;     // the time that the loader worked on the request
    uint64_t epoch;          // of the first row, in its own source of a mixture; 0 in modes without epochs
    uint32_t flags;          // WIRE_BATCH_REPLACED
    uint8_t zero[12];
} WireBatch;

typedef struct { // ERROR and NOTICE
    uint16_t code, zero;
    uint32_t detail;
    char text[200]; // one sentence without a path
} WireError;

typedef struct { // STATS: totals since the loader started, and its present state
    uint64_t batches, tokens, payload_bytes, errors, dropped, repeated, frames_decoded, produce_ns, sessions, uptime_ns;
    uint64_t refused_peers;            // connections with a key that is not on the allow-list
    uint64_t cache_hits, cache_misses; // accesses to frames: found decoded, or not
    uint64_t cache_bytes, cache_limit; // decoded frames in memory
    uint64_t resident_bytes;           // of the process
    uint32_t clients, sources;         // entries of the second part
} WireStats;

// The second part of the answer to STATS: `clients` of these, one for each live session, ...
typedef struct {
    uint64_t session, batches, tokens, tokens_per_s, repeated;
    uint64_t wait_ns, wait_max_ns;  // from the arrival of a GET to its answer: sum and maximum
    uint64_t age_ns, silent_ns;     // since the first HELLO, since the last message
    uint64_t next_sample;           // after the last BATCH of the train split; evaluations do not count
    uint64_t unread_bytes;          // inline answers that the loader still holds because the trainer does not read
    uint32_t sequence_tokens, ring; // ring: 1 = rows go to a ring, 0 = inline
    char address[WIRE_ADDRESS];     // as ZeroMQ and the kernel report it: of tcp the host, of ipc `pid N`
    char name[WIRE_CLIENT_NAME];    // of its HELLO
} WireClientStats;

// ... then `sources` of these, one for each dataset that is served.
typedef struct {
    char name[56];
    uint8_t fp8[8];
    uint64_t weight;          // 1, or of a mixture: as given
    uint64_t batches, tokens; // batches: of the source alone, or of all together; tokens: for training (STATS above)
    uint64_t highest;         // of the train samples requested, the last one + 1
    uint64_t replaced;        // 1: another dataset has replaced it, for new sessions
    uint64_t next_weight, next_from; // the next entry of the schedule, and its first sample; 0, 0: no next entry
} WireSourceStats;

typedef enum { WIRE_SWAP = 1, WIRE_REWEIGHT } WireAction;

typedef struct { // CONTROL
    uint32_t action, words;
    uint64_t from_sample;
    uint32_t has_schedule, exit_code;
    uint32_t check; // of SWAP: 1 = only report whether it would be made
    uint8_t zero[4];
} WireControl;

typedef struct {
    uint32_t magic; // WIRE_MAGIC
    uint16_t major, zero;
    uint64_t session;
    uint32_t slot_bytes, slot_count;
    uint64_t zero2;
} CtlAttach;

typedef struct {
    uint32_t magic;
    uint16_t major, zero;
    uint64_t attach_id, loader_instance, zero2;
} CtlReply;

_Static_assert(sizeof(WireHeader) == 64, "layout");
_Static_assert(sizeof(WireHello) == 128, "layout");
_Static_assert(sizeof(WireWelcome) == 184, "layout");
_Static_assert(sizeof(WireSource) == 88 && sizeof(WireWeights) == 104, "layout");
_Static_assert(sizeof(WireGet) == 64, "layout");
_Static_assert(sizeof(WireBatch) == 64, "layout");
_Static_assert(sizeof(WireError) == 208, "layout");
_Static_assert(sizeof(WireStats) == 136 && sizeof(WireClientStats) == 208 && sizeof(WireSourceStats) == 120, "layout");
_Static_assert(sizeof(WireControl) == 32, "layout");
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
        WireControl control;
    };
} WireMessage;

// Fills in magic, version, body_len and crc of `message`, whose type and ids are set. Returns the bytes to send, which
// are the first bytes of `message` itself.
Bytes wire_encode(WireMessage *message);

typedef enum {
    WIRE_VALID,
    WIRE_CORRUPT,       // no message of this protocol: wrong magic, length or CRC, or session 0
    WIRE_OTHER_VERSION, // of another major version; only the header is valid
    WIRE_UNKNOWN_FIELD  // intact, but *field has a value that this version does not accept
} WireVerdict;

// Copies and checks received bytes: sizes, CRC, the range of every field. Texts come out terminated and printable.
// `field` may be NULL; with WIRE_UNKNOWN_FIELD it receives the name of the first field that is not accepted.
WireVerdict wire_decode(Bytes frame, WireMessage *message, const char **field);

// Replaces bytes that are not UTF-8, and characters that could command a terminal or reorder its line (controls, line
// separators, directions of writing), by '?'. False when the text does not end within its field.
bool wire_clean_text(char *text, size_t size);

// The second part of WELCOME, which may have any content: copies it, and checks sizes, CRC, names and weights. False
// when it does not belong to `welcome`.
bool wire_decode_sources(const WireWelcome *welcome, Bytes part, WireSource *sources, WireWeights *weights);

const char *wire_code_name(unsigned code);
