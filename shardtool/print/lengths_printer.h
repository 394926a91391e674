// Prints the lengths of documents with their histogram, and where the documents came from.
#pragma once

#include "dataset/document_reader.h"
#include "shardtool/print/row_printer.h"

// The row of one shard, or of one split of a dataset.
int lengths_print(RowPrinter *rows, const char *path, TokenReader *tokens);
