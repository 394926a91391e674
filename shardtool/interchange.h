// Token files of other tools, written by export and read by import. This comment is what both follow; all numbers are
// little-endian, ids are u16. A directory holds one set of files per split: train*, val*.
//
//   nanogpt    train.bin: the ids.
//   npy        train.npy: NumPy's format 1.0, one dimension, '<u2'.
//   llmc       train_000000.bin ...: int32[256] header = 20240520, 1, number of ids, zeros; then the ids. llmc has
//              the end-of-text id before each document.
//   megatron   train.bin: the ids; train.idx: "MMIDIDX\0\0", u64 version = 1, u8 type (8 = u16), u64 sequences, u64
//              boundaries, i32 length[sequences], i64 offset[sequences] in bytes, i64 boundary[boundaries]: the
//              sequence with which each document begins, and the number of sequences.
//   datatrove  train.ds: the ids; train.ds.index: u64 end of each document in ids; train.ds.metadata: text, "tokenizer|
//              bytes per id", number of ids, the same number for people.
#pragma once

#define INTERCHANGE_WORDS "nanogpt|llmc|megatron|datatrove|npy"
typedef enum {
    INTERCHANGE_NANOGPT,
    INTERCHANGE_LLMC,
    INTERCHANGE_MEGATRON,
    INTERCHANGE_DATATROVE,
    INTERCHANGE_NPY,
    INTERCHANGE_NONE // no default
} Interchange;

// Where the end-of-text id stands; auto is before for llmc, after for all others.
#define EOT_WORDS "auto|after|before"
typedef enum { EOT_AUTO, EOT_AFTER, EOT_BEFORE } EotPlace;

#define LLMC_MAGIC 20240520
#define LLMC_INTS  256

#define MEGATRON_MAGIC "MMIDIDX\0" // and the string's own NUL: nine bytes
#define MEGATRON_U16   8
#define NPY_MAGIC      "\x93NUMPY"
