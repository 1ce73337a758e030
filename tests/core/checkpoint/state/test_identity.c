/* A run gives the same bits, whether it is repeated or stopped half-way, closed, and opened again:
 * weights, optimizer state, the loss of every step, counters and schedule. */
#include "support/small_run.h"

enum { STEPS = 8, HALF = 3 };

/* The bits of a finished run. */
typedef struct outcome {
    char *state; /* masters, then slots */
    int64_t bytes;
    lathe_counters at;
    double loss, validation;
    char *metrics; /* loss, norms and rate of every step, as written */
} outcome;

typedef struct variant {
    const char *precision, *optimizer, *scheduler, *adapter;
    int threads;
} variant;

static void configure(settings *s, const variant *v, const char *dir)
{
    set_llama(s, 2, 32, 4, 2, 64);
    set_data(s, dir);
    set(s, "data.seq_len=32");
    set(s, "data.validation_split=0.1");
    set(s, "train.precision=%s", v->precision);
    set(s, "train.micro_batch_size=3");
    set(s, "train.gradient_accumulation_steps=2");
    set(s, "train.max_steps=%d", STEPS);
    set(s, "train.eval_every=2");
    set(s, "train.eval_batches=2");
    set(s, "train.threads=%d", v->threads);
    set(s, "optimizer.name=%s", v->optimizer);
    set(s, "optimizer.lr=%s", strcmp(v->optimizer, "muon") == 0 ? "0.02" : "0.01");
    set(s, "scheduler.name=%s", v->scheduler);
    if (strcmp(v->scheduler, "reduce_on_plateau") ==
        0) { /* strict enough that both halves reduce the rate */
        set(s, "scheduler.patience=0");
        set(s, "scheduler.threshold=0.2");
        set(s, "scheduler.factor=0.5");
    } else {
        set(s, "scheduler.warmup_steps=3");
    }
    set(s, "adapter.name=%s", v->adapter);
    if (strcmp(v->adapter, "lora") == 0)
        set(s, "adapter.dropout=0.3");
}

/* "loss": x, "grad_norm": y, ... of each line, up to the first time. */
static char *read_metrics(const char *dir)
{
    char path[256], line[4096], *all = calloc(1, 1 << 16);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s", path);
    while (fgets(line, sizeof line, f)) {
        char *timed = strstr(line, "\"tokens_per_s\"");
        if (timed)
            strcpy(timed, "\n");
        strncat(all, line, (1 << 16) - strlen(all) - 1);
    }
    fclose(f);
    return all;
}

/* Trains to the end, or to stop_after; stores the bits in `out` if it is not NULL. */
static void train(const variant *v, const char *dir, int stop_after, outcome *out)
{
    settings s = {.n = 0};
    configure(&s, v, dir);
    if (stop_after)
        set(&s, "train.stop_after=%d", stop_after);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    FILE *nowhere = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = nowhere};
    lathe_train_result r;
    OK(lathe_train(run, &options, &r));
    cr_assert_eq(r.step, stop_after ? stop_after : STEPS);
    if (out) {
        out->bytes = run->store.master_bytes + run->store.slot_bytes;
        out->state = malloc((size_t)out->bytes);
        memcpy(out->state, run->store.masters, (size_t)run->store.master_bytes);
        memcpy(out->state + run->store.master_bytes, run->store.slots,
               (size_t)run->store.slot_bytes);
        out->at = run->at;
        out->loss = r.loss;
        out->validation = r.validation;
        out->metrics = read_metrics(dir);
        cr_assert_gt(run->store.slot_bytes, 0);
        cr_assert(run->at.cursor.index > 0 && run->at.cursor.epoch == 0, "not within an epoch");
    }
    lathe_run_close(run);
    fclose(nowhere);
}

static void free_outcome(outcome *o)
{
    free(o->state);
    free(o->metrics);
}

static void check_same(const char *what, const variant *v, const outcome *a, const outcome *b)
{
    const char *p = v->precision, *o = v->optimizer, *s = v->scheduler, *d = v->adapter;
    int64_t n_differ = 0;
    cr_assert_eq(a->bytes, b->bytes);
    for (int64_t i = 0; i < a->bytes; i++)
        n_differ += a->state[i] != b->state[i];
    cr_assert_eq(n_differ, 0, "%s (%s %s %s %s): %lld of %lld bytes of the state differ", what, p,
                 o, s, d, (long long)n_differ, (long long)a->bytes);
    cr_assert_eq(memcmp(&a->at, &b->at, sizeof a->at), 0, "%s (%s %s %s %s): the counters differ",
                 what, p, o, s, d);
    cr_assert(a->loss == b->loss && a->validation == b->validation,
              "%s (%s %s %s %s): loss %.17g and %.17g, validation %.17g and %.17g", what, p, o, s,
              d, a->loss, b->loss, a->validation, b->validation);
    cr_assert_str_eq(a->metrics, b->metrics, "%s (%s %s %s %s): metrics.jsonl differs", what, p, o,
                     s, d);
}

static void check_identity(const variant *v)
{
    char once[] = "/tmp/lathe-once-XXXXXX", again[] = "/tmp/lathe-again-XXXXXX",
         halves[] = "/tmp/lathe-halves-XXXXXX";
    outcome a = {0}, b = {0}, c = {0};
    make_folder(once, 12000);
    make_folder(again, 12000);
    make_folder(halves, 12000);
    train(v, once, 0, &a);
    train(v, again, 0, &b);
    train(v, halves, HALF, NULL);
    train(v, halves, 0, &c);
    check_same("run once more", v, &a, &b);
    check_same("stopped and resumed", v, &a, &c);
    free_outcome(&a);
    free_outcome(&b);
    free_outcome(&c);
    OK(lathe_dir_remove(once));
    OK(lathe_dir_remove(again));
    OK(lathe_dir_remove(halves));
}

/* Each pair of precision, optimizer and schedule, half of them with LoRA and dropout; on two
 * threads with cosine, on one with the other. */
Test(identity, adamw_in_fp32)
{
    check_identity(&(variant){"fp32", "adamw", "cosine", "full", 2});
    check_identity(&(variant){"fp32", "adamw", "reduce_on_plateau", "lora", 1});
}

Test(identity, adamw_in_bf16)
{
    check_identity(&(variant){"bf16", "adamw", "cosine", "lora", 2});
    check_identity(&(variant){"bf16", "adamw", "reduce_on_plateau", "full", 1});
}

Test(identity, muon_in_fp32)
{
    check_identity(&(variant){"fp32", "muon", "cosine", "lora", 2});
    check_identity(&(variant){"fp32", "muon", "reduce_on_plateau", "full", 1});
}

Test(identity, muon_in_bf16)
{
    check_identity(&(variant){"bf16", "muon", "cosine", "full", 2});
    check_identity(&(variant){"bf16", "muon", "reduce_on_plateau", "lora", 1});
}
