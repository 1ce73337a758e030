/* A table of the keys of records: in each layout, each name that the code knows is read, named as
 * unread, or refused, and docs/data.md says so. A name or a layout that is new to the code needs
 * its entry in this file and in docs/data.md. */
#include <jansson.h>

#include "cases/data/data_case.h"
#include "chat/template/chat_template.h"
#include "data/records/layout.h"
#include "data/records/record_keys.h"
#include "data/records/row_kind.h"

static const char template_text[] =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for d in documents or [] %}<{{ d.text }}>{% endfor %}{{ mood or '' }}"
    "{%- for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

static void begin(void)
{
    write_run();
    put("t.jinja", template_text);
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/tests/ranking", 1), 0);
}

TestSuite(record_keys, .init = begin, .fini = remove_folder, .timeout = 240);

#define TALK "[" U("qq") ", " A("aa") "]"
#define PPO                                                                                        \
    "ppo --reward.name length --reward.tokens 4 --reward.rule target --stage.max_new_tokens 8"

/* The value that a test gives each name. Names beyond these are of other programs: a text. */
static const char *const values[][2] = {
    {"text", "\"a text\""},
    {"prompt", "\"p\""},
    {"chosen", "\" good\""},
    {"rejected", "\" bad one\""},
    {"completion", "\" completed\""},
    {"completions", "[\" first\", \" second\", \" third\"]"},
    {"messages", "[" U("question") ", " A("answer") "]"},
    {"conversations", "[{\"from\": \"human\", \"value\": \"asked\"}, "
                      "{\"from\": \"gpt\", \"value\": \"replied\"}]"},
    {"system", "\"be kind\""},
    {"tools", "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"},
    {"documents", "[{\"title\": \"t\", \"text\": \"source\"}]"},
    {"chat_template_kwargs", "{\"mood\": \"merry\"}"},
    {"instruction", "\"instruct\""},
    {"input", "\"the input\""},
    {"output", "\"put out\""},
    {"history", "[[\"before\", \"then\"]]"},
    {"kto_tag", "false"},
    {"label", "true"},
};

/* A layout: the fields of its record, and what is done with each further name. Names that are in
 * none of the lists are named in a line as unread. */
typedef struct layout {
    const char *name;
    int32_t rows, is_known;
    const char *stage, *options; /* options of the dataset */
    const char *fields;          /* of the record: each of them is read */
    const char *read, *refused, *silent;
} layout;

