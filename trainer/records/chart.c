// A line chart as SVG.
#include "trainer/records/chart.h"
#include "trainer/records/html.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 900, HEIGHT = 360, LEFT = 92, RIGHT = 32, TOP = 20, BOTTOM = 58, POINTS_MAX = 400, TOOLTIPS = 60 };

typedef struct {
    double last_step, low, high;
} Axes;

typedef struct {
    Point points[POINTS_MAX];
    size_t count;
} Drawn;

static double x_of(const Axes *axes, double step) {
    return (double)LEFT + (WIDTH - LEFT - RIGHT) * (axes->last_step > 0 ? step / axes->last_step : 0);
}

static double y_of(const Axes *axes, double value) {
    return (double)TOP + (HEIGHT - TOP - BOTTOM) * (axes->high - value) / (axes->high - axes->low);
}

// The means of neighbouring points, at most POINTS_MAX.
static void thin(const Curve *curve, Drawn *drawn) {
    const size_t group = (curve->count + POINTS_MAX - 1) / POINTS_MAX;
    drawn->count = 0;
    for (size_t i = 0; i < curve->count; i += group) {
        const size_t n = curve->count - i < group ? curve->count - i : group;
        Point mean = {0};
        for (size_t k = 0; k < n; k++) {
            mean.step += curve->points[i + k].step / (double)n;
            mean.value += curve->points[i + k].value / (double)n;
        }
        drawn->points[drawn->count++] = mean;
    }
}

// Each point's mean with those around it, a fiftieth of all on each side at most.
static void smooth(const Drawn *drawn, Drawn *out) {
    const size_t reach = drawn->count / 100;
    out->count = drawn->count;
    for (size_t i = 0; i < drawn->count; i++) {
        const size_t room = i < drawn->count - 1 - i ? i : drawn->count - 1 - i, n = room < reach ? room : reach;
        double sum = 0;
        for (size_t k = i - n; k <= i + n; k++) sum += drawn->points[k].value;
        out->points[i] = (Point){drawn->points[i].step, sum / (double)(2 * n + 1)};
    }
}

static void draw(Buffer *out, const Axes *axes, const Drawn *drawn, const char *classes, int color) {
    buffer_print(out, "<polyline class=\"%sc%d\" points=\"", classes, color);
    for (size_t i = 0; i < drawn->count; i++)
        buffer_print(out, "%.1f,%.1f ", x_of(axes, drawn->points[i].step), y_of(axes, drawn->points[i].value));
    buffer_print(out, "\"/>\n");
}

static void draw_line(Buffer *out, const Axes *axes, const ChartLine *line, const Drawn *drawn) {
    if (line->smooth) {
        Drawn mean;
        smooth(drawn, &mean);
        draw(out, axes, drawn, "raw ", line->color);
        draw(out, axes, &mean, "", line->color);
        return;
    }
    draw(out, axes, drawn, "", line->color);
    for (size_t i = 0; i < drawn->count; i++)
        buffer_print(out, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", line->color,
                     x_of(axes, drawn->points[i].step), y_of(axes, drawn->points[i].value));
}

// 1, 2 or 5 times a power of ten: at least a fifth of `range`.
static double tick_distance(double range) {
    const double power = pow(10, floor(log10(range / 5))), digits = range / 5 / power;
    return power * (digits <= 1 ? 1 : digits <= 2 ? 2 : digits <= 5 ? 5 : 10);
}

