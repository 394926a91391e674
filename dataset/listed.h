// The values of --listed KEY=FILE: documents whose kept key KEY (provenance.h) has a value that is a line of FILE.
#pragma once

#include "common/cli/cli.h"
#include "dataset/provenance.h"

typedef struct {
    char *key;
    Buffer text, lines; // `lines` holds Bytes of `text`, sorted and without repetitions
    Buffer found;       // a byte for each line: a document has it
    uint8_t hash[32];   // SHA-256 of the lines in this order, each with a line feed
    uint64_t keyless;   // documents without a value of the key
    uint64_t documents; // with one
    uint64_t listed;    // with one that is a line
} Listed;

typedef struct {
    Listed lists[STRING_LIST_MAX];
    size_t count;
} ListedSet;

// Each argument is KEY=FILE. Empty lines, a byte order mark and carriage returns at the end of lines are ignored. A
// file in UTF-16, with NUL bytes, compressed, or with carriage returns alone is refused (65).
int listed_open(ListedSet *set, const StringList *arguments);
bool listed_has(ListedSet *set, Bytes row); // whether any list names the document with this row; counts it
// 2 if no document has a key. Prints how many lines of each list occur, and with `rest` what this means for the
// documents without the key; NULL: prints nothing. Then counts from 0.
int listed_finish(ListedSet *set, const char *rest);
void listed_close(ListedSet *set); // accepts a zeroed struct
