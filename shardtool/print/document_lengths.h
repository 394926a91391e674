// Counts and lengths of documents, from the document indexes; no frame is decoded.
#pragma once

#include "dataset/document_reader.h"
#include "shardtool/print/row_printer.h"

// Prints the row of one shard, or of one split of a dataset.
int document_lengths_print(RowPrinter *rows, const char *path, TokenReader *tokens);