static const char *number(char out[32], double value) {
    static const struct {
        double from, unit;
        const char *letter;
    } units[] = {{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};
    int i = 0;
    while (fabs(value) < units[i].from) i++;
    snprintf(out, 32, "%.4g%s", value / units[i].unit, units[i].letter);
    return out;
}

static void draw_axes(Buffer *out, const Axes *axes) {
    const double rise = tick_distance(axes->high - axes->low), run = tick_distance(axes->last_step);
    char text[32];
    for (double i = ceil(axes->low / rise - 1e-9); i * rise <= axes->high + 1e-9 * rise; i++) {
        const double y = y_of(axes, i * rise);
        buffer_print(out,
                     "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">%s</text>\n",
                     LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, number(text, i * rise + 0.0));
    }
    for (double i = 0; i * run <= axes->last_step; i++)
        buffer_print(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x_of(axes, i * run),
                     HEIGHT - BOTTOM + 24, number(text, i * run));
    buffer_print(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>\n", WIDTH - RIGHT, HEIGHT - 6);
}

// Upright bands, each with the values of the lines at its middle.
static void add_tooltips(Buffer *out, const Axes *axes, const ChartLine *lines, size_t count) {
    const double width = (WIDTH - LEFT - RIGHT) / (double)TOOLTIPS;
    size_t at[64] = {0};
    for (int band = 0; band < TOOLTIPS; band++) {
        const double step = axes->last_step * (band + 0.5) / (double)TOOLTIPS;
        buffer_print(out, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>step %.0f",
                     (double)LEFT + band * width, TOP, width, HEIGHT - TOP - BOTTOM, step);
        for (size_t i = 0; i < count && i < sizeof at / sizeof *at; i++) {
            const Curve *curve = lines[i].curve;
            if (!curve->count) continue;
            while (at[i] + 1 < curve->count &&
                   fabs(curve->points[at[i] + 1].step - step) <= fabs(curve->points[at[i]].step - step))
                at[i]++;
            buffer_print(out, "\n");
            html_string(out, lines[i].label);
            buffer_print(out, " %.5g", curve->points[at[i]].value);
            if (!lines[i].smooth) buffer_print(out, " (step %.0f)", curve->points[at[i]].step);
        }
        buffer_print(out, "</title></rect>\n");
    }
}

static void widen(Axes *axes, const Drawn *drawn) {
    for (size_t i = 0; i < drawn->count; i++) {
        axes->last_step = fmax(axes->last_step, drawn->points[i].step);
        axes->low = fmin(axes->low, drawn->points[i].value), axes->high = fmax(axes->high, drawn->points[i].value);
    }
}

static void print_figure(Buffer *out, const char *title, const ChartLine *lines, const Drawn *drawn, size_t count) {
    Axes axes = {0, INFINITY, -INFINITY};
    size_t shown = 0;
    for (size_t i = 0; i < count; i++) widen(&axes, &drawn[i]), shown += drawn[i].count > 0;
    if (!shown || !isfinite(axes.high - axes.low)) return;
    const double least = fmax(1e-3 * fabs(axes.high), 1e-12); // a constant is a line in the middle
    if (axes.high - axes.low < least) axes.low -= least / 2, axes.high += least / 2;
    if (axes.last_step <= 0) axes.last_step = 1;
    buffer_print(out, "<figure><figcaption>");
    html_string(out, title);
    for (size_t i = 0; i < count && shown > 1; i++)
        if (lines[i].curve->count) {
            buffer_print(out, " &nbsp; <b class=\"c%d\">&#9632;</b> ", lines[i].color);
            html_string(out, lines[i].label);
        }
    buffer_print(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    html_string(out, title);
    buffer_print(out, "\">\n");
    draw_axes(out, &axes);
    for (size_t i = 0; i < count; i++)
        if (lines[i].curve->count) draw_line(out, &axes, &lines[i], &drawn[i]);
    add_tooltips(out, &axes, lines, count);
    buffer_print(out, "</svg></figure>\n");
}

void chart_print(Buffer *out, const char *title, const ChartLine *lines, size_t count) {
    Drawn *drawn = allocate_zeroed(count, sizeof *drawn);
    for (size_t i = 0; i < count; i++) thin(lines[i].curve, &drawn[i]);
    print_figure(out, title, lines, drawn, count);
    free(drawn);
}
