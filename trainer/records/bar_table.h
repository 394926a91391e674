// Tables whose rows have an estimate, drawn as a bar about 0: as text for a terminal, and as HTML.
#pragma once

#include "common/bytes.h"
#include "common/statistics.h"
#include <stdbool.h>

enum { BAR_CELLS_MAX = 16, BAR_CELL_BYTES = 96 };

typedef struct {
    const char *title; // NULL: the column of the bars
    bool page_only;    // the terminal has no room for it
} BarColumn;

typedef struct {
    char cells[BAR_CELLS_MAX][BAR_CELL_BYTES]; // one for each column; that of the bars is ignored
    Estimate change;                           // without an error: no bar
    int color;                                 // of the page's style (html.c): 0 not different, 1 better, 2 worse
} BarRow;

void bar_table_print(Buffer *page, Buffer *text, const BarColumn *columns, size_t column_count, const BarRow *rows,
                     size_t row_count);
