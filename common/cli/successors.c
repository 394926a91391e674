// Looks up words that went.
#include "common/cli/successors.h"
#include "common/cli/nearest.h"
#include "common/err.h"
#include "common/log.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct Successor {
    SuccessorKind kind;
    const char *program, *scope, *old, *new;
} successors[] = {
#define SUCCESSOR(kind, program, scope, old, new) {SUCCESSOR_##kind, program, scope, old, new},
#include "common/cli/successors.def"
#undef SUCCESSOR
};

static bool same_name(const char *a, const char *b) {
    while (*a && *b && nearest_same(*a, *b)) a++, b++;
    return !*a && !*b;
}

// Whether `scope` is one of the words of a row's scope.
static bool is_within(const char *scopes, const char *scope) {
    const size_t length = strlen(scope);
    for (const char *at = scopes; (at = strstr(at, scope)); at++)
        if ((at == scopes || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return true;
    return false;
}

int successor_check(SuccessorKind kind, const char *program, const char *scope, const char *old) {
    for (size_t i = 0; i < sizeof successors / sizeof *successors; i++) {
        const struct Successor *row = &successors[i];
        if (row->kind != kind || strcmp(row->program, program) != 0 || !is_within(row->scope, scope)) continue;
        if (!same_name(row->old, old)) continue;
        switch (kind) {
        case SUCCESSOR_COMMAND:
            return fail(EX_USAGE, "'%s %s' is now 'millrace %s'", log_called, row->old, row->new);
        case SUCCESSOR_WORD:
            return fail(EX_USAGE, "'%s=%s' is now '%s'", scope, row->old, row->new);
        default:
            return fail(EX_USAGE, "'%s%s' is now '%s'",
                        kind == SUCCESSOR_KEY ? ""
                        : row->old[1]         ? "--"
                                              : "-",
                        row->old, row->new);
        }
    }
    return 0;
}
