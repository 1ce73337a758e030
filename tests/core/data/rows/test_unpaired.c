/* Unpaired examples: their rows, the mismatched rows, and inputs of the stage from columns. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/records/layout.h"
#include "data/rows/loader.h"
#include "tokenizer/json/tokenizer_file.h"

enum { EOS = 256, T = 8 };

static const lathe_stage_input label = {.name = "label",
                                        .per = LATHE_PER_ROW,
                                        .source = LATHE_INPUT_COLUMN,
                                        .required = 1,
                                        .is_boolean = 1,
                                        .doc = "whether it is desirable"};
static const lathe_stage_input weights[] = {{.name = "weight",
                                             .per = LATHE_PER_TOKEN,
                                             .source = LATHE_INPUT_COLUMN,
                                             .fallback = 0.5,
                                             .doc = "weight of the loss"}};

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;
static lathe_shards *shards;
static lathe_loader *loader;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_unpaired_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
}

static void teardown(void)
{
    lathe_loader_destroy(loader);
    lathe_shards_destroy(shards);
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_tokenizer_destroy(raw);
    lathe_arena_fini(&arena);
}

TestSuite(unpaired, .init = setup, .fini = teardown);

static lathe_status prepare(const char *name, const char *text, int32_t rows,
                            const lathe_stage_input *input)
{
    const lathe_dataset dataset = {
        .path = at(name), .type = LATHE_DATASET_AUTO, .inputs = input, .n_inputs = 1};
    cr_assert_eq(lathe_file_write_atomic(at(name), text, (int64_t)strlen(text)), LATHE_OK);
    return lathe_shards_prepare(&dataset, 1, rows, raw, at("cache"), NULL, NULL, &shards);
}

static void open_loader(int32_t n_rows, const lathe_stage_input *input)
{
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = n_rows,
                                        .row_tokens = T,
                                        .no_shuffle = 1,
                                        .n_epochs = 1,
                                        .packing = LATHE_PACK_AUTO,
                                        .n_inputs = 1,
                                        .inputs = input};
    cr_assert_eq(lathe_loader_create(&config, &loader), LATHE_OK, "%s", lathe_error_message());
}

/* A row as text: | is the end of text. Then its targets: _ is none. */
static void check_row(const lathe_batch *b, int32_t r, const char *tokens, const char *targets)
{
    for (int32_t t = 0; t < T; t++) {
        const int32_t token = b->tokens[r * T + t], target = b->targets[r * T + t];
        cr_expect_eq(token == EOS ? '|' : token, tokens[t], "token %d of row %d", t, r);
        cr_expect_eq(target == EOS ? '|'
                     : target < 0  ? '_'
                                   : target,
                     targets[t], "target %d of row %d is %d", t, r, target);
    }
}

#define THREE                                                                                      \
    "{\"prompt\": \"a\", \"completion\": \"BC\", \"label\": true}\n"                               \
    "{\"prompt\": \"de\", \"completion\": \"F\", \"label\": false}\n"                              \
    "{\"prompt\": \"g\", \"completion\": \"H\", \"label\": true}\n"

Test(unpaired, rows_have_a_mismatched_row_with_the_completion_before)
{
    lathe_batch b;
    cr_assert_eq(prepare("u.jsonl", THREE, LATHE_ROWS_UNPAIRED, &label), LATHE_OK, "%s",
                 lathe_error_message());
    open_loader(4, &label);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(b.n_records, 2);
    check_row(&b, 0, "aBC|||||", "BC|_____");
    check_row(&b, 1, "deF|||||", "_F|_____");
    check_row(&b, 2, "aF||||||", "F|______");
    check_row(&b, 3, "deBC||||", "_BC|____");
    cr_expect_eq(((const float *)b.inputs[0])[0], 1.0f);
    cr_expect_eq(((const float *)b.inputs[0])[1], 0.0f);
    cr_expect_eq(((const float *)b.inputs[0])[2], 1.0f);
    cr_expect_eq(((const float *)b.inputs[0])[3], 0.0f);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK); /* one example, then padding */
    cr_expect_eq(b.n_records, 1);
    check_row(&b, 0, "gH||||||", "H|______");
    check_row(&b, 1, "||||||||", "________");
    check_row(&b, 2, "gF||||||", "F|______"); /* of the batch before, not its own */
    check_row(&b, 3, "||||||||", "________");
    cr_expect_eq(((const float *)b.inputs[0])[0], 1.0f);
    cr_expect_eq(((const float *)b.inputs[0])[1], 0.0f);
}

Test(unpaired, a_single_example_has_a_mismatched_row_of_padding)
{
    lathe_batch b;
    cr_assert_eq(prepare("u.jsonl",
                         "{\"prompt\": \"a\", \"completion\": \"BC\", \"label\": true}\n",
                         LATHE_ROWS_UNPAIRED, &label),
                 LATHE_OK, "%s", lathe_error_message());
    open_loader(4, &label);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(b.n_records, 1);
    check_row(&b, 0, "aBC|||||", "BC|_____");
    check_row(&b, 2, "||||||||", "________");
}

