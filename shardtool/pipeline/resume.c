// Compares positions of documents with the finished shards.
#include "shardtool/pipeline/resume.h"

void resume_init(Resume *resume, const JournalResume *journal) {
    *resume = (Resume){0};
    for (int split = 0; journal && split < SPLIT_COUNT; split++) {
        resume->after[split] = journal->positions[split];
        resume->drop[split] = journal->positions[split].token;
    }
}

bool resume_is_finished(const Resume *resume, InputPosition position, int split) {
    return position_is_before(position, resume->after[split]);
}

size_t resume_drop(Resume *resume, int split, size_t count) {
    uint64_t *left = &resume->drop[split];
    size_t dropped = *left < count ? (size_t)*left : count;
    *left -= dropped;
    return dropped;
}

int resume_add_pending(Resume *resume, const ShardSinkOptions *options, ShardSink *sink, uint64_t *tokens) {
    if (!options->resume || !options->resume->has_start) return 0;
    const Buffer *pending = &options->resume->pending;
    InputPosition start = options->resume->start;
    int split = options->journal->pending_split;
    PendingIds head;
    const unsigned bytes = id_bytes(options->params.vocab_size);
    for (size_t at = 0; at < pending->size; at += head.count * bytes + pending_kept(&head)) {
        memcpy(&head, pending->data + at, sizeof head);
        at += sizeof head;
        const Bytes kept = {pending->data + at + head.count * bytes, head.kept_bytes};
        InputPosition position = {.file = head.file, .document = head.document, .record = head.record};
        if (resume_is_finished(resume, position, split)) continue;
        const size_t dropped = resume_drop(resume, split, head.count), count = head.count - dropped;
        if (count) shard_sink_place(sink, split, position, kept);
        if (shard_sink_add(sink, split, pending->data + at + dropped * bytes, count, position, head.source_bytes) < 0)
            return -1;
        *tokens += count;
    }
    if (!position_is_before(resume->after[split], start)) return 0;
    resume->after[split] = start, resume->after[split].token = 0;
    resume->drop[split] = 0;
    return 0;
}

bool resume_is_past(const Resume *resume, InputPosition last) {
    for (int split = 0; split < SPLIT_COUNT; split++) {
        InputPosition read = last, after = resume->after[split];
        read.document += after.token == 0;
        if (position_is_before(read, after)) return false;
    }
    return true;
}
