/* Tokens that are added to a model: ids, rows, files, and the runs that follow. The rows are
 * compared with resize_token_embeddings of transformers by tests/golden/added_tokens.py. */
#include "tokens_case.h"

#include "files/safetensors/safetensors.h"
#include "files/safetensors/st_writer.h"

static const char run_file[] = "[model]\npath = \"grown\"\n[data]\n"
                               "datasets = [{ path = \"words.txt\", type = \"text\" }]\n"
                               "seq_len = 16\n[train]\nprecision = \"fp32\"\nmax_steps = 2\n"
                               "threads = 1\n[checkpoint]\ndir = \"out\"\n";

static void setup_run(void)
{
    setup();
    put("run.toml", run_file);
}

TestSuite(added_token_cases, .init = setup_run, .fini = remove_folder);

/* Reads a whole tensor; *rows, *cols: its shape. */
static float *read_tensor(const char *path, const char *name, int64_t *rows, int64_t *cols)
{
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open(path, &set), LATHE_OK);
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    cr_assert_not_null(t, "%s has no %s", path, name);
    cr_assert_eq(t->desc.rank, 2);
    *rows = t->desc.dims[0];
    *cols = t->desc.dims[1];
    float *out = malloc((size_t)(*rows * *cols) * sizeof *out);
    cr_assert_not_null(out);
    cr_assert_eq(lathe_st_read(t, 0, *rows * *cols, out, LATHE_F32), LATHE_OK);
    lathe_safetensors_close(set);
    return out;
}

/* The rows of m's 259 tokens keep their bits, and so do its 5 rows of padding from `fresh` on; the
 * rows of new tokens and beyond are the mean of m's rows. */
static void check_rows(const char *path, const char *name, int64_t want_rows, int64_t fresh)
{
    int64_t rows, cols, n, c;
    float *old = read_tensor("m", name, &rows, &cols);
    float *grown = read_tensor(path, name, &n, &c);
    cr_assert_eq(c, cols);
    cr_assert_eq(n, want_rows);
    cr_expect_arr_eq(old, grown, (size_t)(N_TOKENS * cols) * sizeof *old);
    for (int64_t j = 0; j < cols; j++) {
        double mean = 0.0;
        for (int64_t i = 0; i < rows; i++)
            mean += (double)old[i * cols + j];
        for (int64_t i = N_TOKENS; i < n; i++) {
            const int is_old = i >= fresh && i < rows;
            const double want = is_old ? (double)old[i * cols + j] : mean / (double)rows;
            cr_expect_float_eq((double)grown[i * cols + j], want, is_old ? 0.0 : 1e-8,
                               "%s [%ld, %ld]", name, (long)i, (long)j);
        }
    }
    free(old);
    free(grown);
}

Test(added_token_cases, tokens_get_ids_rows_and_files)
{
    expect(LATHE
           " tokenizer add m '<think>' '</think>' '<|im_start|>' a1 a2 a3 a4 a5 -o grown 2>&1",
           0, "grown: 7 tokens added, 1 known before; vocab_size 266, before 264");
    check_rows("grown", "model.embed_tokens.weight", 266, 266);
    check_rows("grown", "lm_head.weight", 266, 266);
    expect("echo 'a<think>b</think>' | " LATHE " tokenizer encode grown - 2>&1", 0, "259");
    expect("grep -c '\"vocab_size\": 266' grown/config.json", 0, "1");
    expect(LATHE " tokenizer check grown 2>&1", 0, "added_tokens    10");
    expect(LATHE " tokenizer add m x1 -o padded --pad-to-multiple-of 64 --plain 2>&1", 0,
           "padded: 1 token added; vocab_size 320, before 264");
    check_rows("padded", "model.embed_tokens.weight", 320, 260);
    /* into the padding rows, which then begin anew; the matrices keep their size */
    expect(LATHE " tokenizer add padded x2 x3 -o more 2>&1", 0,
           "more: 2 tokens added; vocab_size 320, before 320");
    cr_expect_eq(run("cmp padded/config.json more/config.json"), 0);
    /* a word of the vocabulary keeps its id, and a text that is written otherwise there has a new
     * one */
    expect(LATHE " tokenizer add m a ' ' -o words 2>&1", 0,
           "words: 2 tokens added; vocab_size 264");
    expect("echo 'xa x' | " LATHE " tokenizer encode words - 2>&1", 0, "120 97 259 120");
    /* a plain token (x1) stays in a text without special tokens (x2, <|im_start|>) */
    expect("echo '[120, 259, 260, 257]' | " LATHE
           " tokenizer decode more - --json-lines --skip-special 2>&1",
           0, "\"xx1\"");
}

