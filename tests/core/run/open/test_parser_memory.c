/* Checks that parsing a large file adds at most 2 x its size + 64 MiB of resident memory. Each
 * parse runs in a process of its own. GGUF files are mapped and not parsed as a whole: fuzz_gguf.
 */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/toml.h"
#include "config/config.h"
#include "data/rows/shards_internal.h"
#include "files/safetensors/manifest.h"
#include "files/safetensors/safetensors.h"
#include "metrics/metrics_read.h"
#include "model/family/hf_config.h"
#include "tokenizer/json/tokenizer_file.h"

/* A sanitizer's shadow memory would count as resident memory. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

enum { MIB = 1 << 20, LARGE = 24 * MIB };

static char root[64], path[128];

static void setup(void)
{
    strcpy(root, "/tmp/lathe_memory_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
}

TestSuite(parser_memory, .init = setup, .fini = teardown, .timeout = 120);

/* ---- files ---- */

static FILE *begin(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    return file;
}

static void end(FILE *file)
{
    cr_assert_eq(fclose(file), 0);
}

/* Writes at least `bytes` bytes: a sentence and `special`, an escape sequence of the format, again
 * and again. */
static void put_text(FILE *file, int64_t bytes, const char *special)
{
    static const char words[] = "the lathe turns a piece of steel and the shavings curl off it; ";
    char block[sizeof words + 16];
    const int n = snprintf(block, sizeof block, "%s%s", words, special);
    for (int64_t i = 0; i < bytes; i += n)
        cr_assert_eq(fwrite(block, 1, (size_t)n, file), (size_t)n);
}

/* ---- measuring ---- */

typedef lathe_status (*parse_fn)(void);

static int64_t memory_of(const char *key)
{
    char line[128];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && kib < 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)))
            (void)sscanf(line + strlen(key), ": %lld", &kib);
    if (file)
        (void)fclose(file);
    return kib * 1024;
}

/* The numbers that the child tells its parent. */
typedef struct measurement {
    int64_t bytes; /* growth of resident memory at its peak; -1: not measured */
    lathe_status status;
    char message[200];
} measurement;

/* Runs in the child: parses, sends the measurement through the pipe, and exits. */
static void measure(int out, parse_fn parse)
{
    measurement seen = {-1, LATHE_OK, ""};
    FILE *reset = fopen("/proc/self/clear_refs", "w"); /* 5: the peak is the present size */
    if (reset && fputs("5", reset) >= 0 && fclose(reset) == 0) {
        const int64_t before = memory_of("VmRSS");
        seen.status = parse();
        seen.bytes = memory_of("VmHWM") - before;
        (void)snprintf(seen.message, sizeof seen.message, "%s",
                       seen.status == LATHE_OK ? "" : lathe_error_message());
    }
    _exit(write(out, &seen, sizeof seen) != (ssize_t)sizeof seen);
}

/* Parses the file that begin() made last in a child, and checks the status and the memory. */
static void check(const char *what, parse_fn parse, lathe_status want)
{
    measurement seen = {0, LATHE_OK, ""};
    int ends[2];
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        measure(ends[1], parse);
    int ended = 0;
    (void)close(ends[1]); /* so that reading ends if the child crashes */
    const ssize_t got = read(ends[0], &seen, sizeof seen);
    cr_assert_eq(waitpid(child, &ended, 0), child);
    (void)close(ends[0]);
    cr_assert_eq(got, (ssize_t)sizeof seen, "%s: the parser's process ended with wait status %#x",
                 what, (unsigned)ended);
    const int64_t allowed = 2 * (int64_t)info.st_size + 64 * MIB;
    cr_expect_eq(seen.status, want, "%s: %s", what, seen.message);
    cr_expect_gt(seen.bytes, 0, "%s: /proc/self/clear_refs did not reset the peak", what);
    cr_expect_leq(seen.bytes, allowed, "%s: %.1f MiB for a file of %.1f MiB, at most %.1f", what,
                  (double)seen.bytes / MIB, (double)info.st_size / MIB, (double)allowed / MIB);
    printf("%-28s %6.1f MiB for a file of %5.1f MiB, at most %.1f\n", what,
           (double)seen.bytes / MIB, (double)info.st_size / MIB, (double)allowed / MIB);
}

/* ---- datasets: each file is tokenized by bytes and written to a shard ---- */

static int32_t type;

