/* The configuration: all errors at once with places, overrides, plugins' tables, JSON. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "config/config.h"
#include "plug/core_schema.h"
#include "plug/schema_check.h"
#include "plug/select.h"

#define FIXTURES LATHE_TEST_BUILD "/tests/fixtures"
#define OPTIMIZER (1u << LATHE_KIND_OPTIMIZER)
#define DEVICE (1u << LATHE_KIND_DEVICE)

static lathe_registry *registry;
static lathe_config *config;
static lathe_diags diags;
static lathe_arena arena;
static char folder[64], old_folder[4096];

/* Each test runs in a folder of its own, so that messages say "run.toml". */
static void setup(void)
{
    (void)unsetenv("LATHE_PLUGIN_PATH");
    cr_assert_not_null(getcwd(old_folder, sizeof old_folder));
    strcpy(folder, "/tmp/lathe_cfg_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_assert_eq(lathe_registry_override(registry, "optimizer/adamw"), LATHE_OK);
    cr_assert_eq(lathe_registry_add_path(registry, FIXTURES "/good"), LATHE_OK);
}

static void teardown(void)
{
    lathe_config_destroy(config);
    lathe_registry_destroy(registry);
    lathe_diags_fini(&diags);
    lathe_arena_fini(&arena);
    cr_assert_eq(chdir(old_folder), 0);
    cr_assert_eq(lathe_dir_remove(folder), LATHE_OK);
}

TestSuite(config, .init = setup, .fini = teardown);

static lathe_status load(const char *text, const lathe_override *overrides, int64_t n,
                         uint32_t kinds)
{
    cr_assert_eq(lathe_file_write_atomic("run.toml", text, (int64_t)strlen(text)), LATHE_OK);
    return lathe_config_load("run.toml", overrides, n, kinds, registry, &diags, &config);
}

static void loads(const char *text)
{
    cr_assert_eq(load(text, NULL, 0, 0), LATHE_OK, "%s", lathe_error_message());
}

static void printed(const char *want)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_diags_sort(&diags);
    lathe_diags_print(&diags, &text);
    cr_assert_not_null(text.data, "no diagnostics");
    cr_assert_str_eq(text.data, want, "got:\n%s", text.data);
    lathe_buffer_fini(&text);
}

Test(config, the_cores_own_schemas_are_sound)
{
    int32_t n = 0;
    const lathe_core_section *sections = lathe_core_sections(&n);
    cr_assert_eq(n, 11);
    for (int32_t i = 0; i < n; i++) {
        cr_assert_eq(lathe_schema_validate(sections[i].fields, sections[i].n_fields), LATHE_OK,
                     "[%s]: %s", sections[i].name, lathe_error_message());
        for (int32_t j = 0; j < sections[i].n_fields; j++)
            cr_assert_not_null(sections[i].fields[j].doc);
    }
    const lathe_core_section *sets = lathe_core_table_find("data", "datasets");
    cr_assert_eq(lathe_schema_validate(sets->fields, sets->n_fields), LATHE_OK);
}

Test(config, an_empty_file_has_the_defaults)
{
    loads("");
    cr_assert_eq(lathe_config_int(config, "train", "micro_batch_size"), 1);
    cr_assert_str_eq(lathe_config_string(config, "train", "precision"), "bf16");
    cr_assert_eq(lathe_config_float(config, "train", "max_grad_norm"), 1.0);
    cr_assert_not(lathe_config_is_set(config, "train", "max_steps"));
    cr_assert_eq(lathe_config_int(config, "train", "max_steps"), 0);
    cr_assert_eq(lathe_config_int(config, "train", "deterministic"), 1);
    cr_assert_eq(lathe_config_seed(config, "data"), 42);
    cr_assert_null(lathe_config_get(config, "train", "nothing"));
    cr_assert_null(lathe_config_get(config, "nothing", "train"));
    cr_assert_eq(lathe_config_part(config, LATHE_KIND_OPTIMIZER)->is_none, 1);
    cr_assert_eq(lathe_config_part(config, LATHE_KIND_QUANT)->is_none, 1);
}

