/* Gradients in bf16: their values, and how updates that read f32 get them. */
#include "optim/widen.h"

#include "optim/update_ranges.h"
#include "support/small_run.h"

static void set_case(settings *s, const char *dir, const char *const *more)
{
    set_llama(s, 2, 64, 4, 2, 176);
    set_data(s, dir);
    set(s, "data.seq_len=32");
    set(s, "train.micro_batch_size=2");
    set(s, "train.max_steps=4");
    set(s, "train.precision=bf16");
    set(s, "train.threads=1");
    set_all(s, more);
}

static lathe_run *open_case(const char *dir, const char *const *more)
{
    settings s = {.n = 0};
    set_case(&s, dir, more);
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

static void micro_batch(lathe_run *run)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
}

static int is_narrow(const lathe_run *run, int32_t i)
{
    return lathe_params_grad_dtype(&run->params, i) == LATHE_BF16;
}

/* Only matrices of the layers; each is the f32 gradient, rounded once per micro-batch. */
Test(widen, gradients_of_the_layers_matrices_are_those_in_f32_rounded)
{
    static const char *const none[] = {NULL}, *const narrow[] = {"train.grad_dtype=bf16", NULL};
    char dir[] = "/tmp/lathe_widen_XXXXXX";
    make_folder(dir, 20000);
    lathe_run *wide = open_case(dir, none), *run = open_case(dir, narrow);
    float *first[64] = {NULL}; /* |gradient| of the first micro-batch */
    cr_assert_leq(run->params.n, 64);
    for (int32_t i = 0; i < run->params.n; i++)
        first[i] = calloc((size_t)lathe_desc_count(&run->params.rows[i]->desc), sizeof(float));
    for (int micro = 1; micro <= 2; micro++) {
        int n_narrow = 0, n_same = 0, n_all = 0;
        micro_batch(wide);
        micro_batch(run);
        for (int32_t i = 0; i < run->params.n; i++) {
            const lathe_param *p = run->params.rows[i];
            const int64_t n = lathe_desc_count(&p->desc);
            const float *want = lathe_store_grad(&wide->store, i);
            cr_assert_eq(is_narrow(run, i), p->desc.rank == 2 && p->layer >= 0, "%s", p->name);
            if (!is_narrow(run, i)) {
                cr_assert_eq(memcmp(lathe_store_grad(&run->store, i), want, (size_t)n * 4), 0, "%s",
                             p->name);
                continue;
            }
            const uint16_t *got = lathe_store_grad(&run->store, i);
            float *before = first[i];
            n_narrow++;
            for (int64_t e = 0; e < n; e++, n_all++) {
                /* half a unit in the last place of the new value and of the old one */
                const double max = fmax(fabs((double)want[e]), micro > 1 ? (double)before[e] : 0.0);
                cr_assert_leq(fabs((double)lathe_bf16_to_f32(got[e]) - (double)want[e]),
                              micro * 0x1p-8 * max + 1e-8, "%s, %lld: %g, %g in f32", p->name,
                              (long long)e, (double)lathe_bf16_to_f32(got[e]), (double)want[e]);
                n_same += got[e] == lathe_f32_to_bf16(want[e]);
                before[e] = fabsf(want[e]);
            }
        }
        cr_assert_eq(n_narrow, 2 * 7);
        cr_assert(micro > 1 || n_same >= n_all - n_all / 1000, "%d of %d", n_same, n_all);
    }
    for (int32_t i = 0; i < run->params.n; i++)
        free(first[i]);
    lathe_run_close(wide);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* The tensors of step() as the update lists them. */
static int32_t list_tensors(const lathe_run *run, lathe_optimizer_tensor *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_desc *d = &run->params.rows[i]->desc;
        if (run->params.rows[i]->trainable &&
            run->store.rows[i].partition != LATHE_PARTITION_MATRIX)
            out[n++] = (lathe_optimizer_tensor){
                .param = lathe_store_master(&run->store, i),
                .grad = is_narrow(run, i) ? NULL : lathe_store_grad(&run->store, i),
                .n = lathe_desc_count(d),
                .rows = d->dims[0],
                .cols = lathe_desc_count(d) / d->dims[0],
                .tensor = i};
    }
    return n;
}

/* Checks parts of at most `elements`: every element of every tensor once and in order, cut where
 * updates may be cut, with its gradient as f32. */
static void check_parts(lathe_run *run, int64_t elements, int32_t least_parts)
{
    lathe_optimizer_tensor tensors[64];
    const int32_t n = list_tensors(run, tensors);
    lathe_widen *w;
    int32_t at = 0;
    int64_t begin = 0;
    OK(lathe_widen_create(&run->machine, &run->store, &run->parts.optimizer, tensors, n, elements,
                          &w));
    OK(lathe_widen_place(w, tensors, n));
    const lathe_update_table t = lathe_widen_table(w);
    cr_assert_geq(t.n_parts, least_parts);
    for (int32_t k = 0; k < t.n_parts; k++) {
        int64_t in_part = 0, n_narrow = 0;
        OK(lathe_widen_run(w, k));
        for (int32_t i = k > 0 ? t.ends[k - 1] : 0; i < t.ends[k]; i++) {
            const lathe_optimizer_tensor *p = &t.tensors[i];
            const int64_t step = lathe__cut_step(&run->store, &run->parts.optimizer, &tensors[at]);
            cr_assert_eq(p->tensor, tensors[at].tensor);
            cr_assert_eq(p->first, begin);
            cr_assert_eq(p->param, tensors[at].param + begin);
            cr_assert_eq(begin % step, 0);
            for (int64_t e = 0; e < p->n; e++) {
                const void *grad = lathe_store_grad(&run->store, p->tensor);
                const float want = is_narrow(run, p->tensor)
                                       ? lathe_bf16_to_f32(((const uint16_t *)grad)[begin + e])
                                       : ((const float *)grad)[begin + e];
                cr_assert_eq(p->grad[e], want, "part %d, piece %d, %lld", k, i, (long long)e);
            }
            in_part += is_narrow(run, p->tensor) ? p->n : 0;
            n_narrow += is_narrow(run, p->tensor);
            begin += p->n;
            if (begin == tensors[at].n) {
                at++;
                begin = 0;
            }
        }
        cr_assert(in_part <= elements || n_narrow == 1, "part %d: %lld", k, (long long)in_part);
    }
    cr_assert_eq(at, n);
    lathe_widen_destroy(w);
}

