/* Preparing shards: in parts, on any number of threads, resumed after a kill, by two processes at
 * once, and with disk errors. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/parallel.h"
#include "data/rows/shards_internal.h"
#include "tokenizer/json/tokenizer_file.h"

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_prepare_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_tokenizer_destroy(raw);
    lathe_arena_fini(&arena);
}

TestSuite(prepare, .init = setup, .fini = teardown);

/* Writes n records, "record <i>" followed by i mod 37 letters. */
static void put_records(const char *name, int n, const char *first)
{
    FILE *file = fopen(at(name), "wb");
    cr_assert_not_null(file);
    for (int i = 0; i < n; i++)
        fprintf(file, "{\"text\": \"%s %d %.*s\"}\n", i ? "record" : first, i, i % 37,
                "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
    fclose(file);
}

static lathe_status prepare(const char *cache, int64_t part_bytes, lathe_shards **out)
{
    const lathe_dataset dataset = {.path = at("a.jsonl"), .type = LATHE_DATASET_JSONL};
    return lathe__shards_prepare_parts(&dataset, 1, LATHE_ROWS_PACKED, raw, at(cache), part_bytes,
                                       NULL, NULL, out);
}

/* Prepares the data and returns its identity; *out_built: number of parts that had to be made. */
static const char *identity(const char *cache, int64_t part_bytes, int64_t *out_built)
{
    lathe_shards *shards = NULL;
    cr_assert_eq(prepare(cache, part_bytes, &shards), LATHE_OK, "%s", lathe_error_message());
    const char *hash = lathe_arena_strdup(&arena, lathe_shards_hash(shards));
    *out_built = lathe_shards_built(shards);
    lathe_shards_destroy(shards);
    return hash;
}

static int64_t count_files(const char *dir, const char *with)
{
    char **names;
    int64_t n, found = 0;
    cr_assert_eq(lathe_dir_list(at(dir), &arena, &names, &n), LATHE_OK);
    for (int64_t i = 0; i < n; i++)
        found += strstr(names[i], with) != NULL;
    return found;
}

Test(prepare, parts_hold_the_same_stream_as_one)
{
    lathe_shards *one, *many;
    put_records("a.jsonl", 2000, "record");
    cr_assert_eq(prepare("one", LATHE_PART_BYTES, &one), LATHE_OK);
    cr_assert_eq(prepare("many", 4096, &many), LATHE_OK);
    cr_expect_eq(lathe_shards_built(one), 1);
    cr_expect_gt(lathe_shards_built(many), 10);
    const int64_t n = lathe_shards_tokens(one);
    cr_assert_eq(lathe_shards_tokens(many), n);
    cr_assert_eq(lathe_shards_segments(many), 2000);
    int32_t *a = malloc((size_t)n * 4), *b = malloc((size_t)n * 4);
    cr_assert_eq(lathe_shards_read(one, 0, n, a), LATHE_OK);
    cr_assert_eq(lathe_shards_read(many, 0, n, b), LATHE_OK);
    cr_expect_arr_eq(a, b, (size_t)n * 4);
    for (int64_t i = 0; i <= 2000; i++)
        cr_assert_eq(lathe_shards_offset(one, i), lathe_shards_offset(many, i));
    for (int64_t k = 0; k < n; k += 97)
        cr_assert_eq(lathe_shards_find(one, k), lathe_shards_find(many, k));
    cr_expect_eq(lathe_shards_text_bytes(one, 0, 2000), n - 2000); /* its bytes, and one end each */
    cr_expect_eq(lathe_shards_text_bytes(many, 0, 2000), n - 2000);
    cr_expect_eq(lathe_shards_text_bytes(many, 3, 1999), lathe_shards_text_bytes(one, 3, 1999));
    free(a);
    free(b);
    lathe_shards_destroy(one);
    lathe_shards_destroy(many);
}

Test(prepare, the_number_of_threads_changes_nothing)
{
    int64_t built;
    const char *first = NULL;
    put_records("a.jsonl", 20000, "record");
    for (int32_t threads = 1; threads <= 5; threads += 2) {
        char cache[16];
        snprintf(cache, sizeof cache, "cache%d", threads);
        lathe_parallel_init(threads);
        const char *hash = identity(cache, 300000, &built);
        cr_expect_geq(built, 2);
        if (first)
            cr_expect_str_eq(hash, first, "%d threads", threads);
        first = first ? first : hash;
    }
}

/* A text longer than the 8 MiB of one window; the bytes tokenizer tokenises it in pieces of that
 * size. */
Test(prepare, a_long_text_of_bytes_is_one_document)
{
    enum { N = 9 << 20 };
    char *text = malloc(N);
    for (int i = 0; i < N; i++)
        text[i] = (char)('a' + i % 23);
    memcpy(text + N - 2, "\xc3\xa9", 2); /* ends with a character of two bytes */
    const lathe_dataset dataset = {.path = at("t.txt"), .type = LATHE_DATASET_TEXT};
    lathe_shards *shards;
    for (int bad = 0; bad < 3; bad++) {
        cr_assert_eq(lathe_file_write_atomic(at("t.txt"), text, bad == 1 ? N - 1 : N), LATHE_OK);
        const lathe_status status = lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PACKED, raw,
                                                         at("cache"), NULL, NULL, &shards);
        text[N / 2] = 0;
        if (bad) { /* ends with half a character; has a NUL in the middle */
            cr_expect_eq(status, LATHE_E_CONFIG);
            cr_expect(strstr(lathe_error_message(),
                             "t.txt: no documents in it; left out: 1 file is not UTF-8 text: "),
                      "%s", lathe_error_message());
            continue;
        }
        cr_assert_eq(status, LATHE_OK, "%s", lathe_error_message());
        cr_expect_eq(lathe_shards_segments(shards), 1);
        cr_expect_eq(lathe_shards_tokens(shards), N + 1);
        int32_t *ids = malloc((size_t)(N + 1) * sizeof *ids);
        cr_assert_eq(lathe_shards_read(shards, 0, N + 1, ids), LATHE_OK);
        int64_t wrong = 0;
        for (int64_t i = 0; i < N - 2; i++)
            wrong += ids[i] != 'a' + i % 23;
        cr_expect_eq(wrong, 0);
        cr_expect_eq(ids[N], 256);
        free(ids);
        lathe_shards_destroy(shards);
    }
    free(text);
}