#define BESIDE "tools documents chat_template_kwargs "
static const layout layouts[] = {
    {"documents", LATHE_ROWS_PACKED, 0, "pretrain --data.seq_len 8", "", "\"text\": \"a document\"",
     "", "", ""},
    {"conversations learnt whole", LATHE_ROWS_PACKED, 0, "pretrain --data.seq_len 8", "",
     "\"messages\": " TALK, "system text " BESIDE, "", ""},
    {"texts of examples", LATHE_ROWS_COMPLETIONS, 0, "sft", "",
     "\"prompt\": \"q\", \"completion\": \" a\"", "", "", ""},
    {"texts that the template writes", LATHE_ROWS_COMPLETIONS, 0, "sft", ", chat = true",
     "\"prompt\": \"q\", \"completion\": \" a\"", "system " BESIDE, "", ""},
    {"lists of examples", LATHE_ROWS_COMPLETIONS, 0, "sft", "",
     "\"prompt\": [" U("qq") "], \"completion\": [" A("aa") "]", "system " BESIDE, "", ""},
    {"conversations", LATHE_ROWS_COMPLETIONS, 0, "sft", "", "\"messages\": " TALK,
     "system completion " BESIDE, "", ""},
    {"sharegpt", LATHE_ROWS_COMPLETIONS, 0, "sft", "",
     "\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", "
     "\"value\": \"a\"}]",
     "system messages completion " BESIDE, "", ""},
    {"alpaca examples", LATHE_ROWS_COMPLETIONS, 1, "sft", "",
     "\"instruction\": \"do\", \"output\": \"done\"",
     "input system history messages conversations completion " BESIDE, "prompt", ""},
    {"texts of pairs", LATHE_ROWS_PAIRS, 0, "dpo", "",
     "\"prompt\": \"q\", \"chosen\": \" a\", \"rejected\": \" b\"", "", "", ""},
    {"texts of pairs that the template writes", LATHE_ROWS_PAIRS, 0, "dpo", ", chat = true",
     "\"prompt\": \"q\", \"chosen\": \" a\", \"rejected\": \" b\"", "system " BESIDE, "", ""},
    {"lists of pairs", LATHE_ROWS_PAIRS, 0, "dpo", "",
     "\"prompt\": [" U("q") "], \"chosen\": [" A("a") "], \"rejected\": [" A("b") "]",
     "system " BESIDE, "", ""},
    {"pairs beside a conversation", LATHE_ROWS_PAIRS, 0, "dpo", "",
     "\"messages\": [" U("q") "], \"chosen\": \"a\", \"rejected\": \"b\"",
     "system prompt instruction " BESIDE, "", ""},
    {"alpaca pairs", LATHE_ROWS_PAIRS, 1, "dpo", "",
     "\"instruction\": \"do\", \"chosen\": \"well\", \"rejected\": \"badly\"",
     "input system history prompt " BESIDE, "", ""},
    {"unpaired texts", LATHE_ROWS_UNPAIRED, 0, "kto", "",
     "\"prompt\": \"q\", \"completion\": \" a\", \"label\": true", "", "", ""},
    {"unpaired lists", LATHE_ROWS_UNPAIRED, 0, "kto", "",
     "\"prompt\": [" U("q") "], \"completion\": [" A("a") "], \"label\": true", "system " BESIDE,
     "", ""},
    {"unpaired conversations", LATHE_ROWS_UNPAIRED, 0, "kto", "",
     "\"messages\": " TALK ", \"label\": true", "system completion " BESIDE, "", ""},
    {"unpaired alpaca", LATHE_ROWS_UNPAIRED, 1, "kto", "",
     "\"instruction\": \"do\", \"output\": \"done\", \"kto_tag\": true",
     "input system history " BESIDE, "prompt completion label", ""},
    {"texts of groups", LATHE_ROWS_GROUPS, 0, "ranking", "",
     "\"prompt\": \"q\", \"completions\": [\" a\", \" b\", \" c\"]", "", "", ""},
    {"texts of groups that the template writes", LATHE_ROWS_GROUPS, 0, "ranking", ", chat = true",
     "\"prompt\": \"q\", \"completions\": [\" a\", \" b\", \" c\"]", "system " BESIDE, "", ""},
    {"lists of groups", LATHE_ROWS_GROUPS, 0, "ranking", "",
     "\"prompt\": [" U("q") "], \"completions\": [[" A("a") "], [" A("b") "], [" A("c") "]]",
     "system " BESIDE, "", ""},
    {"groups beside a conversation", LATHE_ROWS_GROUPS, 0, "ranking", "",
     "\"messages\": [" U("q") "], \"completions\": [\"a\", \"b\", \"c\"]", "system prompt " BESIDE,
     "", ""},
    {"texts of prompts", LATHE_ROWS_PROMPTS, 0, PPO, "", "\"prompt\": \"q\"", "", "", "*"},
    {"lists of prompts", LATHE_ROWS_PROMPTS, 0, PPO, "", "\"prompt\": [" U("q") "]",
     "system " BESIDE, "", "*"},
    {"conversations of prompts", LATHE_ROWS_PROMPTS, 0, PPO, "", "\"messages\": " TALK,
     "system prompt " BESIDE, "", "*"},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

static int lists(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return 1;
    return 0;
}

static const char *value_of(const char *name)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (strcmp(values[i][0], name) == 0)
            return values[i][1];
    return "\"of another program\"";
}

/* Whether the layout's record has the name. */
static int has_field(const layout *l, const char *name)
{
    char quoted[64];
    (void)snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    const char *at = strstr(l->fields, quoted);
    return at == l->fields || (at != NULL && at[-1] == ' ' && at[-2] == ',');
}

/* Runs `lathe data` on files ("a.jsonl", ...), and returns its description of each dataset. */
static json_t *describe(const layout *l, const char *const *files, int n)
{
    static char command[16384];
    int at = snprintf(command, sizeof command,
                      LATHE " data run.toml --json --stage.name %s --data.datasets '[", l->stage);
    for (int i = 0; i < n; i++)
        at += snprintf(command + at, sizeof command - (size_t)at, "{path = \"%s\"%s},", files[i],
                       l->options);
    cr_assert_lt((size_t)at + 16, sizeof command);
    (void)snprintf(command + at, sizeof command - (size_t)at, "]' 2>errors");
    if (run(command) != 0)
        return NULL;
    json_t *all = json_loads(output, 0, NULL);
    json_t *sets = json_incref(json_object_get(json_object_get(all, "training"), "datasets"));
    json_decref(all);
    cr_assert_eq(json_array_size(sets), (size_t)n, "%s", output);
    return sets;
}

