/* Tokens that a run adds to its model (tokenizer.add_tokens), and rows of the embedding and head
 * that train beside an adapter. `lathe tokenizer add` makes the same model as a folder; the steps
 * of trained rows are compared with PEFT's (tests/golden/token_rows.py). */
#include "tokens_case.h"

#include <math.h>

#include "files/safetensors/safetensors.h"

#define ADD " --tokenizer.add_tokens '<think>,</think>,b1,b2,b3,b4' "
#define GOLDEN LATHE_TEST_DATA "/golden/data/"

static const char run_file[] = "[model]\npath = \"m\"\n[data]\n"
                               "datasets = [{ path = \"think.txt\", type = \"text\" }]\n"
                               "seq_len = 16\n[train]\nprecision = \"fp32\"\nmax_steps = 4\n"
                               "threads = 1\n[checkpoint]\ndir = \"out\"\nevery = 2\n"
                               "[log]\nprogress = \"off\"\n";

static void setup_run(void)
{
    setup();
    put("run.toml", run_file);
    put("think.txt", "the <think> cat </think> sat on the <think> mat </think> and the dog sat on "
                     "the <think> log </think> while the cat sat on the mat and the log\n");
}

TestSuite(run_token_cases, .init = setup_run, .fini = remove_folder);

static void expect_same(const char *a, const char *b, const char *file)
{
    char command[512];
    (void)snprintf(command, sizeof command, "cmp %s/%s %s/%s && echo same", a, file, b, file);
    expect(command, 0, "same");
}

static double number_after(const char *word)
{
    const char *at = strstr(output, word);
    return at ? strtod(at + strlen(word), NULL) : (double)NAN;
}

static double loss_of(const char *dir)
{
    char command[512];
    (void)snprintf(command, sizeof command,
                   LATHE " eval %s --data think.txt --stage.name pretrain --data.seq_len 16 "
                         "--train.precision fp32 --train.threads 1 --json 2>/dev/null",
                   dir);
    cr_expect_eq(run(command), 0, "%s: %s", command, output);
    return number_after("\"loss\": ");
}

/* Whether rows [begin, end) of the two files' embeddings are equal. */
static int rows_are_equal(const char *a, const char *b, int64_t begin, int64_t end)
{
    const char *const paths[2] = {a, b};
    float *rows[2] = {NULL, NULL};
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        lathe_safetensors *set = NULL;
        cr_assert_eq(lathe_safetensors_open(paths[i], &set), LATHE_OK);
        const lathe_st_tensor *t = lathe_safetensors_find(set, "model.embed_tokens.weight");
        cr_assert(t != NULL && t->desc.dims[0] >= end);
        n = (end - begin) * t->desc.dims[1];
        rows[i] = malloc((size_t)n * sizeof *rows[i]);
        cr_assert_not_null(rows[i]);
        cr_assert_eq(lathe_st_read(t, begin * t->desc.dims[1], n, rows[i], LATHE_F32), LATHE_OK);
        lathe_safetensors_close(set);
    }
    const int same = memcmp(rows[0], rows[1], (size_t)n * sizeof *rows[0]) == 0;
    free(rows[0]);
    free(rows[1]);
    return same;
}

/* One implementation: a run over m with the tokens, and one over the folder that `lathe tokenizer
 * add` writes. */
Test(run_token_cases, a_run_grows_the_model_as_the_command_does)
{
    expect(LATHE " train run.toml" ADD "2>&1", 0,
           "adds 6 of the 6 tokens of tokenizer.add_tokens to the 259 of m");
    expect(LATHE " tokenizer add m '<think>' '</think>' b1 b2 b3 b4 -o grown 2>&1", 0,
           "6 tokens added; vocab_size 265, before 264");
    expect(LATHE " train run.toml --model.path grown --checkpoint.dir two 2>&1", 0, "");
    expect_same("out/step-00000004", "two/step-00000004", "model.safetensors");
    expect_same("out/step-00000004", "two/step-00000004", "config.json");
    expect_same("out/step-00000004", "grown", "tokenizer.json");
    expect_same("out/step-00000004", "grown", "tokenizer_config.json");
    /* noise, and rows up to a multiple */
    expect(LATHE
           " train run.toml" ADD "--tokenizer.add_init noise --tokenizer.add_seed 3 "
           "--tokenizer.pad_to_multiple_of 32 --checkpoint.dir three --train.max_steps 1 2>&1",
           0, "three/step");
    expect(LATHE " tokenizer add m '<think>' '</think>' b1 b2 b3 b4 -o noisy --init noise --seed 3 "
                 "--pad-to-multiple-of 32 2>&1",
           0, "vocab_size 288");
    expect(LATHE
           " train run.toml --model.path noisy --checkpoint.dir four --train.max_steps 1 2>&1",
           0, "four/step");
    expect_same("three/step-00000001", "four/step-00000001", "model.safetensors");
}

