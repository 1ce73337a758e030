/* lathe data with good and bad datasets: each fault gives one message with file and place. */
#include "cli_case.h"

#include <sys/stat.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

/* Writes run.toml with one dataset table and further lines of [data]. */
static void put_run(const char *dataset, const char *more)
{
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "[model]\nmodel_type = \"llama\"\nvocab_size = 320\nhidden_size = 32\n"
                   "intermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                   "[tokenizer]\npath = \"bytes\"\n[data]\ndatasets = [%s]\nseq_len = 16\n%s",
                   dataset, more);
    put("run.toml", text);
}

TestSuite(cli_data, .init = make_folder, .fini = remove_folder);

Test(cli_data, shows_documents_and_rows_with_their_mask)
{
    put("a.jsonl", "{\"text\": \"The wheel.\"}\n{\"text\": \"A \\u001b[1mthread.\"}\n");
    put("b.csv", "text\n\"one, two\"\nfour\n");
    put_run("{ path = \"a.jsonl\" }, { path = \"*.csv\", weight = 2 }",
            "packing = \"multipack\"\nshuffle = false\n");
    expect(LATHE " data run.toml --n 2 2>&1", 0, "2 documents          14 tokens  weight 2");
    cr_expect_not_null(
        strstr(output, "an epoch: 4 rows, 4 steps; a step: 1 micro-batch of 1 row\n"), "%s",
        output);
    cr_expect_not_null(strstr(output, "-- tokens 0 to 13, positions 0 to 13, 13 learnt\n"
                                      "[-A-] \\x1b[1mthread.<|endoftext|>\n"
                                      "-- tokens 14 to 15 are filling\n"),
                       "%s", output);
    cr_expect_null(strchr(output, 0x1b), "no escape codes when the output is no terminal");
    expect(LATHE " data .lathe/cache 2>&1", 0, "2 shards, every SHA-256 agrees");
    expect(LATHE " data run.toml --split validation 2>&1", 2, "there is no validation split");
    cr_assert_eq(run("for f in .lathe/cache/shard-*; do printf x | dd of=$f bs=1 seek=733 "
                     "conv=notrunc status=none; done"),
                 0);
    expect(LATHE " data .lathe/cache 2>&1", 1, "2 of 2 shards are damaged");
    expect(LATHE " data run.toml 2>&1", 2, "the SHA-256 of its content is wrong");
}

/* 11 tokens: a prefix of round(5.5) = 6, or all masked but end-of-text, which is special. */
Test(cli_data, prefixes_and_masks_are_shown)
{
    put("a.jsonl", "{\"text\": \"The wheel.\"}\n{\"text\": \"So it is made.\"}\n");
    put_run("{ path = \"a.jsonl\" }", "packing = \"multipack\"\nshuffle = false\n[stage]\n"
                                      "objective = \"prefix\"\nprefix_fraction = 0.5\n");
    expect(LATHE " data run.toml --n 2 2>&1", 0,
           "-- tokens 0 to 10, positions 0 to 10, 5 learnt\n");
    cr_expect_not_null(strstr(output, "[-The wh-]eel.<|endoftext|>\n"), "%s", output);
    put_run("{ path = \"a.jsonl\" }",
            "packing = \"multipack\"\nshuffle = false\n[stage]\nobjective = \"masked\"\n"
            "mask_token = \"~\"\nmask_probability = 1.0\nmask_share = 1.0\nrandom_share = 0.0\n");
    expect(LATHE " data run.toml --n 2 2>&1", 0, "Targets stand in {shown=target}.\n");
    cr_expect_not_null(strstr(output, "-- tokens 0 to 10, positions 0 to 10, 10 learnt\n"
                                      "{~=T}{~=h}{~=e}{~= }{~=w}{~=h}{~=e}{~=e}{~=l}{~=.}"
                                      "<|endoftext|>\n"),
                       "%s", output);
}

Test(cli_data, pairs_show_the_prompt_as_not_learnt)
{
    put("p.csv", "prompt,chosen,rejected\nwhy?,so,no\n");
    put_run("{ path = \"p.csv\" }", "[stage]\nname = \"dpo\"\n");
    expect(LATHE " data run.toml 2>&1", 0, "[-why?-]so<|endoftext|>");
    cr_expect_not_null(strstr(output, "[-why?-]no<|endoftext|>"), "%s", output);
}

/* Checks one faulty input. */
static void refuse(const char *dataset, const char *more, int code, const char *says)
{
    put_run(dataset, more);
    expect(LATHE " data run.toml 2>&1", code, says);
    int lines = 0;
    for (const char *c = output; *c; c++)
        lines += *c == '\n';
    cr_expect_eq(lines, 1, "%s: one message, not\n%s", dataset, output);
}

