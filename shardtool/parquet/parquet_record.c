// Each element of the schema reads its value from the columns below it, whose next values are held. The first column
// tells how far the value is defined, and whether another value of a list follows; the others have to agree.
#include "shardtool/parquet/parquet_record.h"
#include "common/err.h"
#include "common/json_read.h"
#include "common/log.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROW_BYTES_MAX = 256 << 20, VALUE_BYTES = 16 /* at least, of a value in memory */ };

void parquet_record_open(ParquetRecord *record, const ParquetSchema *schema) {
    *record = (ParquetRecord){.schema = schema};
    record->leaves = allocate_zeroed(parquet_column_count(schema) + 1, sizeof *record->leaves);
    record->leaf_of = allocate_zeroed(parquet_column_count(schema) + 1, sizeof *record->leaf_of);
}

static const ParquetSchemaElement *element_at(const ParquetRecord *record, uint32_t element) {
    return &parquet_elements(record->schema)[element];
}

static uint32_t end_of(const ParquetRecord *record, uint32_t element) { return element_at(record, element)->end; }

void parquet_record_add(ParquetRecord *record, uint32_t element) {
    buffer_add(&record->fields, &element, sizeof element);
    for (uint32_t i = element_at(record, element)->first_column; i < element_at(record, element)->column_end; i++) {
        record->leaf_of[i] = (uint32_t)record->leaf_count;
        record->leaves[record->leaf_count++].column = parquet_columns(record->schema)[i];
    }
}

static bool is_readable(const ParquetColumn *column) {
    return column->type != PARQUET_INT96 && column->type != PARQUET_FIXED_LEN_BYTE_ARRAY;
}

static int fail_leaf(ParquetRecord *record, const ParquetLeaf *leaf) {
    Buffer path = {0};
    parquet_column_path(record->schema, &leaf->column, &path);
    buffer_add(&path, "", 1);
    snprintf(record->column, sizeof record->column, "%s", (const char *)path.data);
    text_printable(record->column);
    buffer_close(&path);
    return -1;
}

static int fail_type(ParquetRecord *record, const ParquetLeaf *leaf) {
    uint32_t field = leaf->column.element;
    while (element_at(record, field)->parent) field = element_at(record, field)->parent;
    const Bytes name = element_at(record, field)->name;
    fail(EX_DATA, "values of the type %s are not read (--turns-keys ignore=%.*s leaves the column out)",
         parquet_type_name((int)leaf->column.type), (int)(name.size < 60 ? name.size : 60), (const char *)name.data);
    return fail_leaf(record, leaf);
}

int parquet_record_find_group(ParquetRecord *record, const ParquetFooter *footer, size_t group, bool begin) {
    for (size_t i = 0; i < record->leaf_count; i++) {
        ParquetLeaf *leaf = &record->leaves[i];
        ParquetChunk chunk;
        if (!is_readable(&leaf->column)) return fail_type(record, leaf);
        if (parquet_find_chunk(footer, group, &leaf->column, &chunk) < 0) return fail_leaf(record, leaf);
        leaf->held = false;
        if (begin) parquet_column_begin(&leaf->reader, footer->stream, &leaf->column, &chunk);
    }
    return 0;
}

// Holds the next value of a column: 1, 0 at the end of the row group, -1 after fail().
static int hold(ParquetRecord *record, ParquetLeaf *leaf) {
    if (leaf->held) return 1;
    const int status = parquet_column_next(&leaf->reader, &leaf->value);
    leaf->held = status > 0;
    return status < 0 ? fail_leaf(record, leaf) : status;
}

// Takes the next value of a column, which has to continue the row at this level of repetition.
static int take(ParquetRecord *record, ParquetLeaf *leaf, unsigned repetition) {
    const int status = hold(record, leaf);
    if (status < 0) return -1;
    leaf->held = false;
    if (++record->value_count * VALUE_BYTES + record->text_bytes > ROW_BYTES_MAX)
        return fail(EX_DATA, "a row is longer than 256 MiB"), fail_leaf(record, leaf);
    if (status && leaf->value.repetition == repetition) return 0;
    return fail(EX_DATA, "its levels are not those of the columns beside it"), fail_leaf(record, leaf);
}

