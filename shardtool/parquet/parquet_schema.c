// The schema is a tree in depth-first order. Each element's name and parent are kept, and the leaves.
#include "shardtool/parquet/parquet_schema.h"
#include "common/err.h"
#include <ctype.h>
#include <inttypes.h>

enum { LIST_BYTES = 300 }; // of a message, for the names of columns

const ParquetColumn *parquet_columns(const ParquetSchema *schema) {
    return (const ParquetColumn *)(const void *)schema->columns.data;
}
uint32_t parquet_column_count(const ParquetSchema *schema) {
    return (uint32_t)(schema->columns.size / sizeof(ParquetColumn));
}
const ParquetSchemaElement *parquet_elements(const ParquetSchema *schema) {
    return (const ParquetSchemaElement *)(const void *)schema->elements.data;
}
uint32_t parquet_element_count(const ParquetSchema *schema) {
    return (uint32_t)(schema->elements.size / sizeof(ParquetSchemaElement));
}

typedef struct {
    ParquetSchemaElement element;
    ParquetColumn column; // type, logical, is_unsigned
    bool has_type, bad_type;
    int repetition, children;
} SchemaNode;

static void read_converted(SchemaNode *node, int converted) {
    node->column.is_unsigned = converted >= PARQUET_CONVERTED_UINT_8 && converted <= PARQUET_CONVERTED_UINT_64;
    node->column.logical = parquet_converted_name(converted);
}

static void read_logical(ThriftReader *thrift, SchemaNode *node) {
    for (ThriftField kind = {0}; thrift_next(thrift, &kind);) {
        node->column.logical = parquet_logical_name(kind.id);
        if (kind.id != PARQUET_LOGICAL_INTEGER) {
            thrift_skip(thrift, kind.type);
            continue;
        }
        thrift_struct(thrift, kind.type);
        for (ThriftField field = {0}; thrift_next(thrift, &field);) {
            if (field.id == 2)
                node->column.is_unsigned = !thrift_bool(thrift, field.type);
            else
                thrift_skip(thrift, field.type);
        }
    }
}

static SchemaNode read_node(ThriftReader *thrift) {
    SchemaNode node = {.element = {.name = {(const uint8_t *)"", 0}}};
    bool has_logical = false;
    for (ThriftField field = {0}; thrift_next(thrift, &field);) {
        int type;
        switch (field.id) {
        case 1:
            type = thrift_i32(thrift, field.type);
            node.has_type = true;
            node.bad_type = type < PARQUET_BOOLEAN || type > PARQUET_FIXED_LEN_BYTE_ARRAY;
            node.column.type = (ParquetType)type;
            break;
        case 3:
            node.repetition = thrift_i32(thrift, field.type);
            break;
        case 4:
            node.element.name = thrift_binary(thrift, field.type);
            break;
        case 5:
            node.children = thrift_i32(thrift, field.type);
            break;
        case 6:
            type = thrift_i32(thrift, field.type);
            if (!has_logical) read_converted(&node, type);
            break;
        case 10:
            has_logical = true;
            thrift_struct(thrift, field.type);
            read_logical(thrift, &node);
            break;
        default:
            thrift_skip(thrift, field.type);
        }
    }
    return node;
}

typedef struct {
    int64_t children_left;
    uint32_t element;
    unsigned definition, repetition;
} SchemaLevel;

// The element `last` and its column, if it is one, belong to the groups around it.
static void extend(ParquetSchema *schema, const SchemaLevel *levels, int depth, uint32_t last) {
    ParquetSchemaElement *elements = (ParquetSchemaElement *)(void *)schema->elements.data;
    for (; depth >= -1; depth--) {
        ParquetSchemaElement *element = &elements[depth < 0 ? last : levels[depth].element];
        element->end = last + 1, element->column_end = parquet_column_count(schema);
    }
}

// The elements are in depth-first order, each group before its children.
int parquet_schema_read(ParquetSchema *schema, ThriftReader *thrift, ThriftType list) {
    enum { REQUIRED, OPTIONAL, REPEATED };
    SchemaLevel levels[PARQUET_DEPTH_MAX] = {{.children_left = 1}};
    int depth = 0;
    uint32_t count = thrift_list(thrift, list, THRIFT_STRUCT);
    for (uint32_t i = 0; i < count; i++) {
        SchemaNode node = read_node(thrift);
        if (thrift_failed(thrift)) return 0; // the caller says where
        while (depth > 0 && levels[depth].children_left == 0) depth--;
        SchemaLevel *level = &levels[depth];
        if (level->children_left-- == 0 || node.bad_type || node.children < 0 || (node.has_type && node.children) ||
            node.repetition < REQUIRED || node.repetition > REPEATED)
            return fail(EX_DATA, "'%s': element %" PRIu32 " of the schema is malformed", schema->file, i);
        bool root = i == 0;
        node.element.parent = level->element;
        SchemaLevel next = {.children_left = node.children,
                            .element = i,
                            .definition = level->definition + (!root && node.repetition != REQUIRED),
                            .repetition = level->repetition + (!root && node.repetition == REPEATED)};
        node.element.logical = node.column.logical, node.element.repeated = !root && node.repetition == REPEATED;
        node.element.definition = next.definition, node.element.repetition = next.repetition;
        node.element.first_column = parquet_column_count(schema);
        buffer_add(&schema->elements, &node.element, sizeof node.element);
        if (node.has_type) {
            node.column.index = parquet_column_count(schema), node.column.element = i;
            node.column.max_definition = next.definition, node.column.max_repetition = next.repetition;
            buffer_add(&schema->columns, &node.column, sizeof node.column);
        }
        extend(schema, levels, depth, i);
        if (node.has_type) continue;
        if (++depth == PARQUET_DEPTH_MAX)
            return fail(EX_DATA, "'%s': the schema is more than %d levels deep", schema->file, PARQUET_DEPTH_MAX);
        levels[depth] = next;
    }
    for (; depth >= 0; depth--)
        if (levels[depth].children_left)
            return fail(EX_DATA, "'%s' has a schema that ends in the middle of a group", schema->file);
    return 0;
}