/* ---- resuming ---- */

static void stop_at(void *arg, const char *path, int64_t done, int64_t total, int64_t n_tokens)
{
    (void)path, (void)total, (void)n_tokens;
    if (done >= *(const int64_t *)arg)
        (void)raise(SIGKILL);
}

/* Prepares in a separate process that is killed once `bytes` are done. */
static void kill_after(int64_t bytes)
{
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        lathe_shards *shards;
        const lathe_dataset dataset = {.path = at("a.jsonl"), .type = LATHE_DATASET_JSONL};
        lathe_parallel_init(1);
        const lathe_status status = lathe__shards_prepare_parts(
            &dataset, 1, LATHE_ROWS_PACKED, raw, at("cache"), 4096, stop_at, &bytes, &shards);
        _exit(status == LATHE_OK ? 0 : 1);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

Test(prepare, a_killed_start_continues_after_the_last_finished_part)
{
    int64_t all, rest;
    put_records("a.jsonl", 2000, "record");
    const char *want = identity("whole", 4096, &all);
    kill_after(30000);
    const int64_t made = count_files("cache", ".bin") - count_files("cache", ".tmp.");
    cr_expect_geq(made, 5);
    cr_expect_eq(count_files("cache", ".tmp."), 1, "the part that was in progress");
    kill_after(60000);
    cr_expect_gt(count_files("cache", ".bin") - count_files("cache", ".tmp."), made);
    const int64_t kept = count_files("cache", ".bin") - count_files("cache", ".tmp.");
    cr_expect_str_eq(identity("cache", 4096, &rest), want);
    cr_expect_eq(rest, all - kept);
    cr_expect_eq(count_files("cache", ".tmp."), 0, "leftovers are removed");
    cr_expect_eq(count_files("cache", ".lock"), 0);
    cr_expect_str_eq(identity("cache", 4096, &rest), want);
    cr_expect_eq(rest, 0);
}

Test(prepare, only_parts_that_changed_are_made_again)
{
    int64_t all, built;
    put_records("a.jsonl", 2000, "record");
    (void)identity("cache", 4096, &all);
    put_records("a.jsonl", 2003, "record"); /* three more at the end */
    const char *hash = identity("cache", 4096, &built);
    cr_expect_leq(built, 2);
    cr_expect_str_eq(hash, identity("fresh", 4096, &built));
    put_records("a.jsonl", 2003, "RECORD"); /* same length, other bytes in the first part */
    hash = identity("cache", 4096, &built);
    cr_expect_eq(built, 1);
    (void)lathe_dir_remove(at("fresh"));
    cr_expect_str_eq(hash, identity("fresh", 4096, &built));
    put_records("a.jsonl", 500, "RECORD"); /* shorter: later parts are removed */
    hash = identity("cache", 4096, &built);
    cr_expect_eq(built, 1);
    (void)lathe_dir_remove(at("fresh"));
    cr_expect_str_eq(hash, identity("fresh", 4096, &built));
    cr_expect_eq(count_files("cache", ".bin"), count_files("fresh", ".bin"));
}

Test(prepare, a_missing_part_in_the_middle_is_made_again)
{
    int64_t all, built;
    put_records("a.jsonl", 1000, "record");
    const char *want = identity("cache", 4096, &all);
    char **names;
    int64_t n;
    cr_assert_eq(lathe_dir_list(at("cache"), &arena, &names, &n), LATHE_OK);
    cr_assert_eq(n, all);
    cr_assert_eq(unlink(lathe_path_join(&arena, at("cache"), names[3])), 0);
    cr_expect_str_eq(identity("cache", 4096, &built), want);
    cr_expect_eq(built, 1);
}

Test(prepare, processes_at_once_share_the_work)
{
    enum { N = 4 };
    int64_t built;
    pid_t children[N];
    put_records("a.jsonl", 4000, "record");
    const char *want = identity("whole", 4096, &built);
    for (int i = 0; i < N; i++)
        if ((children[i] = fork()) == 0) {
            lathe_shards *shards = NULL;
            lathe_parallel_init(1);
            const int good = prepare("cache", 4096, &shards) == LATHE_OK &&
                             strcmp(lathe_shards_hash(shards), want) == 0;
            _exit(!good);
        }
    for (int i = 0; i < N; i++) {
        int status = 1;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_expect_eq(status, 0);
    }
    cr_expect_str_eq(identity("cache", 4096, &built), want);
    cr_expect_eq(built, 0);
    cr_expect_eq(count_files("cache", ".bin"), count_files("cache", ""));
}

/* ---- disk errors ---- */

Test(prepare, a_full_disk_is_one_error_and_leaves_nothing_torn)
{
    put_records("a.jsonl", 2000, "record");
    const pid_t child = fork();
    if (child == 0) { /* writes beyond 2000 bytes fail, as on a full disk */
        const struct rlimit limit = {2000, 2000};
        lathe_shards *shards = NULL;
        lathe_parallel_init(1);
        (void)signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(9);
        if (prepare("cache", 4096, &shards) != LATHE_E_IO)
            _exit(1);
        _exit(strstr(lathe_error_message(), "write: File too large") ? 0 : 2);
    }
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(WEXITSTATUS(status), 0);
    cr_expect_eq(count_files("cache", ""), 0);
    int64_t built;
    (void)identity("cache", 4096, &built);
    cr_expect_gt(built, 1);
}

Test(prepare, a_cache_that_cannot_be_written_is_named)
{
    lathe_shards *shards = NULL;
    put_records("a.jsonl", 10, "record");
    cr_assert_eq(lathe_file_write_atomic(at("file"), "x", 1), LATHE_OK);
    cr_expect_eq(prepare("file/cache", 4096, &shards), LATHE_E_IO);
    cr_expect(strstr(lathe_error_message(), "/file"), "%s", lathe_error_message());
    if (geteuid() == 0)
        return; /* root can write everywhere */
    cr_assert_eq(lathe_dir_create(at("locked")), LATHE_OK);
    cr_assert_eq(chmod(at("locked"), 0500), 0);
    cr_expect_eq(prepare("locked", 4096, &shards), LATHE_E_IO);
    cr_expect(strstr(lathe_error_message(), "data.cache_dir"), "%s", lathe_error_message());
}

Test(prepare, empty_data_are_refused)
{
    lathe_shards *shards = NULL;
    static const char *const empty[] = {"", "\n\n", "{\"text\": \"\"}\n{\"text\": \"\"}\n"};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(lathe_file_write_atomic(at("a.jsonl"), empty[i], (int64_t)strlen(empty[i])),
                     LATHE_OK);
        cr_expect_eq(prepare("cache", 4096, &shards), LATHE_E_CONFIG);
        cr_expect(strstr(lathe_error_message(), "a.jsonl: no documents in it"), "%s",
                  lathe_error_message());
        cr_expect(i < 2 ||
                      strstr(lathe_error_message(), "left out: 2 records have no text to learn: "),
                  "%s", lathe_error_message());
    }
}

