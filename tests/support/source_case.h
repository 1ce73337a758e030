/* A model folder with tensors of several dtypes, from which runs start, and comparisons of what
 * they save. */
#ifndef LATHE_TEST_SOURCE_CASE_H
#define LATHE_TEST_SOURCE_CASE_H

#include "checkpoint_case.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/st_writer.h"

/* ---- a model folder to start from ---- */

/* The dtype of a tensor in the source: "mixed" has matrices in bf16, norms in f32 and the embedding
 * in f16. */
static int32_t source_dtype(const char *kind, const char *name)
{
    if (strcmp(kind, "bf16") == 0)
        return LATHE_BF16;
    if (strcmp(kind, "fp32") == 0)
        return LATHE_F32;
    return strstr(name, "norm") ? LATHE_F32 : strstr(name, "embed") ? LATHE_F16 : LATHE_BF16;
}

/* Numbers that use all bits of an f32. */
static void fill_values(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((double)seed / 4294967296.0 - 0.5) * 0.2f + 1e-7f;
    }
}

static void put_tensors(const lathe_run *run, lathe_st_writer *w, const char *kind)
{
    for (int32_t i = 0; i < run->params.n; i++) {
        lathe_desc desc = run->params.rows[i]->desc;
        desc.dtype = source_dtype(kind, run->params.rows[i]->name);
        OK(lathe_st_writer_add(w, run->params.rows[i]->name, &desc));
    }
    OK(lathe_st_writer_begin(w));
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const int64_t n = lathe_desc_count(&row->desc);
        const int32_t dtype = source_dtype(kind, row->name);
        float *x = malloc((size_t)n * sizeof *x);
        void *y = malloc((size_t)(n * lathe_dtype_bytes(dtype)));
        fill_values(x, n, (uint32_t)i + 1);
        OK(lathe_convert(y, dtype, x, LATHE_F32, n));
        OK(lathe_st_writer_write(w, i, 0, y, n * lathe_dtype_bytes(dtype)));
        free(x);
        free(y);
    }
    OK(lathe_st_writer_finish(w));
}

/* Writes dir/source: a llama with one layer, its tensors in the dtypes of `kind`; config.json says
 * bfloat16. */
__attribute__((unused)) static void make_source(const char *dir, const char *kind)
{
    settings s = {.n = 0};
    lathe_st_writer *w = NULL;
    configure(&s, dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const char *source = in(dir, "source");
    OK(lathe_dir_create(source));
    OK(lathe_st_writer_create(source, "model", 0, &w));
    put_tensors(run, w, kind);
    lathe_st_writer_destroy(w);
    run->model.file_dtype = LATHE_BF16;
    OK(lathe_model_config_save(&run->model, source));
    lathe_run_close(run);
}

/* The settings of a run that starts from dir/source. */
__attribute__((unused)) static void from_source(settings *s, const char *dir)
{
    settings all = {.n = 0};
    configure(&all, dir);
    set(s, "model.path=%s/source", dir);
    for (int i = 0; i < all.n; i++)
        if (strncmp(all.list[i], "model.", 6) != 0)
            set(s, "%s", all.list[i]);
}

/* ---- comparing saved files ---- */

__attribute__((unused)) static lathe_safetensors *open_set(const char *path)
{
    lathe_safetensors *set = NULL;
    OK(lathe_safetensors_open(path, &set));
    return set;
}

/* 1: dtype, shape and bytes are equal. */
__attribute__((unused)) static int same_tensor(const lathe_st_tensor *a, const lathe_st_tensor *b)
{
    return a && b && memcmp(&a->desc, &b->desc, sizeof a->desc) == 0 &&
           memcmp(a->data, b->data, (size_t)lathe_desc_bytes(&a->desc)) == 0;
}

/* Number of tensors that differ between two folders, among names that match `only` (NULL: all). */
__attribute__((unused)) static int64_t n_other(const char *a, const char *b, const char *only)
{
    lathe_safetensors *x = open_set(a), *y = open_set(b);
    int64_t n = 0, seen = 0;
    for (int64_t i = 0; i < lathe_safetensors_count(x); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(x, i);
        if (only && !strstr(t->name, only))
            continue;
        seen++;
        n += !same_tensor(t, lathe_safetensors_find(y, t->name));
    }
    cr_assert_gt(seen, 0);
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
    return n;
}

#endif