Test(cli_data, bad_data_is_refused_by_file_and_place)
{
    put("ok.txt", "a text that is longer than one row of sixteen tokens");
    put("short.txt", "short");
    put("empty.jsonl", "\n");
    put("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3\n");
    put("column.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\", \"id\": 7}\n");
    put("utf8.jsonl", "{\"text\": \"caf\xe9\"}\n");
    put("wide.csv", "\xff\xfet"); /* the beginning of a table in UTF-16 */
    put("bad.json", "[{\"text\": \"a\"},\n 7]");
    put("bad.csv", "text,id\na,1\nb\n");
    put("column.csv", "body,id\na,1\n");
    put("binary.txt", "\xff\xfe\xfd and more bytes than a row holds");
    refuse("{ path = \"none.txt\" }", "", 2, "run.toml:11:22: error: data.datasets: no such file");
    refuse("{ path = \"*.parquet\" }", "", 2, "no file matches the pattern *.parquet");
    refuse("{ path = \"empty.jsonl\" }", "", 2,
           "empty.jsonl: no documents in it; the file has no records");
    refuse("{ path = \"binary.txt\" }", "", 2,
           "binary.txt: no documents in it; left out: 1 file is not UTF-8 text");
    refuse("{ path = \"short.txt\" }", "", 2, "6 tokens, fewer than one row of data.seq_len = 16");
    refuse("{ path = \"bad.jsonl\" }", "", 2, "bad.jsonl:2:");
    refuse("{ path = \"column.jsonl\" }", "", 2,
           "column.jsonl:2: no column \"text\"; the columns are body, id; name it in columns.text");
    refuse("{ path = \"utf8.jsonl\" }", "", 2, "utf8.jsonl:1:");
    refuse("{ path = \"wide.csv\" }", "", 2, "wide.csv: it is UTF-16 text, and data are read as");
    refuse("{ path = \"bad.json\" }", "", 2, "bad.json:2: '7' where an object is expected");
    refuse("{ path = \"bad.csv\" }", "", 2, "bad.csv:3: 1 fields, the header names 2");
    refuse("{ path = \"column.csv\" }", "", 2, "column.csv:1: no column \"text\"; the columns are");
    refuse("{ path = \"ok.txt\", weight = -1.0 }", "", 2, "run.toml:11:");
    refuse("{ path = \"ok.txt\", weight = nan }", "", 2, "run.toml:11:");
    refuse("{ path = \"ok.txt\" }", "validation_count = 1\nvalidation_split = 0.5\n", 2,
           "data.validation_count and data.validation_split exclude each other");
    refuse("{ path = \"ok.txt\" }", "validation_count = 1\n", 2, "leaves none to train on");
    refuse("{ path = \"ok.txt\" }", "cache_dir = \"ok.txt/cache\"\n", 2,
           "ok.txt is a file, expected a folder");
    refuse(
        "{ path = \"ok.txt\" }", "[stage]\nname = \"dpo\"\n", 2,
        "stage \"dpo\" reads pairs, with the columns prompt, chosen, rejected, and ok.txt is plain "
        "text");
    if (geteuid() != 0) { /* root can read everything */
        cr_assert_eq(chmod("ok.txt", 0), 0);
        refuse("{ path = \"ok.txt\" }", "", 2, "ok.txt: cannot open it: Permission denied");
    }
}

/* Every command that reads the data gives the same refusal, place and exit code. */
Test(cli_data, a_wrong_column_has_the_exit_code_of_validate)
{
    static const char *const commands[] = {"data", "data --json", "validate", "train"};
    put("number.jsonl", "{\"text\": 5}\n");
    put("body.jsonl", "{\"body\": \"a\"}\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char command[256];
        (void)snprintf(command, sizeof command, LATHE " %s run.toml 2>&1", commands[i]);
        put_run("{ path = \"number.jsonl\" }", "");
        expect(command, 2, "number.jsonl:1: column \"text\" is not a string");
        cr_expect(strstr(output, "run.toml:11:22: ") || strstr(output, "\"line\": 11"), "%s",
                  output);
        put_run("{ path = \"body.jsonl\" }", "");
        expect(command, 2, "body.jsonl:1: no column");
        cr_expect(strstr(output, "run.toml:11:22: ") || strstr(output, "\"line\": 11"), "%s",
                  output);
    }
}

/* Examples that are cut or left out, and facts found from the columns, are told by lathe data, and
 * once by lathe train. */