enum { NAMED = 1, READ = 2 };

/* How the description of a record with a further name differs from that of the record alone. */
static int seen(const json_t *base, const json_t *set, const char *name)
{
    const json_t *unread = json_object_get(set, "unread_columns");
    const int is_named = json_object_get(unread, name) != NULL;
    const int is_read =
        !json_equal(json_object_get(base, "tokens"), json_object_get(set, "tokens"));
    return (is_named ? NAMED : 0) | (is_read ? READ : 0);
}

static void check_layout(const layout *l)
{
    const char *files[LATHE_MAX_RECORD_KEYS + 2], *names[LATHE_MAX_RECORD_KEYS + 2];
    static char paths[LATHE_MAX_RECORD_KEYS + 2][48], record[2048];
    const lathe_record_key *key;
    int n = 0;
    for (int32_t i = -2; i < 0 || lathe_record_key_get(i) != NULL; i++) {
        key = i < 0 ? NULL : lathe_record_key_get(i);
        names[n] = key ? key->name : i == -2 ? "" : "zz_unknown";
        if (key && (has_field(l, names[n]) || lists(l->refused, names[n])))
            continue;
        (void)snprintf(paths[n], sizeof paths[n], "%d.jsonl", n);
        files[n] = paths[n];
        if (i == -2)
            (void)snprintf(record, sizeof record, "{%s}\n", l->fields);
        else
            (void)snprintf(record, sizeof record, "{%s, \"%s\": %s}\n", l->fields, names[n],
                           value_of(names[n]));
        put(paths[n], record);
        n++;
    }
    json_t *sets = describe(l, files, n);
    cr_assert_not_null(sets, "%s", l->name);
    const json_t *base = json_array_get(sets, 0);
    cr_expect_eq(json_object_size(json_object_get(base, "unread_columns")), 0, "%s", l->name);
    for (int i = 1; i < n; i++) {
        const int want = lists(l->read, names[i]) ? READ : l->silent[0] == '*' ? 0 : NAMED;
        const int got = seen(base, json_array_get(sets, (size_t)i), names[i]);
        cr_expect_eq(got & want, want, "%s: \"%s\" is%s%s%s", l->name, names[i],
                     got & READ ? " read" : "", got & NAMED ? " named" : "",
                     got ? "" : " without effect and not named");
        cr_expect(got == want || want == READ, "%s: \"%s\" is read, and should be %s", l->name,
                  names[i], want ? "named" : "left to rewards");
    }
    json_decref(sets);
}

Test(record_keys, beside_each_layout_are_read_or_named)
{
    for (int i = 0; i < N_LAYOUTS; i++)
        check_layout(&layouts[i]);
}

/* Without one of its fields, a record is refused by the field's name, or gives other tokens. */
Test(record_keys, of_a_layout_itself_are_all_read)
{
    const char *const one[] = {"one.jsonl"};
    const lathe_record_key *key;
    char record[2048];
    for (int k = 0; k < N_LAYOUTS; k++) {
        const layout *l = &layouts[k];
        (void)snprintf(record, sizeof record, "{%s}", l->fields);
        put("one.jsonl", record);
        json_t *base = describe(l, one, 1), *row = json_loads(record, 0, NULL);
        cr_assert(base != NULL && row != NULL, "%s", l->name);
        for (int32_t i = 0; (key = lathe_record_key_get(i)) != NULL; i++) {
            json_t *less = json_copy(row);
            if (json_object_del(less, key->name) == 0) {
                char *text = json_dumps(less, 0);
                put("one.jsonl", text);
                json_t *sets = describe(l, one, 1);
                cr_expect(sets == NULL || seen(json_array_get(base, 0), json_array_get(sets, 0),
                                               key->name) == READ,
                          "%s without \"%s\" is the same", l->name, key->name);
                json_decref(sets);
                free(text);
            }
            json_decref(less);
        }
        json_decref(row);
        json_decref(base);
    }
}

