// product_choices.h: the table, its text, and the file, to which processes append under a lock.
#include "kernels/cuda/libraries/product_choices.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/log.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    CHOICES_MAX = 1024, // a run needs some 30; a longer file is cleared
    LINE_BYTES = 512,
    CHECK_DIGITS = 16
};

typedef struct {
    char product[PRODUCT_NAME_BYTES];
    ProductChoice choice;
    bool given;    // by a checkpoint
    unsigned used; // 0: not by this run; else the order of the first use
} KeptChoice;

#define WORD(name, word) word,
static const char *const ways[] = {PRODUCT_WAYS(WORD)};
#undef WORD

static KeptChoice entries[CHOICES_MAX];
static int entry_count;
static unsigned used_count;
static char card[LINE_BYTES - CHECK_DIGITS - 2], path[PATH_MAX_BYTES];
static int file = -1, locks;
static off_t file_read_to;
static bool none_are_made; // by a run whose checkpoint has no choices

// ---- lines

static size_t print_check(char *line, size_t length) {
    return length + (size_t)sprintf(line + length, " %016llx\n", (unsigned long long)XXH64(line, length, 0));
}

// The length of the text before the check; 0 when the check is wrong. `length` is without the line feed.
static size_t checked_length(const char *line, size_t length) {
    char check[LINE_BYTES];
    if (length <= CHECK_DIGITS + 1 || length >= LINE_BYTES - 1) return 0;
    const size_t text = length - CHECK_DIGITS - 1;
    memcpy(check, line, text);
    return print_check(check, text) == length + 1 && !memcmp(check + text, line + text, CHECK_DIGITS + 1) ? text : 0;
}

static size_t print_card(char line[LINE_BYTES]) {
    return print_check(line, (size_t)snprintf(line, sizeof card, "%s", card));
}

static size_t print_choice(char line[LINE_BYTES], const KeptChoice *entry) {
    char digits[2 * ALGORITHM_BYTES + 1];
    const ProductWay way = entry->choice.way;
    hex_encode(digits, entry->choice.algorithm, ALGORITHM_BYTES);
    return print_check(line,
                       (size_t)snprintf(line, LINE_BYTES / 2 + 64, "%s: %s %.3f us", entry->product,
                                        way == PRODUCT_BY_ALGORITHM ? digits : ways[way], (double)entry->choice.us));
}

static bool parse_choice(char *line, KeptChoice *entry) {
    char *algorithm = strstr(line, ": "), *time, *end;
    if (!algorithm || algorithm - line >= PRODUCT_NAME_BYTES) return false;
    *entry = (KeptChoice){0};
    memcpy(entry->product, line, (size_t)(algorithm - line));
    algorithm += 2;
    if (!(time = strchr(algorithm, ' '))) return false;
    *time++ = 0;
    entry->choice.us = strtof(time, &end);
    if (strcmp(end, " us") || !(entry->choice.us > 0) || !isfinite(entry->choice.us)) return false;
    for (ProductWay way = 0; way < sizeof ways / sizeof *ways; way++)
        if (!strcmp(algorithm, ways[way])) return entry->choice.way = way, true;
    entry->choice.way = PRODUCT_BY_ALGORITHM;
    return hex_decode(entry->choice.algorithm, algorithm, ALGORITHM_BYTES) == 0;
}

static KeptChoice *entry_of(const char *product) {
    for (KeptChoice *entry = entries; entry < entries + entry_count; entry++)
        if (!strcmp(entry->product, product)) return entry;
    return NULL;
}

// A choice that this run has used stays, and a checkpoint's choices go before the file's. If a file has two lines for a
// product, the last one counts.
static void take(const KeptChoice *entry) {
    KeptChoice *known = entry_of(entry->product);
    if (!known) entries[entry_count++] = *entry;
    if (known && !known->used && (entry->given || !known->given)) *known = *entry;
}

// Returns the fault of the text, or NULL. `first`: the card's line comes first. taken: the choices go into the table.
static const char *read_lines(const char *text, size_t size, bool first, bool given, bool taken) {
    for (const char *end = text + size, *next; text < end; text = next) {
        const char *feed = memchr(text, '\n', (size_t)(end - text));
        if (!feed) return "is damaged";
        next = feed + 1;
        const size_t length = checked_length(text, (size_t)(feed - text));
        char line[LINE_BYTES];
        KeptChoice entry;
        if (!length) return "is damaged";
        memcpy(line, text, length), line[length] = 0;
        if (first) {
            first = false;
            if (strcmp(line, card)) return "is of another card, driver or cuBLASLt";
            continue;
        }
        if (!parse_choice(line, &entry)) return "is damaged";
        if (entry_count == CHOICES_MAX) return "is full";
        entry.given = given;
        if (taken) take(&entry);
    }
    return NULL;
}

// ---- the file

