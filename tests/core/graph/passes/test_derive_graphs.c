/* Gradients of whole graphs: repeatable, accumulated, seeded; and graphs that the derivative
 * refuses. */
#include "support/graph_fixture.h"

/* A small network in which values are shared in every way. */
static lathe_val network(fixture *f)
{
    static const int32_t ids[] = {3, 1, 1, 4};
    const lathe_op_attrs norm = {.eps = 1e-5f};
    const lathe_val w = fixture_matrix(f, "w", 6, 4);
    lathe_val x = fixture_binary(f, LATHE_OP_EMBED, fixture_ids(f, ids, 4), w);
    for (int layer = 0; layer < 2; layer++) {
        const lathe_val gain = fixture_vector(f, layer ? "gain1" : "gain0", 4);
        const lathe_val up = fixture_matrix(f, layer ? "up1" : "up0", 8, 4);
        const lathe_val down = fixture_matrix(f, layer ? "down1" : "down0", 4, 8);
        lathe_graph_set_layer(f->g, layer, LATHE_BLOCK_MLP);
        lathe_val h = fixture_node(f, LATHE_OP_RMSNORM, &norm, x, gain, LATHE_NONE);
        h = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_linear(f, h, up, LATHE_NONE));
        x = fixture_binary(f, LATHE_OP_ADD, x, fixture_linear(f, h, down, LATHE_NONE));
    }
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    return fixture_head(f, x, w, 0.0f);
}

Test(derive, gradients_are_the_same_bits_from_run_to_run)
{
    fixture a, b;
    fixture_open(&a, LATHE_F32);
    fixture_finish(&a, fixture_loss(&a, network(&a)));
    fixture_open(&b, LATHE_F32);
    fixture_finish(&b, fixture_loss(&b, network(&b)));
    cr_assert_eq(fixture_run(&a, 0), fixture_run(&b, 0));
    for (int32_t p = 0; p < a.params.n; p++) {
        float *first = fixture_gradient(&a, p), *other = fixture_gradient(&b, p);
        const int64_t bytes = lathe_desc_bytes(&a.params.rows[p]->desc);
        cr_expect_eq(memcmp(first, other, (size_t)bytes), 0, "%s: two graphs",
                     a.params.rows[p]->name);
        fixture_poison(&a, lathe_store_grad(&a.store, p), bytes); /* must be overwritten */
        fixture_run(&a, 0);
        float *again = fixture_gradient(&a, p);
        cr_expect_eq(memcmp(first, again, (size_t)bytes), 0, "%s: two runs",
                     a.params.rows[p]->name);
        free(first);
        free(other);
        free(again);
    }
    fixture_close(&a);
    fixture_close(&b);
}

/* 2g is exact in f32, so a run added to itself differs only where several writers round in between:
 * by at most half a unit in the last place each. */
Test(derive, an_accumulating_run_adds_to_the_existing_values)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    fixture_finish(&f, fixture_loss(&f, network(&f)));
    fixture_run(&f, 0);
    for (int32_t p = 0; p < f.params.n; p++) {
        const int64_t n = lathe_desc_count(&f.params.rows[p]->desc);
        fixture_run(&f, 0);
        float *once = fixture_gradient(&f, p);
        fixture_run(&f, 1);
        float *twice = fixture_gradient(&f, p);
        double scale = 0.0;
        for (int64_t i = 0; i < n; i++)
            scale = fmax(scale, fabs(2.0 * (double)once[i]));
        for (int64_t i = 0; i < n; i++)
            cr_expect(fabs((double)twice[i] - 2.0 * (double)once[i]) <= 0x1p-22 * scale,
                      "%s[%lld]: %.9g after two runs, %.9g after one", f.params.rows[p]->name,
                      (long long)i, (double)twice[i], (double)once[i]);
        free(once);
        free(twice);
    }
    fixture_close(&f);
}

/* y = x * c: with one writer, the second run adds exactly once per element. */
Test(derive, one_writer_accumulates_exactly)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val x = fixture_matrix(&f, "x", 7, 9);
    fixture_finish(&f, fixture_loss(&f, x));
    fixture_run(&f, 0);
    float *once = fixture_gradient(&f, 0);
    for (int run = 2; run <= 4; run++) {
        fixture_run(&f, 1);
        float *sum = fixture_gradient(&f, 0);
        for (int i = 0; i < 63 && run != 3; i++) /* 3g is not always exact */
            cr_assert_eq(sum[i], (float)run * once[i]);
        free(sum);
    }
    free(once);
    fixture_close(&f);
}

Test(derive, the_seed_scales_every_gradient)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    fixture_finish(&f, fixture_loss(&f, network(&f)));
    fixture_run(&f, 0);
    float *once = fixture_gradient(&f, 0);
    const float large = 1024.0f; /* a power of two: exact */
    fixture_put(&f, lathe_exec_data(f.exec, f.seed), &large, (int64_t)sizeof large);
    fixture_run(&f, 0);
    float *more = fixture_gradient(&f, 0);
    for (int i = 0; i < 24; i++)
        cr_assert_eq(more[i], 1024.0f * once[i]);
    free(once);
    free(more);
    fixture_close(&f);
}

