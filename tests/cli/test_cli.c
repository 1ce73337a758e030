/* The command line: exit codes, messages, JSON, and plugins that come and go. */
#include "cli_case.h"

#include <jansson.h>
#include <sys/stat.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

TestSuite(cli, .init = make_folder, .fini = remove_folder);

Test(cli, answers_help_and_version_without_anything)
{
    expect(LATHE " --version", 0, "lathe 0.");
    expect(LATHE " --help", 0, "commands:");
    expect(LATHE " 2>&1", 2, "usage: lathe COMMAND");
}

Test(cli, every_command_has_help)
{
    cr_assert_eq(run(LATHE " --help | sed -n 's/^  \\([a-z]* \\{0,1\\}[a-z]*\\)   *[^ ].*/\\1/p'"),
                 0);
    static char names[sizeof output];
    int n = 0;
    memcpy(names, output, sizeof names);
    for (char *name = strtok(names, "\n"); name != NULL; name = strtok(NULL, "\n"), n++) {
        char command[256];
        (void)snprintf(command, sizeof command, LATHE " %s --help", name);
        expect(command, 0, "usage: lathe ");
    }
    cr_expect_geq(n, 6, "%d commands", n);
}

Test(cli, wrong_usage_exits_2_and_suggests)
{
    expect(LATHE " lss 2>&1", 2, "did you mean 'ls'?");
    expect(LATHE " plugni 2>&1", 2, "did you mean 'plugin'?");
    expect(LATHE " plugin 2>&1", 2, "lathe plugin new KIND NAME");
    expect(LATHE " plugin chek x 2>&1", 2, "did you mean 'check'?");
    expect(LATHE " ls --jsn 2>&1", 2, "did you mean '--json'?");
    expect(LATHE " ls optimizers 2>&1", 2, "did you mean 'optimizer'?");
    expect(LATHE " ls one two 2>&1", 2, "unexpected argument 'two'");
    expect(LATHE " show 2>&1", 2, "expected show KIND/NAME");
    expect(LATHE " show optimizer/adanw 2>&1", 2, "did you mean 'adamw'?");
    expect(LATHE " validate run.toml --train.seed 2>&1", 2, "needs a value");
}

Test(cli, ls_prints_an_array_of_objects)
{
    static const char *const keys[] = {"kind", "name", "version", "path", "summary"};
    json_t *plugin;
    size_t i;
    cr_assert_eq(run(LATHE " ls --json"), 0);
    json_t *all = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(json_is_array(all), "%s", output);
    cr_expect_geq(json_array_size(all), 14);
    json_array_foreach(all, i, plugin)
    {
        for (size_t k = 0; k < 5; k++)
            cr_expect(json_is_string(json_object_get(plugin, keys[k])), "%zu has no %s", i,
                      keys[k]);
        cr_expect(json_is_array(json_object_get(plugin, "devices")), "%zu", i);
        const char *path = json_string_value(json_object_get(plugin, "path"));
        cr_expect_eq(access(path, R_OK), 0, "%s", path);
        for (size_t k = 0; k < i; k++)
            cr_expect_str_neq(path,
                              json_string_value(json_object_get(json_array_get(all, k), "path")));
    }
    json_decref(all);
}

Test(cli, ls_and_show_tell_on_which_devices_a_plugin_works)
{
    cr_assert_eq(run(LATHE " ls"), 0);
    static const char *const lines[] = {
        "attention/flash_cpu +[0-9.]+ +cpu ", "scheduler/cosine +[0-9.]+ +any ",
        "adapter/lora +[0-9.]+ +any ", "device/cpu_avx512_bf16 +[0-9.]+ +cpu "};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, LATHE " ls | grep -E '^%s'", lines[i]);
        cr_expect_eq(run(command), 0, "%s", lines[i]);
    }
    cr_assert_eq(run(LATHE " show attention/reference"), 0);
    cr_expect(strstr(output, "devices   cpu\n"), "%s", output);
    expect("COLUMNS=40 LC_ALL=C.UTF-8 " LATHE " ls | awk 'length > 40' | wc -l", 0, "0\n");
    expect("COLUMNS=100 LC_ALL=C.UTF-8 " LATHE " ls | awk 'length > 100' | wc -l", 0, "0\n");
    if (run(LATHE " ls device | grep -q ^device/cuda") != 0)
        return; /* built without the CUDA toolkit: no plugin has CUDA code */
    expect(LATHE " show optimizer/adamw", 0, "devices   cpu,cuda\n");
    expect(LATHE " show quant/nf4", 0, "devices   cpu,cuda\n");
    expect(LATHE " show attention/reference_cuda", 0, "devices   cuda\n");
    expect(LATHE " show device/cuda", 0, "devices   cuda\n");
}