Test(unpaired, inputs_per_token_follow_their_records_in_packed_rows)
{
    lathe_batch b;
    const char *text = "{\"prompt\": \"a\", \"completion\": \"B\", \"weight\": 2}\n"
                       "{\"completion\": \"cde\"}\n";
    cr_assert_eq(prepare("w.jsonl", text, LATHE_ROWS_COMPLETIONS, weights), LATHE_OK, "%s",
                 lathe_error_message());
    open_loader(1, weights);
    static const float want[T] = {2.0f, 2.0f, 2.0f, 0.5f, 0.5f, 0.5f, 0.5f, 0.0f};
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    check_row(&b, 0, "aB|cde||", "B|_de|__");
    for (int32_t t = 0; t < T; t++)
        cr_expect_eq(((const float *)b.inputs[0])[t], want[t], "token %d: %g", t,
                     (double)((const float *)b.inputs[0])[t]);
}

Test(unpaired, labels_of_csv_are_true_false_1_or_0)
{
    lathe_batch b;
    cr_assert_eq(prepare("u.csv", "prompt,completion,label\na,b,True\na,c,0\na,d,False\na,e,1\n",
                         LATHE_ROWS_UNPAIRED, &label),
                 LATHE_OK, "%s", lathe_error_message());
    open_loader(4, &label);
    for (int pair = 0; pair < 2; pair++) {
        cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
        cr_expect_eq(((const float *)b.inputs[0])[0], pair == 0 ? 1.0f : 0.0f);
        cr_expect_eq(((const float *)b.inputs[0])[1], pair == 0 ? 0.0f : 1.0f);
    }
}

static void refuse(const char *name, const char *text, const lathe_stage_input *input,
                   const char *message)
{
    cr_expect_neq(prepare(name, text, LATHE_ROWS_UNPAIRED, input), LATHE_OK);
    cr_expect_not_null(strstr(lathe_error_message(), message), "%s", lathe_error_message());
    lathe_shards_destroy(shards);
    shards = NULL;
}

Test(unpaired, inputs_that_are_missing_or_no_numbers_are_named_by_line_and_column)
{
    refuse("a.jsonl", THREE "{\"prompt\": \"a\", \"completion\": \"b\"}\n", &label,
           "a.jsonl:4: no column \"label\"; the columns are prompt, completion; name it in "
           "columns.label; it holds true or false: whether it is desirable");
    refuse("b.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"good\"}\n", &label,
           "b.jsonl:1: column \"label\" is \"good\"; expected true or false");
    refuse("c.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": 2}\n", &label,
           "c.jsonl:1: column \"label\" is 2; expected true or false");
    refuse("d.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"weight\": []}\n", weights,
           "d.jsonl:1: column \"weight\" is an object or a list; expected a number");
    refuse("e.csv", "prompt,completion,label\na,b,maybe\n", &label,
           "e.csv:2: column \"label\" is \"maybe\"");
}

Test(unpaired, an_input_is_read_from_the_column_that_is_named)
{
    const lathe_dataset dataset = {.path = at("n.jsonl"),
                                   .type = LATHE_DATASET_AUTO,
                                   .inputs = &label,
                                   .n_inputs = 1,
                                   .input_columns = {{"label", "good"}},
                                   .n_input_columns = 1};
    const char *text = "{\"prompt\": \"a\", \"completion\": \"b\", \"good\": true}\n";
    cr_assert_eq(lathe_file_write_atomic(at("n.jsonl"), text, (int64_t)strlen(text)), LATHE_OK);
    cr_assert_eq(lathe_shards_prepare(&dataset, 1, LATHE_ROWS_UNPAIRED, raw, at("cache"), NULL,
                                      NULL, &shards),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(lathe_shards_input(shards, 0, 0), 1.0);
}

Test(unpaired, a_column_that_the_stage_does_not_have_is_refused)
{
    char inner[64];
    const lathe_dataset dataset = {.path = "x.jsonl",
                                   .type = LATHE_DATASET_AUTO,
                                   .inputs = &label,
                                   .n_inputs = 1,
                                   .input_columns = {{"lable", "good"}},
                                   .n_input_columns = 1};
    cr_assert_eq(lathe_layouts_check(&dataset, LATHE_ROWS_UNPAIRED, inner), LATHE_E_CONFIG);
    cr_expect_str_eq(inner, "columns.lable");
    cr_expect_str_eq(lathe_error_message(),
                     "columns.lable: no such column; there are text, prompt, completion, "
                     "completions, chosen, rejected, messages, label");
}

Test(unpaired, llama_factory_records_have_instruction_output_and_kto_tag)
{
    static const char other[] =
        "{\"instruction\": \"a\", \"output\": \"BC\", \"kto_tag\": true}\n"
        "{\"instruction\": \"d\", \"input\": \"e\", \"output\": \"F\", \"kto_tag\": false}\n";
    lathe_batch b;
    cr_assert_eq(prepare("l.jsonl", other, LATHE_ROWS_UNPAIRED, &label), LATHE_OK, "%s",
                 lathe_error_message());
    open_loader(4, &label);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK, "%s", lathe_error_message());
    check_row(&b, 0, "aBC|||||", "BC|_____");
    check_row(&b, 1, "d\neF||||", "__F|____");
    cr_expect_eq(((const float *)b.inputs[0])[0], 1.0f);
    cr_expect_eq(((const float *)b.inputs[0])[1], 0.0f);
    cr_expect_neq(prepare("m.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"kto_tag\": 3}\n",
                          LATHE_ROWS_UNPAIRED, &label),
                  LATHE_OK);
    cr_expect_not_null(
        strstr(lathe_error_message(), "m.jsonl:1: column \"kto_tag\" is 3; expected true or false"),
        "%s", lathe_error_message());
}
