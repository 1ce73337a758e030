/* The reader: JSON, CSV and text as records, from the start or from any place on; malformed input
 * is refused with file and line. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/records/record_reader.h"
#include "lathe/stage.h"

static char root[64];
static lathe_arena arena;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_reader_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_arena_fini(&arena);
}

TestSuite(reader, .init = setup, .fini = teardown);

static void put(const char *name, const char *text)
{
    cr_assert_eq(lathe_file_write_atomic(at(name), text, (int64_t)strlen(text)), LATHE_OK);
}

/* The text column of all records, each after its line number, "2:text|...", read in batches of
 * `bytes`; with `restart`, a new reader for every batch. After an error, its message. */
static const char *read_with(lathe_dataset dataset, int64_t bytes, int restart)
{
    lathe_sources sources;
    lathe_fields fields;
    lathe_reader r = {.fd = -1};
    lathe_source_place begin = {.line = 1};
    memset(&fields, 0, sizeof fields);
    char *text = lathe_arena_strdup(&arena, "");
    int open = 0;
    int64_t file = -1, n = 0;
    lathe_status status = lathe_sources_list(&dataset, &arena, &sources);
    while (status == LATHE_OK && begin.file < sources.n) {
        if (!open)
            status = lathe_reader_init(&r, &dataset, &sources, LATHE_ROWS_PACKED, &begin);
        open = 1;
        if (status == LATHE_OK)
            status = lathe_reader_batch(&r, bytes);
        for (int64_t i = 0; i < r.n && status == LATHE_OK; i++) {
            status = lathe_fields_read(&fields, &r, &r.list[i]);
            n = r.list[i].file == file ? n + 1 : 1;
            file = r.list[i].file;
            cr_expect_eq(r.list[i].number, n);
            if (status == LATHE_OK)
                text = lathe_arena_printf(&arena, "%s%lld:%.*s|", text, (long long)r.list[i].line,
                                          (int)fields.n[0], fields.text[0]);
        }
        begin = r.at;
        if (restart) {
            lathe_reader_fini(&r);
            open = 0;
        }
    }
    lathe_reader_fini(&r);
    lathe_fields_fini(&fields);
    return status == LATHE_OK ? text : lathe_error_message();
}

/* Reads the file as a whole, record by record, and from every place on; all must agree. */
static void check(const char *name, const char *content, const char *want)
{
    put(name, content);
    const lathe_dataset dataset = {.path = at(name), .type = LATHE_DATASET_AUTO};
    cr_expect_str_eq(read_with(dataset, 1 << 20, 0), want, "%s: %s", name,
                     read_with(dataset, 1 << 20, 0));
    cr_expect_str_eq(read_with(dataset, 1, 0), want, "%s by record", name);
    cr_expect_str_eq(read_with(dataset, 1, 1), want, "%s from every place", name);
}

static void refuse_at(const char *name, const char *content, const char *where, const char *what)
{
    char place[160];
    put(name, content);
    snprintf(place, sizeof place, "%s%s", at(name), where);
    const lathe_dataset dataset = {.path = at(name), .type = LATHE_DATASET_AUTO};
    const char *got = read_with(dataset, 1 << 20, 0);
    cr_expect(!strncmp(got, place, strlen(place)) && strstr(got, what), "\"%s\": expected %s%s",
              got, place, what);
}

static void refuse(const char *name, const char *content, const char *line, const char *what)
{
    char where[32];
    snprintf(where, sizeof where, ":%s: ", line);
    refuse_at(name, content, where, what);
}

Test(reader, csv_by_rfc_4180)
{
    check("a.csv", "text,id\nplain,1\n\"quoted, \"\"twice\"\"\",2\n\"two\nlines\",3\n,4\n",
          "2:plain|3:quoted, \"twice\"|4:two\nlines|6:|");
    check("b.csv", "\xef\xbb\xbfid,text\r\n1,\"a\r\nb\"\r\n\r\n2,c", "2:a\r\nb|5:c|");
    check("c.csv", "text\n\"\"\nx\ry\n\"a\"", "2:|3:x\ry|4:a|");
    check("d.csv", "\"the, \"\"id\",text\n1,\"\"\"\"\n", "2:\"|");
    check("e.csv", "text\n", "");
    check("f.tsv", "id\ttext\n1\ta, b\n", "2:a, b|");
}

