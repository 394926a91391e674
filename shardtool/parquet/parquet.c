// Parquet: the values of the text column, or the conversations of rows, are the documents, row groups in order. The
// columns of --where are read beside them, row by row; other columns are not read.
#include "common/err.h"
#include "common/log.h"
#include "shardtool/conversation/conversation.h"
#include "shardtool/ingest/input_format.h"
#include "shardtool/parquet/parquet_record.h"
#include "shardtool/where/where.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PART_BYTES = 1 << 20 }; // of a text that one part holds at most

typedef struct {
    FormatReader reader;
    SourceOptions *options;
    Stream *stream;
    ParquetFooter footer;
    size_t group;        // the next one
    uint64_t rows_left;  // of the group before it
    uint64_t row;        // of the file, the next one
    uint64_t text_bytes; // of all rows so far, one more for each
    ParquetColumn text_column, where_columns[WHERE_MAX];
    ParquetColumnReader text, where[WHERE_MAX];
    WhereList conditions;
    ParquetColumn keep_columns[KEEP_MAX];
    ParquetColumnReader keep[KEEP_MAX];
    Buffer kept;     // of the last row
    Bytes text_left; // of the last row, not yet returned
    // With turns
    ParquetRecord record; // the columns of conversations, and the one of a text
    json_t *line;         // the last row
    Buffer conversation;  // of it
} ParquetReader;

int parquet_bid(Bytes head) {
    return head.size >= 4 && (!memcmp(head.data, PARQUET_MAGIC, 4) || !memcmp(head.data, PARQUET_MAGIC_ENCRYPTED, 4))
               ? BID_MAGIC
               : BID_NONE;
}

// DuckDB writes a column of texts so if one value of the input was a number.
static void warn_json(ParquetReader *parquet) {
    if (parquet->options->records_warned || !parquet->text_column.logical ||
        strcmp(parquet->text_column.logical, "JSON"))
        return;
    parquet->options->records_warned = true;
    log_warn("'%s': column '%s' is of the type JSON, so a text in it is read with its quotes and escapes: in DuckDB, "
             "text->>'$' takes them off",
             parquet->stream->name, parquet->options->text_column);
}

static WhereType where_type(const ParquetColumn *column) {
    switch (column->type) {
    case PARQUET_BYTE_ARRAY:
        return parquet_is_text(column) ? WHERE_TEXT : WHERE_OTHER;
    case PARQUET_INT32:
    case PARQUET_INT64:
        return column->logical ? WHERE_OTHER : WHERE_INTEGER; // a date or a decimal
    case PARQUET_BOOLEAN:
        return WHERE_BOOL;
    case PARQUET_FLOAT:
        return WHERE_SINGLE;
    case PARQUET_DOUBLE:
        return WHERE_DOUBLE;
    default:
        return WHERE_OTHER;
    }
}

static WhereValue where_value(const ParquetColumn *column, const ParquetValue *value) {
    const WhereType type = value->null ? WHERE_NULL : where_type(column);
    if (type == WHERE_NULL) return (WhereValue){.type = type};
    if (type == WHERE_TEXT) return (WhereValue){.type = type, .text = value->bytes};
    return (WhereValue){.type = type,
                        .number = type == WHERE_SINGLE || type == WHERE_DOUBLE ? (long double)value->real
                                  : column->is_unsigned                        ? (long double)(uint64_t)value->integer
                                                                               : (long double)value->integer};
}

static int find_condition(ParquetReader *parquet, unsigned i) {
    const Where *where = &parquet->conditions.items[i];
    ParquetColumn *column = &parquet->where_columns[i];
    if (parquet_find_column(&parquet->footer.schema, where->name, column) < 0)
        return fail_in("--where '%s'", where->text);
    const WhereType type = parquet_is_null(column) ? WHERE_NULL : where_type(column);
    char why[WHERE_WHY_BYTES];
    if (where_fits(where, type, column->logical ? column->logical : parquet_type_name((int)column->type), why))
        return 0;
    return fail(type == WHERE_OTHER ? EX_DATA : EX_USAGE, "'%s': %s", parquet->stream->name, why);
}

static bool is_same_name(const ParquetSchemaElement *a, const ParquetSchemaElement *b) {
    return a->name.size == b->name.size && !memcmp(a->name.data, b->name.data, a->name.size);
}

