/* Model folders that lack a file, or are no folders: what is there is named, and what to do is
 * said; nothing else is taken in its place. */
#include <sys/stat.h>

#include "tokens_case.h"

static const char run_file[] = "[model]\npath = \"m\"\n[data]\n"
                               "datasets = [{ path = \"words.txt\", type = \"text\" }]\n"
                               "seq_len = 16\n[train]\nprecision = \"fp32\"\nmax_steps = 2\n"
                               "threads = 1\n[checkpoint]\ndir = \"out\"\n";

static void setup_run(void)
{
    setup();
    put("run.toml", run_file);
}

TestSuite(model_folder_cases, .init = setup_run, .fini = remove_folder);

/* Every command that reads or makes text. */
static void expect_all_refuse(const char *text)
{
    static const char *const commands[] = {
        LATHE " validate run.toml 2>&1",
        LATHE " train run.toml 2>&1",
        LATHE " data run.toml 2>&1",
        LATHE " eval m --data words.txt --data.seq_len 16 2>&1",
        LATHE " generate m --prompt the --max-new-tokens 2 2>&1",
        LATHE " tokenizer check m 2>&1",
        LATHE " convert m -o m.gguf 2>&1",
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const int code = run(commands[i]);
        cr_expect_neq(code, 0, "%s: %s", commands[i], output);
        cr_expect_not_null(strstr(output, text), "%s: no '%s' in %s", commands[i], text, output);
    }
}

Test(model_folder_cases, a_missing_tokenizer_is_not_raw_bytes)
{
    cr_assert_eq(rename("m/tokenizer.json", "saved.json"), 0);
    expect_all_refuse("m has no tokenizer.json: put the file of the model there");
    put("m/vocab.json", "{}");
    put("m/merges.txt", "");
    expect_all_refuse("m has no tokenizer.json but vocab.json and merges.txt, which Lathe does not "
                      "read: make it with transformers");
    put("m/tokenizer.model", "");
    put("m/tekken.json", "{}");
    expect_all_refuse("m has no tokenizer.json but tokenizer.model, tekken.json, vocab.json and "
                      "merges.txt, which");
    expect(LATHE " train run.toml 2>&1", 2, "run.toml:2:8: error: m has no tokenizer.json");
    /* with a tokenizer of its own, or raw bytes by choice, the run may go on */
    cr_assert_eq(rename("saved.json", "own.json"), 0);
    expect(LATHE " train run.toml --tokenizer.path own.json 2>&1", 0, "checkpoint out/step");
    expect(LATHE " train run.toml --tokenizer.path bytes --checkpoint.dir bytes 2>&1", 0,
           "checkpoint bytes/step");
    /* what was trained on raw bytes says so, itself and in what is made of it */
    expect(LATHE " generate bytes --prompt the --max-new-tokens 2 2>&1", 0, "the");
    expect(LATHE " train run.toml --model.path bytes/step-00000002 --checkpoint.dir more 2>&1", 0,
           "checkpoint more/step");
    expect(LATHE " eval more/step-00000002 --data words.txt --data.seq_len 16 2>&1", 0, "loss");
    expect(LATHE " quantize bytes/step-00000002 --quant.name nf4 -o four 2>&1", 0, "");
    expect(LATHE " generate four --prompt the --max-new-tokens 2 2>&1", 0, "the");
    /* a checkpoint whose tokenizer was removed is none of raw bytes */
    cr_assert_eq(run("rm out/step-00000002/tokenizer.json"), 0);
    expect(LATHE " validate run.toml --model.path out/step-00000002 --checkpoint.dir new 2>&1", 2,
           "out/step-00000002 has no tokenizer.json");
}

Test(model_folder_cases, weights_in_another_form_are_named)
{
    cr_assert_eq(rename("m/model.safetensors", "m/pytorch_model.bin"), 0);
    expect(LATHE " generate m --prompt the 2>&1", 2,
           "but pytorch_model.bin: only safetensors are read; convert with transformers");
    expect(LATHE " validate run.toml 2>&1", 2, "only safetensors are read");
}