static json_t *read_text(const ParquetLeaf *leaf) {
    const Bytes text = leaf->value.bytes;
    json_error_t error;
    json_t *value = NULL;
    if (leaf->column.logical && !strcmp(leaf->column.logical, "JSON")) {
        char *array = malloc(text.size + 2); // a text of JSON is an object or an array
        if (!array) die(EX_MEMORY, "out of memory: %zu bytes wanted for JSON", text.size + 2);
        array[0] = '[', array[text.size + 1] = ']';
        if (text.size) memcpy(array + 1, text.data, text.size);
        json_t *parsed = json_parse((Bytes){(uint8_t *)array, text.size + 2}, JSON_ANY_TEXT, &error);
        if (json_array_size(parsed) == 1) value = json_incref(json_array_get(parsed, 0));
        json_decref(parsed);
        free(array);
    }
    return value ? value : json_stringn_nocheck((const char *)text.data, text.size);
}

static json_t *read_leaf(ParquetRecord *record, const ParquetLeaf *leaf) {
    const ParquetColumn *column = &leaf->column;
    const ParquetValue *value = &leaf->value;
    if (value->null || parquet_is_null(column)) return json_null();
    if (parquet_is_text(column)) {
        record->text_bytes += value->bytes.size;
        return read_text(leaf);
    }
    if (column->type == PARQUET_BOOLEAN) return json_boolean(value->integer);
    if (column->type == PARQUET_FLOAT || column->type == PARQUET_DOUBLE) {
        json_t *real = json_real(value->real);
        return real ? real : json_object(); // NaN
    }
    return column->logical || column->type == PARQUET_BYTE_ARRAY ? json_object() : json_integer(value->integer);
}

static json_t *read_value(ParquetRecord *record, uint32_t element, unsigned repetition);

// The columns below an element that has no value.
static int take_all(ParquetRecord *record, uint32_t element, unsigned repetition) {
    for (uint32_t i = element_at(record, element)->first_column; i < element_at(record, element)->column_end; i++) {
        ParquetLeaf *leaf = &record->leaves[record->leaf_of[i]];
        if (take(record, leaf, repetition) < 0) return -1;
        if (leaf->value.definition >= element_at(record, element)->definition)
            return fail(EX_DATA, "its levels are not those of the columns beside it"), fail_leaf(record, leaf);
    }
    return 0;
}

// The element of the values of a list: in older files the repeated group is the value itself.
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#backward-compatibility-rules
static uint32_t list_element(const ParquetRecord *record, uint32_t list) {
    const uint32_t repeated = list + 1, inner = repeated + 1, end = end_of(record, repeated);
    const Bytes name = element_at(record, repeated)->name, outer = element_at(record, list)->name;
    const bool is_tuple = name.size == outer.size + 6 && !memcmp(name.data, outer.data, outer.size) &&
                          !memcmp(name.data + outer.size, "_tuple", 6);
    const bool is_array = name.size == 5 && !memcmp(name.data, "array", 5);
    if (inner == end || end_of(record, inner) != end || is_tuple || is_array) return repeated;
    return inner;
}

static void set_field(json_t *object, Bytes key, json_t *value) {
    json_object_setn_new_nocheck(object, key.size ? (const char *)key.data : "", key.size, value);
}

// The fields of a struct: the elements from `element` up to `end` that follow each other.
static json_t *read_struct(ParquetRecord *record, uint32_t element, uint32_t end, unsigned repetition) {
    json_t *object = json_object();
    while (element < end) {
        json_t *value = read_value(record, element, repetition);
        if (!value) return json_decref(object), NULL;
        set_field(object, element_at(record, element)->name, value);
        element = end_of(record, element);
    }
    return object;
}

// A value of an element, of those that it may repeat.
static json_t *read_one(ParquetRecord *record, uint32_t element, unsigned repetition) {
    const uint32_t end = end_of(record, element);
    if (end > element + 1) return read_struct(record, element + 1, end, repetition);
    ParquetLeaf *leaf = &record->leaves[record->leaf_of[element_at(record, element)->first_column]];
    return take(record, leaf, repetition) < 0 ? NULL : read_leaf(record, leaf);
}

static bool is_kind(const ParquetRecord *record, uint32_t element, const char *logical) {
    const ParquetSchemaElement *at = element_at(record, element);
    const uint32_t child = element + 1, end = end_of(record, element);
    return at->logical && !strcmp(at->logical, logical) && child < end && element_at(record, child)->repeated &&
           end_of(record, child) == end;
}

