/* A reward model beside a run: scores as transformers gives them, memory as planned, bad folders
 * refused. Goldens: tests/golden/reward.py. */
#include "base/fs.h"
#include "run/parts/reward_model.h"
#include "support/golden_folders.h"
#include "support/small_run.h"

#define REWARD LATHE_TEST_DATA "/golden/data/reward/"

enum { ROWS = 6, T = 12, PAD = 0 };

/* A run of another model, of the same vocabulary. */
static lathe_run *open_policy(const char *precision)
{
    static char chosen[64];
    snprintf(chosen, sizeof chosen, "train.precision=%s", precision);
    static const char *values[] = {"model.model_type=llama",
                                   "model.vocab_size=96",
                                   "model.hidden_size=48",
                                   "model.intermediate_size=96",
                                   "model.num_hidden_layers=2",
                                   "model.num_attention_heads=4",
                                   "model.max_position_embeddings=64",
                                   "data.seq_len=32",
                                   "train.micro_batch_size=8",
                                   "train.max_steps=4",
                                   chosen,
                                   NULL};
    return open_run(LATHE_OPEN_BATCHES, values);
}

static int64_t held(const lathe_run *run)
{
    return lathe_mem_total(&run->machine.used);
}

/* The rows of the golden without their padding. */
static void sequences_of(const lathe_safetensors *golden, lathe_scored *out)
{
    const int32_t *ids = lathe_safetensors_find(golden, "input_ids")->data;
    for (int r = 0; r < ROWS; r++) {
        out[r] = (lathe_scored){ids + r * T, T};
        while (out[r].n_tokens > 1 && out[r].tokens[out[r].n_tokens - 1] == PAD)
            out[r].n_tokens--;
    }
}

static lathe_run *open_with_reward(int32_t n_rows)
{
    lathe_run *run = open_policy("fp32");
    const int64_t arena = run->programs.arena_bytes, before = held(run);
    const int64_t planned = lathe_mem_total(&run->planned);
    OK(lathe__reward_plan(run, "model", "path", REWARD "llama", n_rows, T));
    cr_assert_eq(run->programs.arena_bytes, arena, "the training's arena is large enough here");
    OK(lathe__reward_place(run));
    cr_expect_eq(held(run) - before, lathe_mem_total(&run->planned) - planned,
                 "the plan says %lld bytes, and %lld are held",
                 (long long)(lathe_mem_total(&run->planned) - planned),
                 (long long)(held(run) - before));
    cr_expect_gt(run->machine.used.by[LATHE_MEM_MODELS], 0);
    return run;
}

Test(reward_model, scores_are_those_of_transformers_in_the_memory_that_was_planned)
{
    lathe_safetensors *golden = NULL;
    lathe_scored sequences[ROWS];
    double scores[ROWS];
    float got[ROWS];
    OK(lathe_safetensors_open(REWARD "golden.safetensors", &golden));
    sequences_of(golden, sequences);
    lathe_run *run = open_with_reward(4); /* the second batch is not full */
    OK(lathe__reward_score(run, sequences, ROWS, scores));
    for (int r = 0; r < ROWS; r++)
        got[r] = (float)scores[r];
    compare("scores", got, lathe_safetensors_find(golden, "scores")->data, ROWS, 1e-5);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

Test(reward_model, a_score_does_not_depend_on_the_other_sequences)
{
    lathe_safetensors *golden = NULL;
    lathe_scored sequences[ROWS];
    double scores[ROWS], alone;
    OK(lathe_safetensors_open(REWARD "golden.safetensors", &golden));
    sequences_of(golden, sequences);
    lathe_run *run = open_with_reward(4);
    OK(lathe__reward_score(run, sequences, ROWS, scores));
    for (int r = 0; r < ROWS; r++) {
        OK(lathe__reward_score(run, &sequences[r], 1, &alone));
        cr_expect_eq(alone, scores[r], "sequence %d: %.9g alone, %.9g with the others", r, alone,
                     scores[r]);
    }
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

Test(reward_model, a_sequence_that_it_cannot_read_is_refused_by_its_number)
{
    static const int32_t tokens[T + 1] = {3, 4, 96};
    const lathe_scored foreign[2] = {{tokens, 2}, {tokens, 3}}, empty = {tokens, 0},
                       longer = {tokens, T + 1};
    static const char *const outside[] = {"sequence 1", "token 96", "vocabulary of 96", NULL};
    static const char *const length[] = {"has 13 tokens", "expected 1 to 12", NULL};
    double scores[2];
    lathe_run *run = open_with_reward(4);
    cr_expect_eq(lathe__reward_score(run, foreign, 2, scores), LATHE_E_ARG);
    expect_parts(outside);
    cr_expect_eq(lathe__reward_score(run, &empty, 1, scores), LATHE_E_ARG);
    cr_expect_eq(lathe__reward_score(run, &longer, 1, scores), LATHE_E_ARG);
    expect_parts(length);
    lathe_run_close(run);
}

Test(reward_model, a_language_model_is_no_reward_model)
{
    static const char *const parts[] = {"is no reward model", "ForSequenceClassification", NULL};
    lathe_run *run = open_policy("fp32");
    cr_expect_eq(lathe__reward_plan(run, "model", "path", MODELS "llama_tied", 4, T),
                 LATHE_E_CONFIG);
    expect_parts(parts);
    lathe_run_close(run);
}

Test(reward_model, one_of_fewer_positions_than_the_sequences_is_refused)
{
    static const char *const parts[] = {"64 positions", "sequences of 65 tokens", NULL};
    lathe_run *run = open_policy("fp32");
    cr_expect_eq(lathe__reward_plan(run, "model", "path", REWARD "llama", 4, 65), LATHE_E_CONFIG);
    expect_parts(parts);
    lathe_run_close(run);
}

/* It was valid before, and ended the run at the first token that it does not know. */
Test(reward_model, one_of_fewer_tokens_than_the_policy_is_refused)
{
    static const char *values[] = {"model.model_type=llama",
                                   "model.vocab_size=128",
                                   "model.hidden_size=48",
                                   "model.intermediate_size=96",
                                   "model.num_hidden_layers=1",
                                   "model.num_attention_heads=4",
                                   "model.max_position_embeddings=64",
                                   "data.seq_len=32",
                                   "train.micro_batch_size=8",
                                   "train.max_steps=4",
                                   NULL};
    static const char *const parts[] = {"the reward model has a vocabulary of 96 tokens",
                                        "the model one of 128", NULL};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, values);
    cr_expect_eq(lathe__reward_plan(run, "model", "path", REWARD "llama", 4, T), LATHE_E_CONFIG);
    expect_parts(parts);
    cr_expect_eq(lathe__reward_vocab(run), 96);
    lathe_run_close(run);
}
