// A history: loaders, trainers and an operator with what may happen to them, all of it by chance.
#pragma once

#include "loader/client/feed.h"
#include "loader/server/server.h"
#include "tests/simulate/law.h"
#include "tests/simulate/sim.h"

enum { BASES = 4, LOADERS_MAX = 2, TRAINERS_MAX = 4, CHANGES_MAX = 64, SPECS = 6, WIDE_TOKENS = 1000 };

// What a loader may be told to serve; its words are those of the command line.
typedef struct {
    int count;
    const char *words[3], *schedule;
    int bases[3];
    uint32_t weights[3];
} Spec;
extern const Spec specs[SPECS];
enum { SPEC_LINK = 5 }; // one directory, a link that the operator changes

// What the operator asked for, and what is known of the result.
typedef enum { ASKED, DONE, REFUSED, UNKNOWN } Outcome;
typedef struct {
    bool reweight;
    int spec; // of a swap; of a reweight: whose schedule
    uint64_t from;
    uint32_t weights[3];
    Outcome outcome;
} Change;

typedef struct {
    char place[8], endpoint[40];
    Node *node;
    struct Server *server; // NULL: it does not run
    int spec;              // on its command line
    bool stopping, disturbed;
    uint64_t away_until; // nobody starts it again before
} Loader;

typedef struct {
    int number;
    Node *node;
    FeedConfig config;
    bool stream, ended;       // stream: by batch_stream.h
    struct Collective *ranks; // NULL: it trains alone
    uint64_t seed, first, next, skip;
    unsigned mode, rows, left;        // left: batches to receive after the last fault
    uint64_t work_ns, computes_until; // of a step; the present one takes so long
} Trainer;

typedef struct {
    LawSource bases[BASES];
    Loader loaders[LOADERS_MAX];
    Trainer trainers[TRAINERS_MAX];
    Change changes[CHANGES_MAX];
    unsigned loader_count, trainer_count, change_count;
    unsigned ranks;                    // so many trainers, the first ones, step together
    bool tcp, keeps_state, wide;       // wide: rows of several pieces
    bool healed, operates;             // no fault happens any more; the operator has not ended
    uint64_t calm_ns;                  // when everybody knows what is served, if so
    bool differ;                       // two loaders serve different datasets
    unsigned link;                     // the dataset that it points to
    bool errors_allowed, link_changed; // the disk fails to read; it pointed elsewhere
    uint64_t cache_bytes;
    uint64_t highest, received; // train samples that were requested, and received
    unsigned starts;            // of loaders
    char endpoints[100];
} World;
extern World sim_world;

void history_run(void); // in a process and an empty folder of its own; ends the process

// rank_group.c
void ranks_restart(void);                                             // also starts them the first time
bool ranks_begin(const Trainer *trainer, const FeedDataset *dataset); // whether all have the same dataset
FeedResult ranks_step(Trainer *trainer, FeedResult found, const FeedDataset *dataset); // what all do

void deaf_peer_main(void *loader); // deaf_peer.c

// trainer.c
void trainer_main(void *trainer);
// The number of the specification of what the feed is served; fails when nobody asked for it, or it was refused.
int describe_dataset(const Feed *feed, LawDataset *dataset);
