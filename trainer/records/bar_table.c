// Tables with bars. All bars of a table have one scale, which ends at the interval that reaches farthest from 0.
#include "trainer/records/bar_table.h"
#include "trainer/records/html.h"
#include <math.h>
#include <stdio.h>

enum { TEXT_HALF = 12, PAGE_HALF = 120 }; // characters, and units of the picture, on each side of 0

void bar_table_heading(const BarOutputs *out, const char *title) {
    buffer_print(out->page, "<h2>%s</h2>\n", title);
    buffer_print(out->text, "%s\n", title);
}

void bar_table_paragraph(const BarOutputs *out, Buffer *sentence) {
    buffer_print(out->page, "<p>");
    html_text(out->page, sentence->data, sentence->size);
    buffer_print(out->page, "</p>\n");
    buffer_print(out->text, "%.*s\n", (int)sentence->size, (const char *)sentence->data);
    sentence->size = 0;
}

int bar_color(const Estimate *change, double p, bool more_is_better) {
    return !(p < 0.05) ? 0 : (change->value > 0) == more_is_better ? 1 : 2;
}

// Rounded, and without the sign of a zero.
static double rounded(double value, int digits) {
    const double unit = pow(10, digits), result = round(value * unit) / unit;
    return result == 0 ? 0 : result;
}

void bar_print_change(char cell[BAR_CELL_BYTES], const Estimate *change, double unit, int digits) {
    const double value = rounded(change->value * unit, digits);
    *cell = 0;
    if (isfinite(change->low))
        snprintf(cell, BAR_CELL_BYTES, "%+.*f [%+.*f, %+.*f]", digits, value, digits,
                 rounded(change->low * unit, digits), digits, rounded(change->high * unit, digits));
    else if (isfinite(change->value))
        snprintf(cell, BAR_CELL_BYTES, "%+.*f", digits, value);
}

void bar_print_p(char cell[BAR_CELL_BYTES], double p) {
    if (!isnan(p)) snprintf(cell, BAR_CELL_BYTES, p < 1e-4 ? "<0.0001" : "%.4f", p);
}

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

static void print_text_cell(Buffer *text, const char *cell, size_t width, bool left, bool last) {
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
            print_text_cell(text, cell, width[k], !k, k == last);
        }
}

void bar_table_print(const BarOutputs *out, const BarColumn *columns, size_t column_count, const BarRow *rows,
                     size_t row_count) {
    const double scale = scale_of(rows, row_count);
    print_page(out->page, columns, column_count, rows, row_count, scale);
    print_text(out->text, columns, column_count, rows, row_count, scale);
}

// Names the rows of a color, the last first.
static void add_rows(Buffer *line, const char *verdict, int color, const BarRow *rows, size_t count) {
    const char *before = verdict;
    for (size_t i = count; i > 0; i--)
        if (rows[i - 1].color == color) buffer_print(line, "%s%s", before, *rows[i - 1].cells), before = ", ";
    if (before != verdict) buffer_print(line, ".");
}

void bar_table_verdict(Buffer *line, const char *what, const BarRow *rows, size_t count) {
    bool differs = false;
    for (size_t i = 0; i < count; i++) differs |= rows[i].color;
    buffer_print(line, "Beyond %s: %s.", what, differs ? "yes" : "no");
    add_rows(line, " B is better: ", 1, rows, count);
    add_rows(line, " B is worse: ", 2, rows, count);
}
