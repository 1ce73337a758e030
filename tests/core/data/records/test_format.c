/* Formats and layouts: what the columns of a record are made of. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/records/record_reader.h"
#include "data/records/row_kind.h"
#include "data/rows/shards.h"
#include "tokenizer/encode/tokenizer.h"
#include "tokenizer/json/tokenizer_file.h"

static char root[64];
static lathe_arena arena;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_format_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_arena_fini(&arena);
}

TestSuite(format, .init = setup, .fini = teardown);
TestSuite(layout, .init = setup, .fini = teardown);

static const char *add_column(const char *text, const lathe_fields *fields, int32_t c)
{
    return fields->text[c]
               ? lathe_arena_printf(&arena, "%s[%.*s]", text, (int)fields->n[c], fields->text[c])
               : text;
}

/* The columns of all records, "[prompt][completion]|...", or the error's message. */
static const char *read_all(const lathe_dataset *dataset, int32_t rows)
{
    const lathe_source_place begin = {.line = 1};
    lathe_sources sources;
    lathe_reader r = {.fd = -1};
    lathe_fields fields;
    const char *text = "";
    memset(&fields, 0, sizeof fields);
    lathe_status status = lathe_sources_list(dataset, &arena, &sources);
    if (status == LATHE_OK)
        status = lathe_reader_init(&r, dataset, &sources, rows, &begin);
    while (status == LATHE_OK && !lathe_reader_ended(&r)) {
        status = lathe_reader_batch(&r, 1 << 20);
        for (int64_t i = 0; i < r.n && status == LATHE_OK; i++) {
            status = lathe_fields_read(&fields, &r, &r.list[i]);
            for (int32_t c = 0; c < LATHE_N_COLUMNS && status == LATHE_OK; c++)
                text = add_column(text, &fields, c);
            text = lathe_arena_printf(&arena, "%s|", text);
        }
    }
    lathe_reader_fini(&r);
    lathe_fields_fini(&fields);
    return status == LATHE_OK ? text : lathe_error_message();
}

static lathe_dataset put(const char *name, const char *content)
{
    cr_assert_eq(lathe_file_write_atomic(at(name), content, (int64_t)strlen(content)), LATHE_OK);
    return (lathe_dataset){.path = at(name), .type = LATHE_DATASET_AUTO};
}

/* The columns of examples in such a file with these formats. */
static const char *examples(const char *name, const char *content, const char *prompt,
                            const char *completion)
{
    lathe_dataset dataset = put(name, content);
    dataset.formats[LATHE_COLUMN_PROMPT] = prompt;
    dataset.formats[LATHE_COLUMN_COMPLETION] = completion;
    return read_all(&dataset, LATHE_ROWS_COMPLETIONS);
}

static void refuse(const char *message, const char *want)
{
    cr_expect_not_null(strstr(message, want), "\"%s\": expected %s", message, want);
}

Test(format, makes_columns_of_several_fields_of_every_type_of_file)
{
    const char *prompt = "Question: {question}\nAnswer:", *completion = " {answer}.{answer}";
    const char *want =
        "[Question: a \"b\"\nAnswer:][ c.c]|[Question: d\nAnswer:][ \xc3\xa9.\xc3\xa9]|";
    cr_expect_str_eq(examples("a.jsonl",
                              "{\"question\": \"a \\\"b\\\"\", \"answer\": \"c\"}\n"
                              "{\"answer\": \"\\u00e9\", \"question\": \"d\"}\n",
                              prompt, completion),
                     want);
    cr_expect_str_eq(examples("a.json",
                              "[{\"question\": \"a \\\"b\\\"\", \"answer\": \"c\"},\n"
                              "{\"answer\": \"\\u00e9\", \"question\": \"d\"}]",
                              prompt, completion),
                     want);
    cr_expect_str_eq(examples("a.csv", "id,answer,question\n1,c,\"a \"\"b\"\"\"\n2,\xc3\xa9,d\n",
                              prompt, completion),
                     want);
}

Test(format, doubled_braces_are_braces)
{
    cr_expect_str_eq(
        examples("a.jsonl", "{\"q\": \"x\", \"{q\": \"y\"}\n", "{{{q}}} {{q}} }}{{", "{q}"),
        "[{x} {q} }{][x]|");
    cr_expect_str_eq(examples("a.jsonl", "{\"q\": \"{x}\"}\n", "{{}}", "{q}"), "[{}][{x}]|");
}

