/* Parameter groups and clipping by value: which parameters belong to a group, the update, and
 * refusals. */
#include "support/small_run.h"

static void base(settings *s, const char *dir)
{
    set_data(s, dir);
    set_llama(s, 2, 32, 4, 2, 64);
    set(s, "train.precision=fp32");
    set(s, "train.max_steps=4");
    set(s, "data.seq_len=16");
    set(s, "optimizer.lr=1e-3");
    set(s, "optimizer.weight_decay=0.1");
}

static int32_t param(const lathe_run *run, const char *name)
{
    const int32_t i = lathe_params_find(&run->params, name);
    cr_assert(i >= 0, "%s", name);
    return i;
}

Test(param_groups, patterns_give_rates_and_decays)
{
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    base(&s, dir);
    set(&s, "optimizer.no_decay_modules=[\"embed_tokens\", \"model.layers.1.mlp*\"]");
    set(&s, "optimizer.no_decay_params=[\"*.v_proj.weight\"]");
    set(&s,
        "optimizer.groups=[{name = \"attn\", params = [\"*.q_proj.weight\", \"*.k_proj.weight\"], "
        "lr = 5e-4, weight_decay = 0.2}, {params = [\"*norm*\"], weight_decay = 0.05}]");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    const lathe_param_groups *g = &run->opt.groups;
    const struct {
        const char *name;
        double lr, decay;
        int32_t group;
    } want[] = {{"model.embed_tokens.weight", 1.0, 0.0, 0},
                {"model.layers.0.mlp.up_proj.weight", 1.0, 1.0, 0},
                {"model.layers.1.mlp.up_proj.weight", 1.0, 0.0, 0},
                {"model.layers.1.self_attn.v_proj.weight", 1.0, 0.0, 0},
                {"model.layers.1.self_attn.q_proj.weight", 0.5, 2.0, 1},
                {"model.layers.0.input_layernorm.weight", 1.0, 0.5, 2},
                {"model.norm.weight", 1.0, 0.5, 2}};
    cr_assert_eq(g->n, 3);
    cr_assert_str_eq(g->keys[1], "grad_norm/attn");
    cr_assert_str_eq(g->keys[2], "grad_norm/2");
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        const int32_t i = param(run, want[k].name);
        cr_assert_float_eq(g->lr_mult[i], want[k].lr, 1e-15, "%s", want[k].name);
        cr_assert_float_eq(g->decay_mult[i], want[k].decay, 1e-15, "%s", want[k].name);
        cr_assert_eq(g->group[i], want[k].group, "%s", want[k].name);
    }
    lathe_run_close(run);
}

static void one_step(lathe_run *run, lathe_step_result *out)
{
    lathe_forward_result f = {.size = sizeof f};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, out));
}

/* The squares of group norms add up to the total; a group with lr 0 does not change, with any
 * optimizer. */
static void check_frozen_group(const char *optimizer)
{
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_data(&s, dir);
    set_llama(&s, 2, 32, 4, 2, 64);
    set(&s, "train.max_steps=4");
    set(&s, "data.seq_len=16");
    set(&s, "optimizer.name=%s", optimizer);
    set(&s, "optimizer.lr=1e-3");
    set(&s, "optimizer.groups=[{params = [\"model.layers.0.*\"], lr = 0.0}]");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t still = param(run, "model.layers.0.mlp.up_proj.weight");
    const int32_t moved = param(run, "model.layers.1.mlp.up_proj.weight");
    const int64_t n = lathe_desc_count(&run->params.rows[still]->desc);
    float *before = malloc((size_t)n * sizeof *before), *other = malloc((size_t)n * sizeof *other);
    cr_assert(before && other);
    memcpy(before, lathe_store_master(&run->store, still), (size_t)n * sizeof *before);
    memcpy(other, lathe_store_master(&run->store, moved), (size_t)n * sizeof *other);
    lathe_step_result r = {.size = sizeof r};
    one_step(run, &r);
    one_step(run, &r);
    const double all = sqrt(run->opt.group_norms[0] * run->opt.group_norms[0] +
                            run->opt.group_norms[1] * run->opt.group_norms[1]);
    cr_assert_float_eq(all, r.grad_norm, 1e-12 * r.grad_norm, "%s", optimizer);
    cr_assert_gt(run->opt.group_norms[1], 0.0);
    cr_assert_arr_eq(before, lathe_store_master(&run->store, still), (size_t)n * sizeof *before,
                     "%s moved a group whose lr is 0", optimizer);
    cr_assert_neq(memcmp(other, lathe_store_master(&run->store, moved), (size_t)n * sizeof *other),
                  0, "%s", optimizer);
    free(before);
    free(other);
    lathe_run_close(run);
}

