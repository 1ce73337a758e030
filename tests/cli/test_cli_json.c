/* Every command that prints facts can also print them as JSON. */
#include "cli_case.h"
#include "support/child_program.h"

#include <jansson.h>
#include <stdint.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    put("run.toml",
        "[model]\nmodel_type = \"llama\"\nvocab_size = 300\nhidden_size = 32\n"
        "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
        "max_position_embeddings = 64\n[tokenizer]\npath = \"bytes\"\n"
        "[data]\ndatasets = [{ path = \"text.txt\" }]\ncache_dir = \"cache\"\nseq_len = 32\n"
        "validation = [{ path = \"text.txt\" }]\n[train]\nmax_steps = 2\nthreads = 1\n"
        "[checkpoint]\ndir = \"out\"\nevery = 1\n");
    put_times("text.txt", "the wheel turns and the tool holds, so the part is made\n", 60);
}

TestSuite(cli_json, .init = setup, .fini = remove_folder);

/* The JSON that a command prints to stdout, which must have one JSON value and nothing else. */
static json_t *json_of(const char *arguments, int code)
{
    char command[512];
    json_error_t error;
    (void)snprintf(command, sizeof command, LATHE " %s --json 2>/dev/null", arguments);
    cr_expect_eq(run(command), code, "%s:\n%s", command, output);
    json_t *root = json_loads(output, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(root, "%s: %s at %d in\n%s", command, error.text, error.position, output);
    return root;
}

Test(cli_json, facts_come_as_one_json_value)
{
    static const char *const commands[] = {"ls",
                                           "ls optimizer",
                                           "show optimizer/adamw",
                                           "show train",
                                           "plan run.toml",
                                           "plot schedule run.toml",
                                           "doctor",
                                           "data run.toml",
                                           "data cache",
                                           "checkpoint ls out",
                                           "checkpoint verify out",
                                           "validate run.toml",
                                           "eval out --data text.txt",
                                           "eval run.toml"};
    cr_assert_eq(run(LATHE " train run.toml 2>&1"), 0, "%s", output);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        json_decref(json_of(commands[i], 0));
}

Test(cli_json, data_tells_tokens_rows_and_steps)
{
    json_int_t tokens = 0, rows = 0, steps = 0, documents = 0;
    json_t *root = json_of("data run.toml", 0);
    cr_expect_eq(json_unpack(root, "{s:{s:I, s:I, s:I, s:[{s:I}]}}", "training", "tokens", &tokens,
                             "rows", &rows, "steps_per_epoch", &steps, "datasets", "documents",
                             &documents),
                 0);
    cr_expect(tokens > 1000 && rows > 0 && steps == rows && documents == 1);
    json_decref(root);
}

Test(cli_json, verify_names_what_is_damaged)
{
    const char *path = NULL;
    int whole = -1;
    cr_assert_eq(run(LATHE " train run.toml 2>&1"), 0, "%s", output);
    put("out/step-00000001/config.json", "{}");
    json_t *root = json_of("checkpoint verify out", 1);
    cr_expect_eq(json_array_size(root), 2);
    const json_t *first = json_array_get(root, 0);
    cr_expect_eq(
        json_unpack((json_t *)(uintptr_t)first, "{s:s, s:b}", "path", &path, "whole", &whole), 0);
    cr_expect(path && strstr(path, "step-00000001"));
    cr_expect_eq(whole, 0);
    cr_expect_eq(json_array_size(json_object_get(first, "damaged")), 1);
    json_decref(root);
}

Test(cli_json, validate_tells_errors_with_their_places)
{
    const char *message = NULL, *suggestion = NULL;
    int valid = -1, line = 0, column = 0;
    put("wrong.toml", "[train]\nmax_stps = 3\n");
    json_t *root = json_of("validate wrong.toml", 2);
    cr_expect_eq(json_unpack(root, "{s:b, s:[{s:s, s:i, s:i, s:s}]}", "valid", &valid, "errors",
                             "message", &message, "line", &line, "column", &column, "suggestion",
                             &suggestion),
                 0);
    cr_expect(valid == 0 && line == 2 && column == 1);
    cr_expect(message && strstr(message, "unknown key 'max_stps'"), "%s", message);
    cr_expect(suggestion && strcmp(suggestion, "max_steps") == 0, "%s", suggestion);
    json_decref(root);
}

/* A record's place, which a thread found that reads ahead, is data, not only words. */
Test(cli_json, a_record_has_its_place)
{
    const char *file = NULL, *run_file = NULL;
    int line = 0;
    put("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n");
    json_t *root = json_of("validate run.toml --data.datasets '[{path = \"bad.jsonl\"}]'", 2);
    cr_expect_eq(json_unpack(root, "{s:[{s:s, s:{s:s, s:i}}]}", "errors", "file", &run_file,
                             "cause", "file", &file, "line", &line),
                 0, "%s", output);
    cr_expect(file && strcmp(file, "bad.jsonl") == 0 && line == 2, "%s", output);
    json_decref(root);
    root = json_of("data run.toml --data.datasets '[{path = \"bad.jsonl\"}]'", 2);
    cr_expect_eq(json_unpack(root, "{s:[{s:s, s:i}]}", "errors", "file", &file, "line", &line), 0,
                 "%s", output);
    cr_expect(file && strcmp(file, "bad.jsonl") == 0 && line == 2, "%s", output);
    json_decref(root);
}

/* The "errors" of a failing command: at least one, each with a message. */
static json_t *errors_of(const char *arguments, int code)
{
    json_t *root = json_of(arguments, code), *errors = json_object_get(root, "errors");
    cr_assert_gt(json_array_size(errors), 0, "%s: %s", arguments, output);
    for (size_t i = 0; i < json_array_size(errors); i++) {
        const json_t *message = json_object_get(json_array_get(errors, i), "message");
        cr_expect(json_is_string(message) && json_string_length(message) > 0, "%s: %s", arguments,
                  output);
    }
    (void)json_incref(errors);
    json_decref(root);
    return errors;
}

Test(cli_json, errors_of_every_command_come_as_json)
{
    static const char *const commands[] = {"validate none.toml",
                                           "validate run.toml --no-such-option",
                                           "ls nokind",
                                           "show optimizer/none",
                                           "plan none.toml",
                                           "plan",
                                           "plot schedule none.toml",
                                           "doctor too much",
                                           "data none.toml",
                                           "data .",
                                           "checkpoint ls none",
                                           "checkpoint verify none",
                                           "checkpoint diff none none",
                                           "eval none --data text.txt",
                                           "tokenizer check none",
                                           "plugin check none.so",
                                           "plugin check " LATHE_TEST_BUILD
                                           "/lib/lathe/plugins/optimizer/sgd.so --set x=1",
                                           "tokenizer encode none --text a",
                                           "plan run.toml --train.max_stps 3"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        json_decref(errors_of(commands[i], 2));
}

Test(cli_json, errors_have_their_place_and_suggestion)
{
    const char *file = NULL, *suggestion = NULL, *message = NULL;
    int line = 0, column = 0;
    put("wrong.toml", "[train]\nmax_stps = 3\n\n[optimiser]\n");
    json_t *errors = errors_of("plan wrong.toml", 2);
    cr_assert_geq(json_array_size(errors), 2);
    cr_expect_eq(json_unpack(json_array_get(errors, 0), "{s:s, s:i, s:i, s:s, s:s}", "file", &file,
                             "line", &line, "column", &column, "message", &message, "suggestion",
                             &suggestion),
                 0, "%s", output);
    cr_expect_str_eq(file, "wrong.toml");
    cr_expect(line == 2 && column == 1);
    cr_expect_str_eq(message, "unknown key 'max_stps' in [train]");
    cr_expect_str_eq(suggestion, "max_steps");
    json_decref(errors);
}

/* The place is data: no word of a name or of a message is taken for it. */
Test(cli_json, places_are_not_read_out_of_words)
{
    static const struct {
        const char *name, *text, *command, *message;
        int line, column;
    } cases[] = {
        {"a: error: b.toml", "[train\nmax_steps = 3\n", "plan 'a: error: b.toml'", NULL, 1, 7},
        {"a:3:4: b.toml", "[train]\nmax_stps = 3\n", "plan 'a:3:4: b.toml'",
         "unknown key 'max_stps' in [train]", 2, 1},
        {"broken/tokenizer.json", "{\"model\": 1,\n x}", "tokenizer encode broken --text a", NULL,
         2, 2},
        {"none: error: x", NULL, "tokenizer encode 'none: error: x' --text a", NULL, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(run("mkdir -p broken"), 0);
        if (cases[i].text)
            put(cases[i].name, cases[i].text);
        json_t *errors = errors_of(cases[i].command, 2), *one = json_array_get(errors, 0);
        const char *file = json_string_value(json_object_get(one, "file"));
        const char *message = json_string_value(json_object_get(one, "message"));
        cr_expect_geq(json_array_size(errors), 1, "%s", output);
        cr_expect(cases[i].text ? file && strcmp(file, cases[i].name) == 0 : !file, "%s", output);
        cr_expect_eq(json_integer_value(json_object_get(one, "line")), cases[i].line, "%s", output);
        cr_expect_eq(json_integer_value(json_object_get(one, "column")), cases[i].column, "%s",
                     output);
        cr_expect(!cases[i].message || strcmp(message, cases[i].message) == 0, "%s", output);
        json_decref(errors);
    }
}

Test(cli_json, plugin_check_lists_its_checks_with_their_results)
{
    int passed = -1, ok = 0, failed = -1, skipped = -1, n_of[3] = {0};
    const char *plugin = NULL;
    size_t i;
    json_t *check;
    json_t *root =
        json_of("plugin check " LATHE_TEST_BUILD "/lib/lathe/plugins/scheduler/wsd.so", 0);
    cr_expect_eq(json_unpack(root, "{s:s, s:b, s:i, s:i, s:i}", "plugin", &plugin, "passed",
                             &passed, "ok", &ok, "failed", &failed, "skipped", &skipped),
                 0);
    cr_expect(passed == 1 && ok > 3 && failed == 0);
    cr_expect_str_eq(plugin, "scheduler/wsd");
    json_array_foreach(json_object_get(root, "checks"), i, check)
    {
        const char *result = json_string_value(json_object_get(check, "result"));
        cr_assert_not_null(result);
        cr_expect(json_is_string(json_object_get(check, "name")));
        n_of[0] += strcmp(result, "pass") == 0;
        n_of[1] += strcmp(result, "fail") == 0;
        n_of[2] += strcmp(result, "skip") == 0;
    }
    cr_expect(n_of[0] == ok && n_of[1] == 0 && n_of[2] == skipped);
    json_decref(root);
    put("torn.so", "no plugin");
    root = json_of("plugin check torn.so", 1);
    cr_expect(json_is_false(json_object_get(root, "passed")));
    check = json_array_get(json_object_get(root, "checks"), 0);
    cr_expect_str_eq(json_string_value(json_object_get(check, "name")), "loads");
    cr_expect_str_eq(json_string_value(json_object_get(check, "result")), "fail");
    cr_expect(json_string_length(json_object_get(check, "message")) > 0);
    json_decref(root);
}

Test(cli_json, diff_tells_values_and_tensors)
{
    json_int_t differ = 0, of = 0;
    cr_assert_eq(run(LATHE " train run.toml 2>&1"), 0, "%s", output);
    json_t *root = json_of("checkpoint diff out/step-00000001 out", 1);
    cr_expect_eq(
        json_unpack(root, "{s:{s:{s:I, s:I}}}", "tensors", "weights", "differ", &differ, "of", &of),
        0);
    cr_expect(differ > 0 && differ <= of);
    cr_expect_gt(json_array_size(json_object_get(root, "changes")), 1);
    json_decref(root);
}