Test(config, every_error_at_once_with_line_column_and_suggestion)
{
    const char *text = "lr = 1\n"                       /* 1 */
                       "[trian]\nmax_steps = 5\n"       /* 2 */
                       "[train]\n"                      /* 4 */
                       "max_step = 10\n"                /* 5 */
                       "precision = \"fp15\"\n"         /* 6 */
                       "micro_batch_size = 0\n"         /* 7 */
                       "[optimizer]\n"                  /* 8 */
                       "name = \"plian\"\n"             /* 9 */
                       "[scheduler]\n"                  /* 10 */
                       "name = \"flat\"\n"              /* 11 */
                       "warmup_step = 10\n"             /* 12 */
                       "lr = \"fast\"\n"                /* 13 */
                       "[data]\n"                       /* 14 */
                       "datasets = [{ pth = \"a\" }]\n" /* 15 */
                       "seq_len = 1.5\n";               /* 16 */
    cr_assert_eq(load(text, NULL, 0, 0), LATHE_E_CONFIG);
    cr_assert_null(config);
    cr_assert_eq(diags.n_errors, 11);
    const char *const want[] = {
        "run.toml:1:1: error: key 'lr' is outside all sections (did you mean 'optimizer.lr'?)",
        "run.toml:2:2: error: unknown section [trian] (did you mean 'train'?)",
        "run.toml:5:1: error: unknown key 'max_step' in [train] (did you mean 'max_steps'?)",
        "run.toml:6:13: error: train.precision is \"fp15\", expected one of bf16, fp16, fp32, "
        "fp8",
        "run.toml:7:20: error: train.micro_batch_size is 0, expected at least 1 and at most "
        "1000000",
        "run.toml:9:8: error: no optimizer named 'plian' (did you mean 'plain'?); there are: ",
        "run.toml:12:1: error: unknown key 'warmup_step' in [scheduler] (did you mean "
        "'warmup_steps'?)",
        "run.toml:13:6: error: scheduler.lr is a string, expected a number",
        "run.toml:15:13: error: data.datasets.path is required: file, folder, or pattern of *, ?, "
        "[..] "
        "and **",
        "run.toml:15:15: error: unknown key 'pth' in [data.datasets] (did you mean 'path'?)",
        "run.toml:16:11: error: data.seq_len is a floating number, expected an integer",
    };
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_diags_print(&diags, &out);
    const char *at = out.data;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        cr_assert_eq(strncmp(at, want[i], strlen(want[i])), 0, "line %zu of:\n%s", i, out.data);
        at = strchr(at, '\n') + 1;
    }
    cr_assert_eq(*at, '\0');
    lathe_buffer_fini(&out);
}

Test(config, a_number_beyond_64_bits_hides_no_other_error)
{
    cr_assert_eq(load("[train]\nmax_steps = 9223372036854775808\nmax_step = 1\n"
                      "micro_batch_size = 99999999999999999999\nprecision = 0xFFFFFFFFFFFFFFFF\n",
                      (const lathe_override[]){{"train.seed", "1e999"}}, 1, 0),
                 LATHE_E_CONFIG);
    printed("run.toml:2:13: error: train.max_steps is 9223372036854775808, expected at least 1 and "
            "at most 1e+18\n"
            "run.toml:3:1: error: unknown key 'max_step' in [train] (did you mean 'max_steps'?)\n"
            "run.toml:4:20: error: train.micro_batch_size is 99999999999999999999, expected at "
            "least 1 and at most 1000000\n"
            "run.toml:5:13: error: train.precision is a number of more than 64 bits, expected a "
            "string: put it in quotes\n"
            "--train.seed: error: train.seed is 1e999, which does not fit in 64 bits\n");
}

Test(config, syntax_errors_and_missing_files)
{
    cr_assert_eq(load("[train]\nseed = = 3\n", NULL, 0, 0), LATHE_E_PARSE);
    cr_assert_eq(strncmp(lathe_error_message(), "run.toml:2:8: ", 14), 0, "%s",
                 lathe_error_message());
    cr_assert_eq(lathe_config_load("none.toml", NULL, 0, 0, registry, &diags, &config),
                 LATHE_E_NOT_FOUND);
    cr_assert_null(config);
}

Test(config, a_plugins_table_is_checked_by_its_schema)
{
    loads("[optimizer]\nname = \"plain\"\nlr = 0.5\n");
    const lathe_part *part = lathe_config_part(config, LATHE_KIND_OPTIMIZER);
    cr_assert_str_eq(part->component->plugin->name, "plain");
    cr_assert_eq(part->values[0].f, 0.5);
    cr_assert_eq(part->values[0].is_explicit, 1);
    cr_assert_eq(part->values[1].f, 0.1, "a default");
    cr_assert_eq(lathe_config_float(config, "optimizer", "lr"), 0.5);
    const lathe_place place = lathe_config_where(config, "optimizer", "lr");
    cr_assert_str_eq(place.file, "run.toml");
    cr_assert(place.line == 3 && place.column == 6);
    const lathe_place missing = lathe_config_where(config, "optimizer", "mode");
    cr_assert(missing.line == 1 && missing.column == 2);
    lathe_config_add(config, &diags, LATHE_DIAG_WARNING, "optimizer", "lr", "lr is %s", "high");
    printed("run.toml:3:6: warning: lr is high\n");
    cr_assert_eq(lathe_diags_status(&diags), LATHE_OK, "a warning is no error");
}