Test(reader, malformed_csv_is_refused_with_its_line)
{
    refuse("a.csv", "text,id\nx,1\ny\n", "3", "1 fields, the header names 2");
    refuse("b.csv", "text\nx\n\"open\nand on", "3", "has no end");
    refuse("c.csv", "text\nx\"y\n", "2", "a quote inside a field");
    refuse("d.csv", "text\n\"x\"y\n", "2", "text after a field's closing quote");
    refuse("e.csv", "text\n\"a\nb\" \n", "3", "text after a field's closing quote");
    refuse("f.csv", "", "1", "no header row");
    refuse("g.csv", "txt,\"i\"\"d\"\nx,1\n", "1",
           "no column \"text\"; the columns are txt, i\"d; name it in columns.text");
    refuse("h.csv", "id,text\n1,ok\n2,caf\xe9\n", "3", "not UTF-8");
}

Test(reader, json_arrays)
{
    check("a.json", "[{\"text\": \"one\"},\n {\"text\": \"t]}\\\"wo\", \"x\": [{\"y\": 1}]}\n]\n",
          "1:one|2:t]}\"wo|");
    check("b.json", " \n[ ]\n", "");
    check("c.json", "\xef\xbb\xbf[{\"text\":\n\"a\"}\n,{\"text\": \"b\"}]", "1:a|3:b|");
}

/* One object, such as a conversation, or lines of them, in a file with the name of an array. */
Test(reader, objects_without_an_array)
{
    check("a.json", "{\"text\":\n\"a\"}\n", "1:a|");
    check("b.json", "\xef\xbb\xbf \n{\"text\": \"a\"}\n\n{\"text\": \"b\"} {\"text\": \"c\"}",
          "2:a|4:b|4:c|");
    char text[700];
    (void)snprintf(text, sizeof text, "%600s%s", "", "{\"text\": \"a\"}\n{\"text\": \"b\"}");
    check("c.json", text, "1:a|2:b|");
    refuse("d.json", "{\"text\": \"a\"},\n{\"text\": \"b\"}", "1",
           "',' where the next object or the end of the file is expected");
    refuse("e.json", "{\"text\": \"a\"", "1", "has no end");
}

Test(reader, malformed_json_is_refused_with_its_line)
{
    refuse("a.json", "7", "1", "'7' where '[' or '{', an array of records or objects, is expected");
    refuse("b.json", "[{\"text\": \"a\"}\n{\"text\": \"b\"}]", "2", "',' or ']'");
    refuse("c.json", "[{\"text\": \"a\"},\n]", "2", "']' where an object is expected");
    refuse("d.json", "[{\"text\": \"a\"},\n{\"text\": \"b\"", "2", "has no end");
    refuse("e.json", "[{\"text\": \"a\"}\n", "2", "the file ends inside its array");
    refuse("f.json", "[{\"text\": \"a\"}]\n{}", "2", "'{' where the end of the file is expected");
    refuse("g.json", "", "1", "the file is empty");
    refuse("h.json", "[1]", "1", "where an object is expected");
    refuse("i.json", "[\n{\"text\":\n tru}]", "3:2", "unexpected token");
    refuse_at("j.json", "[{\"body\": \"a\", \"id\": 1}]", ": record 1: ",
              "no column \"text\"; the columns are body, id; name it in columns.text");
    refuse("k.json", "[{\"text\": \"caf\xe9\"}]", "1:14", "byte 0xe9 is not UTF-8");
}

Test(reader, lines_and_their_columns)
{
    check("a.jsonl", "\xef\xbb\xbf{\"text\": \"a\"}\n\n \r\n{\"text\": \"b\"}", "1:a|4:b|");
    refuse("b.jsonl", "{\"text\": \"a\"}\n{\"words\": \"a\"}\n", "2",
           "no column \"text\"; the columns are words; name it in columns.text");
    refuse("c.jsonl", "{\"text\": \"a\"\n", "1:13", "'}' or ',' expected");
    refuse("d.jsonl", "{}\n", "1", "the columns are none");
    put("e.jsonl", "{\"body\": \"x\"}\n");
    const lathe_dataset named = {
        .path = at("e.jsonl"), .type = LATHE_DATASET_JSONL, .columns = {"body"}};
    cr_expect_str_eq(read_with(named, 100, 0), "1:x|");
}