static lathe_status build(void)
{
    char target[160], content[65];
    struct stat info;
    lathe_tokenizer *tok;
    (void)snprintf(target, sizeof target, "%s/shard", root);
    if (stat(path, &info) != 0)
        return LATHE_E_IO;
    LATHE_TRY(lathe_tokenizer_bytes(&tok));
    const lathe_dataset dataset = {.path = path, .type = type};
    const lathe_source source = {.path = path,
                                 .bytes = info.st_size,
                                 .seconds = info.st_mtim.tv_sec,
                                 .nanoseconds = info.st_mtim.tv_nsec};
    const lathe_sources sources = {.list = &source, .n = 1, .bytes = info.st_size, .type = type};
    const lathe_shard_job job = {.dataset = &dataset,
                                 .sources = &sources,
                                 .tok = tok,
                                 .part_bytes = LATHE_PART_BYTES,
                                 .rows = LATHE_ROWS_PACKED};
    const lathe_shard_header header = {
        .rows = LATHE_ROWS_PACKED, .token_bytes = 2, .vocab_size = 257, .begin = {0, 0, 1}};
    lathe_shard_writer writer;
    lathe_status status = lathe__shard_writer_init(&writer, target, &header);
    if (status == LATHE_OK)
        status = lathe__shard_build(&job, &writer, content);
    lathe__shard_writer_fini(&writer);
    lathe_tokenizer_destroy(tok);
    return status;
}

Test(parser_memory, text)
{
    FILE *file = begin("a.txt");
    put_text(file, LARGE, "\n");
    end(file);
    type = LATHE_DATASET_TEXT;
    check("text", build, LATHE_OK);
}

Test(parser_memory, json_lines)
{
    FILE *file = begin("one.jsonl");
    fputs("{\"text\": \"", file);
    put_text(file, LARGE, "\\n\\u00e9");
    fputs("\"}\n", file);
    end(file);
    type = LATHE_DATASET_JSONL;
    check("jsonl, one record", build, LATHE_OK);
    file = begin("bad.jsonl");
    fputs("{\"text\": \"", file);
    put_text(file, LARGE, "\\n");
    fputs("\"]\n", file);
    end(file);
    check("jsonl, one malformed record", build, LATHE_E_PARSE);
    file = begin("many.jsonl");
    for (int i = 0; i < LARGE / 256; i++) {
        fputs("{\"id\": 1, \"text\": \"", file);
        put_text(file, 200, "\\n");
        fputs("\"}\n", file);
    }
    end(file);
    check("jsonl, many records", build, LATHE_OK);
    file = begin("keys.jsonl");
    fputs("{\"text\": \"", file);
    for (int i = 0; i < LARGE / 10; i++)
        fprintf(file, "\",\"%x\":\"", i);
    fputs("\"}\n", file);
    end(file);
    check("jsonl, many keys", build, LATHE_OK);
    file = begin("numbers.jsonl");
    fputs("{\"text\": \"x\", \"list\": [1", file);
    for (int i = 0; i < LARGE / 5; i++)
        fputs(",[1]", file);
    fputs("]}\n", file);
    end(file);
    check("jsonl, many values", build, LATHE_OK);
}

Test(parser_memory, json_array)
{
    FILE *file = begin("one.json");
    fputs("[{\"text\": \"", file);
    put_text(file, LARGE, "\\t");
    fputs("\"}]\n", file);
    end(file);
    type = LATHE_DATASET_JSON;
    check("json array, one record", build, LATHE_OK);
    file = begin("many.json");
    fputs("[", file);
    for (int i = 0; i < LARGE / 64; i++)
        fprintf(file, "%s{\"id\": %d, \"text\": \"a short one, number %d\"}", i ? ",\n" : "", i, i);
    fputs("]", file);
    end(file);
    check("json array, many records", build, LATHE_OK);
}

Test(parser_memory, csv)
{
    FILE *file = begin("one.csv");
    fputs("id,text\n1,\"", file);
    put_text(file, LARGE, "\"\"\n");
    fputs("\"\n", file);
    end(file);
    type = LATHE_DATASET_CSV;
    check("csv, one quoted field", build, LATHE_OK);
}

/* ---- tokenizers ---- */

static lathe_status load_tokenizer(void)
{
    lathe_tokenizer *tok;
    LATHE_TRY(lathe_tokenizer_load(path, &tok));
    lathe_tokenizer_destroy(tok);
    return LATHE_OK;
}