Test(format, numbers_and_booleans_stand_as_in_the_file)
{
    cr_expect_str_eq(examples("a.jsonl", "{\"n\": -1.50e3, \"t\": true, \"f\": false, \"z\": 0}\n",
                              "{n} {t}", "{f}{z}"),
                     "[-1.50e3 true][false0]|");
}

Test(format, a_field_without_a_text_is_refused_with_its_line_and_the_fields)
{
    refuse(
        examples("a.jsonl", "{\"q\": \"x\", \"a\": 1}\n{\"q\": \"x\", \"b\": 2}\n", "{q}", "{a}"),
        "a.jsonl:2: no field \"a\", which format.completion names; the fields are q, b");
    refuse(examples("a.jsonl", "{\"q\": null, \"a\": 1}\n", "{q}", "{a}"),
           "a.jsonl:1: field \"q\" is null; format.prompt takes strings, numbers, true and false; "
           "the fields are q, a");
    refuse(examples("a.json", "[{\"q\": [1], \"a\": 1}]", "{q}", "{a}"),
           "a.json: record 1: field \"q\" is an object or a list; format.prompt takes");
    refuse(examples("n.jsonl", "{\"completion\": 7}\n", NULL, NULL),
           "n.jsonl:1: column \"completion\" is not a string; with format.completion = "
           "\"{completion}\" it is read as it is written");
    refuse(examples("a.csv", "q,b\nx,y\n", "{q}", "{a}"),
           "a.csv:1: no field \"a\", which format.completion names; the fields are q, b");
}

