// What a command removes: a report with a line of JSON for each document, and a summary for each PATH.
#pragma once

#include "shardtool/similar/old_datasets.h"
#include "shardtool/similar/text_map.h"

// Where the documents that stay came from.
typedef struct {
    Dataset dataset; // opened for the first of them
    ProvenanceReader rows[SPLIT_COUNT];
} KeptRows;

typedef struct {
    uint64_t documents, tokens, removed_documents, removed_tokens;
    uint64_t first[SPLIT_COUNT], counts[SPLIT_COUNT]; // number of its first document in a split; its documents
    KeptRows kept;
} RemovalSource;

typedef struct {
    const DocumentInputs *inputs;
    RemovalSource *sources; // one for each PATH
    const OldDatasets *old; // their documents are numbered before those of the inputs; NULL: there are none
    KeptRows *old_kept;     // one for each of them
    const char *path;       // of the file that the report becomes at the end; NULL: none, or a stream
    const char *name;       // for messages
    int fd;                 // of a temporary file, or the stream; -1: no report
    Buffer lines;
} RemovalReport;

// 2 when the output takes standard output, too, or with a --part, which decides nothing. Both may be NULL.
int removal_report_check(const char *path, const char *part);
// For an output that is finished: 73 unless the file has a line for each document that the output lacks of the inputs,
// with its tokens. `path` may be NULL.
int removal_report_check_finished(const char *path, const DocumentInputs *inputs);

// Refuses (73) a file that is there and does not begin as a report does, and (2) a PATH that is given twice: its places
// could not be told apart. `path` NULL: no report; "-": standard output.
int removal_report_open(RemovalReport *report, const DocumentInputs *inputs, const OldDatasets *old, const char *path);
void removal_report_close(RemovalReport *report); // after removal_report_open, whatever it returned

// Counts a document of the inputs. In order, each once.
void removal_report_count(RemovalReport *report, const TextDocument *document);

// Counts a document as removed. The line of the report is begun: the caller adds members to `lines`, then ends it.
void removal_report_begin(RemovalReport *report, const TextDocument *document);
// `number`: of a document that was counted, or of an old one, after which the counted ones are numbered.
int removal_report_add_kept(RemovalReport *report, uint64_t number, double similarity);
int removal_report_end(RemovalReport *report);

int removal_report_finish(RemovalReport *report);
void removal_report_summary(const RemovalReport *report);
