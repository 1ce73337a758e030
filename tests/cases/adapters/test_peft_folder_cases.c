/* Folders of adapters that PEFT wrote: each gives PEFT's loss on every path, or is refused by the
 * name of the key or tensor that Lathe does not read. Cases and losses:
 * tests/golden/peft_folders.py. */
#include <math.h>
#include <stdarg.h>

#include "cli/cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define PEFT LATHE_TEST_DATA "/golden/data/peft"
/* One row of 64 predictions, as in the script. */
#define ROW                                                                                        \
    " --tokenizer.path bytes --data.seq_len 64 --stage.name pretrain --train.precision fp32 "      \
    "--train.threads 1 "

TestSuite(peft_folder_cases, .init = make_folder, .fini = remove_folder, .timeout = 240);

/* Sums of 64 losses in f32, in another order than torch's; measured: 1e-6 of the loss. */
static const double tolerance = 3e-6;

__attribute__((format(printf, 2, 3))) static const char *text(char out[2048], const char *format,
                                                              ...)
{
    va_list args;
    va_start(args, format);
    cr_assert_lt(vsnprintf(out, 2048, format, args), 2048);
    va_end(args);
    return out;
}

/* The number after a word of the output; NaN: there is none. */
static double number_after(const char *word)
{
    const char *at = strstr(output, word);
    return at ? strtod(at + strlen(word), NULL) : (double)NAN;
}

static void expect_loss(const char *command, const char *what, double want)
{
    char quiet[2048];
    const int code = run(text(quiet, "%s --json 2>/dev/null", command));
    const double seen = number_after("\"loss\": ");
    cr_expect_eq(code, 0, "%s: exit %d of %s", what, code, command);
    cr_expect(fabs(seen - want) <= tolerance * want, "%s: loss %.9g, PEFT has %.9g: %s", what, seen,
              want, command);
}

/* The adapter as it is, merged, beside others over one base, and as a run begins with it. */
static void check_loss(const char *base, const char *name, double want)
{
    char command[2048];
    expect_loss(text(command,
                     LATHE " eval " PEFT "/%s --model.path " PEFT "/%s --data " PEFT
                           "/text.txt" ROW,
                     name, base),
                name, want);
    if (strcmp(name, "-") == 0)
        return;
    if (strncmp(name, "lora_bias", 9) == 0)
        return; /* not each base has a place for it: merges.txt */
    text(command, LATHE " merge " PEFT "/%s " PEFT "/%s -o merged_%s 2>&1", base, name, name);
    expect(command, 0, "merged_");
    expect_loss(text(command, LATHE " eval merged_%s --data " PEFT "/text.txt" ROW, name), name,
                want);
}

/* Folders that are refused, and the key or tensor by which. */
static const struct {
    const char *base, *name, *by;
} refused[] = {
    {"base", "alora", "alora_invocation_tokens is [1,40]"},
    {"base", "kasa", "kasa_config is"},
    {"base", "two_adapters", "the file has several adapters"},
    {"base", "new_tokens", "model.embed_tokens"},
};

static int is_refused(const char *name)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strcmp(refused[i].name, name) == 0)
            return 1;
    return 0;
}

Test(peft_folder_cases, have_the_losses_of_peft)
{
    char base[64], name[64], loss[64], command[2048];
    int n = 0;
    FILE *file = fopen(PEFT "/losses.txt", "r");
    cr_assert_not_null(file);
    while (fscanf(file, "%63s %63s %63s", base, name, loss) == 3) {
        n++;
        if (strcmp(name, "-") == 0)
            expect_loss(text(command, LATHE " eval " PEFT "/%s --data " PEFT "/text.txt" ROW, base),
                        base, strtod(loss, NULL));
        else if (!is_refused(name))
            check_loss(base, name, strtod(loss, NULL));
    }
    (void)fclose(file);
    cr_expect_geq(n, 30);
}