/* ---- the tables are complete ---- */

static int is_read_somewhere(const char *name)
{
    for (int i = 0; i < N_LAYOUTS; i++)
        if (has_field(&layouts[i], name) || lists(layouts[i].read, name))
            return 1;
    return 0;
}

static char *file_text(const char *path)
{
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    char *text = calloc(1, 1 << 20);
    cr_assert_lt(fread(text, 1, (1 << 20) - 1, file), (1 << 20) - 1);
    (void)fclose(file);
    return text;
}

Test(record_keys, are_in_this_table_and_in_the_documentation)
{
    char *docs = file_text(LATHE_TEST_DATA "/../docs/data.md"), quoted[64];
    const char *table = strstr(docs, "### Keys of a record");
    char *end = table ? strstr(table, "### Texts and chat templates") : NULL;
    const lathe_record_key *key;
    cr_assert_not_null(end);
    *end = '\0';
    for (int32_t i = 0; (key = lathe_record_key_get(i)) != NULL; i++) {
        const int is_foreign = key->where == LATHE_RECORD_IS_FOREIGN;
        (void)snprintf(quoted, sizeof quoted, "`%s`", key->name);
        cr_expect_not_null(strstr(table, quoted), "docs/data.md lacks %s", quoted);
        cr_expect(is_foreign || is_read_somewhere(key->name), "\"%s\" is read by no layout here",
                  key->name);
        cr_expect_eq(lathe_record_key_where(key->name), key->where);
    }
    free(docs);
}

Test(record_keys, have_a_layout_for_each_kind_of_rows)
{
    cr_assert_eq(LATHE_N_LAYOUTS, 2, "a layout beside the own and the known one");
    for (int32_t rows = 0; rows < LATHE_N_ROW_KINDS; rows++) {
        int has[2] = {0, 0};
        for (int i = 0; i < N_LAYOUTS; i++)
            if (layouts[i].rows == rows)
                has[layouts[i].is_known] = 1;
        const int32_t of = rows == LATHE_ROWS_GROUPS ? lathe_rows_of_group(3) : rows;
        cr_expect(has[0], "no layout of %s", lathe_row_kind_get(of)->records);
        cr_expect_eq(has[1], lathe_layout_known_text(of) != NULL, "the known layout of %s",
                     lathe_row_kind_get(of)->records);
    }
}

/* lathe generate reads rows too: the template's names are those of the data. */
Test(record_keys, of_the_template_are_those_beside_the_messages)
{
    const lathe_record_key *key;
    const char *name;
    int n = 0;
    for (int32_t i = 0; (name = lathe_chat_row_key(i)) != NULL; i++, n++)
        cr_expect_eq(lathe_record_key_where(name), LATHE_RECORD_IS_BESIDE, "%s", name);
    for (int32_t i = 0; (key = lathe_record_key_get(i)) != NULL; i++)
        n -= key->where == LATHE_RECORD_IS_BESIDE;
    cr_expect_eq(n, 0);
}

Test(record_keys, that_nothing_reads_are_named_in_one_line)
{
    shows("{\"prompt\": \"q\", \"completion\": \" a\", \"zz\": 1, \"question\": \"x\", \"yy\": [1]}"
          "\n{\"prompt\": \"q\", \"completion\": \" a\", \"xx\": 1}\n",
          "--stage.name sft", "nothing reads the columns question, xx, yy, zz;", NULL);
    const char *first = strstr(output, "nothing reads");
    cr_expect_null(strstr(first + 1, "nothing reads"), "%s", output);
}

/* "promt" was named in a note, and the answers were learnt without their question. */
Test(record_keys, that_are_misspelt_are_told_with_the_name_that_was_meant)
{
    static const char *const cases[][2] = {
        {"promt", "promt (prompt?)"}, {"prompts", "prompts (prompt?)"},
        {"sytem", "sytem (system?)"}, {"mesages", "mesages (messages?)"},
        {"texts", "texts;"},          {"idea", "idea;"}};
    char record[128], line[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(record, sizeof record, "{\"%s\": \"q\", \"completion\": \" a\"}\n",
                       cases[i][0]);
        (void)snprintf(line, sizeof line, "nothing reads the column %s", cases[i][1]);
        shows(record, "--stage.name sft", line, NULL);
        cr_expect_eq(lathe_record_key_means(cases[i][0]), i < 4);
    }
}