Test(run_token_cases, it_goes_on_bit_by_bit_and_refuses_another_list)
{
    expect(LATHE " train run.toml" ADD "2>&1", 0, "out/step-00000004");
    expect(LATHE " train run.toml" ADD "--checkpoint.resume out/step-00000002 "
                 "--checkpoint.dir again 2>&1",
           0, "again/step-00000004");
    expect_same("out/step-00000004", "again/step-00000004", "model.safetensors");
    expect(LATHE " train run.toml --tokenizer.add_tokens "
                 "'</think>,<think>,b1,b2,b3,b4' --train.max_steps 5 2>&1",
           2, "tokenizer.add_tokens");
    expect(LATHE " train run.toml --train.max_steps 5 2>&1", 2, "tokenizer.add_tokens");
    /* a second step finds the tokens */
    expect(LATHE " train run.toml" ADD "--model.path out --checkpoint.dir next 2>&1", 0,
           "has all of the tokens already");
    expect("grep -c '\"vocab_size\": 265' next/step-00000004/config.json", 0, "1");
}

Test(run_token_cases, an_adapter_trains_the_new_rows_alone)
{
    expect(LATHE " train run.toml" ADD "--adapter.name lora --optimizer.lr 0.01 2>&1", 0,
           "out/step-00000004");
    expect("cat out/step-00000004/adapter_config.json", 0, "trainable_token_indices");
    expect("cat out/step-00000004/adapter_config.json", 0, "262");
    const double own = loss_of("out");
    expect(LATHE " merge m out -o merged 2>&1", 0, "merged");
    cr_expect(fabs(loss_of("merged") - own) < 1e-5, "%g, %g", loss_of("merged"), own);
    expect(LATHE " tokenizer add m '<think>' '</think>' b1 b2 b3 b4 -o grown 2>&1", 0, "grown");
    cr_expect(rows_are_equal("m", "merged", 0, N_TOKENS));
    cr_expect(!rows_are_equal("grown", "merged", N_TOKENS, N_TOKENS + 2));
    expect_same("merged", "grown", "tokenizer.json");
    expect(LATHE " convert merged -o merged.gguf 2>&1", 0, "merged.gguf");
    expect(LATHE " generate out --prompt '<think>' --max-new-tokens 2 2>&1", 0, "");
    /* bit by bit, and a further run that begins with the adapter */
    expect(LATHE " train run.toml" ADD "--adapter.name lora --optimizer.lr 0.01 "
                 "--checkpoint.resume out/step-00000002 --checkpoint.dir again 2>&1",
           0, "again/step-00000004");
    expect_same("out/step-00000004", "again/step-00000004", "adapter_model.safetensors");
    expect(LATHE " train run.toml --model.path out --checkpoint.dir next 2>&1", 0,
           "next/step-00000004");
    expect("cat next/step-00000004/adapter_config.json", 0, "trainable_token_indices");
    cr_expect_lt(loss_of("next"), own);
    /* as they begin: asked for */
    expect(LATHE " train run.toml" ADD "--adapter.name lora --adapter.trainable_token_rows '[]' "
                 "--checkpoint.dir still 2>&1",
           0, "still/step-00000004");
    expect(LATHE " merge m still -o unmoved 2>&1", 0, "unmoved");
    cr_expect(rows_are_equal("grown", "unmoved", 0, N_TOKENS + 6));
}