/* lora_bias adds a vector to each output, which is merged into a layer's bias, if it has one. */
Test(peft_folder_cases, biases_of_b_are_merged_as_peft_merges_them)
{
    char base[64], name[64], loss[64], command[2048];
    int n[2] = {0};
    FILE *file = fopen(PEFT "/merges.txt", "r");
    cr_assert_not_null(file);
    while (fscanf(file, "%63s %63s %63s", base, name, loss) == 3) {
        const int fails = strcmp(loss, "refused") == 0;
        n[fails]++;
        text(command, LATHE " merge " PEFT "/%s " PEFT "/%s -o m_%s 2>&1", base, name, name);
        expect(command, fails ? 2 : 0,
               fails ? "the adapter adds a bias at 'model.layers.0.mlp.up_proj.weight' "
                       "(lora_bias), and the model's layer has none"
                     : "m_lora_bias");
        if (!fails)
            expect_loss(text(command, LATHE " eval m_%s --data " PEFT "/text.txt" ROW, name), name,
                        strtod(loss, NULL));
    }
    (void)fclose(file);
    cr_expect(n[0] == 3 && n[1] == 1, "%d merged, %d refused", n[0], n[1]);
    /* of several the changes are added, to a bias too: parts that sum to 1 are the adapter */
    expect(LATHE " merge " PEFT "/base " PEFT "/lora_bias " PEFT
                 "/lora_bias --adapter-weights 0.25,0.75 -o both 2>&1",
           0, "both");
    expect_loss(LATHE " eval both --data " PEFT "/text.txt" ROW, "both", 5.848410606384277);
    expect(LATHE " merge " PEFT "/base " PEFT "/lora_bias " PEFT
                 "/gaussian --combination linear -o no 2>&1",
           2, "q_proj.lora_B.bias' beside them");
}

/* ---- every path ---- */

static const char run_file[] =
    "[model]\npath = \"%s\"\n%s = \"%s\"\n[tokenizer]\npath = \"bytes\"\n"
    "[data]\ndatasets = [{ path = \"%s\" }]\nseq_len = 64\n%s"
    "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n"
    "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out\"\n";

/* Runs every command that reads an adapter's folder, which must be refused with the text. */
static void expect_refused_everywhere(const char *base, const char *adapter, const char *by)
{
    static const char *const commands[] = {
        LATHE " eval %s --model.path %s --data " PEFT "/text.txt" ROW "2>&1",
        LATHE " generate %s --model.path %s --tokenizer.path bytes --prompt a 2>&1",
        "echo hello | " LATHE " chat %s --model.path %s --tokenizer.path bytes 2>&1"};
    char command[2048], toml[2048];
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        expect(text(command, commands[i], adapter, base), 2, by);
#pragma GCC diagnostic pop
    }
    expect(text(command, LATHE " merge %s %s -o merged 2>&1", base, adapter), 2, by);
    expect(text(command,
                LATHE " generate %s --adapter x=%s --use x --tokenizer.path bytes --prompt a 2>&1",
                base, adapter),
           2, by);
    put("run.toml", text(toml, run_file, base, "adapter", adapter, PEFT "/text.txt", ""));
    expect(LATHE " train run.toml 2>&1", 2, by);
    expect(LATHE " validate run.toml 2>&1", 2, by);
    put("pairs.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
    put("run.toml", text(toml, run_file, base, "reference_adapter", adapter, "pairs.jsonl",
                         "[stage]\nname = \"dpo\"\n[adapter]\nname = \"lora\"\n"));
    expect(LATHE " train run.toml 2>&1", 2, by);
    cr_expect_neq(access("merged", F_OK), 0);
}

Test(peft_folder_cases, with_what_lathe_does_not_read_are_refused_by_name_on_every_path)
{
    char base[2048], adapter[2048];
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        expect_refused_everywhere(text(base, PEFT "/%s", refused[i].base),
                                  text(adapter, PEFT "/%s", refused[i].name), refused[i].by);
}

Test(peft_folder_cases, begin_a_run_with_the_loss_of_peft)
{
    static const struct {
        const char *base, *name;
        double loss; /* of losses.txt */
    } cases[] = {{"base", "digits", 5.817126750946045},
                 {"base", "layers", 5.724456787109375},
                 {"base", "other_names", 5.697922706604004},
                 {"experts", "fused_down", 5.899898052215576}};
    char base[2048], adapter[2048], toml[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("run.toml", text(toml, run_file, text(base, PEFT "/%s", cases[i].base), "adapter",
                             text(adapter, PEFT "/%s", cases[i].name), PEFT "/text.txt", ""));
        cr_assert_eq(run("rm -rf out && " LATHE " train run.toml 2>&1"), 0, "%s", output);
        cr_assert_eq(run("grep '\"loss\"' out/metrics.jsonl | head -1"), 0);
        const double seen = number_after("\"loss\": ");
        cr_expect(fabs(seen - cases[i].loss) <= tolerance * cases[i].loss, "%s: %s, PEFT has %.9g",
                  cases[i].name, output, cases[i].loss);
    }
}