Test(config, kinds_that_are_needed_get_their_default)
{
    loads("[optimizer]\nlr = 1.0\n");
    const lathe_part *optimizer = lathe_config_part(config, LATHE_KIND_OPTIMIZER);
    cr_assert_str_eq(optimizer->component->path, FIXTURES "/good/optimizer/adamw.so");
    lathe_config_destroy(config);
    cr_assert_eq(load("", NULL, 0, OPTIMIZER), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_config_float(config, "optimizer", "lr"), 0.001);
    lathe_config_destroy(config);
    cr_assert_eq(load("", NULL, 0, DEVICE), LATHE_OK, "auto opens nothing");
    const lathe_part *part = lathe_config_part(config, LATHE_KIND_DEVICE);
    cr_assert(!part->is_none && part->component == NULL);
    cr_assert_str_eq(part->name, "auto");
}

Test(config, quant_none_has_no_part)
{
    loads("[quant]\nname = \"none\"\n");
    cr_assert_eq(lathe_config_part(config, LATHE_KIND_QUANT)->is_none, 1);
}

Test(config, overrides_win_and_errors_name_them)
{
    const lathe_override good[] = {{"optimizer.lr", "2e-5"},
                                   {"optimizer.mode", "exact"},
                                   {"model.path", "123"},
                                   {"data.shuffle", "false"},
                                   {"data.datasets", "[{path = \"x\"}]"},
                                   {"plugins.paths", FIXTURES "/other"}};
    cr_assert_eq(load("[optimizer]\nname = \"plane\"\nlr = 0.5\n", good, 6, 0), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert_eq(lathe_config_float(config, "optimizer", "lr"), 2e-5);
    cr_assert_str_eq(lathe_config_string(config, "optimizer", "mode"), "exact");
    cr_assert_str_eq(lathe_config_string(config, "model", "path"), "123");
    cr_assert_eq(lathe_config_int(config, "data", "shuffle"), 0);
    cr_assert_str_eq(lathe_config_string(config, "data", "datasets"), "[{\"path\": \"x\"}]");
    cr_assert_str_eq(lathe_config_where(config, "optimizer", "lr").file, "--optimizer.lr");
    lathe_config_destroy(config);
    const lathe_override bad[] = {{"optimizer.lrr", "1"},
                                  {"train.seed", "x"},
                                  {"seed", "3"},
                                  {"train.seed.deep", "1"},
                                  {"nothing.x", "1"}};
    cr_assert_eq(load("[optimizer]\nname = \"plane\"\n", bad, 5, 0), LATHE_E_CONFIG);
    printed("--seed: error: expected --section.key value, such as --optimizer.lr 2e-5\n"
            "--train.seed.deep: error: 'seed' is not a table\n"
            "--nothing.x: error: unknown section [nothing]\n"
            "--train.seed: error: train.seed is a string, expected an integer\n"
            "--optimizer.lrr: error: unknown key 'lrr' in [optimizer] (did you mean 'lr'?)\n");
}

Test(config, works_without_a_file)
{
    const lathe_override overrides[] = {{"optimizer.name", "plain"}, {"train.max_steps", "7"}};
    cr_assert_eq(lathe_config_load(NULL, overrides, 2, 0, registry, &diags, &config), LATHE_OK,
                 "%s", lathe_error_message());
    cr_assert_eq(lathe_config_int(config, "train", "max_steps"), 7);
    cr_assert_str_eq(lathe_config_where(config, "data", "x").file, "command line");
}

Test(config, a_family_is_bound_when_a_device_is_chosen)
{
    const lathe_component *device = NULL;
    const lathe_value *values = NULL;
    loads("[device]\nname = \"mill\"\nwarmup_steps = 3\n");
    const lathe_part *part = lathe_config_part(config, LATHE_KIND_DEVICE);
    cr_assert_null(part->component);
    cr_assert_eq(lathe_select_device(registry, "mill_high", &arena, &device, NULL), LATHE_OK);
    cr_assert_eq(lathe_config_bind(config, LATHE_KIND_DEVICE, device, &diags, &values), LATHE_OK);
    cr_assert_eq(values[2].i, 3);
    cr_assert_eq(lathe_config_int(config, "device", "warmup_steps"), 3);
    lathe_config_destroy(config);
    cr_assert_eq(load("[device]\nname = \"mill\"\nwarmup_stps = 3\n", NULL, 0, 0), LATHE_E_CONFIG);
    cr_assert_not_null(strstr(lathe_error_message(), "did you mean 'warmup_steps'?"), "%s",
                       lathe_error_message());
}

Test(config, plugin_paths_are_relative_to_the_file)
{
    const char *text = "[plugins]\npaths = [\"mine\"]\n[optimizer]\nname = \"plain\"\n";
    char *so = NULL;
    int64_t bytes = 0;
    cr_assert_eq(lathe_dir_create("sub/mine/optimizer"), LATHE_OK);
    cr_assert_eq(lathe_file_read(FIXTURES "/good/optimizer/plain.so", 0, &so, &bytes), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic("sub/mine/optimizer/plain.so", so, bytes), LATHE_OK);
    free(so);
    cr_assert_eq(lathe_file_write_atomic("sub/run.toml", text, (int64_t)strlen(text)), LATHE_OK);
    lathe_registry_destroy(registry);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_assert_eq(lathe_config_load("sub/run.toml", NULL, 0, 0, registry, &diags, &config), LATHE_OK,
                 "%s", lathe_error_message());
    const char *path = lathe_config_part(config, LATHE_KIND_OPTIMIZER)->component->path;
    cr_assert_not_null(strstr(path, "/sub/mine/optimizer/plain.so"), "%s", path);
}

static const char all_paths[] =
    "[model]\npath = \"m\"\nadapter = \"a\"\nreference_adapter = \"r\"\n[tokenizer]\npath = \"t\"\n"
    "[teacher]\npath = \"p\"\nstored = \"s\"\n[data]\nchat_template = \"c\"\n"
    "[generate]\ndraft = \"d\"\n[plugins]\npaths = []\n";

Test(config, an_empty_path_takes_the_key_out)
{
    static const char *const of[][2] = {
        {"model", "path"},     {"model", "adapter"},      {"model", "reference_adapter"},
        {"teacher", "path"},   {"teacher", "stored"},     {"tokenizer", "path"},
        {"generate", "draft"}, {"data", "chat_template"}, {"plugins", "paths"}};
    const int32_t n = (int32_t)(sizeof of / sizeof of[0]);
    lathe_override empty[sizeof of / sizeof of[0]];
    char names[sizeof of / sizeof of[0]][40];
    for (int32_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s.%s", of[i][0], of[i][1]);
        empty[i] = (lathe_override){names[i], ""};
    }
    cr_assert_eq(load(all_paths, empty, n, 0), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(lathe_config_get(config, "plugins", "paths")->n, 0);
    for (int32_t i = 0; i < n; i++) {
        cr_expect_not(i < n - 1 && lathe_config_is_set(config, of[i][0], of[i][1]), "%s", names[i]);
        cr_expect_not(lathe_config_is_explicit(config, of[i][0], of[i][1]), "%s", names[i]);
    }
}

Test(config, an_empty_path_in_the_file_is_none)
{
    cr_assert_eq(load("[teacher]\npath = \"\"\nstored = \"s\"\n", NULL, 0, 0), LATHE_OK);
    cr_expect_not(lathe_config_is_set(config, "teacher", "path"));
    cr_expect_str_eq(lathe_config_string(config, "teacher", "stored"), "s");
}

/* Where there is a default, nothing is not the same as the default. */
Test(config, an_empty_path_with_a_default_is_kept)
{
    const lathe_override empty[] = {{"checkpoint.dir", ""}, {"data.cache_dir", ""}};
    cr_assert_eq(load("[checkpoint]\ndir = \"out\"\n", empty, 2, 0), LATHE_OK);
    cr_expect_str_eq(lathe_config_string(config, "checkpoint", "dir"), "");
    cr_expect_str_eq(lathe_config_string(config, "data", "cache_dir"), "");
}

Test(config, pins_are_honoured)
{
    cr_assert_eq(load("[plugins]\npins = { \"optimizer/plane\" = \"00\" }\n", NULL, 0, 0),
                 LATHE_E_CONFIG);
    cr_assert_eq(strncmp(lathe_error_message(), "run.toml:2:", 11), 0, "%s", lathe_error_message());
    lathe_diags_fini(&diags);
    cr_assert_eq(load("[optimizer]\nname = \"plane\"\n[plugins.pins]\n\"optimizer/plane\" = "
                      "\"0000000000000000000000000000000000000000000000000000000000000000\"\n",
                      NULL, 0, 0),
                 LATHE_E_CONFIG);
    cr_assert_not_null(strstr(lathe_error_message(), "run.toml:2:8: error: "), "%s",
                       lathe_error_message());
    cr_assert_not_null(strstr(lathe_error_message(), "pinned to"));
}

Test(config, missing_files_are_named_where_they_stand)
{
    loads("[model]\npath = \"no/model\"\n[data]\ndatasets = [{ path = \".\" },\n"
          "            { path = \"no/data\" }, { path = \"no/*.csv\" }]\n[checkpoint]\nresume = "
          "\"lately\"\n"
          "[tokenizer]\npath = \"bytes\"\n");
    lathe_config_check_files(config, LATHE_CONFIG_DATA, &diags);
    printed(
        "run.toml:2:8: error: model.path: no such folder or GGUF file: no/model; on the Hugging "
        "Face Hub? hf download no/model --local-dir no/model\n"
        "run.toml:5:22: error: data.datasets: no such file or folder: no/data\n"
        "run.toml:5:44: error: data.datasets: no file matches the pattern no/*.csv\n"
        "run.toml:7:10: error: checkpoint.resume: no such folder: lately; expected auto, "
        "never, restart, the folder of a checkpoint, or one of checkpoints\n");
}

Test(config, a_missing_file_stands_once_beside_a_wrong_key)
{
    cr_assert_eq(
        load("[train]\nseedd = 1\n[model]\npath = \"no/model\"\n", NULL, 0, LATHE_CONFIG_FILES),
        LATHE_E_CONFIG);
    printed(
        "run.toml:2:1: error: unknown key 'seedd' in [train] (did you mean 'seed'?)\n"
        "run.toml:4:8: error: model.path: no such folder or GGUF file: no/model; on the Hugging "
        "Face Hub? hf download no/model --local-dir no/model\n");
}

Test(config, training_needs_data_and_one_model)
{
    loads("[data]\nvalidation_split = 0.1\nvalidation = { path = \"x\" }\n");
    lathe_config_check_model(config, &diags);
    lathe_config_check_train(config, 0, &diags);
    printed("run.toml:1:2: error: data.datasets is required to train: datasets = [{ path = "
            "\"...\" }]\n"
            "run.toml:2:20: error: data.validation_split and data.validation exclude each other\n"
            "run.toml: error: model.path or model.model_type is required\n");
    lathe_diags_fini(&diags);
    lathe_config_destroy(config);
    loads("[data]\ndatasets = [{ path = \"x\" }]\n[model]\nmodel_type = \"gpt2\"\n");
    lathe_config_check_model(config, &diags);
    lathe_config_check_train(config, 0, &diags);
    cr_assert_eq(diags.n, 0);
}

Test(config, json_holds_every_effective_value_and_is_the_same_each_time)
{
    const char *text = "[train]\nmax_steps = 5\n[optimizer]\nname = \"plain\"\nlr = 3e-4\n"
                       "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                       "[model]\nmodel_type = \"llama\"\nhidden_size = 8\nintermediate_size = 8\n"
                       "num_hidden_layers = 1\nnum_attention_heads = 1\n"
                       "rope_scaling = { factor = 2.0 }\n";
    lathe_buffer a = LATHE_BUFFER_INIT, b = LATHE_BUFFER_INIT;
    loads(text);
    lathe_config_json(config, &a);
    lathe_config_destroy(config);
    loads(text);
    lathe_config_json(config, &b);
    cr_assert_str_eq(a.data, b.data);
    json_error_t error;
    json_t *root = json_loads(a.data, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(root, "%s\n%s", error.text, a.data);
    const json_t *optimizer = json_object_get(root, "optimizer");
    cr_assert_str_eq(json_string_value(json_object_get(optimizer, "name")), "plain");
    cr_assert_str_eq(json_string_value(json_object_get(optimizer, "version")), "1.0.0");
    cr_assert_eq(json_real_value(json_object_get(optimizer, "lr")), 3e-4);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(root, "train"), "max_steps")),
                 5);
    const json_t *train = json_object_get(json_object_get(root, "tokenizer"), "train");
    cr_assert_eq(json_integer_value(json_object_get(train, "vocab_size")), 300);
    cr_assert_eq(json_integer_value(json_object_get(train, "min_frequency")), 2, "a default");
    const json_t *rope = json_object_get(json_object_get(root, "model"), "rope_scaling");
    cr_assert_eq(json_real_value(json_object_get(rope, "factor")), 2.0);
    json_decref(root);
    lathe_buffer_fini(&a);
    lathe_buffer_fini(&b);
}