/* The losses of ten steps of AdamW, which PEFT computes with the same rows. */
Test(run_token_cases, trained_rows_have_the_steps_of_peft)
{
    char name[64], base[64], toml[2048];
    FILE *file = fopen(GOLDEN "token_rows/losses.txt", "r");
    cr_assert_not_null(file);
    while (fscanf(file, "%63s %63s", name, base) == 2) {
        (void)snprintf(toml, sizeof toml,
                       "[model]\npath = \"" GOLDEN "peft/%s\"\nadapter = \"" GOLDEN
                       "token_rows/%s\"\n[tokenizer]\npath = \"bytes\"\n[data]\n"
                       "datasets = [{ path = \"" GOLDEN "peft/text.txt\" }]\nseq_len = 64\n"
                       "[optimizer]\nname = \"adamw\"\nlr = 0.01\nbeta2 = 0.999\n"
                       "weight_decay = 0.1\n[scheduler]\nname = \"constant\"\n[train]\n"
                       "precision = \"fp32\"\nmax_steps = 11\nthreads = 1\nmax_grad_norm = 0.0\n"
                       "[checkpoint]\ndir = \"%s\"\n[log]\nprogress = \"off\"\n",
                       base, name, name);
        put("rows.toml", toml);
        cr_assert_eq(run(LATHE " train rows.toml 2>&1"), 0, "%s", output);
        for (int i = 1; i <= 11; i++) {
            double want;
            char command[256];
            cr_assert_eq(fscanf(file, "%lf", &want), 1);
            (void)snprintf(command, sizeof command, "grep '\"loss\"' %s/metrics.jsonl | sed -n %dp",
                           name, i);
            cr_assert_eq(run(command), 0);
            cr_expect(fabs(number_after("\"loss\": ") - want) < 1e-5, "%s step %d: %s, PEFT %.9g",
                      name, i, output, want);
        }
    }
    (void)fclose(file);
}

/* Over one base, each with rows of its own. */
Test(run_token_cases, rows_of_adapters_beside_others_are_their_own)
{
    static const char *const cases[][3] = {{"tied", "token_indices_tied", "tied_both"},
                                           {"base", "token_indices", "gaussian"}};
    static const char how[] = " --tokenizer.path bytes --train.precision fp32 --temperature 0 "
                              "--max-new-tokens 12 --prompt It 2>/dev/null";
    char command[2048];
    for (int i = 0; i < 2; i++) {
        const char *base = cases[i][0], *rows = cases[i][1], *other = cases[i][2];
        (void)snprintf(command, sizeof command,
                       "rm -rf alone && " LATHE " merge " GOLDEN "peft/%s " GOLDEN
                       "peft/%s -o alone >/dev/null 2>&1 && " LATHE " generate alone%s >a && " LATHE
                       " generate " GOLDEN "peft/%s --adapter x=" GOLDEN
                       "peft/%s --adapter y=" GOLDEN "peft/%s --use y%s >b && cmp a b && echo same",
                       base, rows, how, base, other, rows, how);
        expect(command, 0, "same");
    }
    expect(LATHE " train run.toml" ADD "--adapter.name lora 2>&1", 0, "out/step-00000004");
    expect(LATHE " generate m --adapter x=out --prompt a 2>&1", 2, "has 265 tokens");
}

/* The first loss of dpo is ln 2 where the reference is the model with which the run begins. */
Test(run_token_cases, a_reference_has_the_rows_too)
{
    static const char *const references[] = {"--model.path out",
                                             "--model.path m --model.adapter out "
                                             "--model.reference_adapter out"};
    put("pairs.jsonl", "{\"prompt\": \"the \", \"chosen\": \"<think>a</think>\", "
                       "\"rejected\": \"<think>b\"}\n");
    expect(LATHE " train run.toml" ADD "--adapter.name lora --optimizer.lr 0.01 2>&1", 0,
           "out/step-00000004");
    for (int i = 0; i < 2; i++) {
        char command[512];
        (void)snprintf(command, sizeof command,
                       "rm -rf dpo; " LATHE " train run.toml" ADD "%s --stage.name dpo "
                       "--data.datasets '[{path=\"pairs.jsonl\"}]' --checkpoint.dir dpo 2>&1",
                       references[i]);
        expect(command, 0, "dpo/step-00000004");
        cr_assert_eq(run("grep '\"loss\"' dpo/metrics.jsonl | head -1"), 0);
        cr_expect(fabs(number_after("\"loss\": ") - 0.69314718) < 1e-6, "%s", output);
        cr_assert_eq(run("grep '\"loss\"' dpo/metrics.jsonl | tail -1"), 0);
        cr_expect_lt(number_after("\"loss\": "), 0.6931);
    }
}