/* An adapter that Lathe trains has the scales that PEFT reads from its adapter_config.json. */
Test(peft_folder_cases, written_by_lathe_have_their_patterns_as_peft_reads_them)
{
    char toml[2048];
    put("run.toml", text(toml, run_file, PEFT "/base", "# ", "", PEFT "/text.txt",
                         "[optimizer]\nlr = 0.05\n"
                         "[adapter]\nname = \"lora\"\nr = 4\nalpha = 4.0\n"
                         "target_modules = [\"q_proj\", \"v_proj\"]\nlayers_to_transform = [1, 2]\n"
                         "alpha_pattern = { 'layers\\.\\d+\\.self_attn\\.v_proj' = 64.0 }\n"
                         "rank_pattern = { '(?:layers)\\.2\\..*q_proj' = 2 }\n"));
    cr_assert_eq(run(LATHE " train run.toml --train.max_steps 3 2>&1"), 0, "%s", output);
    expect("cat out/step-00000003/adapter_config.json", 0,
           "\"alpha_pattern\": {\"layers\\\\.\\\\d+\\\\.self_attn\\\\.v_proj\": 64.0}");
    expect("cat out/step-00000003/adapter_config.json", 0, "\"layers_to_transform\": [1, 2]");
    /* the settings of its manifest, and those that adapter_config.json alone gives */
    cr_assert_eq(run("mkdir peft && cp out/step-00000003/adapter_* peft"), 0);
    cr_assert_eq(run(LATHE " eval out --data " PEFT "/text.txt" ROW "--json 2>/dev/null"), 0);
    const double own = number_after("\"loss\": ");
    cr_assert_eq(run(LATHE " eval peft --data " PEFT "/text.txt" ROW "--json 2>/dev/null"), 0);
    const double by_peft = number_after("\"loss\": ");
    cr_expect(fabs(own - by_peft) <= tolerance * own, "%.9g and %.9g", own, by_peft);
    cr_expect(fabs(own - 5.677301406860352) > 0.01, "the adapter changes the loss: %.9g", own);
}

/* A typo in a run file is an error, and so is an alpha of 0. */
Test(peft_folder_cases, entries_without_effect_are_errors_in_a_run_file)
{
    static const struct {
        const char *keys, *want;
    } cases[] = {
        {"target_modules = [\"q_proj\", \"query_key_value\"]\n",
         "target_modules[1] = \"query_key_value\" matches no module"},
        {"exclude_modules = [\"w2\"]\n", "exclude_modules[0] = \"w2\" matches no module"},
        {"exclude_pattern = '.*w2'\n", "exclude_pattern \".*w2\" matches no module"},
        {"layers_to_transform = [1, 7]\n", "layers_to_transform[1]: the model has no layer 7"},
        {"layers_to_transform = [0.5]\n", "layers_to_transform[0] is 0.5"},
        {"layers_pattern = [\"h\"]\n", "layers_pattern has no effect without layers_to_transform"},
        {"target_pattern = '.*q_proj'\nlayers_to_transform = [1]\n",
         "layers_to_transform belongs to target_modules"},
        {"exclude_pattern = '.*q_proj'\nexclude_modules = [\"k_proj\"]\n",
         "exclude_pattern and exclude_modules both"},
        {"rank_pattern = { '\\d\\d\\.mlp' = 3 }\n", "matches no module"},
        {"alpha_pattern = { '(' = 3 }\n", "alpha_pattern: \"(\" is no regular expression"},
        {"alpha = 0.0\n", "alpha is 0, so the adapter has no effect"},
    };
    char toml[2048], keys[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("run.toml", text(toml, run_file, PEFT "/base", "# ", "", PEFT "/text.txt",
                             text(keys, "[adapter]\nname = \"lora\"\nr = 2\n%s", cases[i].keys)));
        expect(LATHE " validate run.toml 2>&1", 2, cases[i].want);
    }
}

