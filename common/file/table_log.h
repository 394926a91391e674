// Folders of table formats (Delta Lake, Iceberg, Hudi, Paimon), whose log says which of their Parquet files are live.
// The list of files does not: it also has rows that were deleted or not committed, and twice those that were rewritten.
#pragma once

#include "common/file/file.h"

typedef struct TableFormat TableFormat;

// The format of which `name`, a path or URL, is a file of the log; `root` becomes the length of the table's folder,
// without a slash. NULL: of none.
const TableFormat *table_log_in(const char *name, size_t *root);
// The format of the table that a Parquet file of this machine lies in. Folders that were looked at are remembered in
// `search`, which begins zeroed. `root` becomes the table's folder. NULL: in none.
typedef struct {
    char folder[PATH_MAX_BYTES], real[PATH_MAX_BYTES];
} TableSearch;
const TableFormat *table_around(TableSearch *search, const char *path, char root[static PATH_MAX_BYTES]);
// The folders that a table's log may be in, below the table: "_delta_log/" and so on, NULL at the end.
const char *table_log_folder(unsigned number);
// The error (65): which table it is, and the command that writes its present rows. Returns -1.
int table_fail(const TableFormat *format, const char *file, const char *root);