Test(run_token_cases, a_plan_counts_the_rows_and_writes_nothing)
{
    cr_assert_eq(run("rm -rf .lathe"), 0);
    expect(LATHE " plan run.toml 2>&1", 0, "");
    expect(LATHE " plan run.toml" ADD "--tokenizer.pad_to_multiple_of 4096 2>&1", 0, "");

    cr_expect_neq(run("test -e .lathe/cache"), 0);
    expect(LATHE " validate run.toml" ADD "2>&1", 0, "");
    /* a damaged folder of the cache is made again */
    cr_assert_eq(
        run("for f in .lathe/cache/tokenizer-*/tokenizer.json; do echo x >$f || exit 1; done"), 0);
    expect(LATHE " validate run.toml" ADD "2>&1", 0, "");
    expect(LATHE " train run.toml" ADD "--dry-run 2>&1", 0, "");
    /* a new model */
    expect("sed -e 's/^vocab_size.*//' -e 's/^path = \"tok\"/path = \"m\"\\nadd_tokens = [\"<x>\"]"
           "\\npad_to_multiple_of = 8/' make.toml > new.toml && " LATHE
           " train new.toml --checkpoint.dir new 2>&1",
           0, "new/step-00000001");
    expect("grep -c '\"vocab_size\": 264' new/step-00000001/config.json", 0, "1");
    expect("echo '<x>' | " LATHE " tokenizer encode new - 2>&1", 0, "259");
}

/* A row belongs to its token: the rows of one adapter went to the tokens of another run, and
 * merging two such adapters wrote beyond the smaller matrix. */
Test(run_token_cases, rows_do_not_go_to_other_tokens)
{
    static const char *const lists[] = {"<a>,<b>", "<x>,<y>", "c1,c2,c3,c4,c5,c6,c7,c8"};
    for (int i = 0; i < 3; i++) {
        char command[512];
        (void)snprintf(command, sizeof command,
                       LATHE " train run.toml --tokenizer.add_tokens '%s' --adapter.name lora "
                             "--checkpoint.dir s%d 2>&1",
                       lists[i], i);
        expect(command, 0, "step-00000004");
    }
    expect(LATHE " merge m s0 s1 -o both 2>&1", 2, "their tokenizer.json differ");
    expect(LATHE " merge m s0 s2 -o both 2>&1", 2, "rows for tokens");
    cr_expect_neq(run("test -e both"), 0);
    expect(LATHE " train run.toml --model.path s0 --tokenizer.add_tokens '<x>,<y>' 2>&1", 2,
           "--tokenizer.add_tokens: error: tokenizer.add_tokens differs from that of the adapter");
    expect(LATHE " train run.toml" ADD "--adapter.name lora --adapter.modules_to_save "
                 "'[\"embed_tokens\"]' --train.max_steps 1 2>&1",
           0, "out/step-00000001");
}

Test(run_token_cases, mistakes_are_named)
{
    expect(LATHE " train run.toml --tokenizer.add_tokens a,a 2>&1", 2, "named twice");
    expect(LATHE " train run.toml --tokenizer.path bytes --tokenizer.add_tokens '<a>' 2>&1", 2,
           "tokenizer.add_tokens");
    expect(LATHE " train run.toml --tokenizer.add_init noise 2>&1", 0,
           "tokenizer.add_init has no effect");
    expect(LATHE " train run.toml --adapter.name full --adapter.trainable_token_rows '[3]' 2>&1", 2,
           "adapter.trainable_token_rows");
    expect(LATHE " train run.toml --adapter.name lora --adapter.trainable_token_rows '[264]' 2>&1",
           2, "expected ids of tokens below 264");
    expect(LATHE " train run.toml --adapter.name lora --adapter.trainable_token_rows '[3,3]' 2>&1",
           2, "3 twice");
    expect(LATHE " train run.toml" ADD "--adapter.name lora --adapter.merge_every 2 2>&1", 2,
           "trainable_token_rows = []");
    expect(LATHE " train run.toml" ADD "--adapter.name lora --adapter.target_modules "
                 "'[\"embed_tokens\"]' --checkpoint.dir x 2>&1",
           2, "trainable_token_rows");
    expect(LATHE " convert m -o m.gguf 2>&1; " LATHE " train run.toml" ADD
                 "--model.path m.gguf --checkpoint.dir y 2>&1",
           2, "is a GGUF file");
}
