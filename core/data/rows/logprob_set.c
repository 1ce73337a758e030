/* Finds a record's stored log-probabilities in the files of its data. */
#include "data/rows/logprob_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct lathe_logprob_set {
    int64_t n, n_records, n_targets;
    lathe_logprob_file files[];
};

/* Whether both files are of one set. */
static int is_alike(const lathe_logprob_header *a, const lathe_logprob_header *b)
{
    return a->top_k == b->top_k && a->value_bytes == b->value_bytes &&
           a->row_tokens == b->row_tokens && a->vocab_size == b->vocab_size &&
           !(a->temperature < b->temperature || a->temperature > b->temperature) &&
           memcmp(a->data, b->data, sizeof a->data) == 0 &&
           memcmp(a->made_by, b->made_by, sizeof a->made_by) == 0;
}

static lathe_status add_file(lathe_logprob_set *set, const char *path, int32_t verify)
{
    lathe_logprob_file *file = &set->files[set->n];
    LATHE_TRY(lathe__logprob_open(path, verify, file));
    set->n++;
    if (!is_alike(&file->header, &set->files[0].header))
        return lathe_error(LATHE_E_CORRUPT, "%s: made with other settings than %s", path,
                           set->files[0].path);
    if (file->header.first_record != set->n_records)
        return lathe_error(LATHE_E_CORRUPT, "%s: begins with record %lld; expected %lld", path,
                           (long long)file->header.first_record, (long long)set->n_records);
    set->n_records += file->header.n_records;
    set->n_targets += file->header.n_targets;
    return LATHE_OK;
}

lathe_status lathe_logprob_set_open(const char *const *paths, int64_t n, int32_t verify,
                                    lathe_logprob_set **out)
{
    if (n < 1)
        return lathe_error(LATHE_E_ARG, "log-probabilities without a file");
    lathe_logprob_set *set = calloc(1, sizeof *set + (size_t)n * sizeof set->files[0]);
    if (!set)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld files", (long long)n);
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        status = add_file(set, paths[i], verify);
    if (status != LATHE_OK) {
        lathe_logprob_set_close(set);
        return status;
    }
    *out = set;
    return LATHE_OK;
}

void lathe_logprob_set_close(lathe_logprob_set *set)
{
    if (!set)
        return;
    for (int64_t i = 0; i < set->n; i++)
        lathe__logprob_close(&set->files[i]);
    free(set);
}

const lathe_logprob_header *lathe_logprob_set_header(const lathe_logprob_set *set)
{
    return &set->files[0].header;
}

int64_t lathe_logprob_set_records(const lathe_logprob_set *set)
{
    return set->n_records;
}

int64_t lathe_logprob_set_targets(const lathe_logprob_set *set)
{
    return set->n_targets;
}

lathe_status lathe_logprob_set_read(const lathe_logprob_set *set, int64_t record, int64_t n,
                                    int32_t *ids, float *values)
{
    int64_t low = 0, high = set->n;
    if (record < 0 || record >= set->n_records)
        return lathe_error(LATHE_E_ARG, "record %lld of %lld stored ones", (long long)record,
                           (long long)set->n_records);
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (set->files[middle].header.first_record <= record)
            low = middle;
        else
            high = middle;
    }
    /* A file of no records begins where the next one does. */
    const lathe_logprob_file *file = &set->files[low];
    return lathe__logprob_read(file, record - file->header.first_record, n, ids, values);
}