/* ---- messages ---- */

/* A key of a message that nothing reads was passed over; one that the template reads, or that is
 * empty, is not named. */
Test(record_keys, of_messages_that_nothing_reads_are_named)
{
#define UM "{\"role\": \"user\", \"content\": \"q\", \"id\": 7, \"name\": null}"
#define AM "{\"role\": \"assistant\", \"content\": \"a\", \"metadata\": {\"x\": 1}, \"weight\": 1}"
    static const char talk[] = "{\"messages\": [" UM ", " AM "]}\n";
    static const char pair[] =
        "{\"prompt\": [" UM "], \"chosen\": [" AM "], \"rejected\": [" A("b") "]}\n";
    static const char line[] = "nothing reads the keys messages[].id, messages[].metadata; of a "
                               "message, the chat template reads other keys\n";
    shows(talk, "--stage.name sft", line, NULL);
    cr_expect_null(strstr(output, "warning"), "%s", output);
    shows(pair, "", line, NULL);
    shows("{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": \"a\", "
                                    "\"reasoning_content\": \"because\"}], \"zz\": 1}\n",
          "--stage.name sft", "nothing reads the columns messages[].reasoning_content, zz; columns",
          NULL);
    put("t.jinja",
        "{%- for m in messages %}[{{ m.role }}]{{ m.id }}{{ m.content }}[/]{% endfor %}");
    shows(talk, "--stage.name sft", "nothing reads the key messages[].metadata;", NULL);
    put("t.jinja",
        "{%- for m in messages %}[{{ m.role }}]{{ m.content }}{{ m | tojson }}[/]{% endfor %}");
    shows(talk, "--stage.name sft", "[user]", NULL);
    cr_expect_null(strstr(output, "nothing reads"), "%s", output);
}

/* Each mark of a message has its effect: the answer is not learnt. */
Test(record_keys, of_messages_that_mark_them_are_heeded)
{
    const char *name;
    char record[512], quoted[64];
    char *docs = file_text(LATHE_TEST_DATA "/../docs/data.md");
    int n = 0;
    for (; (name = lathe_chat_mark_key(n)) != NULL; n++) {
        (void)snprintf(record, sizeof record,
                       "{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": "
                                                 "\"bad\", \"%s\": 0}, " U("r") ", " A("good") "]"
                                                                                               "}"
                                                                                               "\n",
                       name);
        shows(record, "--stage.name sft",
              "[-[user]q[/][assistant]bad[/][user]r[/][assistant]-]good[/]", NULL);
        (void)snprintf(quoted, sizeof quoted, "`%s`", name);
        cr_expect_not_null(strstr(docs, quoted), "docs/data.md lacks %s", quoted);
    }
    cr_expect_geq(n, 5);
    free(docs);
}

/* ---- files of plugins ---- */

/* Parquet and Arrow give the columns that they are asked for: tools beside kto's records, and the
 * history of alpaca records, were not among them. */
Test(record_keys, beside_the_columns_of_parquet_are_read_as_those_of_json)
{
#define KEYS LATHE_TEST_DATA "/golden/data/readers/keys/"
    static const char *const cases[][2] = {{"pretrain", "pretrain --data.seq_len 96"},
                                           {"sft", "sft"},
                                           {"sft_alpaca", "sft"},
                                           {"dpo", "dpo"},
                                           {"dpo_alpaca", "dpo"},
                                           {"kto", "kto"},
                                           {"kto_messages", "kto"},
                                           {"kto_alpaca", "kto"},
                                           {"ppo", PPO}};
    static char json[sizeof output];
    char command[1024];
    if (access(LATHE_TEST_BUILD "/lib/lathe/plugins/reader/arrow-shim.so", F_OK) != 0)
        cr_skip_test("Lathe was built without Apache Arrow (LATHE_ARROW_ROOT)");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < 2; k++) {
            (void)snprintf(command, sizeof command,
                           DATA " --stage.name %s --data.datasets '[{path = \"" KEYS "%s.%s\"}]' "
                                "2>&1 | grep -E '^\\[-|nothing reads|error: ' ",
                           cases[i][1], cases[i][0], k ? "parquet" : "jsonl");
            cr_expect_eq(run(command), 0, "%s: %s", command, output);
            cr_expect_not_null(strstr(output, "\"name\": \"get\""), "%s: %s", command, output);
            cr_expect_not_null(strstr(output, "<source>merry[system]be kind[/]"), "%s: %s", command,
                               output);
            cr_expect_null(strstr(output, "nothing reads"), "%s: %s", command, output);
            if (k == 0)
                memcpy(json, output, sizeof json);
            cr_expect_str_eq(output, json, "%s", command);
        }
}

