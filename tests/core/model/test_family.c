/* Parameter lists compared with transformers' named_parameters, and sizes derived from them. */
#include "golden_model.h"
#include "model/model_build.h"
#include "model/model_size.h"
#include "support/golden_folders.h"

Test(family, parameters_are_those_of_transformers)
{
    golden_folders all;
    golden_folders_find(&all);
    for (int m = 0; m < all.n; m++) {
        golden g;
        golden_open(&g, all.names[m]);
        int64_t gradients = 0;
        for (int64_t i = 0; i < lathe_safetensors_count(g.golden); i++)
            gradients += strncmp(lathe_safetensors_at(g.golden, i)->name, "grad.", 5) == 0;
        cr_assert_eq(g.params.n, gradients, "%s: %d parameters, %lld gradients", all.names[m],
                     g.params.n, (long long)gradients);
        for (int32_t i = 0; i < g.params.n; i++) {
            const lathe_param *row = g.params.rows[i];
            char key[300];
            snprintf(key, sizeof key, "grad.%s", row->name);
            const lathe_st_tensor *t = lathe_safetensors_find(g.golden, key);
            cr_assert_not_null(t, "%s: transformers has no %s", all.names[m], row->name);
            cr_assert_eq(t->desc.rank, row->desc.rank);
            for (int32_t d = 0; d < t->desc.rank; d++)
                cr_assert_eq(t->desc.dims[row->transposed ? 1 - d : d], row->desc.dims[d], "%s",
                             row->name);
        }
        golden_close(&g);
    }
}

Test(family, roles_layers_and_starts)
{
    golden g;
    golden_open(&g, "gpt2");
    const lathe_params *p = &g.params;
    cr_assert_eq(p->rows[lathe_params_find(p, "transformer.h.1.attn.c_attn.weight")]->head_rows,
                 g.config.head_dim);
    const lathe_param *proj = p->rows[lathe_params_find(p, "transformer.h.1.mlp.c_proj.weight")];
    cr_assert_eq(proj->head_rows, 0);
    cr_assert(proj->role == LATHE_ROLE_MATRIX && proj->layer == 1 && proj->transposed == 1);
    cr_assert_float_eq(proj->init_scale, 0.02 / 2.0, 1e-15); /* by hand: sqrt(2 * 2 layers) = 2 */
    cr_assert(proj->desc.dims[0] == 32 && proj->desc.dims[1] == 128);
    cr_assert_eq(p->rows[lathe_params_find(p, "transformer.wpe.weight")]->role,
                 LATHE_ROLE_EMBEDDING);
    cr_assert_eq(p->rows[lathe_params_find(p, "transformer.h.0.attn.c_attn.bias")]->role,
                 LATHE_ROLE_BIAS);
    const lathe_param *norm = p->rows[lathe_params_find(p, "transformer.ln_f.weight")];
    cr_assert(norm->role == LATHE_ROLE_NORM && norm->init == LATHE_INIT_ONE && norm->layer == -1);
    cr_assert_str_eq(lathe_model_head_name(&g.config), "transformer.wte.weight");
    golden_close(&g);
    golden_open(&g, "llama_untied");
    cr_assert_eq(g.params.rows[lathe_params_find(&g.params, "lm_head.weight")]->role,
                 LATHE_ROLE_HEAD);
    cr_assert_str_eq(lathe_model_head_name(&g.config), "lm_head.weight");
    golden_close(&g);
}

Test(family, sizes_of_gpt2_small_are_the_published_ones)
{
    static const char text[] = "{\"model_type\":\"gpt2\",\"vocab_size\":50257}";
    lathe_model_config c;
    OK(lathe_model_config_parse(family_source(), "gpt2", text, (int64_t)sizeof text - 1, 0, &c));
    lathe_params params;
    lathe_params_init(&params, LATHE_F32);
    OK(lathe_model_params(&c, &params));
    cr_assert_eq(lathe_model_n_params(&params), 124439808);                  /* transformers */
    cr_assert_eq(lathe_model_n_active(&c, &params), 124439808 - 1024 * 768); /* nanoGPT's 123.65M */
    /* nanoGPT estimate_mfu: 6N + 12 L H Q K at T = 1024, with the (T+1)/2 keys that a query sees
     * for K */
    cr_assert_float_eq(lathe_model_flops_per_token(&c, &params, 1024),
                       6.0 * 123653376 + 12.0 * 12 * 12 * 64 * 512.5, 1.0);
    lathe_params_fini(&params);
    lathe_model_config_fini(&c);
}