Test(derive, a_tied_parameter_is_written_once_and_then_added_to)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    OK(fixture_derive(&f, fixture_loss(&f, network(&f))));
    int seen = 0;
    for (int32_t i = 0; i < f.g->n_nodes; i++)
        for (int32_t k = 0; k < f.g->nodes[i].n_out; k++) {
            const lathe_val v = f.g->nodes[i].out[k];
            if (v == LATHE_NONE || f.g->values[v].kind != LATHE_VALUE_GRAD ||
                f.g->values[v].param != 0)
                continue;
            cr_expect_eq(f.g->nodes[i].write[k], seen ? LATHE_WRITE_ADD : LATHE_WRITE_RUNTIME);
            seen++;
        }
    cr_expect_eq(seen, 2, "embedding and head");
    fixture_close(&f);
}

Test(derive, rounding_in_the_middle_passes_the_gradient_through)
{
    const lathe_op_attrs down = {.dtype = LATHE_BF16};
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val x = fixture_vector(&f, "x", 5);
    const lathe_val y = fixture_node(&f, LATHE_OP_CAST, &down, x, LATHE_NONE, LATHE_NONE);
    fixture_finish(&f, fixture_unary(&f, LATHE_OP_SUM, fixture_f32(&f, y)));
    fixture_run(&f, 0);
    float *got = fixture_gradient(&f, 0);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(got[i], 1.0f);
    free(got);
    fixture_close(&f);
}

/* ---- refusals ---- */

static void refused(fixture *f, lathe_val loss, lathe_status code, const char *part)
{
    cr_expect_eq(fixture_derive(f, loss), code);
    cr_expect_not_null(strstr(lathe_error_message(), part), "%s", lathe_error_message());
    fixture_close(f);
}

Test(derive, an_op_without_derivative_is_refused_by_name)
{
    const lathe_op_attrs attrs = {.dtype = LATHE_F32, .eps = 1e-6f};
    fixture f;
    lathe_val y;
    fixture_open(&f, LATHE_F32);
    const lathe_val x = fixture_vector(&f, "x", 4);
    OK(lathe_graph_node(f.g, LATHE_OP_L2_NORMALIZE, &attrs, &x, 1, &y, 1, -1, "my direction"));
    refused(&f, fixture_loss(&f, y), LATHE_E_UNSUPPORTED,
            "l2_normalize 'my direction' has no derivative");
}

Test(derive, a_factor_that_trains_is_refused)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val s = fixture_vector(&f, "s", 1),
                    x = fixture_const(&f, (lathe_desc){0, 1, {4, 1, 1, 1}});
    refused(&f, fixture_loss(&f, fixture_binary(&f, LATHE_OP_SCALE_BY, x, s)), LATHE_E_UNSUPPORTED,
            "no derivative for its input 1");
}

Test(derive, a_loss_on_statistics_is_refused)
{
    const lathe_op_attrs attrs = {.eps = 1e-5f};
    fixture f;
    lathe_val out[2];
    fixture_open(&f, LATHE_F32);
    const lathe_val in[2] = {fixture_matrix(&f, "x", 3, 4), fixture_vector(&f, "w", 4)};
    OK(lathe_graph_node(f.g, LATHE_OP_RMSNORM, &attrs, in, 2, out, 2, -1, "norm"));
    refused(&f, fixture_loss(&f, out[1]), LATHE_E_UNSUPPORTED, "rmsnorm 'norm'");
}

Test(derive, a_cache_has_no_derivative)
{
    static const int32_t length[] = {3, 3};
    const lathe_op_attrs attrs = {.n_heads = 2, .n_kv_heads = 2, .causal = 1};
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val in[5] = {fixture_matrix(&f, "q", 6, 8), fixture_matrix(&f, "k", 6, 8),
                             fixture_matrix(&f, "v", 6, 8), LATHE_NONE, fixture_ids(&f, length, 2)};
    refused(&f, fixture_loss(&f, fixture_attention(&f, attrs, in)), LATHE_E_UNSUPPORTED,
            "KV cache");
}

Test(derive, a_loss_that_nothing_trainable_reaches_is_refused)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val frozen = fixture_param(&f, "frozen", 3, 4, 0);
    (void)fixture_matrix(&f, "elsewhere", 3, 4);
    refused(&f, fixture_loss(&f, frozen), LATHE_E_CONFIG,
            "no trainable parameter reaches the loss");
}

Test(derive, a_loss_that_depends_only_on_detached_values_is_refused)
{
    fixture f;
    lathe_val cut;
    fixture_open(&f, LATHE_F32);
    OK(lathe_graph_api_get()->detach(f.g, fixture_matrix(&f, "x", 3, 4), &cut));
    refused(&f, fixture_loss(&f, cut), LATHE_E_CONFIG, "no trainable parameter reaches the loss");
}

Test(derive, a_loss_that_is_no_scalar_is_refused)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    refused(&f, fixture_matrix(&f, "x", 3, 4), LATHE_E_SHAPE, "must be scalars");
}
