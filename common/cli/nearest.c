// Edit distances of names.
#include "common/cli/nearest.h"
#include <string.h>

enum { NAME_MAX_BYTES = 63 };

bool nearest_same(char a, char b) { return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_')); }

// An insertion, a deletion, a change and a swap of two neighbours count 1 each.
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t rows[3][NAME_MAX_BYTES + 1];
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = above[j - 1] + !nearest_same(a[i - 1], b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

// More than half of the letters may not differ, nor more than three.
Nearest nearest_begin(const char *given) {
    const size_t limit = strlen(given) / 2 + 1;
    return (Nearest){.given = given, .distance = limit < 4 ? limit : 4};
}

void nearest_add(Nearest *nearest, const char *name, size_t length) {
    const size_t given = strlen(nearest->given);
    if (given > NAME_MAX_BYTES || length > NAME_MAX_BYTES) return;
    const size_t found = distance(nearest->given, given, name, length);
    if (found < nearest->distance) nearest->distance = found, nearest->name = name, nearest->length = length;
}
