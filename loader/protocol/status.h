// The report of a loader about itself (STATS in wire.h), and its printed forms.
#pragma once

#include "loader/protocol/endpoint.h"
#include "loader/protocol/wire.h"

enum { STATUS_CLIENTS_MAX = 256, STATUS_SOURCES_MAX = 32 };
#define STATUS_GONE_NS 60000000000ull // a trainer that has been silent for so long does not count as connected

typedef struct {
    WireStats totals;
    WireClientStats clients[STATUS_CLIENTS_MAX];
    WireSourceStats sources[STATUS_SOURCES_MAX];
} Status;

// The second part of a reply to STATS.
void status_encode_tables(const Status *status, Buffer *out);
// Checks a reply: -1 when the second part does not have the number of entries that `totals` names.
int status_decode(Status *status, const WireStats *totals, Bytes tables);

typedef enum { STATUS_TABLE, STATUS_JSON, STATUS_PROMETHEUS } StatusForm;
// `endpoint` is the loader's: a label of each sample of Prometheus.
void status_print(const Status *status, StatusForm form, const Endpoint *endpoint, Buffer *out);
