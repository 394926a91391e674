// Receipts of runs. A receipt is the claim of somebody who trained a model; somebody else draws segments of the run,
// computes them again from their checkpoints, and compares. It has at most 10,000 bytes and 20 segments.
//
// Segment i, from 1 on, ends with a checkpoint, and begins with that of the segment before it, or with the initial
// weights. Of a run with more checkpoints than fit, it takes some at equal distances, and the last one.
//
// Each line is a JSON object, as it is printed with ", " and ": " and without other spaces; no escape is \uXXXX, and no
// name is there twice. Numbers are decimal; hashes are SHA-256 in lower-case digits. The lines are
//
//   1. {"receipt": 1, "steps", "initial", "machine", "chain_rule", "vocabulary"}: the last step; "scratch", or the hash
//      of model.safetensors in init_from; what computed the bits (the first line of choices in state.json); the others
//      as in state.json
//   2. of metrics.jsonl, for the steps before the last, in its order: the lines of datasets, roll-backs and cooldowns
//      as they are, and of each process {"step", "version", "bits", "config"}. The configuration has the keys that
//      differ from the process before it, and null for one that is gone
//   3. {"end", "link", "weights", "state", "lines"} for each segment: its last step; the link of that in the chain of
//      the run; the hashes of model.safetensors; of optimizer.safetensors and state.json, one after the other; and of
//      the lines of its steps in metrics.jsonl, without the members that a replay does not compare (docs/audit.md)
//   4. {"root"}: the hash of all bytes before it
//
// The lines of a segment are those of steps, evaluations, spikes, datasets and passed samples. They begin behind those
// of the segment before it. They end before a line of its last step that is of a process, a roll-back, a cooldown, a
// dataset or passed samples, and before any line of a later step.
//
// A check with a seed draws the segments i whose SHA-256("draw ROOT SEED i") are lowest, with numbers in decimal and
// without leading zeros. The root covers all bytes, so whoever writes a receipt before the seed is known cannot choose
// them.
#pragma once

#include "common/file/file.h"

enum { RECEIPT_BYTES = 10000, SEGMENTS_MAX = 20 };

typedef struct {
    uint64_t step;
    uint8_t link[32], weights[32], state[32], lines[32];
} ReceiptEnd;

typedef struct {
    char initial[65]; // "scratch", or the digits of a hash
    uint8_t root[32];
    ReceiptEnd ends[SEGMENTS_MAX];
    unsigned segments;
} Receipt;

// Reads what only the receipt has; a check compares all the other bytes with the run. 65 when the root or an end is
// damaged.
int receipt_parse(Receipt *receipt, Bytes text);

// Writes the receipt of the steps up to the last checkpoint of a run. No step is computed: the record and the
// checkpoints must be whole and have the same links. -1 after fail(): 2 when no other process could compute the run
// again, 73 when there is a file of that name.
int receipt_write(const char *path, const char *run);

// Draws `count` segments (0: all), computes them again and prints a line for each. The run in `directory` needs their
// checkpoints and their part of the record. Keys and datasets are those of replay(). -1 after fail(): 65 when a segment
// is refused, another code when one cannot be checked here.
int receipt_check(const char *path, const char *directory, uint64_t count, uint64_t seed, int path_count, char **paths);