Test(cli, show_tells_every_key)
{
    cr_assert_eq(run(LATHE " show optimizer/adamw --json"), 0);
    json_t *plugin = json_loads(output, 0, NULL), *field;
    size_t i;
    int seen = 0;
    cr_assert(json_is_object(plugin), "%s", output);
    json_array_foreach(json_object_get(plugin, "fields"), i, field)
    {
        cr_expect(json_is_string(json_object_get(field, "type")));
        cr_expect(json_is_string(json_object_get(field, "doc")));
        if (strcmp(json_string_value(json_object_get(field, "key")), "lr") != 0)
            continue;
        seen = 1;
        cr_expect(json_is_real(json_object_get(field, "default")));
        cr_expect(json_is_number(json_object_get(field, "min")));
    }
    cr_expect(seen);
    json_decref(plugin);
    expect(LATHE " show optimizer/adamw", 0, "weight_decay");
    expect(LATHE " show train", 0, "max_steps");
}

Test(cli, doctor_answers_in_text_and_json)
{
    expect(LATHE " doctor", 0, "devices by score");
    expect(LATHE " doctor", 0, "precisions fp32 bf16 fp16");
    cr_assert_eq(run(LATHE " doctor --json"), 0);
    json_t *all = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(json_is_object(all), "%s", output);
    cr_expect_gt(json_integer_value(json_object_get(json_object_get(all, "memory"), "total_bytes")),
                 0);
    cr_expect(json_is_array(json_object_get(json_object_get(all, "cuda"), "libraries")));
    json_decref(all);
}

/* cuDNN and cuBLASLt may be anywhere: the output shows the library that the loader finds, with its
 * path. */
