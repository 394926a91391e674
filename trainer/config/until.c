// Times that people type.
#include "trainer/config/until.h"
#include "common/err.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool take_duration(const char *text, time_t *seconds) {
    static const struct {
        char unit;
        long seconds;
    } units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
    size_t next = 0; // units come in this order, each once
    for (*seconds = 0; *text;) {
        char *end;
        if (!isdigit((unsigned char)*text)) return false;
        const unsigned long number = strtoul(text, &end, 10);
        while (next < sizeof units / sizeof *units && units[next].unit != *end) next++;
        if (next == sizeof units / sizeof *units || number > 1000000) return false;
        *seconds += (time_t)number * units[next++].seconds;
        text = end + 1;
    }
    return *seconds > 0;
}

// The whole text by one of the formats of strptime(3).
static bool take_format(const char *text, const char *const formats[], struct tm *out) {
    for (; *formats; formats++) {
        struct tm found = *out;
        const char *end = strptime(text, *formats, &found);
        if (end && !*end) return *out = found, true;
    }
    return false;
}

// The time at which the clocks here show `shown`: of two in the hour that autumn repeats, the first one after `after`.
// False: they leave it out, and mktime() would take it for a time an hour away.
static bool find_shown(struct tm shown, time_t after, time_t *at) {
    const time_t reach = 2 * 3600, unit = 900; // of changes of the clocks
    bool found = false;
    struct tm near = shown, there;
    near.tm_isdst = -1;
    const time_t middle = mktime(&near);
    for (time_t time = middle - reach; time <= middle + reach && !(found && *at > after); time += unit)
        if (localtime_r(&time, &there)->tm_min == shown.tm_min && there.tm_hour == shown.tm_hour &&
            there.tm_mday == shown.tm_mday)
            *at = time, found = true;
    return found;
}

static int take_time(Until *until, const char *text, time_t start) {
    static const char *const days[] = {"%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S",
                                       NULL};
    static const char *const hours[] = {"%H:%M", "%H:%M:%S", NULL};
    struct tm shown = {0}, now;
    localtime_r(&start, &now);
    if (take_format(text, days, &shown)) {
        const int day = shown.tm_mday;
        timegm(&shown); // makes the 30th of February a day of March
        if (shown.tm_mday != day) return fail(EX_USAGE, "'%s' is not a day of the calendar", text);
    } else {
        shown = now, shown.tm_sec = 0;
        if (!take_format(text, hours, &shown))
            return fail(EX_USAGE,
                        "'%s' is not a time to come: write 90s, 40m, 1h30m, 2d, 08:00, '2026-12-01 08:00', job or now",
                        text);
        const bool today = find_shown(shown, start, &until->at);
        if (today ? until->at <= start : timegm(&shown) <= timegm(&now)) shown.tm_mday++, timegm(&shown);
    }
    if (find_shown(shown, start, &until->at)) return 0;
    return fail(EX_USAGE, "the clocks here leave out '%s' on that day", text);
}

static int take_job(Until *until) {
    const char *text = getenv("SLURM_JOB_END_TIME");
    char *end;
    const long long seconds = text ? strtoll(text, &end, 10) : 0, year_9999 = 253402300799;
    until->at = (time_t)seconds;
    if (seconds > 0 && seconds <= year_9999 && !*end) return 0;
    if (text) return fail(EX_USAGE, "SLURM_JOB_END_TIME is '%s', not seconds since 1970: write the time, as 4h", text);
    return fail(EX_USAGE, "the environment has no SLURM_JOB_END_TIME, which Slurm 22.05 and older do not set: write "
                          "--until=$(squeue -h -j $SLURM_JOB_ID -o %%e), or 4h");
}

int until_parse(Until *until, const char *text, time_t start) {
    *until = (Until){.now = !strcmp(text, "now")};
    time_t seconds;
    if (until->now) return 0;
    if (!strcmp(text, "job")) return take_job(until);
    if (!take_duration(text, &seconds)) return take_time(until, text, start);
    until->duration = true, until->at = start + seconds;
    return 0;
}

time_t until_start(void) {
    static time_t start;
    return start ? start : (start = time(NULL));
}

int until_check(const char *text) {
    Until until;
    return *text ? until_parse(&until, text, until_start()) : 0;
}

int until_check_new(const char *text) {
    Until until;
    if (!*text) return 0;
    if (until_parse(&until, text, until_start()) < 0) return -1;
    if (until.now) return fail(EX_USAGE, "until is now, and there is no step to cool down from");
    return until.at > until_start() ? 0 : fail(EX_USAGE, "until %s has passed: another time starts a run", text);
}

const char *until_text(time_t at, char out[48]) {
    struct tm local;
    localtime_r(&at, &local);
    strftime(out, 48, "%a %Y-%m-%d %H:%M:%S %Z", &local);
    return out;
}