/* In a folder PEFT's rule holds; the entry is named all the same. */
Test(peft_folder_cases, entries_without_effect_are_warnings_in_a_folder)
{
    static const char *const cases[][2] = {
        {"unmatched_target", "\"query_key_value\" matches no module"},
        {"unmatched_exclude", "\"w2\" matches no module"},
        {"unmatched_saved", "\"ln_f\" matches no module"},
        {"first_pattern", "rank_pattern \"z_proj\" matches no module"},
        {"layers_pattern", "the model has no layer 7"},
        {"alpha_zero", "alpha is 0, so the adapter has no effect"}};
    char command[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(text(command,
                    LATHE " eval " PEFT "/%s --model.path " PEFT "/base --data " PEFT
                          "/text.txt" ROW "2>&1",
                    cases[i][0]),
               0, cases[i][1]);
}

/* save_pretrained writes adapters that have names into folders of their own. */
Test(peft_folder_cases, in_folders_of_their_own_are_found_and_named)
{
    static const char want[] = "; 2 of its folders hold an adapter, such as many/dpo: name one";
    char command[2048], toml[2048];
    cr_assert_eq(
        run("mkdir many && cp -r " PEFT "/gaussian many/dpo && cp -r " PEFT "/gaussian many/sft"),
        0);
    expect(LATHE " eval many --data " PEFT "/text.txt" ROW "2>&1", 2, want);
    expect(LATHE " eval many --model.path " PEFT "/base --data " PEFT "/text.txt" ROW "2>&1", 2,
           want);
    expect(LATHE " generate many --prompt a 2>&1", 2, want);
    expect(LATHE " generate " PEFT "/base --adapter x=many --prompt a 2>&1", 2, want);
    expect(LATHE " merge " PEFT "/base many -o merged 2>&1", 2, want);
    put("run.toml", text(toml, run_file, PEFT "/base", "adapter", "many", PEFT "/text.txt", ""));
    expect(LATHE " validate run.toml 2>&1", 2, want);
    expect_loss(text(command, LATHE " eval many/sft --model.path " PEFT "/base --data " PEFT
                                    "/text.txt" ROW),
                "many/sft", 5.619823932647705);
}

/* mlx-lm and torchtune have files of the same name with other keys. */
Test(peft_folder_cases, of_another_program_are_not_those_of_peft)
{
    cr_assert_eq(run("cp -r " PEFT "/gaussian a && chmod -R u+w a"), 0);
    put("a/adapter_config.json", "{\"fine_tune_type\": \"lora\", \"num_layers\": 2, "
                                 "\"lora_parameters\": {\"rank\": 4, \"scale\": 20.0}}");
    expect(LATHE " merge " PEFT "/base a -o merged 2>&1", 2,
           "a/adapter_config.json: no peft_type, so another program than PEFT wrote it");
    expect(LATHE " generate a --prompt x 2>&1", 2,
           "a holds an adapter, and no file in it names the adapter's model");
    expect(LATHE " generate a --model.path " PEFT "/base --prompt x 2>&1", 2, "no peft_type");
}

Test(peft_folder_cases, pickled_weights_are_named)
{
    char command[2048];
    cr_assert_eq(run("cp -r " PEFT "/gaussian a && chmod -R u+w a"), 0);
    put("a/adapter_model.bin", "pickle");
    expect(LATHE " eval a --model.path " PEFT "/base --data " PEFT "/text.txt" ROW "2>&1", 0,
           "a: adapter_model.bin is not read");
    cr_assert_eq(unlink("a/adapter_model.safetensors"), 0);
    expect_refused_everywhere(PEFT "/base", text(command, "%s", "a"),
                              "a: the adapter's weights are in adapter_model.bin");
    cr_assert_eq(unlink("a/adapter_config.json"), 0);
    expect(LATHE " generate a --prompt x 2>&1", 2, "in adapter_model.bin");
}

/* Settings that PEFT has for them, and Lathe does not read. */
Test(peft_folder_cases, of_fused_experts_are_refused_by_the_key)
{
    static const char *const cases[][2] = {
        {"s/.rank_pattern.: {}/\"rank_pattern\": {\"q_proj\": 2}/", "rank_pattern beside"},
        {"s/.alpha_pattern.: {}/\"alpha_pattern\": {\"q_proj\": 2}/", "alpha_pattern beside"},
        {"s/mlp.experts.down_proj/mlp.gate.weight/", "target_parameters names \"mlp.gate.weight\""},
        {"s/mlp.experts.down_proj/mlp.experts.gate_up_proj/", "does not name"},
        {"s/.r.: 4/\"r\": 3/", "no matrix of rank 3"}};
    char command[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(
            run(text(command,
                     "rm -rf f && cp -r " PEFT "/fused_experts f && chmod -R u+w f && sed -i '%s' "
                     "f/adapter_config.json",
                     cases[i][0])),
            0, "%s", output);
        expect(text(command, LATHE " eval f --model.path " PEFT "/experts --data " PEFT
                                   "/text.txt" ROW "2>&1"),
               2, cases[i][1]);
    }
}

/* PEFT would train less of them than Lathe. */
Test(peft_folder_cases, that_lathe_would_train_otherwise_are_only_read)
{
    static const char *const cases[][3] = {
        {"base", "embedding_saved", "the whole weight of lm_head, model.embed_tokens, which"},
        {"experts", "fused_gate_up", "target_parameters names gate_up_proj"}};
    char base[2048], adapter[2048], toml[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("run.toml", text(toml, run_file, text(base, PEFT "/%s", cases[i][0]), "adapter",
                             text(adapter, PEFT "/%s", cases[i][1]), PEFT "/text.txt", ""));
        expect(LATHE " train run.toml 2>&1", 2, cases[i][2]);
        expect(LATHE " validate run.toml 2>&1", 2, "not trained further");
    }
}

/* In one go, and with a stop between. test_oracle_adapters compares the steps with PEFT's. */
Test(peft_folder_cases, of_mica_train_a_alone)
{
    char toml[2048];
    put("run.toml", text(toml, run_file, PEFT "/base", "adapter", PEFT "/mica", PEFT "/text.txt",
                         "[optimizer]\nlr = 0.05\n"));
    cr_assert_eq(run(LATHE " train run.toml --train.max_steps 4 2>&1"), 0, "%s", output);
    cr_assert_eq(run("grep '\"loss\"' out/metrics.jsonl | head -1"), 0);
    cr_expect(fabs(number_after("\"loss\": ") - 5.813657283782959) < 3e-5, "%s", output);
    expect("cat out/step-00000004/adapter_config.json", 0, "\"init_lora_weights\": \"mica\"");
    cr_assert_eq(run("mv out whole && " LATHE
                     " train run.toml --train.max_steps 4 --train.stop_after 2 2>&1 && " LATHE
                     " train run.toml --train.max_steps 4 2>&1"),
                 0, "%s", output);
    expect("cmp out/step-00000004/adapter_model.safetensors "
           "whole/step-00000004/adapter_model.safetensors && echo same",
           0, "same");
    cr_assert_eq(run(LATHE " eval whole --data " PEFT "/text.txt" ROW "--json 2>/dev/null"), 0);
    const double own = number_after("\"loss\": ");
    cr_expect(fabs(own - 5.813657283782959) > 0.1, "%.9g", own);
    expect(LATHE " merge whole -o merged 2>&1", 0, "merged");
    expect_loss(LATHE " eval merged --data " PEFT "/text.txt" ROW, "merged", own);
}

/* After a merge the model computes what it computed before, and goes on from there. */
Test(peft_folder_cases, with_a_bias_of_b_or_of_mica_are_merged_during_a_run)
{
    static const char *const cases[][2] = {
        {"conv1d", "--adapter.lora_bias true"},
        {"conv1d", "--adapter.init mica --adapter.target_modules '[\"c_attn\", \"c_proj\"]'"},
        {"base", "--adapter.init mica"}};
    char toml[2048], base[2048], command[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *more = cases[i][1];
        put("run.toml",
            text(toml, run_file, text(base, PEFT "/%s", cases[i][0]), "# ", "", PEFT "/text.txt",
                 "[optimizer]\nlr = 0.05\n[scheduler]\nname = \"constant\"\n"
                 "[adapter]\nname = \"lora\"\nr = 4\n"));
        cr_assert_eq(run(text(command,
                              "rm -rf out; " LATHE " train run.toml %s --train.max_steps "
                              "2 2>&1; mv out plain",
                              more)),
                     0, "%s", output);
        cr_assert_eq(run(LATHE " eval plain --data " PEFT "/text.txt" ROW "--json 2>/dev/null"), 0);
        const double want = number_after("\"loss\": ");
        text(command,
             LATHE " train run.toml %s --train.max_steps 2 --adapter.merge_every 2 "
                   "--adapter.merge_warmup_steps 1 2>&1",
             more);
        expect(command, 0, "begins anew");
        expect_loss(LATHE " eval out --data " PEFT "/text.txt" ROW, more, want);
        cr_assert_eq(run("mv out merged"), 0);
        text(command,
             LATHE " train run.toml %s --train.max_steps 5 --adapter.merge_every 2 "
                   "--adapter.merge_warmup_steps 1 2>&1 && mv out whole && mv merged out && " LATHE
                   " train run.toml %s --train.max_steps 5 --adapter.merge_every 2 "
                   "--adapter.merge_warmup_steps 1 2>&1 && cd out/step-00000005 && for f in "
                   "model.safetensors adapter_model.safetensors; do cmp $f "
                   "../../whole/step-00000005/$f || exit 1; done && echo same && cd ../.. && "
                   "rm -r plain out whole",
             more, more);
        expect(command, 0, "same");
    }
    put("run.toml", text(toml, run_file, PEFT "/base", "# ", "", PEFT "/text.txt",
                         "[adapter]\nname = \"lora\"\nlora_bias = true\nmerge_every = 2\n"
                         "merge_warmup_steps = 1\n"));
    expect(LATHE " validate run.toml 2>&1", 2,
           "adapter.merge_every: the adapter adds a bias at 'model.layers.0.mlp.gate_proj.weight' "
           "(lora_bias), and the model's layer has none");
}

/* Settings that PEFT refuses too, and one that makes two uses share a pair. */
Test(peft_folder_cases, of_mica_with_settings_that_contradict_it_are_refused)
{
    static const char *const cases[][2] = {
        {"init = \"mica\"\nr = 17\n",
         "the rank is 17, and model.layers.0.self_attn.q_proj [16, 16] "
         "has fewer singular vectors"},
        {"init = \"mica\"\nr = 4\nlora_bias = true\n", "lora_bias belongs to init = \"kaiming\""},
        {"init = \"mica\"\nr = 4\ntarget_modules = [\"embed_tokens\"]\n"
         "ensure_weight_tying = true\n",
         "init = \"mica\" gives model.embed_tokens and lm_head matrices of their own"}};
    char toml[2048], keys[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("run.toml",
            text(toml, run_file, i == 2 ? PEFT "/tied" : PEFT "/base", "# ", "", PEFT "/text.txt",
                 text(keys, "[adapter]\nname = \"lora\"\n%s", cases[i][0])));
        expect(LATHE " validate run.toml 2>&1", 2, cases[i][1]);
    }
    put("run.toml", text(toml, run_file, PEFT "/base", "# ", "", PEFT "/text.txt",
                         "[adapter]\nname = \"lora_plus\"\ninit = \"mica\"\n"));
    expect(LATHE " validate run.toml 2>&1", 2, "adapter.init");
    put("run.toml", text(toml, run_file, PEFT "/base", "# ", "", PEFT "/text.txt",
                         "[adapter]\nname = \"lora\"\ninit = \"mica\"\nr = 4\n"));
    expect(LATHE " validate run.toml --train.weight_average ema 2>&1", 2,
           "the average of the weights (train.weight_average, or an optimizer that averages) is "
           "not offered for adapters with matrices that do not train");
    expect(LATHE " validate run.toml --optimizer.name schedule_free_adamw 2>&1", 2,
           "is not offered for adapters with matrices that do not train");
    /* checkpoints that are written while the run goes on have B, too */
    expect(LATHE
           " train run.toml --train.max_steps 3 --checkpoint.every 1 --checkpoint.async true "
           "2>&1 && mv out beside && " LATHE
           " train run.toml --train.max_steps 3 --checkpoint.every 1 --checkpoint.async "
           "false 2>&1 && for s in 1 2 3; do cmp out/step-0000000$s/adapter_model.safetensors "
           "beside/step-0000000$s/adapter_model.safetensors || exit 1; done; echo same",
           0, "same");
}

/* The head of a tied model gets a matrix of its own where the adapter trains one of the two. */
Test(peft_folder_cases, of_a_tied_model_train_its_embedding_and_head_apart)
{
    char toml[2048], command[2048];
    put("run.toml", text(toml, run_file, PEFT "/tied", "adapter", PEFT "/tied_both",
                         PEFT "/text.txt", "[optimizer]\nlr = 0.01\n"));
    expect(LATHE " train run.toml 2>&1", 0, "out/step-00000001");
    cr_assert_eq(run("grep '\"loss\"' out/metrics.jsonl | head -1"), 0);
    cr_expect(fabs(number_after("\"loss\": ") - 6.737489223480225) < 3e-5, "%s", output);
    expect(LATHE " train run.toml --train.max_steps 2 2>&1", 0, "out/step-00000002"); /* resumes */
    expect("cat out/step-00000002/adapter_config.json", 0,
           "\"modules_to_save\": [\"embed_tokens\", \"lm_head\"]");
    cr_assert_eq(run(LATHE " eval out --data " PEFT "/text.txt" ROW "--json 2>/dev/null"), 0);
    const double own = number_after("\"loss\": ");
    expect(LATHE " merge " PEFT "/tied out -o merged 2>&1", 0, "merged");
    expect("cat merged/config.json", 0, "\"tie_word_embeddings\": false");
    cr_assert_eq(run(LATHE " eval merged --data " PEFT "/text.txt" ROW "--json 2>/dev/null"), 0);
    cr_expect(fabs(number_after("\"loss\": ") - own) <= tolerance * own, "%s", output);
    /* beside another adapter over the one base */
    expect(LATHE " generate merged --tokenizer.path bytes --train.precision fp32 --temperature 0 "
                 "--max-new-tokens 12 --prompt It 2>/dev/null > alone; " LATHE " generate " PEFT
                 "/tied --adapter x=out --adapter y=" PEFT
                 "/token_indices_tied --use x --tokenizer.path bytes --train.precision fp32 "
                 "--temperature 0 --max-new-tokens 12 --prompt It 2>/dev/null > beside; "
                 "cmp alone beside && echo same",
           0, "same");
    expect(text(command, LATHE " merge " PEFT "/tied out " PEFT "/token_indices_tied -o both 2>&1"),
           2, "do not belong together");
}

/* ---- keys of adapter_config.json ---- */

enum { READ, HARMLESS, REFUSED };

/* Every field of PEFT's LoraConfig and OFTConfig. */
static const struct {
    const char *method, *key;
    int what;
} keys[] = {
    {"LORA", "task_type", REFUSED},
    {"LORA", "peft_type", READ},
    {"LORA", "auto_mapping", HARMLESS},
    {"LORA", "peft_version", HARMLESS},
    {"LORA", "base_model_name_or_path", READ},
    {"LORA", "revision", HARMLESS},
    {"LORA", "inference_mode", HARMLESS},
    {"LORA", "r", READ},
    {"LORA", "target_modules", READ},
    {"LORA", "exclude_modules", READ},
    {"LORA", "lora_alpha", READ},
    {"LORA", "lora_dropout", HARMLESS},
    {"LORA", "fan_in_fan_out", HARMLESS},
    {"LORA", "bias", READ},
    {"LORA", "use_rslora", READ},
    {"LORA", "modules_to_save", READ},
    {"LORA", "init_lora_weights", REFUSED},
    {"LORA", "layers_to_transform", READ},
    {"LORA", "layers_pattern", READ},
    {"LORA", "rank_pattern", READ},
    {"LORA", "alpha_pattern", READ},
    {"LORA", "megatron_config", REFUSED},
    {"LORA", "megatron_core", HARMLESS},
    {"LORA", "trainable_token_indices", READ},
    {"LORA", "loftq_config", HARMLESS},
    {"LORA", "eva_config", HARMLESS},
    {"LORA", "corda_config", HARMLESS},
    {"LORA", "lora_ga_config", HARMLESS},
    {"LORA", "use_dora", READ},
    {"LORA", "velora_config", HARMLESS},
    {"LORA", "alora_invocation_tokens", REFUSED},
    {"LORA", "use_qalora", REFUSED},
    {"LORA", "qalora_group_size", HARMLESS},
    {"LORA", "monteclora_config", REFUSED},
    {"LORA", "layer_replication", REFUSED},
    {"LORA", "runtime_config", HARMLESS},
    {"LORA", "lora_bias", READ},
    {"LORA", "target_parameters", READ},
    {"LORA", "use_bdlora", REFUSED},
    {"LORA", "arrow_config", REFUSED},
    {"LORA", "kasa_config", REFUSED},
    {"LORA", "ensure_weight_tying", READ},
    {"OFT", "task_type", REFUSED},
    {"OFT", "peft_type", READ},
    {"OFT", "auto_mapping", HARMLESS},
    {"OFT", "peft_version", HARMLESS},
    {"OFT", "base_model_name_or_path", READ},
    {"OFT", "revision", HARMLESS},
    {"OFT", "inference_mode", HARMLESS},
    {"OFT", "r", REFUSED},
    {"OFT", "oft_block_size", READ},
    {"OFT", "module_dropout", HARMLESS},
    {"OFT", "target_modules", READ},
    {"OFT", "fan_in_fan_out", HARMLESS},
    {"OFT", "bias", READ},
    {"OFT", "exclude_modules", READ},
    {"OFT", "init_weights", HARMLESS},
    {"OFT", "layers_to_transform", READ},
    {"OFT", "layers_pattern", READ},
    {"OFT", "modules_to_save", READ},
    {"OFT", "coft", REFUSED},
    {"OFT", "eps", HARMLESS},
    {"OFT", "block_share", REFUSED},
    {"OFT", "use_cayley_neumann", REFUSED},
    {"OFT", "num_cayley_neumann_terms", READ},
};

static int what_is_done(const char *method, const char *key)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i].method, method) == 0 && strcmp(keys[i].key, key) == 0)
            return keys[i].what;
    return -1;
}