Test(cli, doctor_tells_which_cuda_libraries_are_found)
{
    expect("ln -s " LATHE_TEST_BUILD "/tests/fake_cudnn/libcudnn_91501.so libcudnn.so.9 && "
           "LD_LIBRARY_PATH=$PWD " LATHE " doctor",
           0, "cuDNN        9.15.1  /");
    expect("LD_LIBRARY_PATH=$PWD " LATHE " doctor | grep \"$PWD/libcudnn.so.9\"", 0,
           "libcudnn.so.9");
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

static const char run_file[] = "[model]\n"
                               "model_type = \"llama\"\n"
                               "hidden_size = 32\n"
                               "intermediate_size = 64\n"
                               "num_hidden_layers = 1\n"
                               "num_attention_heads = 2\n"
                               "[data]\n"
                               "datasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                               "seq_len = 16\n"
                               "[train]\n"
                               "max_steps = 2\n"
                               "[checkpoint]\n"
                               "dir = \"out\"\n";

Test(cli, validate_takes_a_good_file)
{
    write_file("run.toml", run_file);
    write_file("text.txt", "a few words, and some more of them\n");
    expect(LATHE " validate run.toml 2>&1", 0, "run.toml: valid");
    expect(LATHE " validate run.toml --optimizer.lr=2e-5 --train.max_steps 7 2>&1", 0, "valid");
    expect(LATHE " validate run.toml --op.name short_conv 2>&1", 2,
           "[op] has no effect: the plugins");
}

Test(cli, validate_tells_all_errors_at_once)
{
    write_file("bad.toml", "[optimizer]\n"
                           "name = \"adamw\"\n"
                           "lrr = 1e-3\n"
                           "beta1 = 1.5\n"
                           "[scheduler]\n"
                           "name = \"cosin\"\n"
                           "[data]\n"
                           "datasets = [{ path = \"nothing.txt\", type = \"text\" }]\n"
                           "seq_len = \"long\"\n");
    expect(LATHE " validate bad.toml 2>&1", 2, "bad.toml:3:1: error: unknown key 'lrr'");
    cr_expect_not_null(strstr(output, "did you mean 'lr'?"), "%s", output);
    cr_expect_not_null(strstr(output, "bad.toml:4:9: error: optimizer.beta1 is 1.5"), "%s", output);
    cr_expect_not_null(strstr(output, "bad.toml:6:8: error: no scheduler named 'cosin'"), "%s",
                       output);
    cr_expect_not_null(strstr(output, "nothing.txt"), "%s", output);
    cr_expect_not_null(strstr(output, "bad.toml:9:11: error: data.seq_len"), "%s", output);
    expect(LATHE " validate none.toml 2>&1", 2, "none.toml");
    write_file("broken.toml", "[train\n");
    expect(LATHE " validate broken.toml 2>&1", 2, "broken.toml:1:");
}

Test(cli, validate_checks_rules_across_keys)
{
    write_file("run.toml", run_file);
    write_file("text.txt", "a few words, and some more of them\n");
    expect(LATHE " validate run.toml --scheduler.warmup_steps 5 --scheduler.warmup_ratio 0.5 2>&1",
           2, "set only one of them");
    expect(LATHE " validate run.toml --optimizer.name sophia 2>&1", 0, "valid");
    expect(LATHE " validate run.toml --optimizer.name sophia --stage.name dpo 2>&1", 2,
           "draws; stage \"dpo\" has none");
    cr_expect_not_null(strstr(output, "run.toml:8:41: error: stage \"dpo\" reads pairs"), "%s",
                       output);
}

Test(cli, plan_prints_the_numbers_of_each_group_and_half)
{
    put("muon.toml", "[model]\nmodel_type = \"llama\"\nvocab_size = 260\nhidden_size = 32\n"
                     "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                     "max_position_embeddings = 64\ntie_word_embeddings = true\n"
                     "[tokenizer]\npath = \"bytes\"\n"
                     "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                     "[train]\nmax_steps = 6\n"
                     "[optimizer]\nname = \"muon\"\n"
                     "groups = [{ name = \"e\\\"m\", params = [\"*embed*\"], lr = 1e-3 }]\n");
    put("text.txt", "text\n");
    expect(LATHE " plan muon.toml 2>&1", 0,
           "groups           part          lr  weight decay   tensors   parameters\n");
    cr_expect_not_null(
        strstr(output,
               "  default        muon     2.000e-02             0         7        10240\n"),
        "%s", output);
    cr_expect_not_null(
        strstr(output,
               "  default        adamw    3.000e-04             0         3           96\n"),
        "%s", output);
    cr_expect_not_null(
        strstr(output,
               "  e\"m            adamw    1.000e-03             0         1         8320\n"),
        "%s", output);
    expect(LATHE " plan muon.toml --json 2>&1", 0,
           "{\"name\": \"e\\\"m\", \"part\": \"adamw\", \"lr\": 0.001, \"weight_decay\": 0, "
           "\"tensors\": 1, \"parameters\": 8320}");
}

Test(cli, plugin_new_writes_a_folder_once)
{
    expect(LATHE " plugin new optimizer mine", 0, "mine/CMakeLists.txt");
    cr_expect_eq(access("mine/plugin.c", R_OK), 0);
    cr_expect_neq(run("grep -r '@NAME@' mine"), 0, "%s", output);
    expect(LATHE " plugin new optimizer mine 2>&1", 2, "exists already");
    expect(LATHE " plugin new optimizer Mine 2>&1", 2, "the name 'Mine'");
    expect(LATHE " plugin new optimizer ../up 2>&1", 2, "the name");
    expect(LATHE " plugin new optimiser mine2 2>&1", 2, "did you mean 'optimizer'?");
    expect(LATHE " plugin new scheduler other --into deep/er", 0, "deep/er/other/plugin.c");
    expect(LATHE " plugin new reader recs", 0,
           "lathe train run.toml --data.datasets '[{path = \"FILE.recs\"}]'\n");
    expect(LATHE " plugin new op gate", 0, "api->op(graph, \"gate\", ..) in a model");
}

Test(cli, ops_are_listed_and_shown)
{
    expect(LATHE " ls op", 0, "op/short_conv");
    expect(LATHE " ls op", 0, "of the core: embed linear");
    expect(LATHE " show op/short_conv", 0,
           "api->op(graph, \"short_conv\", attributes, ..)\n  tokens");
    expect(LATHE " show op/short_conv --json", 0, "\"name\": \"doc_start\", \"shape\": \"i32[N]\"");
    expect(LATHE " show op/softmax", 0, "op/softmax, an op of the core");
    expect(LATHE " show op/softmaxx 2>&1", 2, "softmaxx");
}

Test(cli, plugin_check_reports_and_exits)
{
    expect(LATHE " plugin check " LATHE_TEST_BUILD "/lib/lathe/plugins/scheduler/cosine.so", 0,
           "0 failed");
#define FAR "LATHE_PLUGIN_PATH=" LATHE_TEST_BUILD "/tests/far "
    expect(FAR LATHE " plugin check " LATHE_TEST_BUILD "/tests/far/quant/int8.so --device far", 0,
           "quant/int8 on far: 15 ok, 0 failed");
    expect(FAR LATHE " plugin check " LATHE_TEST_BUILD
                     "/tests/far/optimizer/host_step.so --device far",
           1, "image_loads                        FAIL  it carries no code for a device");
    expect(LATHE " plugin check " LATHE_TEST_BUILD
                 "/lib/lathe/plugins/quant/int8.so --device nothing 2>&1",
           2, "no device named 'nothing'");
    expect(LATHE " plugin check nothing.so 2>&1", 2, "nothing.so: no such file");
    write_file("text.so", "this is text\n");
    expect(LATHE " plugin check text.so 2>&1", 1, "FAIL");
}

Test(cli, plugin_check_takes_a_file_or_the_name_of_a_plugin)
{
    expect(LATHE " plugin check model/gpt_neox 2>&1", 0,
           "model/gpt_neox: 12 ok, 0 failed, 0 skipped");
    expect(LATHE " plugin check model/gpt_nox 2>&1", 2,
           "model/gpt_nox: neither a file nor a plugin that is found: lathe ls model lists");
    expect(LATHE " plugin check modell/gpt_neox 2>&1", 2, "modell/gpt_neox: no such file");
}

Test(cli, show_suggests_the_plugin_of_a_name_without_its_kind)
{
    expect(LATHE " show gpt_neox 2>&1", 2, "(did you mean 'model/gpt_neox'?)");
}

#define KEYED                                                                                      \
    LATHE " plugin check " LATHE_TEST_BUILD "/tests/faults/optimizer/"                             \
          "sound_with_a_required_key.so "

Test(cli, plugin_check_takes_values_for_required_keys)
{
    expect(KEYED "2>&1", 1, "it has required keys, which --set KEY=VALUE gives");
    expect(KEYED "--set momentum=0.6 2>&1", 0, "0 failed");
    expect(KEYED "--set=momentum=0.9 2>&1", 1, "momentum is 0.9, expected less than 0.75");
    expect(KEYED "--set momemtum=0.6 2>&1", 2, "has no key 'momemtum'");
    expect(KEYED "--set momentum 2>&1", 2, "expected key=value");
    write_file("keys.toml", "momentum = 0.6\n");
    expect(KEYED "--config keys.toml 2>&1", 0, "0 failed");
    write_file("values.toml", "[optimizer]\nname = \"other\"\nlr = 0.5\nmomentum = 0.7\n");
    expect(KEYED "--config values.toml 2>&1", 0, "0 failed");
    write_file("wrong.toml", "[optimizer]\nmomemtum = 0.6\n");
    expect(KEYED "--config wrong.toml 2>&1", 2, "wrong.toml:2:1: ");
    expect(KEYED "--config nothing.toml 2>&1", 2, "nothing.toml");
}

#define FAULTY LATHE " plugin check " LATHE_TEST_BUILD "/tests/faults/optimizer/"

Test(cli, plugin_check_finds_hangs_crashes_and_early_exits)
{
    child_programs_crash_by_signal();
    expect(FAULTY "hangs.so --timeout 2 2>&1", 1,
           "step_moves_parameters              FAIL  still running after 2 s");
    expect(FAULTY "crashes.so 2>&1", 1, "step_moves_parameters              FAIL  ");
    expect(FAULTY "exits_at_once.so 2>&1", 1, "FAIL  ended the process with exit code 0");
    expect(FAULTY "mallocs.so 2>&1", 1, "3 steps took 3 heap blocks");
}

Test(cli, deleting_a_plugin_removes_just_that_name)
{
    static char before[sizeof output];
    cr_assert_eq(
        run(CMAKE_PROGRAM " --install " LATHE_TEST_BUILD " --prefix first && mv first moved"), 0);
    cr_assert_eq(run("moved/bin/lathe ls | sort"), 0);
    memcpy(before, output, sizeof before);
    cr_assert_not_null(strstr(before, "optimizer/muon"), "%s", before);
    cr_assert_eq(unlink("moved/lib/lathe/plugins/optimizer/muon.so"), 0);
    write_file("before", before);
    cr_assert_eq(run("moved/bin/lathe ls 2>&1 | sort | diff before - | grep '^[<>]'"), 0);
    cr_expect_null(strchr(output, '>'), "%s", output);
    cr_expect_eq(strncmp(output, "< optimizer/muon ", 17), 0, "%s", output);
    cr_expect_null(strchr(strchr(output, '\n') + 1, '\n'), "more than one line:\n%s", output);
    expect("moved/bin/lathe show optimizer/muon 2>&1", 2, "no optimizer named 'muon'");
}

/* Every link of an installed page leads to a page that is installed, too. */
Test(cli, installed_pages_have_no_dead_links)
{
    cr_assert_eq(run(CMAKE_PROGRAM " --install " LATHE_TEST_BUILD " --prefix pages >/dev/null"), 0);
    cr_assert_eq(run("cd pages/share/doc/lathe && find . -name '*.md' | while read -r page; do "
                     "grep -oE '\\]\\([^)# ]+' \"$page\" | cut -c3- | grep -v '^http' | while read "
                     "-r link; do "
                     "[ -e \"$(dirname \"$page\")/$link\" ] || echo \"$page: $link\"; done; done"),
                 0, "%s", output);
    cr_expect_str_eq(output, "");
    expect("ls pages/share/doc/lathe/docs/data.md pages/share/doc/lathe/README.md", 0, "data.md");
}

Test(cli, a_bad_plugin_is_one_line_and_the_rest_works)
{
    char command[512];
    cr_assert_eq(run("mkdir -p p/optimizer && cp " LATHE_TEST_BUILD
                     "/lib/lathe/plugins/optimizer/adamw.so p/optimizer/open.so && "
                     "chmod 666 p/optimizer/open.so && echo text > p/optimizer/text.so"),
                 0);
    (void)snprintf(command, sizeof command, "LATHE_PLUGIN_PATH=%s/p " LATHE " ls 2>&1", folder);
    expect(command, 0, "optimizer/adamw");
    cr_expect_not_null(strstr(output, "p/optimizer/open.so"), "%s", output);
    cr_expect_not_null(strstr(output, "p/optimizer/text.so"), "%s", output);
}

Test(cli, generate_with_weights_that_are_not_finite_exits_with_1)
{
    cr_assert_eq(run("cp -r " LATHE_TEST_DATA "/golden/data/models/llama_tied m && "
                     "printf '\\000\\000\\300\\177' | dd of=m/model.safetensors bs=1 conv=notrunc "
                     "seek=$(($(stat -c %s m/model.safetensors) - 4)) 2>&1"),
                 0);
    expect(LATHE " generate m --tokenizer.path bytes --prompt the 2>&1", 1,
           "lathe generate: the logits of token 3 are not finite, because 1 of ");
}

Test(cli, an_option_that_is_given_twice_is_refused)
{
    expect(LATHE " generate nothing --prompt a --prompt b 2>&1", 2, "'--prompt' is given twice");
}

Test(cli, output_that_cannot_be_written_is_an_error)
{
    static const char *const commands[] = {"ls", "ls --json", "--version", "help", "show data"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char command[128];
        snprintf(command, sizeof command, LATHE " %s 2>&1 >/dev/full", commands[i]);
        expect(command, 1, "lathe: cannot write to standard output");
    }
}
