/* Generation of many sequences at a time on a device with memory of its own, which computes with
 * the CPU's kernels: the KV cache in blocks, shared prompts and drafted tokens give the bits of the
 * CPU. The device has no op that draws, so the host draws from logits that are copied to it. */
#include "support/far_case.h"
#include "support/generate_case.h"

enum { N = MAX_PROMPTS };

static const lathe_sampling sampled = {.size = (uint32_t)sizeof sampled,
                                       .max_new_tokens = 10,
                                       .temperature = 0.9,
                                       .top_k = 20,
                                       .top_p = 0.95,
                                       .min_p = 0.01,
                                       .repetition_penalty = 1.1};

static void check(const char *model, const char *draft, const char *precision)
{
    static const int batches[][2] = {{1, 0}, {5, 160}, {16, 0}};
    lathe_generation want[N], got[N];
    lathe_run *cpu = open_with((opening){model, draft, precision, ON_CPU, 1, 0, 0, NULL});
    generate(cpu, &sampled, N, want);
    for (int where = ON_FAR; where < N_WHERE; where++)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            char what[128];
            lathe_run *run = open_with(
                (opening){model, draft, precision, where, batches[b][0], batches[b][1], 0, NULL});
            (void)snprintf(what, sizeof what, "%s, %s in %s, batch %d", where_names[where], model,
                           precision, batches[b][0]);
            generate(run, &sampled, N, got);
            expect_same(got, want, N, what);
            generate(run, &sampled, N, got); /* the cache has blocks of the first call */
            expect_same(got, want, N, what);
            /* except staging: the logits of drafted tokens are in ordinary memory */
            for (int32_t k = 0; draft && b == 0 && k < LATHE_N_MEM; k++)
                cr_expect(k == LATHE_MEM_STAGING || run->machine.used.by[k] == run->planned.by[k],
                          "%s", lathe_mem_name(k));
            lathe_run_close(run);
        }
    lathe_run_close(cpu);
}

Test(far_generate, many_sequences_have_the_bits_of_the_cpu)
{
    check("llama_untied", NULL, "fp32");
    check("gemma2", NULL, "fp32");
    check("qwen2_window", NULL, "bf16");
}

Test(far_generate, drafted_tokens_have_the_bits_of_the_cpu)
{
    check("llama_untied", "llama_tied", "fp32");
    check("llama_untied", "llama_tied", "bf16");
}

/* One prompt of 91 tokens in 12 sequences: 3 blocks, and one or two for each continuation. */
Test(far_generate, equal_prompts_share_blocks)
{
    enum { SAMPLES = 12 };
    lathe_prompt prompts[SAMPLES];
    lathe_generation made[SAMPLES];
    int32_t ids[91];
    settings s = {.n = 0};
    set_where(&s, ON_FAR);
    set(&s, "model.path=%sllama_untied", MODELS);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=128");
    set(&s, "train.max_steps=1");
    set(&s, "generate.batch=%d", SAMPLES);
    set(&s, "generate.cache_tokens=2000");
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    for (int i = 0; i < 91; i++)
        ids[i] = i * 5 % 60;
    for (int i = 0; i < SAMPLES; i++) {
        prompts[i] = (lathe_prompt){
            .size = (uint32_t)sizeof *prompts, .n_tokens = 91, .tokens = ids, .seed = (uint64_t)i};
        made[i] = (lathe_generation){.size = (uint32_t)sizeof *made};
    }
    OK(lathe_generate_many(run, prompts, SAMPLES, &sampled, made));
    const int32_t max = lathe_generator_max_blocks(run->generator);
    cr_expect(max >= 3 + SAMPLES && max <= 3 + 2 * SAMPLES, "%d blocks", max);
    lathe_run_close(run);
}

/* A step of several rows needs the cache in blocks, which attention on this device must read. */
Test(far_generate, a_draft_model_without_attention_in_blocks_is_refused)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    set_where(&s, ON_FAR);
    set(&s, "attention.name=reference"); /* runs on the CPU only */
    set(&s, "model.path=%sllama_untied", MODELS);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=64");
    set(&s, "generate.draft=%sllama_tied", MODELS);
    cr_expect_eq(open_run_status(LATHE_OPEN_INFER, s.list, &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "generate.draft: a draft model needs a device and an "
                                            "attention plugin that read and write keys in blocks"),
              "%s", lathe_error_message());
}