// Chooses the columns that a conversation needs, and the one of a text.
static int find_fields(ParquetReader *parquet) {
    json_t *columns = parquet_outline(&parquet->footer.schema);
    const char *absent = conversation_absent(parquet->options, columns);
    json_decref(columns);
    if (absent && parquet_find_column(&parquet->footer.schema, absent, &parquet->text_column) < 0)
        return fail_in("--turns-keys");
    const ParquetSchemaElement *elements = parquet_elements(&parquet->footer.schema);
    const char *column = parquet->options->text_column;
    int status = 0;
    parquet_record_open(&parquet->record, &parquet->footer.schema);
    for (uint32_t i = 1; i < parquet_element_count(&parquet->footer.schema); i = elements[i].end) {
        char *name = allocate_text((const char *)elements[i].name.data, elements[i].name.size);
        const size_t size = strlen(name);
        if ((!strncmp(column, name, size) && (!column[size] || column[size] == '.')) ||
            conversation_needs(parquet->options, name)) {
            for (uint32_t k = 1; status == 0 && k < i; k = elements[k].end)
                if (is_same_name(&elements[k], &elements[i]))
                    status = fail(EX_DATA, "'%s' has more than one column '%s'", parquet->stream->name, name);
            parquet_record_add(&parquet->record, i);
        } else
            conversation_note_ignored(parquet->options, name);
        free(name);
    }
    return status;
}

// The file has no text, but may have conversations.
static int fail_text(const ParquetReader *parquet) {
    json_t *columns = parquet_outline(&parquet->footer.schema);
    Buffer option = {0};
    Error error;
    if (conversation_suggest(columns, &option)) {
        err_take(&error);
        fail(error.code, "%s: tokenize %s reads conversations in them", error.text, (const char *)option.data);
    }
    buffer_close(&option);
    json_decref(columns);
    return fail_in("--text-column");
}

// Why the values of a column cannot be kept, or NULL.
static const char *unfit_to_keep(const ParquetColumn *column) {
    const WhereType type = parquet_is_null(column) ? WHERE_NULL : where_type(column);
    if (type != WHERE_OTHER) return NULL;
    return column->logical ? column->logical : parquet_type_name((int)column->type);
}

static int find_kept(ParquetReader *parquet, size_t i) {
    SourceOptions *options = parquet->options;
    ParquetColumn *column = &parquet->keep_columns[i];
    char why[KEEP_WHY_BYTES];
    if (parquet_find_column(&parquet->footer.schema, options->keep.items[i], column) < 0) return fail_in("--keep");
    const char *is = unfit_to_keep(column);
    if (!is) return 0;
    keep_add(options, i, is, (Bytes){0}, &parquet->kept, why);
    return fail(EX_DATA, "'%s': %s", parquet->stream->name, why);
}

static void print_value(const ParquetColumn *column, const ParquetValue *value, char text[32]) {
    if (column->type == PARQUET_BOOLEAN)
        snprintf(text, 32, "%s", value->integer ? "true" : "false");
    else if (column->type != PARQUET_FLOAT && column->type != PARQUET_DOUBLE)
        snprintf(text, 32, column->is_unsigned ? "%" PRIu64 : "%" PRId64, (uint64_t)value->integer);
    else if (fabs(value->real) <= 0x1p53 && value->real == floor(value->real)) // as a list of integers has it
        snprintf(text, 32, "%.0f", value->real);
    else // the shortest that reads back as the same number
        for (int digits = 1, end = column->type == PARQUET_FLOAT ? 9 : 17; digits <= end; digits++) {
            snprintf(text, 32, "%.*g", digits, value->real);
            if (column->type == PARQUET_FLOAT ? strtof(text, NULL) == (float)value->real
                                              : strtod(text, NULL) == value->real)
                break;
        }
}

static int fail_at(const ParquetReader *parquet, size_t group, const char *column) {
    return fail_in("'%s' row group %zu, column '%.100s'", parquet->stream->name, group, column);
}

// Adds the values of the next row. Those of an unwanted one are passed over.
static int keep_row(ParquetReader *parquet, bool wanted) {
    SourceOptions *options = parquet->options;
    parquet->kept.size = 0;
    for (size_t i = 0; i < options->keep.count; i++) {
        const ParquetColumn *column = &parquet->keep_columns[i];
        ParquetValue value;
        char text[32], why[KEEP_WHY_BYTES];
        if (parquet_column_next(&parquet->keep[i], &value) < 0)
            return fail_at(parquet, parquet->group - 1, options->keep.items[i]);
        if (!wanted || value.null || parquet_is_null(column)) continue;
        const bool is_text = column->type == PARQUET_BYTE_ARRAY;
        if (!is_text) print_value(column, &value, text);
        if (keep_add(options, i, NULL, is_text ? value.bytes : bytes_of_text(text), &parquet->kept, why) < 0)
            return fail(EX_DATA, "'%s' row %" PRIu64 ": %s", parquet->stream->name, parquet->row, why);
    }
    return 0;
}