Test(added_token_cases, the_noise_is_small_and_repeats)
{
    int64_t rows, cols;
    expect(LATHE " tokenizer add m '<a>' '<b>' -o one --init noise --seed 3 2>&1", 0, "2 tokens");
    expect(LATHE " tokenizer add m '<a>' '<b>' -o two --init noise --seed 3 2>&1", 0, "2 tokens");
    expect(LATHE " tokenizer add m '<a>' '<b>' -o mean 2>&1", 0, "2 tokens");
    cr_expect_eq(run("cmp one/model.safetensors two/model.safetensors"), 0);
    float *a = read_tensor("one", "model.embed_tokens.weight", &rows, &cols);
    float *b = read_tensor("mean", "model.embed_tokens.weight", &rows, &cols);
    int64_t n_other = 0, n_equal = 0;
    for (int64_t i = 259 * cols; i < 261 * cols; i++) {
        n_other += a[i] != b[i];
        cr_expect_float_eq(a[i], b[i], 1e-3);
    }
    for (int64_t j = 0; j < cols; j++)
        n_equal += a[259 * cols + j] == a[260 * cols + j];
    cr_expect_gt(n_other, cols);
    cr_expect_lt(n_equal, cols / 2);
    free(a);
    free(b);
}

Test(added_token_cases, the_grown_model_trains_and_goes_on)
{
    expect(LATHE " tokenizer add m '<think>' '</think>' b1 b2 b3 b4 -o grown 2>&1", 0,
           "6 tokens added; vocab_size 265, before 264");
    put("words.txt", "the <think> cat </think> sat on the <think> mat </think> and the dog sat on "
                     "the <think> log </think> while the cat sat on the mat and the log\n");
    expect(LATHE " train run.toml --train.max_steps 4 --checkpoint.every 2 2>&1", 0,
           "checkpoint out/step-00000004");
    expect(LATHE " train run.toml --train.max_steps 4 --checkpoint.resume out/step-00000002 "
                 "--checkpoint.dir again 2>&1",
           0, "checkpoint again/step-00000004");
    cr_expect_eq(run("cmp out/step-00000004/model.safetensors "
                     "again/step-00000004/model.safetensors"),
                 0);
    expect(LATHE " generate out/step-00000004 --prompt '<think>' --max-new-tokens 2 2>&1", 0, "");
    expect(LATHE " train run.toml --adapter.name lora --checkpoint.dir lora 2>&1", 0, "lora/step");
    expect(LATHE " merge grown lora/step-00000002 -o merged 2>&1", 0, "");
    expect(LATHE " eval merged --data words.txt --data.seq_len 16 2>&1", 0, "loss");
    expect(LATHE " convert merged -o merged.gguf 2>&1", 0, "");
}

/* A token that the tokenizer has, but the model has no row for. */
Test(added_token_cases, a_known_token_beyond_the_rows_gets_the_mean)
{
    cr_assert_eq(run("sed -i 's/\"added_tokens\": *\\[/&{\"id\": 270, \"content\": \"<far>\", "
                     "\"special\": true}, /' m/tokenizer.json && grep -q '<far>' "
                     "m/tokenizer.json"),
                 0);
    expect(LATHE " tokenizer add m '<far>' -o grown 2>&1", 0,
           "grown: 0 tokens added, 1 known before; vocab_size 271, before 264");
    check_rows("grown", "model.embed_tokens.weight", 271, N_TOKENS);
    check_rows("grown", "lm_head.weight", 271, N_TOKENS);
}

Test(added_token_cases, a_token_of_the_files_beside_keeps_its_id)
{
    put("m/tokenizer_config.json",
        "{\"eos_token\": \"<|endoftext|>\", \"extra_special_tokens\": [\"<x>\"]}");
    expect("echo '<x>' | " LATHE " tokenizer encode m - 2>&1", 0, "259");
    expect(LATHE " tokenizer add m '<y>' -o grown 2>&1", 0, "grown: 1 token added; vocab_size 264");
    expect("echo '<x><y>' | " LATHE " tokenizer encode grown - 2>&1", 0, "259 260");
}