void parquet_schema_close(ParquetSchema *schema) {
    buffer_close(&schema->elements);
    buffer_close(&schema->columns);
}

void parquet_column_path(const ParquetSchema *schema, const ParquetColumn *column, Buffer *path) {
    const ParquetSchemaElement *elements = parquet_elements(schema);
    uint32_t chain[PARQUET_DEPTH_MAX];
    int depth = 0;
    for (uint32_t at = column->element; at && depth < PARQUET_DEPTH_MAX; at = elements[at].parent) chain[depth++] = at;
    for (int i = depth - 1; i >= 0; i--) {
        Bytes name = elements[chain[i]].name;
        buffer_add(path, name.data, name.size);
        if (i) buffer_add(path, ".", 1);
    }
}

bool parquet_is_text(const ParquetColumn *column) {
    static const char *const kinds[] = {"STRING", "ENUM", "JSON"};
    bool text = !column->logical;
    for (size_t i = 0; !text && i < sizeof kinds / sizeof *kinds; i++) text = !strcmp(column->logical, kinds[i]);
    return text && column->type == PARQUET_BYTE_ARRAY;
}

bool parquet_is_null(const ParquetColumn *column) { return column->logical && !strcmp(column->logical, "UNKNOWN"); }

// "id (STRING), score (DOUBLE) and 3 more", for a message.
static void print_columns(const ParquetSchema *schema, Buffer *text) {
    Buffer path = {0};
    uint32_t i = 0, count = parquet_column_count(schema);
    for (; i < count && text->size < LIST_BYTES; i++) {
        const ParquetColumn *column = &parquet_columns(schema)[i];
        path.size = 0;
        parquet_column_path(schema, column, &path);
        for (size_t at = 0; at < path.size; at++)
            if (iscntrl(path.data[at])) path.data[at] = '?';
        int length = path.size < 100 ? (int)path.size : 100;
        buffer_print(text, "%s%.*s (%s%s)", i ? ", " : "", length, length ? (const char *)path.data : "",
                     column->max_repetition ? "list of " : "",
                     column->logical ? column->logical : parquet_type_name((int)column->type));
    }
    if (i < count) buffer_print(text, " and %" PRIu32 " more", count - i);
    buffer_add(text, "", 1);
    buffer_close(&path);
}

// Whether the file is in a folder PATH=VALUE, as Hive, Spark and DuckDB write columns.
static bool is_folder_name(const ParquetSchema *schema, const char *path) {
    const size_t size = strlen(path);
    for (const char *at = schema->file; at; at = strchr(at, '/')) {
        at += *at == '/';
        if (!strncmp(at, path, size) && at[size] == '=') return true;
    }
    return false;
}

static int fail_column(const ParquetSchema *schema, const char *path, const char *what) {
    Buffer text = {0};
    print_columns(schema, &text);
    if (is_folder_name(schema, path)) {
        text.size--; // the NUL
        buffer_print(&text, "; names of folders are not read as columns: --include '*%s=VALUE/*' chooses them", path);
        buffer_add(&text, "", 1);
    }
    fail(EX_DATA, "'%s' %s '%s'; its columns: %s", schema->file, what, path, (const char *)text.data);
    buffer_close(&text);
    return -1;
}

int parquet_find_column(const ParquetSchema *schema, const char *wanted, ParquetColumn *column) {
    size_t size = strlen(wanted);
    unsigned found = 0, flat = 0, inside = 0; // flat: a column of the root, whose own name may hold points
    Buffer path = {0};
    for (uint32_t i = 0; i < parquet_column_count(schema); i++) {
        path.size = 0;
        parquet_column_path(schema, &parquet_columns(schema)[i], &path);
        if (path.size < size || memcmp(path.data, wanted, size)) continue;
        const bool at_root = !parquet_elements(schema)[parquet_columns(schema)[i].element].parent;
        if (path.size != size) {
            inside += path.data[size] == '.';
            continue;
        }
        if (at_root || !flat) *column = parquet_columns(schema)[i];
        found++, flat += at_root;
    }
    buffer_close(&path);
    if ((found == 1 || flat == 1) && !column->max_repetition) return 0;
    return fail_column(schema, wanted,
                       found > 1 ? "has more than one column"
                       : found   ? "has in every row a list, not one value, in column"
                       : inside  ? "has a group (a struct, a list or a map) and no column"
                                 : "has no column");
}
