/* A run is interrupted at each of its 50 steps, between steps and in the middle of each, and after
 * steps that the scaler skipped. Resumed in a new process state, it gives the same bits to the end:
 * weights, optimizer, schedule, scaler, counters of the RNG, and the order of the data. */
#include "support/small_run.h"

#include "train/training.h"

enum { STEPS = 50, MICROS = 3, SEED_SCALE = 1 << 20 };

/* Steps that a resumed run makes. A sanitizer sees the same code in each. */
#ifdef __SANITIZE_ADDRESS__
enum { MAX_RESUMED = 3 };
#else
enum { MAX_RESUMED = STEPS };
#endif

typedef struct variant {
    const char *precision, *optimizer, *state, *scheduler, *adapter;
} variant;

static void configure(settings *s, const variant *v, const char *dir)
{
    set_llama(s, 1, 16, 2, 1, 32);
    set_data(s, dir);
    set(s, "data.seq_len=16");
    set(s, "train.precision=%s", v->precision);
    set(s, "train.micro_batch_size=2");
    set(s, "train.gradient_accumulation_steps=%d", MICROS);
    set(s, "train.max_steps=%d", STEPS);
    set(s, "train.threads=1");
    set(s, "train.loss_scale_init=%d", SEED_SCALE);
    set(s, "train.loss_scale_growth_interval=3");
    set(s, "optimizer.name=%s", v->optimizer);
    set(s, "optimizer.state_dtype=%s", v->state);
    set(s, "scheduler.name=%s", v->scheduler);
    if (strcmp(v->scheduler, "reduce_on_plateau") == 0) {
        set(s, "scheduler.patience=1");
        set(s, "scheduler.threshold=0.05");
    } else {
        set(s, "scheduler.warmup_steps=5");
    }
    set(s, "adapter.name=%s", v->adapter);
    if (strcmp(v->adapter, "lora") == 0)
        set(s, "adapter.dropout=0.3");
}

static uint64_t mix(uint64_t hash, const void *data, int64_t bytes)
{
    const unsigned char *p = data;
    for (int64_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

/* A hash of the whole state after a step and of the data of its micro-batches. */
static uint64_t state_hash(lathe_run *run, uint64_t data)
{
    uint64_t h = mix(data, run->store.masters, run->store.master_bytes);
    h = mix(h, run->store.shadows, run->store.shadow_bytes);
    h = mix(h, run->store.slots, run->store.slot_bytes);
    return mix(h, &run->at, (int64_t)sizeof run->at);
}

static uint64_t micro(lathe_run *run, uint64_t data)
{
    lathe_forward_result f = {.size = sizeof f};
    const lathe_program *p = &run->programs.train;
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    data = mix(data, &f.loss_sum, sizeof f.loss_sum);
    return mix(data, lathe_exec_data(p->exec, p->tokens), p->n_rows * p->row_tokens * 4);
}

/* The rest of a step from micro-batch `from` on; hashes the data from micro-batch 1 on, which every
 * case reads. */
static uint64_t step(lathe_run *run, int from, const char *save_middle, int *out_skipped)
{
    uint64_t data = 1;
    lathe_step_result r = {.size = sizeof r};
    for (int m = from; m < MICROS; m++) {
        const uint64_t behind = micro(run, data);
        data = m == 0 ? 1 : behind;
        if (m == 0 && save_middle)
            OK(lathe_save(run, save_middle));
    }
    OK(lathe_step(run, &r));
    lathe__training_observe(run, r.loss);
    data = mix(data, &r.loss, sizeof r.loss);
    data = mix(data, &r.grad_norm, sizeof r.grad_norm);
    data = mix(data, &r.lr, sizeof r.lr);
    *out_skipped = r.skipped;
    return state_hash(run, data);
}

static void resume(const settings *s, const char *path, int done, int from, const uint64_t *want,
                   const variant *v)
{
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    int skipped;
    OK(lathe_load(run, path));
    cr_assert_eq(run->at.step, done);
    cr_assert_eq(run->sum.backwards, from);
    for (int k = done; k < STEPS && k < done + MAX_RESUMED; k++) {
        const uint64_t got = step(run, k == done ? from : 0, NULL, &skipped);
        cr_assert_eq(got, want[k], "%s %s %s: resumed %s step %d, step %d differs", v->precision,
                     v->optimizer, v->scheduler, from ? "in the middle of" : "after", done, k + 1);
    }
    lathe_run_close(run);
}

static void check(const variant *v)
{
    char dir[] = "/tmp/lathe-everywhere-XXXXXX", path[256];
    settings s = {.n = 0};
    uint64_t want[STEPS];
    int n_skipped = 0, skipped;
    make_folder(dir, 1500);
    configure(&s, v, dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int k = 0; k < STEPS; k++) {
        snprintf(path, sizeof path, "%s/at-%d-1", dir, k);
        want[k] = step(run, 0, path, &skipped);
        n_skipped += skipped;
        snprintf(path, sizeof path, "%s/at-%d-0", dir, k + 1);
        OK(lathe_save(run, path));
    }
    cr_assert_geq(run->at.cursor.epoch, 2, "the data are too many to come again");
    cr_assert_eq(n_skipped > 5 && n_skipped < STEPS / 2, strcmp(v->precision, "fp16") == 0,
                 "%d steps were left out", n_skipped);
    lathe_run_close(run);
    for (int k = 0; k < STEPS; k++) {
        snprintf(path, sizeof path, "%s/at-%d-1", dir, k);
        resume(&s, path, k, 1, want, v);
        snprintf(path, sizeof path, "%s/at-%d-0", dir, k + 1);
        resume(&s, path, k + 1, 0, want, v);
    }
    OK(lathe_dir_remove(dir));
}

Test(resume, at_every_step_in_fp32)
{
    check(&(variant){"fp32", "adamw", "fp32", "cosine", "lora"});
}

Test(resume, at_every_step_in_bf16)
{
    check(&(variant){"bf16", "muon", "bf16", "reduce_on_plateau", "full"});
}

Test(resume, at_every_step_in_fp16_with_steps_left_out)
{
    check(&(variant){"fp16", "adamw", "bf16", "cosine", "full"});
    check(&(variant){"fp16", "adamw", "fp32", "reduce_on_plateau", "lora"});
}