/* Texts longer than a chunk of the window, which is 1 MiB, and records across its boundary. */
Test(reader, long_records_are_read_whole)
{
    enum { N = 3 << 20 };
    char *text = malloc(N + 64);
    const lathe_dataset dataset = {.path = at("long.jsonl"), .type = LATHE_DATASET_JSONL};
    const int64_t head = snprintf(text, 64, "{\"text\": \"");
    memset(text + head, 'a', N);
    memcpy(text + head + N, "\"}\n{\"text\": \"b\"}", 17);
    put("long.jsonl", text);
    const char *got = read_with(dataset, 1, 1);
    cr_expect_eq(strlen(got), 2 + N + 1 + 4);
    cr_expect_str_eq(got + 2 + N, "|2:b|");
    text[head + 17] = '\n'; /* not allowed in a string */
    put("long.jsonl", text);
    got = read_with(dataset, 1 << 20, 0);
    cr_expect(strstr(got, "long.jsonl:1:"), "%s", got);
    free(text);
}

static void content_of(const lathe_dataset *dataset, const lathe_sources *sources, int64_t bytes,
                       char out[65])
{
    const lathe_source_place begin = {.line = 1};
    lathe_reader r;
    cr_assert_eq(lathe_reader_init(&r, dataset, sources, LATHE_ROWS_PACKED, &begin), LATHE_OK);
    while (!lathe_reader_ended(&r))
        cr_assert_eq(lathe_reader_batch(&r, bytes), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_reader_content(&r, out), LATHE_OK);
    lathe_reader_fini(&r);
}

Test(reader, the_content_hash_sees_every_byte_and_no_batch)
{
    char a[65], b[65];
    lathe_sources sources;
    put("1.csv", "text,other\nx,1\ny,2\n");
    put("2.csv", "text,other\nz,3");
    const lathe_dataset dataset = {.path = at("*.csv"), .type = LATHE_DATASET_AUTO};
    cr_assert_eq(lathe_sources_list(&dataset, &arena, &sources), LATHE_OK);
    content_of(&dataset, &sources, 1, a);
    content_of(&dataset, &sources, 1000, b);
    cr_expect_str_eq(a, b);
    static const char *const others[] = {"text,other\nz,4", "text,another\nz,3",
                                         "text,other\nz,3\n"};
    for (int i = 0; i < 3; i++) {
        put("2.csv", others[i]);
        cr_assert_eq(lathe_sources_list(&dataset, &arena, &sources), LATHE_OK);
        content_of(&dataset, &sources, 1000, b);
        cr_expect_str_neq(a, b, "%s", others[i]);
    }
}

/* A file that grows or shrinks between listing and reading is refused with its name. */
Test(reader, a_file_that_changes_meanwhile_is_refused)
{
    static const char *const after[] = {"{\"text\": \"a\"}\n",
                                        "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{}", ""};
    for (int i = 0; i < 3; i++) {
        lathe_sources sources;
        const lathe_source_place begin = {.line = 1};
        lathe_reader r;
        put("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
        const lathe_dataset dataset = {.path = at("a.jsonl"), .type = LATHE_DATASET_JSONL};
        cr_assert_eq(lathe_sources_list(&dataset, &arena, &sources), LATHE_OK);
        cr_assert_eq(lathe_reader_init(&r, &dataset, &sources, LATHE_ROWS_PACKED, &begin),
                     LATHE_OK);
        if (i == 1) /* while it is being read */
            cr_assert_eq(lathe_reader_batch(&r, 1), LATHE_OK);
        FILE *file = fopen(at("a.jsonl"), "wb");
        cr_assert_not_null(file);
        fputs(after[i], file);
        fclose(file);
        lathe_status status = LATHE_OK;
        while (status == LATHE_OK && !lathe_reader_ended(&r))
            status = lathe_reader_batch(&r, 1000);
        cr_expect_eq(status, LATHE_E_IO);
        cr_expect(strstr(lathe_error_message(), "a.jsonl: the file changed while it was read"),
                  "%s", lathe_error_message());
        lathe_reader_fini(&r);
    }
}
