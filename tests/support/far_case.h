/* Trains a run on the CPU and again on the far device (tests/far), which uses the CPU's kernels;
 * results are compared bit for bit. */
#ifndef LATHE_TEST_FAR_CASE_H
#define LATHE_TEST_FAR_CASE_H

#include <jansson.h>

#include "exec/store/store_io.h"
#include "exec/store/transfer.h"
#include "small_run.h"
#include "support/plugin_override.h"

#define FAR_PLUGINS LATHE_TEST_BUILD "/tests/far"

enum { ON_CPU, ON_FAR, ON_FAR_WITHOUT_CAPTURE, ON_UNIFIED, N_WHERE };
static const char *const where_names[N_WHERE] = {"cpu", "far", "far, capture off", "far, unified"};

static void set_where(settings *s, int where)
{
    setenv("LATHE_PLUGIN_PATH", FAR_PLUGINS, 1);
    override_all_of(FAR_PLUGINS);
    set(s, "device.name=%s", where == ON_CPU ? "cpu" : where == ON_UNIFIED ? "far_unified" : "far");
    set(s, "attention.name=%s", where == ON_CPU ? "reference" : "far_reference");
    if (where == ON_FAR_WITHOUT_CAPTURE)
        set(s, "train.capture=off");
    if (where == ON_FAR || where == ON_UNIFIED)
        set(s, "train.capture=on");
}

/* A small llama on text, its checkpoints in dir/out. */
__attribute__((unused)) static void set_small(settings *s, const char *dir, int where)
{
    set_where(s, where);
    set_llama(s, 2, 32, 4, 2, 64);
    set_data(s, dir);
    set(s, "data.seq_len=32");
    set(s, "train.micro_batch_size=2");
    set(s, "train.gradient_accumulation_steps=2");
    set(s, "train.max_steps=6");
    set(s, "train.threads=1");
    set(s, "optimizer.lr=0.01");
}

/* The whole state of a run in host memory: parameters, copies, slots, averages, planes. */
typedef struct snapshot {
    char *bytes[5];
    int64_t n[5];
} snapshot;

__attribute__((unused)) static void snapshot_take(snapshot *s, lathe_run *run)
{
    const lathe_store *x = &run->store;
    const char *const from[5] = {x->masters, x->shadows, x->slots, x->averages, x->planes};
    const int64_t n[5] = {x->master_bytes, x->shadow_bytes, x->slot_bytes, x->average_bytes,
                          x->plane_bytes};
    for (int i = 0; i < 5; i++) {
        s->n[i] = n[i];
        s->bytes[i] = calloc((size_t)n[i] + 1, 1);
        if (n[i] > 0)
            OK(lathe_store_get(x, s->bytes[i], from[i], n[i]));
    }
}

__attribute__((unused)) static void snapshot_compare(const char *what, const snapshot *a,
                                                     const snapshot *b)
{
    static const char *const names[5] = {"masters", "copies", "slots", "averages", "planes"};
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(a->n[i], b->n[i], "%s: %s", what, names[i]);
        cr_assert_eq(memcmp(a->bytes[i], b->bytes[i], (size_t)a->n[i]), 0, "%s: other %s", what,
                     names[i]);
    }
    cr_assert_gt(a->n[0], 0);
}

__attribute__((unused)) static void snapshot_free(snapshot *s)
{
    for (int i = 0; i < 5; i++)
        free(s->bytes[i]);
}

/* The metrics of every line of metrics.jsonl, except times and memory, as text. */
__attribute__((unused)) static char *figures_of(const char *dir)
{
    static const char *const keys[] = {
        "step",          "loss",   "grad_norm",          "lr",         "eval_loss",
        "skipped_steps", "tokens", "eval_ece",           "loss_scale", "spikes",
        "accuracy",      "margin", "eval_token_accuracy"};
    char path[512];
    size_t n = 0;
    char *out = NULL;
    json_error_t error;
    FILE *text = open_memstream(&out, &n);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f && text, "%s", path);
    char line[8192];
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, &error);
        cr_assert(row, "%s", line);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            const json_t *v = json_object_get(row, keys[k]);
            if (v)
                fprintf(text, "%s %.17g ", keys[k], json_number_value(v));
        }
        fprintf(text, "\n");
        json_decref(row);
    }
    fclose(f);
    fclose(text);
    return out;
}

#endif
