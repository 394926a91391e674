// Recognizes inputs that no format reads but that could pass as text, so that they are refused by name.
#pragma once

#include "common/bytes.h"

// The format that a magic number shows, as in "is a PDF document", or NULL.
const char *foreign_find(Bytes head);
// A git-lfs pointer or an HTML page in place of a data file; JSON that is not JSON lines. NULL otherwise.
const char *misplaced_find(Bytes head);
const char *not_json_lines_find(Bytes head);
const char *json_document_find(Bytes head); // an array or an object over several lines
bool message_lines_find(Bytes head);        // whether the first line is an array of messages
// The first of several lines has names of columns, among them `column`.
bool is_table_header(Bytes head, const char *column);
bool looks_like_json_lines(Bytes head, size_t *lines); // most of the complete lines begin as objects
bool looks_like_table(Bytes head); // CSV or TSV: all lines, four at least, have as many commas, tabs or semicolons
// Text in UTF-16, judged by its byte order mark or its zeros. NULL for others.
const char *utf16_find(Bytes head);
// Refuses (65) a folder of a format that is not read, by the sorted `names` of its files, and folders with a slash. -1
// after fail().
int foreign_folder_refuse(const char *folder, const char *const *names, size_t count);