Test(cli_data, notes_on_examples_name_their_lines_and_come_once)
{
    static const char layout[] = "a.jsonl: alpaca records: prompt from instruction and input, "
                                 "completion from output; where there is a chat template, "
                                 "it writes them as conversations\n";
    put("a.jsonl", "{\"instruction\": \"ab\", \"output\": \"c\"}\n"
                   "{\"instruction\": \"ab\", \"input\": \"cd\", \"output\": \"a long answer\"}\n"
                   "{\"instruction\": \"a prompt as long as a row\", \"output\": \"c\"}\n");
    put_run("{ path = \"a.jsonl\" }", "[stage]\nname = \"sft\"\n[train]\nmax_steps = 1\n"
                                      "[optimizer]\nlr = 1e-3\n[checkpoint]\ndir = \"out\"\n");
    expect(LATHE " data run.toml 2>&1", 0, "3 alpaca records: prompt from instruction and input");
    cr_expect_not_null(
        strstr(output, "1 example left out, the prompt alone fills a row: a.jsonl:3\n"), "%s",
        output);
    cr_expect_not_null(strstr(output, "1 example cut after 16 tokens: a.jsonl:2\n"), "%s", output);
    expect(LATHE " data run.toml --data.overlong leave_out 2>&1", 0,
           "1 example left out, longer than 16 tokens: a.jsonl:2\n");
    expect(LATHE " data run.toml --json 2>&1", 0, "\"examples_overlong\": 1");
    expect(LATHE " train run.toml 2>&1", 0, layout);
    cr_expect_not_null(strstr(output, "1 example is left out, because its prompt alone fills a row "
                                      "of data.seq_len tokens: a.jsonl:3\n"),
                       "%s", output);
    cr_expect_not_null(strstr(output, "1 example is cut after data.seq_len tokens: a.jsonl:2\n"),
                       "%s", output);
    expect(LATHE " train run.toml --train.max_steps 2 2>&1", 0, "step 2/2");
    cr_expect_null(strstr(output, "a.jsonl"), "said at the first start alone: %s", output);
}

Test(cli_data, pairs_of_the_same_text_are_counted_with_the_first_line)
{
    put("p.csv", "prompt,chosen,rejected\nwhy?,so,no\nwhy?,so,so\nwhy?,no,no\n");
    put_run("{ path = \"p.csv\" }", "[stage]\nname = \"dpo\"\n[train]\nmax_steps = 1\n"
                                    "[optimizer]\nlr = 1e-3\n[checkpoint]\ndir = \"out\"\n");
    expect(LATHE " data run.toml 2>&1", 0,
           "2 pairs: chosen and rejected are the same text: p.csv:3, ...\n");
    expect(
        LATHE " train run.toml 2>&1", 0,
        "warning: 2 pairs of p.csv prefer nothing, because chosen and rejected are the same text: "
        "p.csv:3, ...\n");
}

/* tokenizer.train also learns from records. */
Test(cli_data, a_tokenizer_is_trained_on_any_format)
{
    put("a.csv", "id,text\n1,\"low lower lowest\"\n2,\"low lower, lowest\"\n3,newest newer new\n");
    put("b.json", "[{\"text\": \"low low low\"}, {\"text\": \"newest newest\"}]");
    put("run.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 32\nintermediate_size = 32\n"
                    "num_hidden_layers = 1\nnum_attention_heads = 2\n"
                    "[tokenizer]\ntrain = { vocab_size = 264 }\n[data]\nseq_len = 8\n"
                    "datasets = [{ path = \"a.csv\" }, { path = \"b.json\" }]\n");
    expect(LATHE " data run.toml 2>&1", 0,
           "a.csv                                            3 doc");
    expect("cat .lathe/cache/tokenizer-*/tokenizer.json", 0, "\"low\"");
}

Test(cli_data, a_chat_template_and_its_variables_are_set_in_the_run_file)
{
    put("c.jinja", "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ mark }};{% endfor %}"
                   "{{ 'a' if add_generation_prompt }}");
    put("t.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": "
                   "\"assistant\", \"content\": \"yo\"}]}\n");
    put_run("{ path = \"t.jsonl\" }",
            "chat_template = \"c.jinja\"\nchat_template_kwargs = { mark = \"!\" }\n"
            "[stage]\nname = \"sft\"\n");
    expect(LATHE " data run.toml 2>&1", 0, "[-uhi!;a-]yo!;");
    expect(LATHE " data run.toml --data.chat_template_kwargs '{mark = \"?\"}' 2>&1", 0,
           "[-uhi?;a-]yo?;");
    expect(LATHE " data run.toml --data.chat_template no.jinja 2>&1", 2,
           "data.chat_template: no such file or folder: no.jinja");
    put("bad.jinja", "{% if %}");
    expect(LATHE " data run.toml --data.chat_template bad.jinja 2>&1", 2, "bad.jinja:1:");
}