/* ---- prompts of lathe generate ---- */

/* A text "system" was ignored beside messages, and keys that nothing reads were. */
Test(record_keys, of_prompts_to_generate_are_read_or_named)
{
    cr_assert_eq(run(LATHE " train run.toml --stage.name pretrain --data.datasets "
                           "'[{path = \"t.jinja\", type = \"text\"}]' --data.seq_len 16 2>&1"),
                 0, "%s", output);
    put("p.jsonl", "{\"messages\": [" U("q") "], \"system\": \"be kind\", \"tools\": null}\n"
                                             "{\"prompt\": [" U(
                                                 "q") "], \"system\": \"be kind\"}\n"
                                                      "{\"messages\": [" S("be kind") ", " U(
                                                          "q") "]}\n"
                                                               "{\"messages\": [" U("q") "]}\n");
    expect(LATHE " generate out --max-new-tokens 16 --temperature 0 --prompts p.jsonl "
                 "--data.chat_template t.jinja --output o.jsonl --logprobs 2>&1",
           0, "4 results");
    cr_expect_null(strstr(output, "nothing reads"), "%s", output);
    expect("sed 's/\"line\": [0-9]*//' o.jsonl | head -3 | sort -u | wc -l", 0, "1\n");
    expect("sed 's/\"line\": [0-9]*//' o.jsonl | sort -u | wc -l", 0, "2\n");
    put("p.jsonl", "{\"prompt\": \"q\", \"system\": \"be kind\", \"zz\": 1}\n"
                   "{\"prompt\": \"q\", \"yy\": 1}\n");
    expect(LATHE " generate out --max-new-tokens 1 --prompts p.jsonl --output u.jsonl 2>&1", 0,
           "warning: p.jsonl:1: nothing reads \"system\", \"zz\"\n");
    cr_expect_null(strstr(output, "yy"), "%s", output); /* once */
    put("p.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"ts\": 1}]}\n");
    expect(LATHE " generate out --max-new-tokens 1 --prompts p.jsonl --output v.jsonl "
                 "--data.chat_template t.jinja 2>&1",
           0, "nothing reads messages[].ts\n");
    expect("echo '[{\"role\": \"user\", \"content\": \"q\", \"thinking\": \"x\"}]' | " LATHE
           " generate out --max-new-tokens 1 --messages - --data.chat_template t.jinja 2>&1",
           0, "warning: nothing reads messages[].thinking\n");
}

/* A template that has no place for them: tools were told, documents were not. */
Test(record_keys, that_the_template_does_not_write_are_told)
{
    static const char documents[] = "\"documents\": [{\"title\": \"t\", \"text\": \"x\"}]}\n";
    static const char told[] = "1 record is used without its documents, which the chat template "
                               "does not write: d.jsonl:1";
    char record[512];
    put("t.jinja", "{%- for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
                   "{% if add_generation_prompt %}[assistant]{% endif %}");
    (void)snprintf(record, sizeof record, "{\"messages\": " TALK ", %s", documents);
    shows(record, "--stage.name sft", told, NULL);
    expect(LATHE " chat-template t.jinja --show d.jsonl 2>&1", 0, "not written: documents");
    (void)snprintf(
        record, sizeof record,
        "{\"prompt\": [" U("q") "], \"chosen\": [" A("a") "], \"rejected\": [" A("b") "], %s",
        documents);
    shows(record, "--stage.name dpo", told, NULL);
    (void)snprintf(record, sizeof record, "{\"prompt\": [" U("q") "], %s", documents);
    shows(record, "--stage.name " PPO, told, NULL);
}

/* LLaMA-Factory's name is read where the record lacks the stage's own. */
Test(record_keys, of_an_input_beside_its_other_name_are_named)
{
    shows("{\"prompt\": \"q\", \"completion\": \" a\", \"label\": true, \"kto_tag\": false}\n",
          "--stage.name kto", "label 1", "nothing reads the column kto_tag;");
}