static int find_text(ParquetReader *parquet) {
    const SourceOptions *options = parquet->options;
    ParquetColumn *text = &parquet->text_column;
    if (parquet_find_column(&parquet->footer.schema, options->text_column, text) < 0) return fail_text(parquet);
    if (!parquet_is_text(text) && !parquet_is_null(text))
        return fail(EX_DATA, "'%s': column '%s' is %s, not text: name another with --text-column",
                    parquet->stream->name, options->text_column,
                    text->logical ? text->logical : parquet_type_name((int)text->type));
    warn_json(parquet);
    return 0;
}

static int find_columns(ParquetReader *parquet) {
    const SourceOptions *options = parquet->options;
    if (options->turns && find_fields(parquet) < 0) return -1;
    if (!options->turns && find_text(parquet) < 0) return -1;
    if (where_parse(&parquet->conditions, &options->where) < 0) return -1;
    for (unsigned i = 0; i < parquet->conditions.count; i++)
        if (find_condition(parquet, i) < 0) return -1;
    for (size_t i = 0; i < options->keep.count; i++)
        if (find_kept(parquet, i) < 0) return -1;
    return 0;
}

// Finds the pages of a column in a row group; with `begin`, starts reading them.
static int find_pages(ParquetReader *parquet, size_t group, const char *name, const ParquetColumn *column,
                      ParquetColumnReader *reader, bool begin) {
    ParquetChunk chunk;
    if (parquet_find_chunk(&parquet->footer, group, column, &chunk) < 0) return fail_at(parquet, group, name);
    if (begin) parquet_column_begin(reader, parquet->stream, column, &chunk);
    return 0;
}

static int find_group(ParquetReader *parquet, size_t group, bool begin) {
    const SourceOptions *options = parquet->options;
    const bool turns = options->turns;
    int status = 0;
    if (turns && parquet_record_find_group(&parquet->record, &parquet->footer, group, begin) < 0)
        return fail_at(parquet, group, parquet->record.column);
    if (!turns) status = find_pages(parquet, group, options->text_column, &parquet->text_column, &parquet->text, begin);
    for (unsigned i = 0; status == 0 && i < parquet->conditions.count; i++)
        status = find_pages(parquet, group, parquet->conditions.items[i].name, &parquet->where_columns[i],
                            &parquet->where[i], begin);
    for (size_t i = 0; status == 0 && i < options->keep.count; i++)
        status =
            find_pages(parquet, group, options->keep.items[i], &parquet->keep_columns[i], &parquet->keep[i], begin);
    return status;
}

FormatReader *parquet_open(Stream *stream, SourceOptions *options) {
    ParquetReader *parquet = allocate_zeroed(1, sizeof *parquet);
    parquet->options = options, parquet->stream = stream;
    int status = parquet_footer_open(&parquet->footer, stream);
    if (status == 0) status = find_columns(parquet);
    // All row groups are checked before the first document is returned.
    for (size_t i = 0; status == 0 && i < parquet_group_count(&parquet->footer); i++)
        status = find_group(parquet, i, false);
    for (; parquet->group < stream->start.number && parquet->group < parquet_group_count(&parquet->footer);
         parquet->group++)
        parquet->row += parquet_group(&parquet->footer, parquet->group)->rows;
    if (status == 0) return &parquet->reader;
    parquet_close(&parquet->reader);
    return NULL;
}

void parquet_close(FormatReader *reader) {
    ParquetReader *parquet = (ParquetReader *)reader;
    parquet_footer_close(&parquet->footer);
    parquet_column_close(&parquet->text);
    parquet_record_close(&parquet->record);
    json_decref(parquet->line);
    buffer_close(&parquet->conversation);
    for (unsigned i = 0; i < WHERE_MAX; i++) parquet_column_close(&parquet->where[i]);
    for (unsigned i = 0; i < KEEP_MAX; i++) parquet_column_close(&parquet->keep[i]);
    buffer_close(&parquet->kept);
    free(parquet);
}

// Takes a row of conversations.
static int next_line(ParquetReader *parquet) {
    json_decref(parquet->line);
    parquet->line = parquet_record_next(&parquet->record);
    if (!parquet->line) return fail_at(parquet, parquet->group - 1, parquet->record.column);
    parquet->rows_left--, parquet->row++;
    parquet->text_bytes += 1 + parquet->record.text_bytes;
    return 0;
}

