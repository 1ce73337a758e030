/* A micro-batch of one rank is not finite: all ranks decide from numbers that they share, so none
 * waits in vain, and what is whole is saved. */
#include "ranks/rank_training.h"

#include <stdint.h>

TestSuite(bad_ranks, .init = setup, .fini = teardown, .timeout = 600);

enum { WIDTH = 32, VOCABULARY = 257 };

/* Overwrites n numbers of a tensor of a safetensors file, every `stride` numbers. */
static void put_numbers(FILE *f, const char *header, uint64_t header_bytes, const char *tensor,
                        int n, int stride, float value, int except, float other)
{
    const char *at = strstr(header, tensor);
    cr_assert_not_null(at, "%s", tensor);
    at = strstr(at, "\"data_offsets\":");
    cr_assert_not_null(at);
    const long begin = strtol(at + strcspn(at, "[") + 1, NULL, 10);
    for (int i = 0; i < n; i++) {
        const float *number = i == except ? &other : &value;
        cr_assert_eq(fseek(f, 8 + (long)header_bytes + begin + 4L * i * stride, SEEK_SET), 0);
        cr_assert_eq(fwrite(number, sizeof *number, 1, f), 1);
    }
}

/* Makes the model `base`: its weights are finite, and so is its loss, except in rows with the byte
 * '~'. Element 0 of each embedding is 0, that of '~' is not, and the first norm's weight of it is
 * so large that the product of two such vectors overflows in the first attention. */
static void make_base(void)
{
    static char header[1 << 16];
    char path[256], text[4096];
    uint64_t bytes = 0;
    cr_assert_eq(
        train(1, "first", "--data.validation_split 0 --train.eval_every 0 --train.max_steps 1"), 0,
        "%s", output);
    copy_folder("first/step-00000001", "base");
    (void)snprintf(path, sizeof path, "%s/base/manifest.json", root);
    cr_assert_eq(unlink(path), 0, "%s", path); /* it has the hash of the file before */
    (void)snprintf(path, sizeof path, "%s/base/model.safetensors", root);
    FILE *f = fopen(path, "r+");
    cr_assert_not_null(f, "%s", path);
    cr_assert_eq(fread(&bytes, sizeof bytes, 1, f), 1);
    cr_assert_lt(bytes, sizeof header);
    cr_assert_eq(fread(header, 1, (size_t)bytes, f), bytes);
    put_numbers(f, header, bytes, "\"model.embed_tokens.weight\"", VOCABULARY, WIDTH, 0.0f, '~',
                1e3f);
    put_numbers(f, header, bytes, "\"model.layers.0.input_layernorm.weight\"", 1, 1, 1e30f, -1,
                0.0f);
    cr_assert_eq(fclose(f), 0);
    (void)snprintf(text, sizeof text,
                   "[model]\npath = \"base\"\n[tokenizer]\npath = \"bytes\"\n"
                   "[adapter]\nname = \"lora\"\n%s",
                   strstr(settings, "[data]"));
    write_file("run.toml", text);
}

/* Lines of 32 bytes, a row each. is_bad: whether line i has a '~'. */
static void write_lines(int (*is_bad)(int i))
{
    char text[40000];
    size_t n = 0;
    for (int i = 0; n + 40 < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "line %6d of the text %c%6s\n", i,
                              is_bad(i) ? '~' : '.', "");
    write_file("text.txt", text);
}

#define COMMON                                                                                     \
    "--data.validation_split 0 --train.eval_every 0 --data.shuffle false "                         \
    "--train.micro_batch_size 2 --train.gradient_accumulation_steps 2 "

/* With two ranks, a step reads the lines 8k to 8k+7: rank 0 the first two of four. Step 6 is bad on
 * one rank, in its second micro-batch. */
static int of_rank_0(int i)
{
    return i == 8 * 5 + 4;
}

static int of_rank_1(int i)
{
    return i == 8 * 5 + 7;
}

static int has(const char *text)
{
    return strstr(output, text) != NULL;
}

/* The run ends with the reason that the rank itself has found, and a checkpoint of the step before,
 * whatever ranks divide. */
