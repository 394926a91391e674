// The values of --listed KEY=FILE: documents whose kept key KEY (provenance.h) has a value that is a line of FILE.
#pragma once

#include "dataset/provenance.h"

typedef struct {
    char *key;
    Buffer text, lines; // `lines` holds Bytes of `text`, sorted and without repetitions
    Buffer found;       // a byte for each line: a document has it
    uint8_t hash[32];   // SHA-256 of the lines in this order, each with a line feed
    uint64_t keyless;   // documents without a value of the key
    uint64_t documents; // with one
} Listed;

// `argument` is KEY=FILE. Empty lines and carriage returns at the end of lines are ignored.
int listed_open(Listed *listed, const char *argument);
bool listed_has(Listed *listed, Bytes row); // whether the document with this row is one of them; counts it
uint64_t listed_lines(const Listed *listed);
uint64_t listed_found(const Listed *listed); // lines that a document had
int listed_check(const Listed *listed);      // 2 if no document had the key
void listed_close(Listed *listed);           // accepts a zeroed struct