Test(cli_data, what_is_left_out_is_told_by_cause_with_the_line)
{
    put("c.jinja", "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}");
    put("t.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": "
                   "\"assistant\", \"content\": \"yo\"}]}\n"
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n"
                   "{\"messages\": [{\"role\": \"asistant\", \"content\": \"hi\"}]}\n");
    put_run("{ path = \"t.jsonl\" }", "chat_template = \"c.jinja\"\n[stage]\nname = \"sft\"\n");
    expect(LATHE " data run.toml 2>&1", 0,
           "left out: 1 conversation has no message of the assistant: t.jsonl:2\n");
    cr_expect_not_null(strstr(output, "but one of the role \"asistant\": t.jsonl:3\n"), "%s",
                       output);
    expect(LATHE " data run.toml --json 2>&1", 0, "\"unknown_role\": {");
    cr_expect_not_null(strstr(output, "\"role\": \"asistant\""), "%s", output);
}

Test(cli_data, calls_and_tools_that_the_template_does_not_write_are_told)
{
    put("c.jinja", "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}");
    put("t.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": "
        "\"assistant\", \"content\": \"yo\"}], \"tools\": [{\"name\": \"f\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}]}\n");
    put_run("{ path = \"t.jsonl\" }", "chat_template = \"c.jinja\"\n[stage]\nname = \"sft\"\n");
    expect(
        LATHE " data run.toml 2>&1", 0,
        "    left out: 1 record has an answer that is only calls of tools, and the chat template "
        "does not write calls: t.jsonl:2\n"
        "    1 record is used without its list of tools, which the chat template does not write: "
        "t.jsonl:1\n");
    expect(LATHE " data run.toml --json 2>&1", 0, "\"calls_not_written\": {");
    cr_expect_not_null(strstr(output, "\"unwritten\": {\n          \"tools\": {"), "%s", output);
}

Test(cli_data, records_of_an_array_are_named_by_their_number)
{
    put("a.json", "[{\"text\": \"some text that is long enough for a row\"}, {\"text\": \"\"}, "
                  "{\"text\": \"\"}]");
    put_run("{ path = \"a.json\" }", "");
    expect(LATHE " data run.toml 2>&1", 0,
           "left out: 2 records have no text to learn: a.json: record 2, ...\n");
    expect(LATHE " data run.toml --json 2>&1", 0, "\"record\": 2");
    put("a.json", "[{\"text\": \"a\"}, {\"body\": \"b\"}]");
    expect(LATHE " data run.toml 2>&1", 2, "a.json: record 2: no column \"text\"");
}

Test(cli_data, a_cache_that_cannot_be_made_is_refused_at_its_key)
{
    put("t.jsonl", "{\"text\": \"some text that is long enough for a row\"}\n");
    put_run("{ path = \"t.jsonl\" }", "cache_dir = \"/proc/lathe\"\n");
    expect(LATHE " validate run.toml 2>&1", 2, "error: data.cache_dir");
    cr_expect_null(strstr(output, "data.datasets"), "%s", output);
}

