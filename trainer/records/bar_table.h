// Tables whose rows have an estimate, drawn as a bar about 0: as text for a terminal, and as HTML.
#pragma once

#include "common/bytes.h"
#include "common/statistics.h"
#include <stdbool.h>

enum { BAR_CELLS_MAX = 16, BAR_CELL_BYTES = 96 };

typedef struct {
    Buffer *page, *text;
} BarOutputs;

typedef struct {
    const char *title; // NULL: the column of the bars
    bool page_only;    // the terminal has no room for it
} BarColumn;

typedef struct {
    char cells[BAR_CELLS_MAX][BAR_CELL_BYTES]; // one for each column, first the name; that of the bars is ignored
    Estimate change;                           // without an interval: no bar
    int color;                                 // of the page's style (html.c): 0 not different, 1 better, 2 worse
} BarRow;

int bar_color(const Estimate *change, double p, bool more_is_better);
// "+1.20 [-0.30, +2.70]", the value alone if its interval is not known, or nothing.
void bar_print_change(char cell[BAR_CELL_BYTES], const Estimate *change, double unit, int digits);
void bar_print_p(char cell[BAR_CELL_BYTES], double p); // nothing if it is NAN

void bar_table_heading(const BarOutputs *out, const char *title);
void bar_table_paragraph(const BarOutputs *out, Buffer *sentence); // and empties it
void bar_table_print(const BarOutputs *out, const BarColumn *columns, size_t column_count, const BarRow *rows,
                     size_t row_count);
// Adds "Beyond WHAT: yes. B is better: NAME, NAME. B is worse: NAME.", the last row first.
void bar_table_verdict(Buffer *line, const char *what, const BarRow *rows, size_t count);
