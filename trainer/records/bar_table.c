// Tables with bars. All bars of a table have one scale, which ends at the interval that reaches farthest from 0.
#include "trainer/records/bar_table.h"
#include "trainer/records/html.h"
#include <math.h>
#include <stdio.h>

enum { TEXT_HALF = 12, PAGE_HALF = 120 }; // characters, and units of the picture, on each side of 0

static double scale_of(const BarRow *rows, size_t count) {
    double scale = 0;
    for (size_t i = 0; i < count; i++) scale = fmax(scale, fmax(fabs(rows[i].change.low), fabs(rows[i].change.high)));
    return scale > 0 ? scale : 1;
}

static void draw_text(char bar[2 * TEXT_HALF + 2], const Estimate *change, double scale) {
    snprintf(bar, 2 * TEXT_HALF + 2, "%*s:%*s", TEXT_HALF, "", TEXT_HALF, "");
    if (!isfinite(change->low)) return;
    for (int i = 0; i <= 2 * TEXT_HALF; i++) {
        const double at = (i - TEXT_HALF) * scale / TEXT_HALF, half = scale / (2 * TEXT_HALF);
        if (at + half > change->low && at - half < change->high && i != TEXT_HALF) bar[i] = '-';
    }
    bar[TEXT_HALF + (int)lround(TEXT_HALF * change->value / scale)] = 'o';
}

static void draw_page(Buffer *page, const BarRow *row, double scale) {
    const Estimate *change = &row->change;
    const double low = PAGE_HALF * change->low / scale, high = PAGE_HALF * change->high / scale;
    buffer_print(page,
                 "<svg style=\"width:15rem\" viewBox=\"%d -8 %d 16\" role=\"img\"><line x1=\"0\" x2=\"0\" y1=\"-8\" "
                 "y2=\"8\"/>",
                 -PAGE_HALF - 4, 2 * PAGE_HALF + 8);
    if (isfinite(change->low))
        buffer_print(page,
                     "<polyline class=\"c%d\" points=\"%.1f,0 %.1f,0\"/><circle class=\"c%d\" cx=\"%.1f\" cy=\"0\" "
                     "r=\"4\"/>",
                     row->color, low, high, row->color, PAGE_HALF * change->value / scale);
    buffer_print(page, "</svg>");
}

static void print_page(Buffer *page, const BarColumn *columns, size_t column_count, const BarRow *rows,
                       size_t row_count, double scale) {
    buffer_print(page, "<table><tr>");
    for (size_t k = 0; k < column_count; k++)
        buffer_print(page, "<th>%s</th>", columns[k].title ? columns[k].title : "");
    for (size_t i = 0; i < row_count; i++) {
        buffer_print(page, "</tr>\n<tr>");
        for (size_t k = 0; k < column_count; k++) {
            buffer_print(page, "<td>");
            if (columns[k].title)
                html_string(page, rows[i].cells[k]);
            else
                draw_page(page, &rows[i], scale);
            buffer_print(page, "</td>");
        }
    }
    buffer_print(page, "</tr>\n</table>\n");
}

static void print_cell(Buffer *text, const char *cell, size_t width, bool left, bool last) {
    const int space = (int)(width - strlen(cell));
    buffer_print(text, "%*s%s%*s%s", left ? 0 : space, "", cell, left ? space : 0, "", last ? "\n" : "  ");
}

static void print_text(Buffer *text, const BarColumn *columns, size_t column_count, const BarRow *rows,
                       size_t row_count, double scale) {
    size_t width[BAR_CELLS_MAX] = {0}, last = 0;
    for (size_t k = 0; k < column_count; k++) {
        width[k] = columns[k].title ? strlen(columns[k].title) : 2 * TEXT_HALF + 1;
        for (size_t i = 0; i < row_count && columns[k].title; i++)
            if (strlen(rows[i].cells[k]) > width[k]) width[k] = strlen(rows[i].cells[k]);
        if (!columns[k].page_only) last = k;
    }
    for (size_t i = 0; i <= row_count; i++) // the first line has the titles
        for (size_t k = 0; k <= last; k++) {
            char bar[2 * TEXT_HALF + 2] = "";
            if (columns[k].page_only) continue;
            if (i && !columns[k].title) draw_text(bar, &rows[i - 1].change, scale);
            const char *cell = !columns[k].title ? bar : i ? rows[i - 1].cells[k] : columns[k].title;
            print_cell(text, cell, width[k], !k, k == last);
        }
}

void bar_table_print(Buffer *page, Buffer *text, const BarColumn *columns, size_t column_count, const BarRow *rows,
                     size_t row_count) {
    const double scale = scale_of(rows, row_count);
    print_page(page, columns, column_count, rows, row_count, scale);
    print_text(text, columns, column_count, rows, row_count, scale);
}