// The array of a repeated element, whose values are those of `inner`: itself, or the only element in it.
static json_t *read_repeated(ParquetRecord *record, uint32_t element, uint32_t inner, unsigned repetition) {
    ParquetLeaf *first = &record->leaves[record->leaf_of[element_at(record, element)->first_column]];
    json_t *array = json_array();
    int status = hold(record, first);
    if (status > 0 && first->value.definition < element_at(record, element)->definition) {
        if (take_all(record, element, repetition) == 0) return array;
        status = -1;
    }
    while (status >= 0) {
        json_t *value =
            inner == element ? read_one(record, element, repetition) : read_value(record, inner, repetition);
        if (!value) break;
        json_array_append_new(array, value);
        repetition = element_at(record, element)->repetition;
        status = hold(record, first);
        if (status == 0 || (status > 0 && first->value.repetition < repetition)) return array;
    }
    json_decref(array);
    return NULL;
}

// The pairs of a map as one object, if its keys are texts.
static json_t *read_map(ParquetRecord *record, uint32_t element, unsigned repetition) {
    const uint32_t key = element + 2, value = end_of(record, key);
    json_t *pairs = read_repeated(record, element + 1, element + 1, repetition), *pair;
    size_t i;
    if (!pairs || value >= end_of(record, element)) return pairs;
    json_t *object = json_object();
    const Bytes names[] = {element_at(record, key)->name, element_at(record, value)->name};
    json_array_foreach(pairs, i, pair) {
        const json_t *name = json_object_getn(pair, (const char *)names[0].data, names[0].size);
        json_t *held = json_object_getn(pair, (const char *)names[1].data, names[1].size);
        if (!json_is_string(name)) return json_decref(object), pairs;
        set_field(object, (Bytes){(const uint8_t *)json_string_value(name), json_string_length(name)},
                  json_incref(held));
    }
    json_decref(pairs);
    return object;
}

// The value of an element; NULL after fail().
static json_t *read_value(ParquetRecord *record, uint32_t element, unsigned repetition) {
    const ParquetSchemaElement *at = element_at(record, element);
    if (at->first_column == at->column_end) return json_null(); // a group of nothing
    if (at->repeated) return read_repeated(record, element, element, repetition);
    ParquetLeaf *first = &record->leaves[record->leaf_of[at->first_column]];
    const int status = hold(record, first);
    if (status < 0) return NULL;
    if (status && first->value.definition < at->definition)
        return take_all(record, element, repetition) < 0 ? NULL : json_null();
    if (is_kind(record, element, "LIST"))
        return read_repeated(record, element + 1, list_element(record, element), repetition);
    if (is_kind(record, element, "MAP") && end_of(record, element) > element + 2)
        return read_map(record, element, repetition);
    return read_one(record, element, repetition);
}

static json_t *outline(const ParquetRecord *record, uint32_t element) {
    const uint32_t end = end_of(record, element);
    if (element && is_kind(record, element, "LIST"))
        return json_pack("[o]", outline(record, list_element(record, element)));
    if (end == element + 1) return json_string("");
    json_t *object = json_object();
    for (uint32_t child = element + 1; child < end; child = end_of(record, child))
        set_field(object, element_at(record, child)->name, outline(record, child));
    return object;
}

json_t *parquet_outline(const ParquetSchema *schema) { return outline(&(ParquetRecord){.schema = schema}, 0); }

json_t *parquet_record_next(ParquetRecord *record) {
    const uint32_t *fields = (const uint32_t *)(const void *)record->fields.data;
    json_t *row = json_object();
    record->text_bytes = record->value_count = 0;
    for (size_t i = 0; i < record->fields.size / sizeof *fields; i++) {
        json_t *value = read_value(record, fields[i], 0);
        if (!value) return json_decref(row), NULL;
        set_field(row, element_at(record, fields[i])->name, value);
    }
    return row;
}

void parquet_record_close(ParquetRecord *record) {
    for (size_t i = 0; i < record->leaf_count; i++) parquet_column_close(&record->leaves[i].reader);
    free(record->leaves), free(record->leaf_of);
    buffer_close(&record->fields);
}
