/* Experts as sites of adapters and as weights in files: who takes them, who refuses them, and that
 * what is saved has a tensor for each. */
#include <unistd.h>

#include "lathe/lathe.h"
#include "support/run_case.h"

static const char *const common[] = {"data.seq_len=16", "train.micro_batch_size=2",
                                     "train.precision=fp32", "train.max_steps=1"};
enum { N_COMMON = 4 };

/* Opens olmoe, whose experts have a gate_proj, an up_proj and a down_proj, with more settings. */
static lathe_status open_olmoe(const char *const *more, lathe_run **out)
{
    const char *settings[16] = {"model.path=" MODELS "olmoe"};
    int n = 1;
    for (int i = 0; i < N_COMMON; i++)
        settings[n++] = common[i];
    while (*more)
        settings[n++] = *more++;
    settings[n] = NULL;
    return open_run_status(LATHE_OPEN_BATCHES, settings, out);
}

static int count_expert_rows(const lathe_run *run, int *out_routers)
{
    int n = 0;
    *out_routers = 0;
    for (int32_t i = run->params.n_model; i < run->params.n; i++) {
        n += run->params.rows[i]->n_experts > 0;
        *out_routers += strstr(run->params.rows[i]->name, "mlp.gate.") != NULL;
    }
    return n;
}

Test(expert_sites, all_linear_takes_no_experts_and_a_name_takes_them)
{
    static const char *const all[] = {"adapter.name=lora", "adapter.r=2", NULL};
    static const char *const named[] = {"adapter.name=lora", "adapter.r=2",
                                        "adapter.target_modules=[\"q_proj\", \"up_proj\"]", NULL};
    lathe_run *run = NULL;
    int routers;
    OK(open_olmoe(all, &run));
    cr_expect_eq(count_expert_rows(run, &routers), 0);
    cr_expect_eq(routers, 0);
    lathe_run_close(run);
    OK(open_olmoe(named, &run));
    cr_expect_eq(count_expert_rows(run, &routers), 2 * 2, "A and B of up_proj in two layers");
    const int32_t a =
        lathe_params_find(&run->params, "model.layers.1.mlp.experts.up_proj.lora_A.weight");
    cr_assert(a >= 0);
    cr_expect_eq(run->params.rows[a]->desc.dims[0], 6 * 2);
    cr_expect_eq(run->params.rows[a]->desc.dims[1], 32);
    lathe_run_close(run);
}

Test(expert_sites, adapters_that_compute_with_the_matrices_are_refused)
{
    static const char *const kinds[][3] = {
        {"adapter.name=dora", "adapter.r=2", ""},
        {"adapter.name=oft", "adapter.block_size=4", ""},
        {"adapter.name=lora", "adapter.r=2", "adapter.init=pissa"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *settings[] = {kinds[i][0], kinds[i][1],
                                  "adapter.target_modules=[\"down_proj\"]",
                                  kinds[i][2][0] ? kinds[i][2] : NULL, NULL};
        lathe_run *run = NULL;
        cr_expect_neq(open_olmoe(settings, &run), LATHE_OK, "%s", kinds[i][0]);
        cr_expect(strstr(lathe_error_message(), "experts"), "%s: %s", kinds[i][0],
                  lathe_error_message());
        lathe_run_close(run);
        lathe_error_clear();
    }
}

Test(expert_sites, a_saved_model_has_the_tensors_of_the_folder_bit_for_bit)
{
    static const char *const none[] = {NULL};
    char dir[] = "/tmp/lathe-expert-sites-XXXXXX", path[128];
    lathe_run *run = NULL;
    lathe_safetensors *saved = NULL, *base = NULL;
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/saved", dir);
    OK(open_olmoe(none, &run));
    OK(lathe_save(run, path));
    lathe_run_close(run);
    OK(lathe_safetensors_open(path, &saved));
    OK(lathe_safetensors_open(MODELS "olmoe", &base));
    cr_assert_eq(lathe_safetensors_count(saved), lathe_safetensors_count(base));
    for (int64_t i = 0; i < lathe_safetensors_count(base); i++) {
        const lathe_st_tensor *want = lathe_safetensors_at(base, i);
        const lathe_st_tensor *got = lathe_safetensors_at(saved, i);
        cr_assert_str_eq(got->name, want->name);
        cr_assert_eq(memcmp(&got->desc, &want->desc, sizeof got->desc), 0, "%s", got->name);
        cr_assert_eq(memcmp(got->data, want->data, (size_t)lathe_desc_bytes(&got->desc)), 0, "%s",
                     got->name);
    }
    lathe_safetensors_close(saved);
    lathe_safetensors_close(base);
}