static void stop_keeping(const char *what) {
    log_warn("the choices of matrix products are not kept: cannot %s '%s': %s", what, path, strerror(errno));
    if (file >= 0) close(file);
    file = -1;
}

// Reads the lines that other processes have added. A file of another card or a damaged one is cleared.
static void read_file(void) {
    char *text = NULL;
    const off_t size = lseek(file, 0, SEEK_END);
    const char *wrong = size > CHOICES_MAX * LINE_BYTES ? "is full" : NULL;
    if (size < 0) return stop_keeping("read");
    if (size > file_read_to && !wrong) {
        const size_t more = (size_t)(size - file_read_to);
        if (!(text = malloc(more))) return stop_keeping("read");
        if (pread(file, text, more, file_read_to) != (ssize_t)more) return free(text), stop_keeping("read");
        wrong = read_lines(text, more, file_read_to == 0, false, false);
        if (!wrong) wrong = read_lines(text, more, file_read_to == 0, false, true);
        free(text);
    }
    file_read_to = size;
    if (wrong) {
        log_warn("'%s' %s: the matrix products are timed again", path, wrong);
        if (ftruncate(file, 0) < 0) return stop_keeping("clear");
        file_read_to = 0;
    }
}

static void append(const char *line, size_t length) {
    if (fd_write(file, line, length, path) < 0) {
        err_clear();
        return stop_keeping("write");
    }
    file_read_to += (off_t)length;
}

void product_choices_open(const char *directory, const char *card_text) {
    snprintf(card, sizeof card, "%s", card_text);
    for (char *c = card; *c; c++)
        if (*c == '\n') *c = ' ';
    if (!directory) return;
    snprintf(path, sizeof path, "%.*s/cublaslt-%016llx", PATH_MAX_BYTES - 64, directory,
             (unsigned long long)XXH64(card, strlen(card), 0));
    if (dir_make(directory) < 0) {
        log_warn("the choices of matrix products are not kept: %s", err_text());
        err_clear();
        return;
    }
    file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return stop_keeping("open");
    product_choices_lock();
    product_choices_unlock();
}

void product_choices_close(void) {
    if (file >= 0) close(file);
    memset(entries, 0, sizeof entries);
    file = -1, locks = entry_count = 0, used_count = 0, file_read_to = 0, none_are_made = false;
}

void product_choices_lock(void) {
    if (locks++ || file < 0) return;
    while (flock(file, LOCK_EX) < 0)
        if (errno != EINTR) return stop_keeping("lock");
    read_file();
}

void product_choices_unlock(void) {
    if (!--locks && file >= 0) (void)flock(file, LOCK_UN);
}

// ---- the table

void product_choices_set(const char *text) {
    if (!*text) return;
    const char *wrong = read_lines(text, strlen(text), true, true, false);
    if (!wrong) wrong = read_lines(text, strlen(text), true, true, true);
    if (wrong)
        log_warn("the list of matrix products in the checkpoint %s: they are timed again, and bits may differ", wrong);
    else
        none_are_made = !strchr(strchr(text, '\n') + 1, '\n');
}

static void add_line(char *text, size_t size, const char *line, size_t length) {
    const size_t at = strlen(text);
    if (at + length < size) memcpy(text + at, line, length), text[at + length] = 0;
}

void product_choices_get(char *text, size_t size) {
    char line[LINE_BYTES];
    const KeptChoice *const end = entries + entry_count;
    *text = 0;
    add_line(text, size, line, print_card(line));
    for (const KeptChoice *entry = entries; entry < end; entry++)
        if (entry->given) add_line(text, size, line, print_choice(line, entry));
    for (unsigned order = 1; order <= used_count; order++)
        for (const KeptChoice *entry = entries; entry < end; entry++)
            if (entry->used == order && !entry->given) add_line(text, size, line, print_choice(line, entry));
}

bool product_choices_may_be_made(void) { return !none_are_made && file >= 0; }

unsigned product_choice_find(const char *product, bool given, ProductChoice *choice) {
    const KeptChoice *entry = entry_of(product);
    if (!entry || none_are_made || (given && !entry->given)) return 0;
    *choice = entry->choice;
    return (unsigned)(entry - entries) + 1;
}

void product_choice_use(unsigned number) {
    if (number && !entries[number - 1].used) entries[number - 1].used = ++used_count;
}

unsigned product_choice_add(const char *product, const ProductChoice *choice) {
    char line[LINE_BYTES];
    KeptChoice *entry = entry_of(product); // one that the library refused
    if (!entry && entry_count == CHOICES_MAX) return 0;
    if (!entry) entry = &entries[entry_count++];
    *entry = (KeptChoice){.choice = *choice, .used = entry->used};
    snprintf(entry->product, sizeof entry->product, "%s", product);
    if (file >= 0 && !file_read_to) append(line, print_card(line));
    if (file >= 0) append(line, print_choice(line, entry));
    return (unsigned)(entry - entries) + 1;
}
