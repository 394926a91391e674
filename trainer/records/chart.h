// A line chart as inline SVG: axes with round numbers, and the values under the pointer as a tooltip, without a script.
#pragma once

#include "trainer/records/curves.h"

enum { CHART_COLORS = 8 }; // classes c0 to c7 of the page's style (html.c)

typedef struct {
    const char *label;
    const Curve *curve; // may have no points: it is left out
    int color;
    bool smooth; // many points: a pale line, and over it their mean over a fiftieth of the steps; else a dot for each
} ChartLine;

// Adds a figure with a caption, which names the lines if there are several. Nothing if no line has a point.
void chart_print(Buffer *out, const char *title, const ChartLine *lines, size_t count);
