/* Every optimizer trains a small model; stopped half-way and resumed, it gives the same bits. */
#include "support/small_run.h"

#define STEPS 10

static const char *const names[] = {"adamw",
                                    "sgd",
                                    "adafactor",
                                    "adamw_8bit",
                                    "lion",
                                    "sophia",
                                    "muon",
                                    "galore",
                                    "apollo",
                                    "adam_mini",
                                    "signsgd",
                                    "adamw_anyprecision",
                                    "schedule_free_adamw"};

static lathe_run *open_small(const char *dir, const char *name, const char *precision)
{
    settings s = {.n = 0};
    set_data(&s, dir);
    set_llama(&s, 2, 64, 4, 2, 128);
    set(&s, "train.precision=%s", precision);
    set(&s, "train.max_steps=%d", STEPS);
    set(&s, "train.micro_batch_size=2");
    set(&s, "data.seq_len=32");
    set(&s, "optimizer.name=%s", name);
    set(&s, "scheduler.name=constant");
    if (strcmp(name, "adafactor") != 0)
        set(&s, "optimizer.lr=%s", strcmp(name, "sgd") == 0 ? "0.5" : "2e-3");
    if (strcmp(name, "sgd") == 0)
        set(&s, "optimizer.momentum=0.9");
    if (strcmp(name, "galore") == 0 || strcmp(name, "apollo") == 0) {
        set(&s, "optimizer.rank=8");
        set(&s, "optimizer.update_proj_gap=3"); /* new projections before and after the stop */
    }
    if (strcmp(name, "adamw_8bit") == 0)
        set(&s, "optimizer.min_8bit_size=1024");
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

static double steps(lathe_run *run, int n)
{
    lathe_step_result r = {.size = sizeof r};
    for (int i = 0; i < n; i++) {
        lathe_forward_result f = {.size = sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &r));
    }
    return r.loss;
}

static void compare_runs(const lathe_run *a, const lathe_run *b, const char *name)
{
    for (int32_t i = 0; i < a->store.n_rows; i++) {
        const lathe_store_row *row = &a->store.rows[i];
        const size_t bytes = (size_t)lathe_desc_bytes(&a->params.rows[i]->desc);
        cr_assert_arr_eq(lathe_store_master(&a->store, i), lathe_store_master(&b->store, i), bytes,
                         "%s: %s differs", name, a->params.rows[i]->name);
        for (int32_t k = 0; k < row->n_slots; k++)
            cr_assert_arr_eq(lathe_store_slot(&a->store, i, k), lathe_store_slot(&b->store, i, k),
                             (size_t)lathe_desc_bytes(&row->slots[k].desc), "%s: %s of %s differs",
                             name, row->slots[k].name, a->params.rows[i]->name);
    }
}

static void check(const char *precision)
{
    char dir[] = "/tmp/lathe_optimizers_XXXXXX", saved[128];
    make_folder(dir, 40000);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(saved, sizeof saved, "%s/%s", dir, names[k]);
        lathe_run *straight = open_small(dir, names[k], precision);
        const double first = steps(straight, 1);
        const double last = steps(straight, STEPS - 1);
        cr_expect(last < first - 0.01, "%s %s: loss %g after %g", names[k], precision, last, first);
        lathe_run *one = open_small(dir, names[k], precision);
        steps(one, STEPS / 2);
        OK(lathe_save(one, saved));
        lathe_run_close(one);
        lathe_run *two = open_small(dir, names[k], precision);
        OK(lathe_load(two, saved));
        steps(two, STEPS - STEPS / 2);
        compare_runs(straight, two, names[k]);
        lathe_run_close(two);
        lathe_run_close(straight);
    }
    OK(lathe_dir_remove(dir));
}

Test(optimizer_resume, is_bit_identical_in_fp32)
{
    check("fp32");
}

Test(optimizer_resume, is_bit_identical_in_bf16)
{
    check("bf16");
}
