/* The planned state of every optimizer for a model equals its paper's formula to the byte.
 * docs/optimizers.md has the formulas. */
#include "support/small_run.h"

enum { RANK = 8, BLOCK = 256, SMALLEST = 4096 /* adamw_8bit's own */ };

static int64_t shorter(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether GaLore and APOLLO project the parameter. */
static int is_projected(const lathe_param_info *p)
{
    return p->role == LATHE_ROLE_MATRIX && shorter(p->desc.dims[0], p->desc.dims[1]) > RANK;
}

static int64_t of_adamw(const lathe_param_info *p)
{
    return 8 * lathe_desc_count(&p->desc);
}

static int64_t of_half(const lathe_param_info *p)
{
    return 4 * lathe_desc_count(&p->desc);
}

static int64_t of_none(const lathe_param_info *p)
{
    (void)p;
    return 0;
}

/* Two codes of a byte, and for each a scale per 256 codes. */
static int64_t of_8bit(const lathe_param_info *p)
{
    const int64_t n = lathe_desc_count(&p->desc);
    return n < SMALLEST ? 8 * n : 2 * (n + 4 * ((n + BLOCK - 1) / BLOCK));
}

static int64_t of_anyprecision(const lathe_param_info *p)
{
    return 6 * lathe_desc_count(&p->desc);
}

/* One second moment per head of q and k, per row of other matrices, per norm, per element of a
 * bias. */
static int64_t of_adam_mini(const lathe_param_info *p)
{
    const int64_t n = lathe_desc_count(&p->desc), rows = p->desc.dims[0];
    const int64_t blocks = p->role == LATHE_ROLE_BIAS ? n
                           : p->desc.rank < 2         ? 1
                           : p->head_rows > 0         ? rows / p->head_rows
                                                      : rows;
    return 4 * (n + blocks);
}

static int64_t of_adafactor(const lathe_param_info *p)
{
    return 4 * (p->desc.rank > 1 ? p->desc.dims[0] + p->desc.dims[1] : p->desc.dims[0]);
}

static int64_t of_muon(const lathe_param_info *p)
{
    return p->role == LATHE_ROLE_MATRIX ? of_half(p) : of_adamw(p);
}

/* a x b, a <= b: two moments [rank, b], the projector [rank, a]. */
static int64_t of_galore(const lathe_param_info *p)
{
    const int64_t rows = p->desc.dims[0], cols = p->desc.dims[1], a = shorter(rows, cols);
    return is_projected(p) ? 4 * RANK * (2 * (rows + cols - a) + a) : of_adamw(p);
}

/* No projector is stored, but the norm of the last update. */
static int64_t of_apollo(const lathe_param_info *p)
{
    const int64_t rows = p->desc.dims[0], cols = p->desc.dims[1], a = shorter(rows, cols);
    return is_projected(p) ? 8 * RANK * (rows + cols - a) + 4 : of_adamw(p);
}

static const struct {
    const char *name, *setting;
    int64_t (*bytes)(const lathe_param_info *p);
} rows[] = {
    {"adamw", NULL, of_adamw},
    {"adamw", "optimizer.state_dtype=bf16", of_half},
    {"adamw_8bit", NULL, of_8bit},
    {"adamw_anyprecision", NULL, of_anyprecision},
    {"adamw_anyprecision", "optimizer.use_kahan_summation=false", of_half},
    {"adam_mini", NULL, of_adam_mini},
    {"adafactor", NULL, of_adafactor},
    {"lion", NULL, of_half},
    {"signsgd", NULL, of_half},
    {"sgd", NULL, of_none},
    {"sgd", "optimizer.momentum=0.9", of_half},
    {"sophia", NULL, of_adamw},
    {"schedule_free_adamw", NULL, of_adamw},
    {"muon", NULL, of_muon},
    {"galore", "optimizer.rank=8", of_galore},
    {"apollo", "optimizer.rank=8", of_apollo},
    /* a rank that no matrix exceeds: all of it uses AdamW */
    {"galore", "optimizer.rank=1024", of_adamw},
    {"apollo", "optimizer.rank=1024", of_adamw},
};

/* Odd widths; GPT-2 has biases, fused projections and positions, Qwen3 norms of heads. */
static const char *const gpt2[] = {"model.model_type=gpt2",
                                   "model.vocab_size=300",
                                   "model.n_embd=48",
                                   "model.n_layer=2",
                                   "model.n_head=4",
                                   "model.n_positions=128",
                                   NULL};

static lathe_run *open_plan(const char *model, const char *name, const char *setting)
{
    settings s = {.n = 0};
    if (strcmp(model, "gpt2") == 0)
        set_all(&s, gpt2);
    else
        set_llama(&s, 2, 64, 4, 2, 144);
    snprintf(s.text[0], sizeof s.text[0], "model.model_type=%s", model);
    set(&s, "data.seq_len=32");
    set(&s, "optimizer.name=%s", name);
    set(&s, "scheduler.name=constant");
    if (setting)
        set(&s, "%s", setting);
    return open_run(LATHE_OPEN_PLAN, s.list);
}

static void check(const char *model)
{
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        lathe_run *run = open_plan(model, rows[k].name, rows[k].setting);
        int64_t want = 0, have = 0, n_slots = 0;
        for (int32_t i = 0; i < run->store.n_rows; i++) {
            const lathe_param_info info = lathe_params_info(&run->params, i);
            int64_t row = 0;
            for (int32_t j = 0; j < run->store.rows[i].n_slots; j++, n_slots++)
                row += lathe_desc_bytes(&run->store.rows[i].slots[j].desc);
            cr_expect_eq(row, rows[k].bytes(&info), "%s %s: %s has %lld bytes, expected %lld",
                         rows[k].name, rows[k].setting ? rows[k].setting : "", info.name,
                         (long long)row, (long long)rows[k].bytes(&info));
            want += rows[k].bytes(&info);
            have += row;
        }
        cr_expect_eq(have, want);
        /* besides these, the plan counts only alignment */
        cr_expect(run->store.slot_bytes >= have &&
                      run->store.slot_bytes < have + 256 * (n_slots + 1),
                  "%s: %lld planned, %lld wanted", rows[k].name, (long long)run->store.slot_bytes,
                  (long long)have);
        lathe_run_close(run);
    }
}

Test(optimizer_state, is_what_the_papers_say_for_llama)
{
    check("llama");
}

Test(optimizer_state, is_what_the_papers_say_for_qwen3)
{
    check("qwen3");
}

Test(optimizer_state, is_what_the_papers_say_for_gpt2)
{
    check("gpt2");
}
