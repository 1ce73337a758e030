/* lathe train under mpirun: R ranks with micro-batches of B rows train as one rank with R*B rows.
 */
#include <stdint.h>

#include "rank_training.h"

enum { STEPS = 12 };

TestSuite(train_ranks, .init = setup, .fini = teardown);

/* Each rank sends what adding up the gradients takes at least: 2 (R-1)/R of their bytes. */
static void expect_bytes(const char *run, int n_ranks)
{
    const int n_params = 2 * 257 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32;
    const double least = 2.0 * (n_ranks - 1) / n_ranks * 4.0 * n_params;
    double sent[MOST_STEPS + 1], rank[MOST_STEPS + 1], slow[MOST_STEPS + 1], fast[MOST_STEPS + 1];
    cr_assert_eq(figures(run, "ranks_bytes_sent", sent), STEPS);
    cr_assert_eq(figures(run, "ranks_slowest", rank), STEPS);
    cr_assert_eq(figures(run, "ranks_slowest_seconds", slow), STEPS);
    cr_assert_eq(figures(run, "ranks_fastest_seconds", fast), STEPS);
    for (int i = 0; i < STEPS; i++) {
        cr_expect_float_eq(sent[i], least, 0.005 * least, "%s: %.0f bytes, %.0f are needed", run,
                           sent[i], least);
        cr_expect(rank[i] >= 0 && rank[i] < n_ranks && slow[i] >= fast[i] && fast[i] > 0.0);
    }
}

/* The global batch and fp32 are equal: only the order of sums differs. A training that is stopped
 * and goes on has the bits of one that is not; on another number of ranks the same rows follow. */
Test(train_ranks, two_and_four_ranks_train_as_one_and_go_on)
{
    cr_assert_eq(train(1, "one", ""), 0, "%s", output);
    cr_assert_eq(train(2, "two", "--train.micro_batch_size 4 --parallel.bucket_mb 0.02"), 0, "%s",
                 output);
    cr_assert_eq(train(4, "four", "--train.micro_batch_size 2"), 0, "%s", output);
    expect_same("one", "two", 1e-5);
    expect_same("one", "four", 1e-5);
    expect_bytes("two", 2);
    expect_bytes("four", 4);
    cr_assert_eq(train(2, "parts", "--train.micro_batch_size 4 --train.stop_after 6"), 0, "%s",
                 output);
    copy_folder("parts", "other");
    cr_assert_eq(train(2, "parts", "--train.micro_batch_size 4"), 0, "%s", output);
    expect_same("two", "parts", 0.0);
    cr_assert_eq(train(4, "other", "--train.micro_batch_size 2"), 0, "%s", output);
    expect_same("one", "other", 1e-5);
}

/* Only the last micro-batch of a step exchanges gradients. */
Test(train_ranks, micro_batches_are_added_before_ranks_are)
{
    static const char *const shards[] = {"none", "optimizer"};
    for (int i = 0; i < 2; i++) {
        double one[MOST_STEPS + 1], four[MOST_STEPS + 1];
        char words[256], dirs[2][32];
        (void)snprintf(words, sizeof words,
                       "--parallel.shard %s --parallel.bucket_mb 0.02 --train.micro_batch_size 1 "
                       "--train.max_steps 3 --train.eval_every 3 "
                       "--train.gradient_accumulation_steps ",
                       shards[i]);
        const size_t end = strlen(words);
        (void)snprintf(words + end, sizeof words - end, "1");
        (void)snprintf(dirs[0], sizeof dirs[0], "one_%s", shards[i]);
        cr_assert_eq(train(2, dirs[0], words), 0, "%s", output);
        (void)snprintf(words + end, sizeof words - end, "4");
        (void)snprintf(dirs[1], sizeof dirs[1], "four_%s", shards[i]);
        cr_assert_eq(train(2, dirs[1], words), 0, "%s", output);
        cr_assert_eq(figures(dirs[0], "ranks_bytes_sent", one), 3);
        cr_assert_eq(figures(dirs[1], "ranks_bytes_sent", four), 3);
        for (int k = 0; k < 3; k++)
            cr_expect(one[k] > 0.0 && four[k] == one[k], "%s, step %d: %.0f bytes, and %.0f",
                      shards[i], k + 1, one[k], four[k]);
    }
}