Test(format, a_brace_without_its_other_is_refused_by_character)
{
    static const char *const cases[][2] = {
        {"\xc3\xa9{q", "format.prompt = \"\xc3\xa9{q\": the { at character 2 has no }; write {{"},
        {"{q {a}", "the { at character 1 has no }"},
        {"q}", "the } at character 2 has no {; write }}"},
        {"a {}", "the {} at character 3 names no field"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(examples("a.jsonl", "{\"q\": \"x\", \"a\": 1}\n", cases[i][0], "{a}"), cases[i][1]);
    refuse(examples("a.jsonl", "{}\n", "", "{a}"), "format.prompt = \"\" names no field");
    refuse(examples("a.jsonl", "{}\n", "{q}", "answer"),
           "format.completion = \"answer\" names no field; write {NAME}");
}

Test(format, a_column_is_given_once)
{
    lathe_dataset dataset = put("a.jsonl", "{\"q\": \"x\"}\n");
    char inner[64];
    dataset.columns[LATHE_COLUMN_COMPLETION] = "q";
    dataset.formats[LATHE_COLUMN_COMPLETION] = "{q}";
    refuse(read_all(&dataset, LATHE_ROWS_COMPLETIONS),
           "format.completion: columns.completion gives the same column");
    cr_expect_eq(lathe_layouts_check(&dataset, LATHE_ROWS_COMPLETIONS, inner), LATHE_E_CONFIG);
    cr_expect_str_eq(inner, "format.completion");
    dataset.formats[LATHE_COLUMN_COMPLETION] = NULL;
    dataset.formats[LATHE_COLUMN_PROMPT] =
        "{1}{2}{3}{4}{5}{6}{7}{8}{9}{10}{11}{12}{13}{14}{15}{16}";
    refuse(read_all(&dataset, LATHE_ROWS_COMPLETIONS), "more than 16 different fields");
}

Test(format, the_cached_shards_belong_to_one_format)
{
    static const char *const formats[] = {"{q}", "{a}", "{q} "};
    static const int64_t tokens[] = {2, 3, 3}; /* with the end of text */
    lathe_dataset dataset = put("a.jsonl", "{\"q\": \"x\", \"a\": \"yy\"}\n");
    lathe_tokenizer *raw = NULL;
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
    for (int i = 0; i < 6; i++) {
        lathe_shards *shards = NULL;
        dataset.formats[LATHE_COLUMN_TEXT] = formats[i % 3];
        cr_assert_eq(lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PACKED, raw, at("cache"), NULL,
                                          NULL, &shards),
                     LATHE_OK, "%s", lathe_error_message());
        cr_expect_eq(lathe_shards_tokens(shards), tokens[i % 3]);
        cr_expect_eq(lathe_shards_built(shards), i < 3);
        lathe_shards_destroy(shards);
    }
    lathe_tokenizer_destroy(raw);
}

/* ---- layouts of other programs ---- */

static const char *found(const char *name, const char *content, int32_t rows)
{
    const lathe_dataset dataset = put(name, content);
    return read_all(&dataset, rows);
}

Test(layout, alpaca_records_are_found_from_their_columns)
{
    const char *want = "[Add.\n1 2][3]|[Greet.][yo]|";
    cr_expect_str_eq(found("a.jsonl",
                           "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n"
                           "{\"instruction\": \"Greet.\", \"input\": \"\", \"output\": \"yo\"}\n",
                           LATHE_ROWS_COMPLETIONS),
                     want);
    cr_expect_str_eq(found("a.csv", "output,instruction,input\n3,Add.,1 2\nyo,Greet.,\n",
                           LATHE_ROWS_COMPLETIONS),
                     want);
    cr_expect_str_eq(found("b.jsonl",
                           "{\"instruction\": \"Greet.\", \"output\": \"yo\"}\n"
                           "{\"instruction\": \"Greet.\", \"output\": \"yo\", \"input\": null}\n"
                           "{\"instruction\": \"\", \"output\": \"yo\", \"input\": \"in\"}\n",
                           LATHE_ROWS_COMPLETIONS),
                     "[Greet.][yo]|[Greet.][yo]|[in][yo]|");
    cr_expect_str_eq(found("c.csv", "output,instruction\nyo,Greet.\n", LATHE_ROWS_COMPLETIONS),
                     "[Greet.][yo]|");
}

Test(layout, alpaca_pairs_have_their_prompt)
{
    cr_expect_str_eq(found("a.jsonl",
                           "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"chosen\": \"3\", "
                           "\"rejected\": \"4\"}\n",
                           LATHE_ROWS_PAIRS),
                     "[Add.\n1 2][3][4]|");
}

Test(layout, columns_of_their_own_names_and_named_ones_win)
{
    const char *content = "{\"instruction\": \"i\", \"output\": \"o\", \"completion\": \"c\"}\n";
    cr_expect_str_eq(found("a.jsonl", content, LATHE_ROWS_COMPLETIONS), "[c]|");
    cr_expect_str_eq(found("b.jsonl",
                           "{\"instruction\": \"i\", \"output\": \"o\", \"text\": \"t\"}\n",
                           LATHE_ROWS_PACKED),
                     "[t]|");
    lathe_dataset dataset = put("c.jsonl", "{\"instruction\": \"i\", \"output\": \"o\"}\n");
    dataset.columns[LATHE_COLUMN_COMPLETION] = "output";
    cr_expect_str_eq(read_all(&dataset, LATHE_ROWS_COMPLETIONS), "[o]|");
    dataset.columns[LATHE_COLUMN_COMPLETION] = NULL;
    dataset.formats[LATHE_COLUMN_COMPLETION] = "<{output}>";
    cr_expect_str_eq(read_all(&dataset, LATHE_ROWS_COMPLETIONS), "[<o>]|");
}

Test(layout, a_column_of_conversations_is_named)
{
    refuse(found("a.jsonl", "{\"id\": 1, \"conversations\": \"\"}\n", LATHE_ROWS_COMPLETIONS),
           "a.jsonl:1: no column \"completion\"; the columns are id, conversations; name it in "
           "columns.completion (\"conversations\" holds conversations, which columns.messages "
           "names if they are lists of role and content)");
    refuse(found("d.jsonl", "{\"id\": 1, \"messages\": []}\n", LATHE_ROWS_PAIRS),
           "(\"messages\" holds conversations, which are not read)");
    refuse(found("b.jsonl", "{\"conversations\": \"\"}\n", LATHE_ROWS_PACKED),
           "(\"conversations\" holds conversations");
    refuse(found("c.jsonl", "{\"messages_2\": \"\"}\n", LATHE_ROWS_PACKED),
           "name it in columns.text, or make it of them in format.text");
}

/* Alpaca records are counted, also when the shards come from the cache. */
Test(layout, records_of_a_known_layout_are_counted)
{
    const lathe_dataset dataset = put("a.jsonl", "{\"instruction\": \"i\", \"output\": \"o\"}\n"
                                                 "{\"prompt\": \"p\", \"completion\": \"c\"}\n");
    lathe_tokenizer *raw = NULL;
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
    for (int i = 0; i < 2; i++) {
        lathe_shards *shards = NULL;
        cr_assert_eq(lathe_shards_prepare(&dataset, 1, LATHE_ROWS_COMPLETIONS, raw, at("cache"),
                                          NULL, NULL, &shards),
                     LATHE_OK, "%s", lathe_error_message());
        cr_expect_eq(lathe_shards_set_get(shards, 0)->counts.n_known, 1);
        lathe_shards_destroy(shards);
    }
    lathe_tokenizer_destroy(raw);
}
