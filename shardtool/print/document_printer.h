// Documents on standard output: a JSON object a line, {"text": ...} and where it came from, or the raw bytes and a NUL
// after each.
#pragma once

#include "common/json_write.h"

typedef struct {
    bool raw, numbered;
    const char *dataset; // that the line begins with; NULL: none
    uint64_t number;     // of the document, which its line begins with if `numbered`
    Bytes row;           // of the document, where it came from (dataset/provenance.h); printed after its text
    Buffer out;
    JsonCarry carry;
    uint64_t documents, bytes;
} DocumentPrinter;

// The next part of a document, or the whole. -1 after fail().
int document_print(DocumentPrinter *printer, Bytes text, bool first, bool last);
// Writes the rest after `status` 0, warns about places that were not UTF-8, and frees the buffer. Returns `status`, or
// -1 after fail().
int document_printer_finish(DocumentPrinter *printer, int status);