enum { N_EXPERTS = 6 };

/* The correction biases of layer 1's router in a saved model. */
static void read_bias(const char *dir, float out[N_EXPERTS])
{
    static char text[1 << 20];
    char path[256];
    uint64_t header = 0;
    (void)snprintf(path, sizeof path, "%s/%s/step-00000004/model.safetensors", root, dir);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s: %s", path, output);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    cr_assert_eq(fclose(f), 0);
    cr_assert(n > 8 && n < sizeof text - 1);
    memcpy(&header, text, sizeof header);
    const char *at = strstr(text + 8, "layers.1.mlp.gate.e_score_correction_bias");
    cr_assert_not_null(at);
    at = strstr(at, "\"data_offsets\":");
    cr_assert_not_null(at);
    memcpy(out, text + 8 + header + strtol(at + strcspn(at, "[") + 1, NULL, 10),
           N_EXPERTS * sizeof *out);
}

/* The biases of routers move by the load of all ranks, which are whole numbers: not a bit differs.
 */
Test(train_ranks, biases_of_routers_are_those_of_one_rank)
{
    static const char model[] =
        "--model.model_type glm4_moe --model.num_key_value_heads 4 --model.n_routed_experts 6 "
        "--model.num_experts_per_tok 2 --model.moe_intermediate_size 16 --moe.bias_rate 0.01 "
        "--train.max_steps 4 --train.eval_every 0 --data.validation_split 0";
    static const struct {
        int n_ranks, rows;
        const char *shard;
    } cases[] = {{2, 4, "none"}, {2, 4, "optimizer"}, {2, 4, "gradients"}, {4, 2, "parameters"}};
    float one[N_EXPERTS], other[N_EXPERTS];
    cr_assert_eq(train(1, "one", model), 0, "%s", output);
    read_bias("one", one);
    cr_expect(one[0] != 0.0f || one[1] != 0.0f || one[2] != 0.0f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[512];
        (void)snprintf(words, sizeof words, "%s --train.micro_batch_size %d --parallel.shard %s",
                       model, cases[i].rows, cases[i].shard);
        cr_assert_eq(train(cases[i].n_ranks, cases[i].shard, words), 0, "%s", output);
        read_bias(cases[i].shard, other);
        cr_expect_arr_eq(one, other, sizeof one, "%s", cases[i].shard);
    }
}

/* The head writes the gradient of a tied embedding at the begin of the backward, and the embedding
 * adds to it at the end: only then may ranks add it. */
Test(train_ranks, a_tied_embedding_is_added_when_it_is_complete)
{
    static const char tied[] = "--model.tie_word_embeddings true --train.max_steps 6";
    static const char *const shards[] = {"none", "optimizer"};
    cr_assert_eq(train(1, "one", tied), 0, "%s", output);
    for (int i = 0; i < 2; i++) {
        char words[256];
        (void)snprintf(
            words, sizeof words,
            "%s --train.micro_batch_size 4 --parallel.bucket_mb 0.02 --parallel.shard %s", tied,
            shards[i]);
        cr_assert_eq(train(2, shards[i], words), 0, "%s", output);
        expect_same("one", shards[i], 1e-5);
    }
}