/* The digits of a number as syllables, which gives tokens as long as those of a large
 * vocabulary. */
static const char *word_of(uint32_t number, char out[32])
{
    static const char *const syllables[] = {"ba", "ce", "di", "fo", "gu", "ha", "je", "ki",
                                            "lo", "mu", "na", "pe", "ri", "so", "tu", "va"};
    if (number >= 16)
        (void)word_of(number / 16, out);
    else
        out[0] = '\0';
    return strcat(out, syllables[number % 16]);
}

Test(parser_memory, tokenizer_unigram)
{
    char word[32];
    FILE *file = begin("tokenizer.json");
    fputs("{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\"}], \"pre_tokenizer\": {\"type\": "
          "\"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}, \"model\": {\"type\": \"Unigram\", "
          "\"unk_id\": 0, \"vocab\": [[\"<unk>\", 0.0]",
          file);
    for (uint32_t i = 1; i < 250000; i++)
        fprintf(file, ",[\"\xe2\x96\x81%s\",%.13f]", word_of(i, word), -3.0 - i * 1e-5);
    fputs("]}}", file);
    end(file);
    check("tokenizer, Unigram", load_tokenizer, LATHE_OK);
}

Test(parser_memory, tokenizer_bpe)
{
    enum { TOKENS = 250000 };
    char word[32], left[32], right[32];
    FILE *file = begin("tokenizer.json");
    fputs("{\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"model\": {\"type\": \"BPE\", "
          "\"vocab\": {",
          file);
    for (uint32_t i = 0; i < 16; i++)
        fprintf(file, "%s\"%s\": %u", i ? "," : "", word_of(i, word), i);
    for (uint32_t i = 16; i < TOKENS; i++)
        fprintf(file, ",\n      \"%s\": %u", word_of(i, word), i);
    fputs("}, \"merges\": [", file);
    for (uint32_t i = 16; i < TOKENS; i++)
        fprintf(file, "%s\n      [\n        \"%s\",\n        \"%s\"\n      ]", i > 16 ? "," : "",
                word_of(i / 16, left), word_of(i % 16, right));
    fputs("]}}", file);
    end(file);
    check("tokenizer, BPE", load_tokenizer, LATHE_OK);
}

/* ---- models ---- */

static lathe_model_source source; /* made before the child, whose memory is measured */

static lathe_status load_config(void)
{
    lathe_model_config config;
    LATHE_TRY(lathe_model_config_load(&source, root, &config));
    lathe_model_config_fini(&config);
    return LATHE_OK;
}

Test(parser_memory, model_config)
{
    cr_assert_eq(lathe_registry_create(&source.registry), LATHE_OK);
    FILE *file = begin("config.json");
    fputs("{\"model_type\": \"gpt2\", \"vocab_size\": 64, \"n_embd\": 32, \"n_layer\": 1, "
          "\"n_head\": 2, "
          "\"n_positions\": 64, \"note\": \"",
          file);
    put_text(file, 15 * MIB, "\\n");
    fputs("\"}", file);
    end(file);
    check("config.json, one string", load_config, LATHE_OK);
    file = begin("config.json");
    fputs("{\"model_type\": \"gpt2\", \"note\": [1", file);
    for (int i = 0; i < 7 * MIB; i++)
        fputs(",1", file);
    fputs("]}", file);
    end(file);
    /* its tree would exceed the limit of core/base/json */
    check("config.json, many values", load_config, LATHE_E_UNSUPPORTED);
    lathe_registry_destroy(source.registry);
}

static lathe_status open_weights(void)
{
    lathe_safetensors *set;
    LATHE_TRY(lathe_safetensors_open(root, &set));
    lathe_safetensors_close(set);
    return LATHE_OK;
}

static void put_length(FILE *file, int64_t bytes)
{
    for (int i = 0; i < 8; i++)
        fputc((int)(bytes >> (8 * i) & 0xff), file);
}

/* Tensors of two bytes each, `n` of them. */
static void put_safetensors(const char *name, int n)
{
    FILE *file = begin(name);
    put_length(file, 0);
    fputs("{", file);
    for (int i = 0; i < n; i++)
        fprintf(file,
                "%s\"model.layers.%d.self_attn.q_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[1],"
                "\"data_offsets\":[%d,%d]}",
                i ? "," : "", i, 2 * i, 2 * i + 2);
    fputs("}", file);
    const int64_t header = ftell(file) - 8;
    for (int i = 0; i < n; i++)
        fputs("\1\2", file);
    rewind(file);
    put_length(file, header);
    end(file);
}

