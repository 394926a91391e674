// How often each id occurs.
#pragma once

#include "dataset/token_reader.h"
#include "shardtool/print/row_printer.h"

typedef struct IdCounts IdCounts;
IdCounts *id_counts_open(void);
void id_counts_close(IdCounts *counts);

// Adds the ids of a shard or split, all of one vocabulary.
int id_counts_add(IdCounts *counts, const char *path, TokenReader *tokens);
void id_counts_print(IdCounts *counts, RowPrinter *rows); // the most frequent first; once