// The text of the next row, and whether the row meets all conditions.
static int next_row(ParquetReader *parquet, ParquetValue *text, bool *wanted) {
    *wanted = true;
    for (unsigned i = 0; i < parquet->conditions.count; i++) {
        ParquetValue value;
        if (parquet_column_next(&parquet->where[i], &value) < 0)
            return fail_at(parquet, parquet->group - 1, parquet->conditions.items[i].name);
        const WhereValue compared = where_value(&parquet->where_columns[i], &value);
        *wanted &= where_holds(&parquet->conditions.items[i], &compared);
    }
    if (keep_row(parquet, *wanted) < 0) return -1;
    if (parquet->options->turns) return next_line(parquet);
    if (parquet_column_next(&parquet->text, text) < 0)
        return fail_at(parquet, parquet->group - 1, parquet->options->text_column);
    if (!text->null && parquet_is_null(&parquet->text_column)) {
        fail(EX_DATA, "a column of the type null has a value");
        return fail_at(parquet, parquet->group - 1, parquet->options->text_column);
    }
    parquet->rows_left--, parquet->row++;
    parquet->text_bytes += 1 + (text->null ? 0 : text->bytes.size);
    return 0;
}

// Leaves out the rest of a damaged row group: the footer says where the next one begins.
static int skip_group(ParquetReader *parquet) {
    parquet->row += parquet->rows_left, parquet->rows_left = 0;
    return skips_add(&parquet->options->skips, parquet->stream->name, "row group", parquet->group - 1);
}

// Returns the next PART_BYTES of a text, or the rest of it.
static int return_part(ParquetReader *parquet, Part *part, bool first, uint64_t skipped) {
    Bytes *left = &parquet->text_left;
    size_t size = left->size < PART_BYTES ? left->size : PART_BYTES;
    *part = (Part){.text = {left->data, size}, .first = first, .last = size == left->size, .skipped = skipped};
    part->kept = (Bytes){parquet->kept.data, parquet->kept.size};
    left->data += size, left->size -= size;
    return 1;
}

static int refuse_row(ParquetReader *parquet, const char *why) {
    const bool missing = why == conversation_missing(parquet->options);
    Buffer keys = {0};
    if (missing) {
        json_t *columns = parquet_outline(&parquet->footer.schema);
        buffer_print(&keys, " '%s' (--text-column)", parquet->options->text_column);
        conversation_print_keys(columns, "the file has the columns", parquet->options, &keys);
        json_decref(columns);
    }
    fail(EX_DATA, "'%s' row %" PRIu64 ": %s%s", parquet->stream->name, parquet->row - 1, why,
         missing ? (const char *)keys.data : "");
    buffer_close(&keys);
    return skips_add(&parquet->options->skips, parquet->stream->name, "row", parquet->row - 1);
}

// The conversation or the text of the last row. 1, 0 if the row is skipped, -1 after fail().
static int read_conversation(ParquetReader *parquet, ParquetValue *text) {
    const json_t *plain = conversation_value(parquet->line, parquet->options->text_column);
    char why[CONVERSATION_WHY_BYTES];
    parquet->conversation.size = 0;
    buffer_reserve(&parquet->conversation, 1); // never NULL
    const LineContent content = conversation_read(parquet->line, plain, parquet->options, &parquet->conversation, why);
    text->null = content == LINE_WITHOUT_TEXT && json_is_null(plain);
    if (content == LINE_BAD) return refuse_row(parquet, why);
    if (content == LINE_WITHOUT_TEXT && !text->null) return refuse_row(parquet, conversation_missing(parquet->options));
    text->bytes = (Bytes){parquet->conversation.data, parquet->conversation.size};
    return 1;
}

int parquet_next(FormatReader *reader, Part *part) {
    ParquetReader *parquet = (ParquetReader *)reader;
    if (parquet->text_left.size) return return_part(parquet, part, false, 0);
    for (uint64_t first = parquet->row;;) {
        ParquetValue text;
        bool wanted;
        while (!parquet->rows_left) {
            if (parquet->group == parquet_group_count(&parquet->footer)) return 0;
            if (find_group(parquet, parquet->group, true) < 0) return -1;
            parquet->rows_left = parquet_group(&parquet->footer, parquet->group++)->rows;
        }
        if (next_row(parquet, &text, &wanted) < 0) {
            if (skip_group(parquet) < 0) return -1;
            continue;
        }
        if (ratio_check(parquet->stream->name, parquet->options, parquet->stream->size, parquet->text_bytes) < 0)
            return -1;
        if (!wanted) {
            parquet->options->left_out++;
            continue;
        }
        const int status = parquet->options->turns ? read_conversation(parquet, &text) : 1;
        if (status < 0) return -1;
        if (status == 0) continue;
        if (text.null) {
            if (skips_add_null(&parquet->options->skips, parquet->stream->name, "row", parquet->row - 1) < 0) return -1;
            continue;
        }
        parquet->text_left = text.bytes;
        return_part(parquet, part, true, parquet->row - 1 - first);
        part->has_place = true, part->place = (ReadPlace){.number = parquet->group - 1};
        part->preceding = parquet_group(&parquet->footer, parquet->group - 1)->rows - parquet->rows_left - 1;
        return 1;
    }
}