/* Makes the embedding of a byte NaN in the weights that a training has saved. */
static void poison(const char *file, int byte)
{
    static char text[1 << 20];
    const float not_a_number = NAN;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, file);
    FILE *f = fopen(path, "r+");
    cr_assert_not_null(f, "%s", path);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    cr_assert(n > 8 && n < sizeof text - 1);
    uint64_t header = 0;
    memcpy(&header, text, sizeof header);
    const char *at = strstr(text + 8, "\"model.embed_tokens.weight\"");
    cr_assert_not_null(at);
    at = strstr(at, "\"data_offsets\":");
    cr_assert_not_null(at);
    const long begin = strtol(at + strcspn(at, "[") + 1, NULL, 10);
    for (int i = 0; i < 32; i++) {
        cr_assert_eq(fseek(f, 8 + (long)header + begin + (byte * 32L + i) * 4L, SEEK_SET), 0);
        cr_assert_eq(fwrite(&not_a_number, sizeof not_a_number, 1, f), 1);
    }
    cr_assert_eq(fclose(f), 0);
}

/* A rank whose loss is not finite takes part in the exchanges of its step. */
Test(train_ranks, a_bad_micro_batch_of_one_rank_leaves_out_the_step_of_all)
{
    static const char *const shards[] = {"none", "optimizer"};
    char text[40000];
    size_t n = 0;
    for (int line = 0; n + 100 < sizeof text; line++)
        n += (size_t)snprintf(text + n, sizeof text - n, "the lathe turns piece %d%s.\n", line,
                              line % 25 == 7 ? " ~" : "");
    write_file("text.txt", text);
    static const char common[] =
        "--data.validation_split 0 --train.eval_every 0 --tokenizer.path bytes ";
    /* the last checkpoint cannot be written with such weights */
    static const char after_all_steps[] = "a run cannot continue from the state after step 12";
    char words[512];
    cr_assert_eq(train(1, "first",
                       "--data.validation_split 0 --train.eval_every 0 "
                       "--train.max_steps 1"),
                 0, "%s", output);
    poison("first/step-00000001/model.safetensors", '~');
    (void)snprintf(words, sizeof words, "%s/first/step-00000001/manifest.json", root);
    cr_assert_eq(unlink(words), 0, "%s", words); /* it has the hash of the file before */
    (void)snprintf(text, sizeof text, "[model]\npath = \"first/step-00000001\"\n%s",
                   strstr(settings, "[data]"));
    write_file("run.toml", text);
    (void)snprintf(words, sizeof words, "%s--train.on_nonfinite skip ", common);
    cr_assert_neq(train(1, "one", words), 0);
    cr_assert_not_null(strstr(output, after_all_steps), "%s", output);
    double one[MOST_STEPS + 1], two[MOST_STEPS + 1];
    cr_assert_eq(figures("one", "loss", one), STEPS);
    int n_bad = 0;
    for (int i = 0; i < STEPS; i++)
        n_bad += !(one[i] > 0.0); /* null */
    cr_assert(n_bad > 0 && n_bad < STEPS, "%d bad steps", n_bad);
    for (int k = 0; k < 2; k++) {
        char line[700];
        (void)snprintf(line, sizeof line,
                       "%s--train.micro_batch_size 4 --parallel.bucket_mb 0.02 --parallel.shard %s",
                       words, shards[k]);
        cr_assert_neq(train(2, shards[k], line), 0);
        cr_assert_not_null(strstr(output, after_all_steps), "%s", output);
        cr_assert_eq(figures(shards[k], "loss", two), STEPS);
        for (int i = 0; i < STEPS; i++)
            cr_expect(fabs(one[i] - two[i]) <= 1e-5 * fabs(one[i]),
                      "%s, step %d: %.9g, expected %.9g", shards[k], i + 1, two[i], one[i]);
    }
}

/* LoRA's dropout draws by the global row. */
Test(train_ranks, dropout_is_that_of_one_rank)
{
    cr_assert_eq(train(1, "one", "--adapter.name lora --adapter.dropout 0.3"), 0, "%s", output);
    cr_assert_eq(
        train(2, "two", "--adapter.name lora --adapter.dropout 0.3 --train.micro_batch_size 4"), 0,
        "%s", output);
    expect_same("one", "two", 1e-5);
}

