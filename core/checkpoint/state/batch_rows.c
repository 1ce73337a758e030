/* Saves the last micro-batch in the file of the gradients. */
#include "checkpoint/state/batch_rows.h"

#include <string.h>

#include "base/error.h"

enum { N_TENSORS = 5 };
static const char *const tensor_names[N_TENSORS] = {
    "batch.tokens", "batch.targets", "batch.positions", "batch.doc_start", "batch.key_end"};

/* A causal run has no key_end. */
static int32_t n_tensors(const lathe_saved_state *saved)
{
    return saved->programs->train.key_end == LATHE_NONE ? N_TENSORS - 1 : N_TENSORS;
}

static int32_t *batch_tensor(const lathe_saved_state *saved, int32_t i)
{
    const lathe_program *p = &saved->programs->train;
    const lathe_val of[N_TENSORS] = {p->tokens, p->targets, p->positions, p->doc_start, p->key_end};
    return lathe_exec_input(p->exec, of[i]);
}

static lathe_desc batch_desc(const lathe_saved_state *saved)
{
    return lathe_desc_1d(LATHE_I32,
                         saved->programs->train.n_rows * saved->programs->train.row_tokens);
}

lathe_status lathe__batch_rows_declare(const lathe_saved_state *saved, lathe_st_writer *w)
{
    const lathe_desc desc = batch_desc(saved);
    if (saved->programs->sampling.exec == NULL || !saved->programs->has_batch)
        return LATHE_OK;
    for (int32_t i = 0; i < n_tensors(saved); i++)
        LATHE_TRY(lathe_st_writer_add(w, tensor_names[i], &desc));
    return LATHE_OK;
}

lathe_status lathe__batch_rows_write(const lathe_saved_state *saved, lathe_st_writer *w,
                                     int64_t *io_index)
{
    const lathe_desc desc = batch_desc(saved);
    if (saved->programs->sampling.exec == NULL || !saved->programs->has_batch)
        return LATHE_OK;
    for (int32_t i = 0; i < n_tensors(saved); i++)
        LATHE_TRY(lathe_st_writer_write(w, (*io_index)++, 0, batch_tensor(saved, i),
                                        lathe_desc_bytes(&desc)));
    return LATHE_OK;
}

/* Refuses ids that are out of range for the graph. */
static lathe_status check_range(const lathe_saved_state *saved, const lathe_st_tensor *t, int32_t i)
{
    const int64_t row = saved->programs->train.row_tokens, n = lathe_desc_count(&t->desc);
    for (int64_t k = 0; k < n; k++) {
        const int64_t end[N_TENSORS] = {saved->model->vocab, saved->model->vocab, row, k % row + 1,
                                        row + 1};
        int32_t x;
        memcpy(&x, (const char *)t->data + k * (int64_t)sizeof x, sizeof x);
        if (x < (i == 1 ? -1 : 0) || x >= end[i])
            return lathe_error(LATHE_E_CORRUPT, "%s: '%s' holds %d at %lld, expected below %lld",
                               t->file, tensor_names[i], x, (long long)k, (long long)end[i]);
    }
    return LATHE_OK;
}

lathe_status lathe__batch_rows_check(const lathe_saved_state *saved, const lathe_safetensors *set)
{
    const lathe_desc want = batch_desc(saved);
    if (set == NULL || saved->programs->sampling.exec == NULL ||
        lathe_safetensors_find(set, tensor_names[0]) == NULL)
        return LATHE_OK;
    for (int32_t i = 0; i < n_tensors(saved); i++) {
        const lathe_st_tensor *t = lathe_safetensors_find(set, tensor_names[i]);
        if (t == NULL)
            return lathe_error(LATHE_E_CORRUPT, "the gradients lack '%s'", tensor_names[i]);
        if (t->desc.dtype != LATHE_I32 || lathe_desc_count(&t->desc) != lathe_desc_count(&want))
            return lathe_error(LATHE_E_SHAPE, "%s: '%s' has another shape or dtype than the run's",
                               t->file, tensor_names[i]);
        LATHE_TRY(check_range(saved, t, i));
    }
    return LATHE_OK;
}

void lathe__batch_rows_read(const lathe_saved_state *saved, const lathe_safetensors *set)
{
    const lathe_desc desc = batch_desc(saved);
    saved->programs->has_batch =
        set && saved->programs->sampling.exec && lathe_safetensors_find(set, tensor_names[0]);
    if (!saved->programs->has_batch)
        return;
    for (int32_t i = 0; i < n_tensors(saved); i++)
        memcpy(batch_tensor(saved, i), lathe_safetensors_find(set, tensor_names[i])->data,
               (size_t)lathe_desc_bytes(&desc));
    if (saved->programs->train.rng == LATHE_NONE)
        return;
    lathe_programs_counter(saved->programs, &saved->programs->train, saved->programs->train.rng,
                           saved->seed, saved->at->micro - 1);
}
