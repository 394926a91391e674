// Which folders are tables whose log says which of their files are live, by the names in them.
#include "common/file/table_log.h"
#include "common/err.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct TableFormat {
    const char *name, *folder; // of the log, below the table; "" if only the names of files show it
    const char *ending;        // of a file of the log
    const char *command[2];    // before and after the table's folder
};

static const TableFormat formats[] = {
    {"a Delta table",
     "_delta_log/",
     "",
     {"python3 -c \"import deltalake as d, pyarrow as a, pyarrow.parquet as p; t = d.DeltaTable('",
      "'); p.write_table(a.table(d.QueryBuilder().register('t', t).execute('select * from t').read_all()), "
      "'rows.parquet')\""}},
    {"an Iceberg table",
     "metadata/",
     ".metadata.json",
     {"python3 -c \"import glob, os, pyiceberg.table as t, pyarrow.parquet as p; log = max(glob.glob('",
      "/metadata/*.metadata.json'), key=os.path.getmtime); "
      "p.write_table(t.StaticTable.from_metadata(log).scan().to_arrow(), 'rows.parquet')\""}},
    {"a Hudi table",
     ".hoodie/",
     "",
     {"spark.read.format('hudi').load('", "').select('text').write.parquet('rows.parquet') in PySpark"}},
    {"a Paimon table",
     "schema/",
     "schema-0",
     {"python3 -c \"import pyarrow.parquet as p, pypaimon.table.file_store_table as t; "
      "r = t.FileStoreTable.from_path('",
      "').new_read_builder(); p.write_table(r.new_read().to_arrow(r.new_scan().plan().splits()), 'rows.parquet')\""}},
    {"a stream that Spark wrote",
     "_spark_metadata/",
     "",
     {"spark.read.parquet('", "').select('text').write.parquet('rows.parquet') in PySpark"}},
    {"a DuckLake table",
     "",
     "",
     {"duckdb -c \"ATTACH 'ducklake:CATALOG' AS lake; COPY lake.TABLE TO 'rows.parquet'\"", NULL}},
};
enum { FORMATS = sizeof formats / sizeof *formats, DUCKLAKE = FORMATS - 1 };

static bool ends_with(const char *text, const char *ending) {
    const size_t size = strlen(text), length = strlen(ending);
    return size >= length && !strcasecmp(text + size - length, ending);
}

// The log as a component of the path, with a file after it.
const TableFormat *table_log_in(const char *name, size_t *root) {
    for (const TableFormat *format = formats; format < formats + DUCKLAKE; format++)
        for (const char *at = name; (at = strstr(at, format->folder)); at++)
            if ((at == name || at[-1] == '/') && at[strlen(format->folder)] && ends_with(name, format->ending))
                return *root = at == name ? 0 : (size_t)(at - name) - 1, format;
    return NULL;
}

const char *table_log_folder(unsigned number) { return number < DUCKLAKE ? formats[number].folder : NULL; }

// Whether the folder `root` has the log of a format.
static bool has_log(const TableFormat *format, const char *root) {
    char path[PATH_MAX_BYTES];
    struct stat st;
    bool found = false;
    if (snprintf(path, sizeof path, "%s/%s", root, format->folder) >= (int)sizeof path) return false;
    if (!*format->ending) return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));)
        found = ends_with(entry->d_name, format->ending);
    if (directory) closedir(directory);
    return found;
}

// Looks at the folders around a file from the innermost one on, up to the first that was looked at before. `real` is
// cut there.
static const TableFormat *search_up(TableSearch *search, char *real) {
    char before[PATH_MAX_BYTES];
    snprintf(before, sizeof before, "%s", search->real);
    snprintf(search->real, sizeof search->real, "%s", real);
    for (char *end = real + strlen(real); end && end > real; end = strrchr(real, '/')) {
        *end = '\0';
        const size_t size = (size_t)(end - real);
        if (*before && !strncmp(before, real, size) && (!before[size] || before[size] == '/')) return NULL;
        for (const TableFormat *format = formats; format < formats + DUCKLAKE; format++)
            if (has_log(format, real)) return format;
    }
    return NULL;
}

const TableFormat *table_around(TableSearch *search, const char *path, char root[static PATH_MAX_BYTES]) {
    char folder[PATH_MAX_BYTES], target[PATH_MAX_BYTES], *real;
    if (readlink(path, target, 1) >= 0 && (real = realpath(path, NULL))) {
        snprintf(target, sizeof target, "%s", real);
        free(real);
        path = target;
    }
    const char *base = path_split(path, folder);
    if (!ends_with(base, ".parquet")) return NULL;
    snprintf(root, PATH_MAX_BYTES, "%s", folder);
    if (!strncmp(base, "ducklake-", 9)) return &formats[DUCKLAKE];
    if (!strcmp(folder, search->folder) || !(real = realpath(folder, NULL))) return NULL;
    snprintf(search->folder, sizeof search->folder, "%s", folder);
    snprintf(root, PATH_MAX_BYTES, "%s", real);
    free(real);
    return search_up(search, root);
}

int table_fail(const TableFormat *format, const char *file, const char *root) {
    const char *const *command = format->command;
    return fail(
        EX_DATA,
        "'%s' is a file of %s, whose log says which files are live: they also hold rows that were deleted or not "
        "committed, and rewritten rows twice. Write its present rows first: %s%s%s",
        file, format->name, command[0], command[1] ? root : "", command[1] ? command[1] : "");
}
