// Batches of documents, tokenized by workers and collected in the order in which they were submitted.
//
// A document larger than a batch is divided into windows of one batch each. The windows share one encoder, so workers
// tokenize them one after the other.
#pragma once

#include "shardtool/pipeline/resume.h"
#include "tokenizer/tokenizer.h"

enum {
    BATCH_BYTES = 1 << 20, // a longer document is divided
    BATCH_DOCUMENTS = 1 << 14
};

// The hash that chooses documents: of a document's first bytes.
enum { DOCUMENT_HASH_BYTES = 65536 };
uint64_t document_hash(Bytes text, uint64_t seed); // `text`: the document, or as many of its first bytes

typedef struct {
    const Vocab *vocab;
    InvalidUtf8 invalid;
    uint64_t max_word;
    bool turns; // documents may be conversations (turns.h)
    double val; // share of documents in the validation split
    uint64_t val_seed;
} TextOptions;

typedef struct {
    InputPosition position;
    size_t bytes;      // of its text; of a long document: of the whole text in its last window, else 0
    size_t markers;    // the bytes among them from turns.h, which no text has
    uint64_t replaced; // U+FFFD written for invalid UTF-8, in this window of a long one
    size_t ids;        // set by the worker, like `split`
    int split;
    size_t kept;            // bytes of its kept values in those of the batch, then of the name of its member
    size_t member;          // of this name
    uint64_t member_record; // Part.member_record
} BatchDocument;

typedef struct {
    struct TextBatches *batches;
    uint8_t *text; // room for BATCH_BYTES
    size_t text_bytes;
    BatchDocument *documents; // room for BATCH_DOCUMENTS
    unsigned count;
    Buffer kept;                       // of the documents, in order (Part.kept, Part.member)
    Buffer ids;                        // of vocab_id_bytes each, an end-of-text after each document
    bool is_window, is_first, is_last; // a window of a long document
    uint64_t number;                   // of the window, among all windows
    uint64_t ids_max;                  // upper bound of the number of ids
} TextBatch;

typedef struct TextBatches TextBatches;
// Borrows all arguments; `threads` 0 = one per core. NULL after fail().
TextBatches *text_batches_open(const TextOptions *options, unsigned threads, const Inputs *inputs,
                               const Resume *resume);
// An empty batch, or NULL while all are submitted and not yet collected.
TextBatch *text_batches_acquire(TextBatches *batches);
void text_batches_submit(TextBatches *batches, TextBatch *batch); // the batch that was acquired last
// Waits for the oldest submitted batch, and returns it in *batch, NULL if no batch is submitted. It is valid until the
// next text_batches_acquire. -1 with the error of its worker.
int text_batches_collect(TextBatches *batches, const TextBatch **batch);
void text_batches_close(TextBatches *batches); // accepts NULL