/* Copies a folder to "a", whose config has the key with the value in place of its own. */
static void copy_with(const char *from, const char *key, const char *value)
{
    char command[2048];
    cr_assert_eq(
        run(text(command,
                 "rm -rf a && cp -r " PEFT "/%s a && chmod -R u+w a && python=no && "
                 "tr '\\n' ' ' < " PEFT "/%s/adapter_config.json | "
                 "sed -E 's/^ *\\{//; s/\"%s\": (\\[[^]]*\\]|\\{[^}]*\\}|[^,}]*)(, *)?//; "
                 "s/, *\\} *$/}/' > rest && printf '{\"%s\": %%s, %%s' '%s' \"$(cat rest)\" "
                 "> a/adapter_config.json",
                 from, from, key, key, value)),
        0, "%s", output);
}

#define EVAL_A LATHE " eval a --model.path " PEFT "/base --data " PEFT "/text.txt" ROW

Test(peft_folder_cases, every_key_of_pefts_configs_is_read_harmless_or_refused)
{
    char method[16], key[64], value[256], want[2048], command[2048];
    int n = 0;
    FILE *file = fopen(PEFT "/keys.txt", "r");
    cr_assert_not_null(file);
    while (fscanf(file, "%15s %63s %255[^\n]", method, key, value) == 3) {
        const int is_oft = strcmp(method, "OFT") == 0, what = what_is_done(method, key);
        n++;
        cr_expect_neq(what, -1, "%s of %s is new: say what Lathe does with it", key, method);
        copy_with(is_oft ? "oft_layers" : "gaussian", key, value);
        if (what == REFUSED)
            expect(EVAL_A "2>&1", 2, text(command, "adapter_config.json: %s is ", key));
        else if (what == HARMLESS)
            expect_loss(EVAL_A, key, is_oft ? 5.677060604095459 : 5.619823932647705);
        else if (run(EVAL_A "2>&1") != 0)
            cr_expect_null(strstr(output, text(want, "adapter_config.json: the key %s", key)),
                           "%s: %s", key, output);
    }
    (void)fclose(file);
    cr_expect_eq(n, (int)(sizeof keys / sizeof keys[0]));
}

/* A key of a later PEFT, or of another program. */
Test(peft_folder_cases, an_unknown_key_is_refused_by_name_unless_it_is_empty)
{
    static const char *const set[] = {"true", "1", "0", "\"x\"", "[1]", "{\"a\": null}"};
    static const char *const empty[] = {"null", "false", "\"\"", "[]", "{}"};
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
        copy_with("gaussian", "use_newlora", set[i]);
        if (i == 0)
            expect_refused_everywhere(PEFT "/base", "a", "the key use_newlora is");
        expect(EVAL_A "2>&1", 2, "the key use_newlora is");
    }
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        copy_with("gaussian", "use_newlora", empty[i]);
        expect_loss(EVAL_A, empty[i], 5.619823932647705);
    }
}