Test(param_groups, a_group_with_lr_0_stays)
{
    static const char *const names[] = {"adamw",      "muon",      "sgd",    "lion",  "adafactor",
                                        "adamw_8bit", "adam_mini", "galore", "apollo"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        check_frozen_group(names[k]);
}

static void refused(const char *setting, const char *words)
{
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    base(&s, dir);
    set(&s, "%s", setting);
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG, "%s", setting);
    cr_assert(strstr(lathe_last_error(), words) != NULL, "%s: '%s' is not in: %s", setting, words,
              lathe_last_error());
}

Test(param_groups, refuses_what_means_nothing)
{
    refused("optimizer.no_decay_params=[\"*.w_proj.weight\"]", "w_proj");
    refused("optimizer.no_decay_modules=[\"dense\"]", "dense");
    refused("optimizer.groups=[{params = [\"nothing.*\"], lr = 1e-4}]", "nothing.*");
    refused("optimizer.groups=[{lr = 1e-4}]", "params");
    refused("optimizer.groups=[{params = [\"*\"], learning_rate = 1e-4}]", "learning_rate");
    refused("optimizer.groups=[{params = [\"*\"], lr = -1.0}]", "lr");
}

/* Muon has two rates and two decays: by default, a matrix's rate is 66 times an embedding's. */
Test(param_groups, a_number_of_a_group_is_the_number_used_in_either_half_of_muon)
{
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    settings s = {.n = 0};
    lathe_group_row *rows = NULL;
    int32_t n = 0;
    make_folder(dir, 20000);
    base(&s, dir);
    set(&s, "optimizer.name=muon");
    set(&s, "optimizer.lr=0.02");
    set(&s, "optimizer.adamw_lr=3e-4");
    set(&s, "optimizer.adamw_weight_decay=0.01");
    set(&s, "optimizer.groups=[{name = \"own\", params = [\"*embed_tokens*\", "
            "\"*.layers.0.*q_proj*\"], lr = 1e-3, weight_decay = 0.05}]");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    const lathe_param_groups *g = &run->opt.groups;
    const int32_t embed = param(run, "model.embed_tokens.weight");
    const int32_t matrix = param(run, "model.layers.0.self_attn.q_proj.weight");
    cr_expect_float_eq(g->lr_mult[embed] * 3e-4, 1e-3, 1e-12);
    cr_expect_float_eq(g->decay_mult[embed] * 0.01, 0.05, 1e-12);
    cr_expect_float_eq(g->lr_mult[matrix] * 0.02, 1e-3, 1e-12);
    cr_expect_float_eq(g->decay_mult[matrix] * 0.1, 0.05, 1e-12);
    OK(lathe_param_groups_rows(g, &run->params, &run->arena, &rows, &n));
    int found = 0;
    for (int32_t i = 0; i < n; i++) {
        const int is_own = strcmp(rows[i].name, "own") == 0;
        const int is_muon = strcmp(rows[i].part, "muon") == 0;
        cr_expect_float_eq(rows[i].lr, is_own ? 1e-3 : is_muon ? 0.02 : 3e-4, 1e-12);
        cr_expect(rows[i].weight_decay == 0.0 || !is_own ||
                  fabs(rows[i].weight_decay - 0.05) < 1e-12);
        cr_expect(!is_own || rows[i].n_tensors == 1);
        found += is_own;
    }
    cr_expect_eq(found, 2);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* A group that repeats the AdamW part's own rate changes no bit. */
Test(param_groups, muon_with_its_own_rate_as_a_group_trains_to_the_same_bits)
{
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    float *weights[2] = {NULL, NULL};
    int64_t bytes = 0;
    make_folder(dir, 20000);
    for (int k = 0; k < 2; k++) {
        settings s = {.n = 0};
        base(&s, dir);
        set(&s, "optimizer.name=muon");
        set(&s, "optimizer.lr=0.02");
        set(&s, "optimizer.adamw_lr=3e-4");
        if (k == 1)
            set(&s, "optimizer.groups=[{params = [\"*embed_tokens*\"], lr = 3e-4}]");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        lathe_step_result r = {.size = sizeof r};
        one_step(run, &r);
        one_step(run, &r);
        bytes = run->store.master_bytes;
        weights[k] = malloc((size_t)bytes);
        memcpy(weights[k], run->store.masters, (size_t)bytes);
        lathe_run_close(run);
    }
    cr_expect_eq(memcmp(weights[0], weights[1], (size_t)bytes), 0);
    free(weights[0]);
    free(weights[1]);
    OK(lathe_dir_remove(dir));
}

Test(param_groups, two_of_one_name_are_refused)
{
    static const char *const groups[] = {"[{name = \"a\", params = [\"*.q_proj.weight\"]}, {name = "
                                         "\"a\", params = [\"*.k_proj.weight\"]}]",
                                         "[{name = \"default\", params = [\"*.q_proj.weight\"]}]"};
    static const char *const said[] = {
        "two groups are called \"a\"",
        "a group is called \"default\", the name for parameters in no group"};
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    make_folder(dir, 20000);
    for (int i = 0; i < 2; i++) {
        settings s = {.n = 0};
        lathe_run *run = NULL;
        base(&s, dir);
        set(&s, "optimizer.groups=%s", groups[i]);
        cr_expect_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
        expect_parts((const char *const[]){"optimizer.groups: ", said[i], NULL});
    }
    OK(lathe_dir_remove(dir));
}

Test(param_groups, a_decay_without_one_to_multiply_is_refused)
{
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_data(&s, dir);
    set_llama(&s, 2, 32, 4, 2, 64);
    set(&s, "train.max_steps=4");
    set(&s, "data.seq_len=16");
    set(&s, "optimizer.weight_decay=0.0");
    set(&s, "optimizer.groups=[{params = [\"*\"], weight_decay = 0.1}]");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    cr_assert(strstr(lathe_last_error(), "weight_decay is 0") != NULL, "%s", lathe_last_error());
}

/* With sgd the update is -lr times the clipped gradient. */
Test(clipping, by_value_before_by_norm)
{
    char dir[] = "/tmp/lathe_groups_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_data(&s, dir);
    set_llama(&s, 1, 32, 4, 2, 64);
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=4");
    set(&s, "data.seq_len=16");
    set(&s, "optimizer.name=sgd");
    set(&s, "optimizer.lr=1.0");
    set(&s, "scheduler.name=constant");
    set(&s, "train.max_grad_value=1e-3");
    set(&s, "train.max_grad_norm=0.0");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t i = param(run, "model.layers.0.mlp.up_proj.weight");
    const int64_t n = lathe_desc_count(&run->params.rows[i]->desc);
    lathe_forward_result f = {.size = sizeof f};
    lathe_step_result r = {.size = sizeof r};
    float *grad = malloc((size_t)n * sizeof *grad), *was = malloc((size_t)n * sizeof *was);
    int64_t n_clipped = 0, n_free = 0;
    cr_assert(grad && was);
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    memcpy(grad, lathe_store_grad(&run->store, i), (size_t)n * sizeof *grad);
    memcpy(was, lathe_store_master(&run->store, i), (size_t)n * sizeof *was);
    OK(lathe_step(run, &r));
    for (int64_t k = 0; k < n; k++) {
        const double g = (double)grad[k] / f.count;
        const double want = g > 1e-3 ? 1e-3 : g < -1e-3 ? -1e-3 : g;
        const double got = (double)was[k] - (double)lathe_store_master(&run->store, i)[k];
        n_clipped += fabs(g) > 1e-3;
        n_free += fabs(g) < 1e-3;
        /* the weight's rounding: 2^-24 of about 0.1 */
        cr_assert_float_eq(got, want, 3e-8, "element %d: moved by %g, want %g", (int)k, got, want);
    }
    cr_assert(n_clipped > 0 && n_free > 0, "%d clipped, %d not", (int)n_clipped, (int)n_free);
    cr_assert_gt(r.grad_norm, 1e-3, "the norm is told before clipping");
    free(grad);
    free(was);
    lathe_run_close(run);
}
