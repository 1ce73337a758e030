/* Reads the last lines of a JSON-lines file: all lines are read, and a ring holds the last ones.
 * The file may be written meanwhile, so its last line may be cut. */
#include "view/jsonl_tail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"

/* Reads the next line into line[0, MAX], without its end. Returns its length; 0: no whole line is
 * left; -1: too long. */
static int64_t read_line(FILE *f, char *line)
{
    int64_t n = 0;
    int c, is_long = 0;
    while ((c = getc_unlocked(f)) != EOF && c != '\n') {
        if (n < LATHE_JSONL_MAX_LINE)
            line[n++] = (char)c;
        else
            is_long = 1;
    }
    line[n] = '\0';
    if (c == EOF)
        return 0;
    return is_long || n == 0 ? -1 : n;
}

/* Puts a line into the ring, over the oldest one if it is full; counts a line that is no object. */
static void take(lathe_jsonl_tail *tail, int32_t max_items, const char *line, int64_t n)
{
    json_t *item = NULL;
    if (n < 0 || lathe_json_load("line", line, n, &item) != LATHE_OK || !json_is_object(item)) {
        lathe_error_clear();
        json_decref(item);
        tail->n_bad++;
        return;
    }
    const int32_t at = (int32_t)(tail->n_all++ % max_items);
    json_decref(tail->items[at]);
    tail->items[at] = item;
    tail->n += tail->n < max_items;
}

lathe_status lathe_jsonl_tail_read(const char *path, int32_t max_items, lathe_jsonl_tail *out)
{
    *out = (lathe_jsonl_tail){0};
    if (!lathe_path_exists(path)) /* the run has written none yet */
        return LATHE_OK;
    FILE *f = NULL;
    LATHE_TRY(lathe_file_stream(path, &f));
    char *line = malloc(LATHE_JSONL_MAX_LINE + 1);
    out->items = calloc(2 * (size_t)max_items, sizeof(json_t *));
    for (int64_t n = 0; line && out->items && (n = read_line(f, line)) != 0;)
        take(out, max_items, line, n);
    (void)fclose(f);
    free(line);
    if (line == NULL || out->items == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for reading", path);
    if (out->n_all > max_items) { /* put the ring in order, using its second half */
        const int64_t first = out->n_all % max_items;
        memcpy(out->items + max_items, out->items, (size_t)max_items * sizeof(json_t *));
        for (int32_t i = 0; i < max_items; i++)
            out->items[i] = out->items[max_items + (first + i) % max_items];
    }
    return LATHE_OK;
}

void lathe_jsonl_tail_fini(lathe_jsonl_tail *tail)
{
    for (int32_t i = 0; i < tail->n; i++)
        json_decref(tail->items[i]);
    free(tail->items);
    *tail = (lathe_jsonl_tail){0};
}