Test(parser_memory, safetensors_header)
{
    put_safetensors("model.safetensors", 200000);
    check("safetensors, header", open_weights, LATHE_OK);
}

Test(parser_memory, safetensors_index)
{
    enum { N = 100000 };
    put_safetensors("a.safetensors", N);
    FILE *file = begin("model.safetensors.index.json");
    fputs("{\"metadata\": {}, \"weight_map\": {", file);
    for (int i = 0; i < N; i++)
        fprintf(file, "%s\n    \"model.layers.%d.self_attn.q_proj.weight\": \"a.safetensors\"",
                i ? "," : "", i);
    fputs("}}", file);
    end(file);
    check("safetensors, index", open_weights, LATHE_OK);
}

/* ---- files that a run writes ---- */

static lathe_status verify_manifest(void)
{
    return lathe_manifest_verify(root);
}

Test(parser_memory, manifest)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&text, "{\"format\": \"lathe-manifest\", \"version\": 2, \"meta\": \"");
    for (int i = 0; i < LARGE / 64; i++)
        lathe_buffer_puts(&text,
                          "sixty-four bytes of meta data for each of these many, many turns");
    lathe_buffer_puts(&text, "\", \"files\": {},\n");
    cr_assert_eq(lathe_manifest_seal(&text), LATHE_OK);
    FILE *file = begin(LATHE_MANIFEST_NAME);
    cr_assert_eq(fwrite(text.data, 1, (size_t)text.len, file), (size_t)text.len);
    end(file);
    lathe_buffer_fini(&text);
    check("manifest", verify_manifest, LATHE_OK);
}

static lathe_status load_toml(void)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *tree;
    const lathe_status status = lathe_toml_load_file(path, &arena, &tree);
    lathe_arena_fini(&arena);
    return status;
}

Test(parser_memory, toml)
{
    FILE *file = begin("string.toml");
    fputs("note = \"\"\"", file);
    put_text(file, 3 * MIB, "\n");
    fputs("\"\"\"\n", file);
    end(file);
    check("toml, one string", load_toml, LATHE_OK);
    file = begin("keys.toml");
    for (int i = 0; i < 149000; i++)
        fprintf(file, "key_%d = \"value %d\"\n", i, i);
    end(file);
    check("toml, many keys", load_toml, LATHE_OK);
    file = begin("values.toml");
    fputs("x = [1", file);
    for (int i = 0; i < 2 * MIB - 16; i++)
        fputs(",1", file);
    fputs("]\n", file);
    end(file);
    check("toml, many values", load_toml, LATHE_E_PARSE);
}

static int64_t n_metrics_rows; /* that the file has, and the reader must give */

static void count_row(void *arg, const lathe_metrics_row *row)
{
    int64_t *n = arg;
    (void)row;
    (*n)++;
}

static lathe_status read_metrics(void)
{
    lathe_metrics_reader *reader;
    LATHE_TRY(lathe_metrics_reader_create(path, &reader));
    int64_t n = 0;
    const lathe_status status = lathe_metrics_reader_poll(reader, count_row, &n);
    lathe_metrics_reader_destroy(reader);
    if (status == LATHE_OK && n != n_metrics_rows)
        return lathe_error(LATHE_E_STATE, "%lld rows, expected %lld", (long long)n,
                           (long long)n_metrics_rows);
    return status;
}

Test(parser_memory, metrics)
{
    FILE *file = begin("metrics.jsonl");
    for (int i = 0; i < LARGE / 48; i++)
        fprintf(file, "{\"step\": %d, \"loss\": 2.5, \"lr\": 1e-3}\n", i);
    end(file);
    n_metrics_rows = LARGE / 48;
    check("metrics.jsonl", read_metrics, LATHE_OK);
    file = begin("line.jsonl");
    fputs("{\"step\": 1, \"note\": \"", file);
    put_text(file, LARGE, " ");
    fputs("\"}\n{\"step\": 2, \"loss\": 2.5}\n", file);
    end(file);
    n_metrics_rows = 1; /* the long line is passed over, the one after it is read */
    check("metrics.jsonl, a line over the limit", read_metrics, LATHE_OK);
}

#endif