Test(bad_ranks, a_bad_micro_batch_of_one_rank_stops_all)
{
    static const char *const shards[] = {"none", "optimizer", "gradients", "parameters"};
    static int (*const bad[])(int i) = {of_rank_0, of_rank_1};
    make_base();
    for (int r = 0; r < 2; r++) {
        write_lines(bad[r]);
        for (int s = 0; s < 4; s++) {
            char words[512], what[128];
            (void)snprintf(words, sizeof words,
                           COMMON "--train.on_nonfinite stop --parallel.shard %s", shards[s]);
            (void)snprintf(what, sizeof what, "rm -rf %s/out", root);
            cr_assert_eq(system(what), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
            cr_expect_eq(train(2, "out", words), 1, "%s", output);
            (void)snprintf(
                what, sizeof what,
                "step 6, micro-batch 2 of rank %d: the loss is nan; first in micro-batch "
                "2: output 0 of node",
                r);
            cr_expect(has(what), "%s, rank %d: %s", shards[s], r, output);
            cr_expect(has("checkpoint out/step-00000005, before the run ends with an error"),
                      "%s, rank %d: %s", shards[s], r, output);
            cr_expect(!has("timed out") && !has("another rank holds") && !has("every tensor"),
                      "%s, rank %d: %s", shards[s], r, output);
        }
    }
}

/* Three ranks and "skip", beside on_spike: one step is left out, whatever ranks divide. */
Test(bad_ranks, a_bad_micro_batch_of_one_rank_leaves_out_the_step)
{
    make_base();
    write_lines(of_rank_1);
    static const char words[] =
        COMMON "--train.on_nonfinite skip --train.on_spike skip --train.spike_window 2 "
               "--train.spike_threshold 0.5 --parallel.shard ";
    static const char *const shards[] = {"none", "optimizer", "gradients", "parameters"};
    double none[MOST_STEPS + 1], parts[MOST_STEPS + 1];
    for (int s = 0; s < 4; s++) {
        char line[512];
        (void)snprintf(line, sizeof line, "%s%s", words, shards[s]);
        cr_assert_eq(train(3, shards[s], line), 0, "%s", output);
        const int n = figures(shards[s], "skipped_steps", s == 0 ? none : parts);
        cr_assert_eq(n, 12);
        cr_expect_eq(none[11], 1.0, "%g", none[11]);
        for (int i = 0; s > 0 && i < n; i++)
            cr_expect_eq(parts[i], none[i], "%s, step %d", shards[s], i + 1);
    }
}

/* ---- islands ---- */

#define ISLANDS                                                                                    \
    "--data.validation_split 0 --train.eval_every 0 --data.shuffle false "                         \
    "--train.micro_batch_size 2 --train.gradient_accumulation_steps 1 --parallel.diloco_islands "  \
    "2 "                                                                                           \
    "--parallel.diloco_inner_steps 4 --train.on_nonfinite skip "

/* A step reads the lines 4k to 4k+3; the second island, which is rank 1, the last two. */
static int of_island_1_at_times(int i)
{
    return i % 4 >= 2 && (i / 4 == 1 || i / 4 == 2 || i / 4 == 6);
}

static int of_island_1(int i)
{
    return i % 4 >= 2;
}

/* Steps 2, 3 and 7 are left out by the second island; the first one, which writes the figures,
 * knows since the rounds of four steps have ended, also after it was resumed within a round. */
Test(bad_ranks, steps_that_another_island_leaves_out_are_counted)
{
    static const double want[12] = {0, 0, 0, 2, 2, 2, 2, 3, 3, 3, 3, 3};
    double got[MOST_STEPS + 1];
    make_base();
    write_lines(of_island_1_at_times);
    cr_assert_eq(train(2, "whole", ISLANDS), 0, "%s", output);
    cr_assert_eq(train(2, "parts", ISLANDS "--train.stop_after 7"), 0, "%s", output);
    cr_assert_eq(train(2, "parts", ISLANDS), 0, "%s", output);
    cr_assert_eq(figures("whole", "skipped_steps", got), 12);
    for (int i = 0; i < 12; i++)
        cr_expect_eq(got[i], want[i], "step %d: %g", i + 1, got[i]);
    cr_assert_eq(figures("parts", "skipped_steps", got), 12);
    cr_expect_eq(got[11], 3.0, "%g", got[11]);
}

/* An island that leaves out every step ends the run when a round ends, where the state of all
 * islands is whole: it is saved. */
Test(bad_ranks, an_island_that_leaves_out_all_steps_ends_the_run)
{
    make_base();
    write_lines(of_island_1);
    cr_expect_eq(train(2, "out", ISLANDS "--train.max_steps 40"), 1, "%s", output);
    cr_expect(has("the loss is nan; 12 steps in a row were left out"), "%s", output);
    cr_expect(has("step 12: the island of rank 1 has left out 12 steps in a row"), "%s", output);
    cr_expect(has("checkpoint out/step-00000012, before the run ends with an error"), "%s", output);
}
