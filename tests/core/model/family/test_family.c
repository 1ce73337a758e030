/* Parameter lists compared with transformers' named_parameters, and sizes derived from them. */
#include "golden_model.h"
#include "model/family/model_build.h"
#include "model/family/model_size.h"
#include "support/golden_folders.h"

Test(family, parameters_are_those_of_transformers)
{
    golden_folders all;
    golden_folders_find(&all);
    for (int m = 0; m < all.n; m++) {
        golden g;
        golden_open(&g, all.names[m]);
        int64_t gradients = 0, n = 0;
        for (int64_t i = 0; i < lathe_safetensors_count(g.golden); i++)
            gradients += strncmp(lathe_safetensors_at(g.golden, i)->name, "grad.", 5) == 0;
        for (int32_t i = 0; i < g.params.n; i++)
            n += g.params.rows[i]->role != LATHE_ROLE_BUFFER;
        cr_assert_eq(n, gradients, "%s: %lld parameters, %lld gradients", all.names[m],
                     (long long)n, (long long)gradients);
        for (int32_t i = 0; i < g.params.n; i++) {
            const lathe_param *row = g.params.rows[i];
            char key[300];
            if (row->role == LATHE_ROLE_BUFFER)
                continue;
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

/* The head size of a model without head_dim, of width 512 with 2 heads, and what `lathe show` says
 * about it. */
Test(family, unset_head_size_is_the_one_that_its_description_names)
{
    static const struct {
        const char *type, *says; /* says: default or description */
        int head_dim;
    } cases[] = {{"llama", "unset: hidden_size / num_attention_heads", 256},
                 {"mistral", "unset: hidden_size / num_attention_heads", 256},
                 {"phi3", "unset: hidden_size / num_attention_heads", 256},
                 {"olmo2", "unset: hidden_size / num_attention_heads", 256},
                 {"qwen2", "hidden_size / num_attention_heads in qwen2", 256},
                 {"qwen3", "unset: 128 in qwen3", 128},
                 {"gemma2", "256", 256},
                 {"gemma3_text", "256", 256}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        lathe_model_config c;
        const int wide = cases[i].says[0] == '2' ? 1024 : 512; /* so that a quotient would show */
        snprintf(
            text, sizeof text,
            "{\"model_type\":\"%s\",\"vocab_size\":64,\"hidden_size\":%d,\"intermediate_size\":"
            "64,\"num_hidden_layers\":1,\"num_attention_heads\":2}",
            cases[i].type, wide);
        OK(lathe_model_config_parse(family_source(), cases[i].type, text, (int64_t)strlen(text), 0,
                                    &c));
        cr_expect_eq(c.head_dim, cases[i].head_dim, "%s: %d", cases[i].type, (int)c.head_dim);
        const lathe_field *f = NULL;
        const lathe_plugin *family = c.family.component->plugin;
        for (int32_t k = 0; k < family->n_fields; k++)
            f = strcmp(family->fields[k].key, "head_dim") == 0 ? &family->fields[k] : f;
        cr_assert_not_null(f);
        cr_expect(strstr(f->default_value ? f->default_value : f->doc, cases[i].says), "%s: %s",
                  cases[i].type, f->doc);
        lathe_model_config_fini(&c);
    }
}
