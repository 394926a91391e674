// Curves from metrics.jsonl.
#include "trainer/records/curves.h"
#include "common/file/file.h"
#include "trainer/records/metrics.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Curve *find_or_add(Curves *curves, const char *name) {
    for (size_t i = 0; i < curves->count; i++)
        if (!strcmp(curves->curves[i].name, name)) return &curves->curves[i];
    curves->curves = array_grow(curves->curves, curves->count, sizeof(Curve));
    Curve *curve = &curves->curves[curves->count++];
    *curve = (Curve){0};
    snprintf(curve->name, sizeof curve->name, "%s", name);
    return curve;
}

static void add_line(Curves *curves, json_t *line) {
    const double step = json_number_value(json_object_get(line, "step"));
    const double seconds = 1e-3 * json_number_value(json_object_get(line, "ms"));
    const char *key;
    json_t *value;
    json_object_foreach(line, key, value) {
        if (!json_is_number(value) || !strcmp(key, "step") || strlen(key) >= sizeof curves->curves->name) continue;
        Curve *curve = find_or_add(curves, key);
        curve->points = array_grow(curve->points, curve->count, sizeof(Point));
        curve->points[curve->count++] = (Point){step, json_number_value(value)};
    }
    curves->seconds += seconds;
    curves->tokens += seconds * json_number_value(json_object_get(line, "tok_s"));
    if (json_object_get(line, "val_loss")) json_decref(curves->evaluation), curves->evaluation = json_incref(line);
    if (json_is_string(json_object_get(line, "sample"))) json_array_append(curves->samples, line);
}

// Whether a line has a step, and numbers where the curves have them; null: not finite.
static bool is_whole(const json_t *line) {
    static const char *const keys[] = {"loss", "norm", "lr", "first_sample", "ms", "tok_s", "val_loss", "train_loss"};
    bool whole = json_is_integer(json_object_get(line, "step"));
    for (size_t i = 0; whole && i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(line, keys[i]);
        whole = !value || json_is_number(value) || json_is_null(value);
    }
    return whole;
}

int curves_read(Curves *curves, const char *run) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    *curves = (Curves){0};
    if (file_read(&text, path_join(path, run, "metrics.jsonl"), SIZE_MAX / 2) < 0) return buffer_close(&text), -1;
    curves->samples = json_array();
    uint64_t number = 0;
    for (Bytes rest = {text.data, text.size}, line; bytes_next_line_or_rest(&rest, &line);) {
        json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL);
        number++;
        if (object) add_line(curves, object);
        const bool is_torn = !object && line.data + line.size == text.data + text.size && metrics_is_part(line);
        if (!curves->damaged && !is_whole(object) && !is_torn) curves->damaged = number;
        json_decref(object);
    }
    buffer_close(&text);
    return 0;
}

const Curve *curves_find(const Curves *curves, const char *name) {
    static const Curve none;
    for (size_t i = 0; i < curves->count; i++)
        if (!strcmp(curves->curves[i].name, name)) return &curves->curves[i];
    return &none;
}

void curves_close(Curves *curves) {
    for (size_t i = 0; i < curves->count; i++) free(curves->curves[i].points);
    free(curves->curves);
    json_decref(curves->evaluation);
    json_decref(curves->samples);
    *curves = (Curves){0};
}
