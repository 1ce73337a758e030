/* Several adapters over one base: one copy of its weights is in memory. */
#include "support/run_case.h"

#include "run/folder/named_open.h"

#define ADAPTERS LATHE_TEST_DATA "/golden/data/adapters/"

static lathe_run *open_named(const char *const *folders, int32_t n)
{
    static const lathe_override list[] = {{"model.path", MODELS "llama_untied"},
                                          {"tokenizer.path", "bytes"},
                                          {"train.precision", "fp32"},
                                          {"data.seq_len", "20"}};
    lathe_named_adapters *named = NULL;
    lathe_run *run = NULL;
    OK(lathe__named_adapters_create(n, &named));
    for (int32_t i = 0; i < n; i++) {
        char name[16], dir[512];
        (void)snprintf(name, sizeof name, "a%d", i);
        (void)snprintf(dir, sizeof dir, ADAPTERS "%s", folders[i]);
        OK(lathe__named_adapters_add(named, name, dir));
    }
    lathe_edits options = {.n = 0};
    lathe_edits_options(&options, list, 4);
    OK(lathe_run_open_named(&(lathe_run_source){.edits = &options}, named, &run));
    lathe_edits_fini(&options);
    return run;
}

static int64_t weight_bytes(const lathe_run *run)
{
    lathe_mem_bytes bytes = {0};
    int64_t sum = 0;
    lathe_store_bytes(&run->store, &bytes);
    for (int i = 0; i < LATHE_N_MEM; i++)
        sum += bytes.by[i];
    return sum;
}

/* Elements of all tensors of an adapter's file. */
static int64_t file_elements(const char *folder)
{
    char path[512];
    lathe_safetensors *set = NULL;
    int64_t n = 0;
    (void)snprintf(path, sizeof path, ADAPTERS "%s/adapter_model.safetensors", folder);
    OK(lathe_safetensors_open(path, &set));
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++)
        n += lathe_desc_count(&lathe_safetensors_at(set, i)->desc);
    lathe_safetensors_close(set);
    return n;
}

Test(named_adapters, share_one_copy_of_the_base)
{
    static const char *const folders[] = {"merge_a", "merge_b", "merge_c"};
    int64_t elements = 0;
    lathe_run *run = open_named(folders, 0);
    const int64_t base = weight_bytes(run);
    lathe_run_close(run);
    for (int i = 0; i < 3; i++)
        elements += file_elements(folders[i]);
    run = open_named(folders, 3);
    /* fp32, and each tensor padded to at most 256 bytes */
    const int64_t more = weight_bytes(run) - base, rows = run->params.n - run->params.n_model;
    cr_expect_geq(more, 4 * elements);
    cr_expect_leq(more, 4 * elements + 256 * rows, "%lld bytes for %lld elements in %lld rows",
                  (long long)more, (long long)elements, (long long)rows);
    cr_expect_lt(more, base, "the base is %lld bytes", (long long)base);
    lathe_run_close(run);
}

/* Logits of one prompt, by the log-probabilities of what is generated, change with the adapter and
 * come back. */
static void generate(lathe_run *run, int32_t index, float *out)
{
    const int32_t ids[] = {5, 6, 7};
    const lathe_prompt prompt = {
        .size = (uint32_t)sizeof prompt, .tokens = ids, .n_tokens = 3, .seed = 1};
    lathe_sampling sampling = {.size = (uint32_t)sizeof sampling};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    OK(lathe_default_sampling(run, &sampling));
    sampling.max_new_tokens = 4;
    sampling.stop_at_eos = 0;
    lathe__named_adapters_use(run, index);
    OK(lathe_generate_many(run, &prompt, 1, &sampling, &made));
    cr_assert_eq(made.n_tokens, 4);
    memcpy(out, made.logprobs, 4 * sizeof *out);
}

Test(named_adapters, change_the_model_while_they_are_used_and_leave_no_trace)
{
    static const char *const folders[] = {"merge_a", "outer_untied"};
    float base[4], one[4], two[4], again[4];
    lathe_run *run = open_named(folders, 2);
    generate(run, -1, base);
    generate(run, 0, one);
    generate(run, 1, two);
    cr_expect_neq(memcmp(base, one, sizeof base), 0);
    cr_expect_neq(memcmp(base, two, sizeof base), 0);
    cr_expect_neq(memcmp(one, two, sizeof base), 0);
    generate(run, 0, again);
    cr_expect_arr_eq(one, again, sizeof one);
    generate(run, -1, again);
    cr_expect_arr_eq(base, again, sizeof base);
    lathe_run_close(run);
}
