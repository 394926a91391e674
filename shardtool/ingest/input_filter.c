// Which files of folders and members of archives --include and --exclude choose.
#include "shardtool/ingest/inputs.h"
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

// A pattern with a slash is compared with the path below the argument, any other with the file name.
static bool matches(const StringList *patterns, const char *below, const char *name) {
    for (size_t i = 0; i < patterns->count; i++) {
        const char *pattern = patterns->items[i];
        if (fnmatch(pattern, strchr(pattern, '/') ? below : name, 0) == 0) return true;
    }
    return false;
}

bool input_is_wanted(const InputFilter *filter, const char *below) {
    const char *slash = strrchr(below, '/'), *name = slash ? slash + 1 : below;
    if (filter->include.count && !matches(&filter->include, below, name)) return false;
    return !matches(&filter->exclude, below, name);
}

// Whether a pattern matches the archive or one around it, "a.tar:b/c.zip", by its name or, with a slash, by the end of its path.
static bool chose_archive(const char *pattern, const char *archive) {
    char names[PATH_MAX_BYTES], *rest = names, *name;
    snprintf(names, sizeof names, "%s", archive);
    while ((name = strsep(&rest, ":"))) {
        const char *slash = strrchr(name, '/');
        if (!strchr(pattern, '/') && slash) name = (char *)(uintptr_t)slash + 1;
        for (const char *end = name; end; end = (end = strchr(end, '/')) ? end + 1 : NULL)
            if (fnmatch(pattern, end, 0) == 0) return true;
    }
    return false;
}

bool input_member_is_wanted(const InputFilter *filter, const char *archive, const char *member) {
    const char *slash = strrchr(member, '/'), *name = slash ? slash + 1 : member;
    bool is_chosen = !filter->include.count;
    for (size_t i = 0; !is_chosen && i < filter->include.count; i++) {
        const char *pattern = filter->include.items[i];
        is_chosen = chose_archive(pattern, archive) || fnmatch(pattern, strchr(pattern, '/') ? member : name, 0) == 0;
    }
    return is_chosen && !matches(&filter->exclude, member, name);
}