static char warned[1024];
static int n_warned;

static void hear(void *arg, int32_t level, const char *message)
{
    (void)arg;
    n_warned += level == LATHE_LOG_WARN;
    if (level == LATHE_LOG_WARN)
        snprintf(warned, sizeof warned, "%s", message);
}

/* The golden gpt2.json without the byte 0xf1. */
static lathe_tokenizer *lacks_f1(void)
{
    static const char lacked[] = "\"\xc3\xb1\": 174,";
    char *text;
    int64_t n;
    lathe_tokenizer *tok = NULL;
    cr_assert_eq(lathe_file_read(LATHE_TEST_DATA "/golden/data/tokenizer/gpt2.json", 0, &text, &n),
                 LATHE_OK);
    char *place = strstr(text, lacked);
    cr_assert_not_null(place);
    memset(place, ' ', strlen(lacked));
    cr_assert_eq(lathe_file_write_atomic(at("tokenizer.json"), text, n), LATHE_OK);
    cr_assert_eq(lathe_tokenizer_load(root, &tok), LATHE_OK, "%s", lathe_error_message());
    free(text);
    return tok;
}

Test(prepare, bytes_without_a_token_are_warned_of_once_with_the_data_set)
{
    lathe_tokenizer *tok = lacks_f1();
    FILE *file = fopen(at("a.jsonl"), "wb");
    cr_assert_not_null(file);
    for (int i = 0; i < 400; i++) /* U+40000 begins with 0xf1 */
        fprintf(file, "{\"text\": \"record %d \xf1\x80\x80\x80\"}\n", i);
    fclose(file);
    const lathe_dataset dataset = {.path = at("a.jsonl"), .type = LATHE_DATASET_JSONL};
    lathe_shards *shards;
    lathe_log_set_sink(hear, NULL);
    for (int k = 0; k < 2; k++) { /* the second time, the shards are in the cache */
        cr_assert_eq(lathe__shards_prepare_parts(&dataset, 1, LATHE_ROWS_PACKED, tok, at("cache"),
                                                 2000, NULL, NULL, &shards),
                     LATHE_OK, "%s", lathe_error_message());
        lathe_shards_destroy(shards);
    }
    lathe_log_set_sink(NULL, NULL);
    cr_expect_eq(n_warned, 1, "%d", n_warned);
    cr_expect(strstr(warned, "/a.jsonl: the tokenizer has no token for 400 bytes of the text, "
                             "which were left out: 0xf1 (400)"),
              "%s", warned);
    lathe_tokenizer_destroy(tok);
}
