// Counts and lengths of documents, from the document indexes; no frame is decoded.
#pragma once

#include "dataset/document_reader.h"

enum { LENGTH_OCTAVES = 64, LENGTH_PERCENTS = 7 };

typedef struct {
    uint64_t documents, tokens, empty, least, most; // of whole documents
    uint64_t cut, cut_tokens;                       // documents that the ends of a shard cut, and their tokens in it
    uint64_t text_bytes;
    uint64_t quantiles[LENGTH_PERCENTS]; // the lengths that length_percents of the documents do not exceed
    struct {
        uint64_t documents, tokens;
    } octaves[LENGTH_OCTAVES];         // octave i: lengths from 2^i to 2^(i + 1) - 1
    unsigned first_octave, octave_end; // those with documents lie between
    uint64_t highest;                  // number of documents of an octave
} DocumentLengths;

extern const unsigned length_percents[LENGTH_PERCENTS];

// Of one shard, or of one split of a dataset.
int document_lengths_read(DocumentLengths *lengths, TokenReader *tokens);