/* Masks and prefixes are keyed by the global row; evaluations have the same ones too. */
Test(train_ranks, masks_and_prefixes_are_those_of_one_rank)
{
    static const char *const words[] = {"--stage.objective prefix",
                                        "--stage.objective masked --stage.mask_token '~'"};
    for (int i = 0; i < 2; i++) {
        char one[16], two[16], line[160];
        (void)snprintf(one, sizeof one, "one%d", i);
        (void)snprintf(two, sizeof two, "two%d", i);
        (void)snprintf(line, sizeof line, "%s --train.micro_batch_size 4", words[i]);
        cr_assert_eq(train(1, one, words[i]), 0, "%s", output);
        cr_assert_eq(train(2, two, line), 0, "%s", output);
        expect_same(one, two, 1e-5);
    }
}

/* Each rank reads the stored numbers of its own rows. */
Test(train_ranks, a_stored_teacher_is_that_of_one_rank)
{
    static const char of_data[] = "--data.datasets '[{ path = \"answers.jsonl\" }]' ";
    char text[20000], words[512];
    size_t n = 0;
    for (int i = 0; i < 300; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"prompt\": \"%d:\", \"completion\": \"%.*s\"}\n", i, 1 + i % 20,
                              "it turns a piece of wood");
    write_file("answers.jsonl", text);
    (void)snprintf(words, sizeof words, "%s--stage.name sft --train.max_steps 1", of_data);
    cr_assert_eq(train(1, "teacher", words), 0, "%s", output);
    (void)snprintf(
        words, sizeof words,
        "cd %s && %s/bin/lathe logprobs run.toml %s--stage.name distill --data.cache_dir "
        "cache --teacher.path teacher/step-00000001 --top-k 8 -o top8 2>&1",
        root, LATHE_TEST_BUILD, of_data);
    cr_assert_eq(system(words),
                 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): the test's line */
    (void)snprintf(words, sizeof words,
                   "%s--stage.name distill --stage.alpha 0.2 --teacher.stored top8 --model.seed 5",
                   of_data);
    cr_assert_eq(train(1, "one", words), 0, "%s", output);
    (void)snprintf(words + strlen(words), sizeof words - strlen(words),
                   " --train.micro_batch_size 4");
    cr_assert_eq(train(2, "two", words), 0, "%s", output);
    expect_same("one", "two", 1e-5);
}

Test(train_ranks, what_several_ranks_cannot_do_is_refused)
{
    cr_expect_neq(train(2, "out", "--optimizer.name sophia"), 0);
    cr_expect_not_null(strstr(output, "optimizer \"sophia\" estimates curvature"), "%s", output);
}

Test(train_ranks, more_ranks_than_rows_are_refused)
{
    static const char few[] = "--data.datasets '[{ path = \"few.txt\" }]' --data.seq_len 16";
    write_file("few.txt", "two rows of sixteen tokens each, made of bytes");
    cr_expect_eq(train(2, "fits", few), 0, "%s", output);
    cr_expect_neq(train(4, "out", few), 0);
    cr_expect_not_null(strstr(output, "makes 3 rows, fewer than the 4 ranks: give more data"), "%s",
                       output);
}

/* Each rank gets a learning rate of its own. */
Test(train_ranks, ranks_that_differ_are_refused_by_the_difference)
{
    write_file("differ.sh", "#!/bin/sh\nexec \"$@\" --optimizer.lr 1e-${OMPI_COMM_WORLD_RANK}\n");
    char line[2048];
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI");
    (void)snprintf(line, sizeof line,
                   "cd %s && timeout 120 %s --oversubscribe --mca btl self,vader,tcp -n 2 sh "
                   "differ.sh %s/bin/lathe train run.toml --checkpoint.dir out --data.cache_dir "
                   "cache 2>&1",
                   root, LATHE_TEST_MPIRUN, LATHE_TEST_BUILD);
    FILE *pipe = popen(line, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    cr_expect_neq(pclose(pipe), 0);
    cr_expect_not_null(strstr(output, "rank 1 of 2 on host"), "%s", output);
    cr_expect_not_null(strstr(output, " differs from rank 0: settings.optimizer.lr is 0.1"), "%s",
                       output);
}