/* Makes "tied" of "m": a tied model whose file has the head, too. */
static void make_tied(void)
{
    lathe_safetensors *set = NULL;
    lathe_st_writer *w = NULL;
    cr_assert_eq(run("cp -r m tied && rm tied/model.safetensors && sed -i "
                     "'s/\"tie_word_embeddings\": *false/\"tie_word_embeddings\": true/' "
                     "tied/config.json && grep -q 'embeddings\": *true' tied/config.json"),
                 0);
    cr_assert_eq(lathe_safetensors_open("m", &set), LATHE_OK);
    cr_assert_eq(lathe_st_writer_create("tied", "model", 1 << 30, &w), LATHE_OK);
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        cr_assert_eq(lathe_st_writer_add(w, t->name, &t->desc), LATHE_OK);
    }
    cr_assert_eq(lathe_st_writer_begin(w), LATHE_OK);
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        if (strcmp(t->name, "lm_head.weight") == 0)
            t = lathe_safetensors_find(set, "model.embed_tokens.weight");
        cr_assert_eq(
            lathe_st_writer_write(w, i, 0, t->data,
                                  lathe_desc_count(&t->desc) * lathe_dtype_bytes(t->desc.dtype)),
            LATHE_OK);
    }
    cr_assert_eq(lathe_st_writer_finish(w), LATHE_OK);
    lathe_st_writer_destroy(w);
    lathe_safetensors_close(set);
}

Test(added_token_cases, the_stored_head_of_a_tied_model_grows_with_the_embedding)
{
    int64_t rows, cols;
    make_tied();
    expect(LATHE " tokenizer add tied a1 a2 a3 a4 a5 a6 -o grown --init noise 2>&1", 0,
           "grown: 6 tokens added; vocab_size 265, before 264");
    float *a = read_tensor("grown", "model.embed_tokens.weight", &rows, &cols);
    float *b = read_tensor("grown", "lm_head.weight", &rows, &cols);
    cr_expect_eq(rows, 265);
    cr_expect_arr_eq(a, b, (size_t)(rows * cols) * sizeof *a);
    free(a);
    free(b);
    expect(LATHE " generate grown --prompt ab --max-new-tokens 2 2>&1", 0, "");
}

Test(added_token_cases, other_numbers_of_the_config_keep_their_digits)
{
    cr_assert_eq(run("sed -i 's/\"vocab_size\"/\"of_a_test\": 1e-05, &/' m/config.json"), 0);
    expect(LATHE " tokenizer add m a1 a2 a3 a4 a5 a6 -o grown 2>&1", 0, "vocab_size 265");
    cr_expect_eq(run("sed 's/\"vocab_size\": *264/\"vocab_size\": 265/' m/config.json | cmp - "
                     "grown/config.json"),
                 0, "%s", output);
    cr_expect_eq(run("grep -q 1e-05 grown/config.json"), 0);
}

Test(added_token_cases, a_run_means_its_latest_checkpoint)
{
    expect(LATHE " train run.toml --model.path m 2>&1", 0, "checkpoint out/step-00000002");
    expect(LATHE " tokenizer add out '<z>' -o grown 2>&1", 0, "grown: 1 token added");
    expect("echo '<z>' | " LATHE " tokenizer encode grown - 2>&1", 0, "259");
}

Test(added_token_cases, rows_are_added_without_a_token)
{
    expect(LATHE " tokenizer add m -o wide --pad-to-multiple-of 32 2>&1", 0,
           "wide: 0 tokens added; vocab_size 288, before 264");
    check_rows("wide", "model.embed_tokens.weight", 288, N_TOKENS);
    expect(LATHE " tokenizer add m -o x 2>&1", 2, "no tokens to add");
    cr_expect_neq(run("test -e x"), 0);
}

Test(added_token_cases, mistakes_are_named)
{
    expect(LATHE " tokenizer add m '<a>' '<a>' -o x 2>&1", 2, "token \"<a>\" is named twice");
    expect(LATHE " tokenizer add m '' -o x 2>&1", 2, "token 1 is empty or not UTF-8");
    expect(LATHE " tokenizer add m '<a>' -o m 2>&1", 2, "m");
    expect(LATHE " tokenizer add m '<a>' -o x --init random 2>&1", 2, "expected mean or noise");
    expect(LATHE " tokenizer add m '<a>' 2>&1", 2, "expected -o DIR");
    expect(LATHE " convert m -o m.gguf 2>&1; " LATHE " tokenizer add m.gguf '<a>' -o x 2>&1", 1,
           "m.gguf is a GGUF file; expected a folder");
    cr_expect_neq(run("test -e x"), 0);
}
