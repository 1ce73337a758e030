/* Reads the last lines of a JSON-lines file, which is read as a stream. */
#ifndef LATHE_VIEW_JSONL_TAIL_H
#define LATHE_VIEW_JSONL_TAIL_H

#include <jansson.h>
#include <stdint.h>

#include "lathe/status.h"

enum { LATHE_JSONL_MAX_LINE = 1 << 20 };

typedef struct lathe_jsonl_tail {
    json_t **items; /* [n] objects, oldest first */
    int32_t n;
    int64_t n_all, n_bad; /* objects in the whole file; whole lines that are not objects */
} lathe_jsonl_tail;

/** Keeps the last `keep` objects. A missing file has none. LATHE_E_NOMEM. Call
 *  lathe_jsonl_tail_fini in every case. */
lathe_status lathe_jsonl_tail_read(const char *path, int32_t keep, lathe_jsonl_tail *out);
void lathe_jsonl_tail_fini(lathe_jsonl_tail *tail);

#endif