/* The tokenizer that a run trains is saved there first, and is not at fault. */
Test(cli_data, a_cache_for_a_trained_tokenizer_is_refused_at_its_key)
{
    put_times("t.txt", "some text that is long enough for a row\n", 20);
    put("learn.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                      "num_hidden_layers = 1\nnum_attention_heads = 2\n"
                      "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                      "[data]\ndatasets = [{ path = \"t.txt\" }]\ncache_dir = \"/proc/lathe\"\n"
                      "seq_len = 8\n");
    static const char *const commands[] = {"validate", "train", "data", "eval"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[256];
        (void)snprintf(line, sizeof line, LATHE " %s learn.toml 2>&1", commands[i]);
        expect(line, 2, "learn.toml:11:13: error: data.cache_dir: /proc/lathe: cannot create");
    }
    expect("sed -i /cache_dir/d learn.toml && ln -s /proc/lathe .lathe && " LATHE
           " validate learn.toml 2>&1",
           2, "learn.toml:9:2: error: data.cache_dir = \".lathe/cache\": .lathe is a link");
    expect(LATHE " validate learn.toml --data.cache_dir '' 2>&1", 2, "data.cache_dir is empty");
    expect("rm .lathe; " LATHE " validate learn.toml 2>&1", 0, "valid");
    expect("cd .lathe/cache && for d in tokenizer-*; do rm -r $d; touch $d; done", 0, "");
    expect(LATHE " validate learn.toml 2>&1", 2,
           "learn.toml:9:2: error: data.cache_dir: .lathe/cache/tokenizer-");
}

Test(cli_data, files_that_are_not_read_as_records_are_told)
{
    cr_assert_eq(mkdir("mixed", 0755), 0);
    put("mixed/a.jsonl", "{\"text\": \"some text that is long enough for a row\"}\n");
    put("mixed/notes.md", "notes");
    put_run("{ path = \"mixed\", type = \"jsonl\" }", "");
    expect(LATHE " data run.toml 2>&1", 0,
           "  mixed: 1 file is read; left out: 1 not named *.jsonl or *.ndjson (mixed/notes.md)\n");
    put_run("{ path = \"mixed\" }", "");
    expect(LATHE " data run.toml 2>&1", 0,
           "  mixed: read as plain text, because its files have names of several types; 1 with "
           "records "
           "(mixed/a.jsonl): set the dataset's type to read the records of one type\n");
    expect(LATHE " data run.toml --stage.name sft 2>&1", 2,
           "and mixed is plain text: give files of type jsonl, json or csv, or of a reader plugin "
           "(Parquet); mixed: read as plain text, because its files have names of several types");
}

#define SAMPLES LATHE_TEST_DATA "/golden/data/readers/same/"

Test(cli_data, a_parquet_file_shows_the_rows_of_the_jsonl_file)
{
    char *jsonl;
    if (access(LATHE_TEST_BUILD "/lib/lathe/plugins/reader/arrow-shim.so", F_OK) != 0)
        cr_skip_test("Lathe was built without Apache Arrow (LATHE_ARROW_ROOT)");
    cr_assert_eq(run("cp " SAMPLES "records.jsonl a.jsonl && cp " SAMPLES "zstd.parquet a.parquet"),
                 0);
    put_run("{ path = \"a.jsonl\" }", "");
    expect(LATHE
           " data run.toml --n 9 2>&1 | sed 's/a\\.jsonl:3,/RECORD 3,/; s/a\\.jsonl  /FILE  /'",
           0, "records have no text to learn: RECORD 3,");
    jsonl = strdup(output);
    put_run("{ path = \"a.parquet\" }", "");
    expect(LATHE " validate run.toml", 0, "run.toml: valid");
    expect(LATHE " data run.toml --n 9 2>&1 | sed 's/a\\.parquet: row 3,/RECORD 3,/; "
                 "s/a\\.parquet  /FILE    /'",
           0, "records have no text to learn: RECORD 3,");
    cr_expect_str_eq(output, jsonl);
    free(jsonl);
    expect(LATHE " train run.toml --train.max_steps 1 --checkpoint.dir named >log 2>&1 && "
                 "grep -A1 -c '\"kind\": \"reader\"' named/run.json && "
                 "grep -A1 '\"kind\": \"reader\"' named/run.json",
           0, "\"name\": \"arrow\"");
    put_run("{ path = \"" LATHE_TEST_DATA
            "/golden/data/readers/odd/odd.parquet\", columns = { text = \"body\" } }",
            "");
    expect(
        LATHE " validate run.toml 2>&1", 2,
        "odd.parquet: row 1: no column \"body\"; the columns are text, image, day, score, price; "
        "name it in columns.text");
    put_run("{ path = \"a.parquet\" }", "[reader]\nname = \"arrow\"\n");
    expect(LATHE " validate run.toml 2>&1", 2,
           "run.toml:13:2: error: [reader] has no effect: the names of the files in data.datasets "
           "decide "
           "which reader reads them; remove the table");
}

/* Hidden files are left out of a folder, and what the run writes there. */
Test(cli_data, a_folder_leaves_out_hidden_files_and_those_of_the_run)
{
    expect("mkdir -p d/.git d/sub && echo 'a text.' >d/a.txt && echo 'b text.' >d/sub/b.txt && "
           "echo x >d/.git/config && echo y >d/sub/.hidden",
           0, "");
    put("d/run.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                      "num_hidden_layers = 1\nnum_attention_heads = 2\n[tokenizer]\npath = "
                      "\"bytes\"\n[data]\ndatasets = [{ path = \".\" }]\n"
                      "cache_dir = \"cache\"\nseq_len = 8\n[checkpoint]\ndir = \"out\"\n");
    expect("mkdir d/out && echo z >d/out/log.txt && " LATHE " data d/run.toml 2>&1", 0,
           "2 documents");
    expect(LATHE " data d/run.toml 2>&1", 0, "2 documents"); /* now there is prepared data, too */
}
