// The journal of an unfinished run, DIR/.journal: with it the same command continues after the last finished shards.
//
// Its lines have a checksum (journal_line.h). The first line describes the run: options,
// vocabulary, inputs and when they were modified. Each other line describes a finished shard: its line of the manifest
// and the position after its last token. A line is written after the shard has its final name. Lines after a damaged or
// truncated one are ignored.
//
// DIR/.pending holds ids of one split, the smaller one by the options: the ids of all documents before the end of the
// other split's last shard. So a run that continues reads the inputs from that end on, and reads the ids of earlier
// documents from .pending. In a compressed file it begins to decode at an access point near that end. DIR/.window holds
// the window of the last line's point; if its checksum differs, the file is decoded from its beginning.
//
// The list of skipped inputs is not in the journal. So after a skip, the run reads all inputs again, and tokenizes the
// documents after the position of their split.
#pragma once

#include "dataset/dataset.h"
#include "shardtool/ingest/source_options.h"
#include "shardtool/pipeline/journal_line.h"

typedef struct {
    int fd, pending_fd;
    int pending_split;
    unsigned id_bytes;      // of an id
    uint64_t pending_bytes; // in the file
    uint32_t pending_crc;
    Buffer pending;               // not yet in the file
    const SourceOptions *options; // borrowed: skips, access points
    JournalPoint point;           // with .window
    char path[PATH_MAX_BYTES], pending_path[PATH_MAX_BYTES];
} Journal;

// The state of a run that continues, beside its shards.
typedef struct {
    InputPosition positions[SPLIT_COUNT]; // documents of a split before it are in finished shards
    bool has_start;                       // documents before `start` are in shards or in `pending`
    InputPosition start;
    AccessPoint point; // of the file of `start`, or all zero
    Buffer pending;    // PendingIds, each followed by its ids and its kept values
    Buffer params;     // if journal_load returns JOURNAL_OTHER: the options of that run
} JournalResume;

typedef struct {
    uint64_t file, document, record, source_bytes, count, kept_bytes;
} PendingIds;
// The bytes of its kept values with their padding, so that all ids are at a multiple of their size.
static inline size_t pending_kept(const PendingIds *head) { return (head->kept_bytes + 3) / 4 * 4; }

typedef enum {
    JOURNAL_NONE,  // no usable journal, or one without finished shards; the dataset is as it was
    JOURNAL_SAME,  // of the same run: its shards are added, and `resume` is set
    JOURNAL_OTHER, // has shards that a run with other options or inputs made
} JournalState;

// Reads the journal of `dataset` (begun, without shards). Each finished shard is checked against its hash: those from
// the first damaged one on do not count. JournalState, or -1. The caller frees the buffers of `resume`. `base` is the
// dataset to which the run appends, or NULL.
int journal_load(Dataset *dataset, const Inputs *inputs, const Dataset *base, int pending_split, JournalResume *resume);
// Opens the journal for appending after journal_load with `resume`, else (NULL) empty with a first line. The ids of
// pending_split go to .pending. `options` is borrowed.
int journal_open(Journal *journal, const Dataset *dataset, const Inputs *inputs, const Dataset *base,
                 const JournalResume *resume, int pending_split, const SourceOptions *options);
// Keeps ids of a document of the pending split, in order and from its first one, whether or not a finished shard holds
// some: the run that continues drops those. source_bytes as for shard_sink_add.
void journal_keep(Journal *journal, InputPosition position, Bytes ids, Bytes kept, uint64_t source_bytes);
// Appends shard `number` of a split, durably.
int journal_add(Journal *journal, int split, uint64_t number, const DatasetShard *shard, InputPosition position);
// Removes the lines from the first shard on that holds documents of input `file` or later ones: a run that continues
// reads this file from its beginning.
int journal_forget(Journal *journal, uint64_t file);
void journal_close(Journal *journal); // accepts a zeroed struct
