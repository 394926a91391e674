// The printed table of a memory plan: one row for each part of the arena, then one for each offloaded part.
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

enum { PLAN_ROWS = 28 };

typedef struct {
    const char *name;
    size_t bytes;
    bool overlaid;      // inside the memory of other rows, or in host memory
    const char *copied; // in host memory: how often it is copied in and out; NULL: in the arena
} PlanRow;

typedef struct {
    PlanRow rows[PLAN_ROWS]; // in arena order; those not overlaid sum to the bytes of the arena
    int count;
} PlanTable;

static inline size_t plan_table_arena(const PlanTable *table) { // bytes of the rows that are not overlaid
    size_t bytes = 0;
    for (int i = 0; i < table->count; i++) bytes += table->rows[i].overlaid ? 0 : table->rows[i].bytes;
    return bytes;
}

static inline void plan_table_add(PlanTable *table, PlanRow row) {
    assert(table->count < PLAN_ROWS);
    table->rows[table->count++] = row;
}