/* Puts a prefix before every name of the tensors. */
static void put_prefix(const char *prefix)
{
    FILE *file = fopen("m/model.safetensors", "rb");
    static char header[1 << 16], changed[1 << 17];
    uint64_t n = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fread(&n, 8, 1, file), 1);
    cr_assert_lt(n, sizeof header);
    cr_assert_eq(fread(header, 1, n, file), n);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        changed[k++] = header[i];
        if (header[i] == '"' && i > 0 && (header[i - 1] == '{' || header[i - 1] == ',') &&
            (strncmp(header + i, "\"model.", 7) == 0 || strncmp(header + i, "\"lm_head", 8) == 0))
            k += (size_t)sprintf(changed + k, "%s", prefix);
    }
    while (k % 8 != 0)
        changed[k++] = ' ';
    FILE *out = fopen("renamed", "wb");
    cr_assert_not_null(out);
    const uint64_t size = k;
    cr_assert_eq(fwrite(&size, 8, 1, out), 1);
    cr_assert_eq(fwrite(changed, 1, k, out), k);
    for (int c; (c = fgetc(file)) != EOF;)
        (void)fputc(c, out);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(fclose(out), 0);
    cr_assert_eq(rename("renamed", "m/model.safetensors"), 0);
}

Test(model_folder_cases, prefixes_of_names_are_named)
{
    static const struct {
        const char *prefix, *remedy;
    } cases[] = {{"_orig_mod.", "torch.compile puts it there"},
                 {"module.", "DistributedDataParallel"},
                 {"base_model.model.", "merge_and_unload"},
                 {"module._orig_mod.", "torch.compile puts it there"},
                 {"language_model.", "take the prefix out"}};
    cr_assert_eq(run("cp m/model.safetensors kept"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[128];
        cr_assert_eq(run("cp kept m/model.safetensors"), 0);
        put_prefix(cases[i].prefix);
        (void)snprintf(want, sizeof want, "the names of the tensors begin with \"%s\"",
                       cases[i].prefix);
        expect(LATHE " generate m --prompt the 2>&1", 2, want);
        expect(LATHE " validate run.toml 2>&1", 2, cases[i].remedy);
    }
}

Test(model_folder_cases, a_name_of_the_hub_is_no_folder)
{
    static const char want[] = "hf download acme/tiny-1B --local-dir acme/tiny-1B";
    expect(LATHE " validate run.toml --model.path acme/tiny-1B 2>&1", 2, want);
    expect(LATHE " validate run.toml --tokenizer.path acme/tiny-1B 2>&1", 2, want);
    expect(LATHE " validate run.toml --model.adapter acme/tiny-1B 2>&1", 2, want);
    expect(LATHE " validate run.toml --stage.name distill --teacher.path acme/tiny-1B 2>&1", 2,
           want);
    expect(LATHE " chat acme/tiny-1B </dev/null 2>&1", 2, want);
    expect(LATHE " generate acme/tiny-1B --prompt a 2>&1", 2, want);
    expect(LATHE " generate m --generate.draft acme/tiny-1B --prompt a 2>&1", 2, want);
    expect(LATHE " convert acme/tiny-1B -o x.gguf 2>&1", 2, want);
    expect(LATHE " merge acme/tiny-1B m -o x 2>&1", 2, want);
    expect(LATHE " tokenizer check acme/tiny-1B 2>&1", 2, want);
    /* relative to the folder of the run file */
    cr_assert_eq(mkdir("sub", 0755), 0);
    put("sub/run.toml", run_file);
    (void)run("sed -i 's|\"m\"|\"acme/tiny-1B\"|' sub/run.toml");
    expect(LATHE " validate sub/run.toml 2>&1", 2,
           "hf download acme/tiny-1B --local-dir sub/acme/tiny-1B");
    /* a folder beside others is mistyped, rather */
    const int code = run(LATHE " generate sub/m --prompt a 2>&1");
    cr_expect_eq(code, 2);
    cr_expect_null(strstr(output, "hf download"), "%s", output);
}

/* transformers loads and trains each, and generates with these options. */
Test(model_folder_cases, a_generation_config_stops_no_training)
{
    static const char *const texts[] = {
        "{\"do_sample\":true,\"temperature\":0.0}", "{\"do_sample\":true,\"top_k\":-1}",
        "{\"do_sample\":false,\"top_p\":0}", "{\"eos_token_id\":-1}", "{\"do_sample\":1}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put("m/generation_config.json", texts[i]);
        expect("rm -rf out; " LATHE " train run.toml --train.max_steps 1 2>&1", 0, "checkpoint");
        expect(LATHE " generate m --prompt hi --temperature 0.7 --top-k 5 --top-p 0.9 "
                     "--max-new-tokens 1 2>&1",
               0, "hi");
    }
    put("m/generation_config.json", texts[1]);
    expect(LATHE " generate m --prompt hi --max-new-tokens 1 2>&1", 2,
           "m/generation_config.json: top_k is -1; expected an integer from 0");
    expect(LATHE " validate run.toml --generate.every 1 --checkpoint.dir other 2>&1", 2,
           "top_k is -1");
}