Test(widen, parts_hold_every_gradient_once)
{
    static const char *const names[] = {"adamw", "adamw_8bit", "adam_mini", "adafactor", "muon"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char dir[] = "/tmp/lathe_widen_XXXXXX", name[64];
        snprintf(name, sizeof name, "optimizer.name=%s", names[i]);
        const char *const more[] = {"train.grad_dtype=bf16", "model.hidden_size=128", name, NULL};
        make_folder(dir, 20000);
        lathe_run *run = open_case(dir, more);
        micro_batch(run);
        const int is_matrix = strcmp(names[i], "muon") == 0; /* all narrow tensors */
        check_parts(run, 1, is_matrix ? 1 : 14);
        check_parts(run, 20000, is_matrix ? 1 : 8);
        check_parts(run, (int64_t)1 << 30, 1);
        lathe_run_close(run);
        OK(lathe_dir_remove(dir));
    }
}

/* Larger than one part on the host: weights and metrics equal those of one part, which the far
 * device has. */
Test(widen, of_a_model_of_several_parts_trains_as_in_one)
{
    static const char *const more[] = {"train.grad_dtype=bf16", "model.hidden_size=512", NULL};
    char dir[] = "/tmp/lathe_widen_XXXXXX";
    make_folder(dir, 20000);
    lathe_run *run = open_case(dir, more);
    lathe_step_result step = {.size = sizeof step};
    micro_batch(run);
    micro_batch(run);
    OK(lathe_step(run, &step));
    cr_assert_eq(step.skipped, 0);
    double change = 0.0;
    lathe_run *fresh = open_case(dir, more);
    micro_batch(fresh); /* fills its weights */
    for (int32_t i = 0; i < run->params.n; i++) {
        const float *now = lathe_store_master(&run->store, i);
        const float *was = lathe_store_master(&fresh->store, i);
        int64_t same = 0, n = lathe_desc_count(&run->params.rows[i]->desc);
        for (int64_t e = 0; e < n; e++) {
            same += now[e] == was[e];
            change += ((double)now[e] - (double)was[e]) * ((double)now[e] - (double)was[e]);
        }
        cr_assert(run->params.rows[i]->layer < 0 || same < n / 10, "%s: %lld of %lld stayed",
                  run->params.rows[i]->name, (long long)same, (long long)n);
    }
    cr_assert_float_eq(sqrt(change), run->opt.update_norm, 1e-6 * run->opt.update_norm);
    lathe_run_close(run);
    lathe_run_close(fresh);
    OK(lathe_dir_remove(dir));
}

/* Mean of the last ten losses of 60 steps of four micro-batches. */
static double last_losses(const char *dir, const char *grad_dtype)
{
    char set_dtype[64];
    snprintf(set_dtype, sizeof set_dtype, "train.grad_dtype=%s", grad_dtype);
    const char *const more[] = {set_dtype, "train.max_steps=60", "optimizer.lr=3e-3", NULL};
    lathe_run *run = open_case(dir, more);
    double sum = 0.0;
    for (int k = 0; k < 60; k++) {
        lathe_step_result step = {.size = sizeof step};
        for (int m = 0; m < 4; m++)
            micro_batch(run);
        OK(lathe_step(run, &step));
        sum += k >= 50 ? step.loss / 10.0 : 0.0;
    }
    lathe_run_close(run);
    return sum;
}

Test(widen, a_model_learns_as_with_gradients_in_f32)
{
    char dir[] = "/tmp/lathe_widen_XXXXXX";
    make_folder(dir, 20000);
    const double wide = last_losses(dir, "fp32"), narrow = last_losses(dir, "bf16");
    cr_assert_lt(wide, 3.0); /* of 5.77 at random */
    cr_assert_float_eq(narrow, wide, 0.01 * wide, "%g, in f32 %g", narrow, wide);
    OK(lathe_dir_remove(dir));
}

Test(widen, goes_with_bf16_and_fp8_alone)
{
    static const char *const precisions[] = {"fp32", "fp16"};
    for (int k = 0; k < 2; k++) {
        char dir[] = "/tmp/lathe_widen_XXXXXX", want[160];
        lathe_run *run = NULL;
        settings s = {.n = 0};
        const char *const more[] = {"train.grad_dtype=bf16", NULL};
        make_folder(dir, 2000);
        set_case(&s, dir, more);
        set(&s, "train.precision=%s", precisions[k]);
        snprintf(
            want, sizeof want,
            "train.grad_dtype = \"bf16\" needs train.precision = \"bf16\" or \"fp8\", not \"%s\"",
            precisions[k]);
        cr_assert_neq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_OK);
        cr_expect(strstr(lathe_error_message(), want), "%s", lathe_error_message());
        OK(lathe_dir_remove(dir));
    }
}
