/* The safetensors writer: the bytes of the Python package, shards, refusals. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"
#include "io/safetensors.h"
#include "io/st_writer.h"

#define MODELS LATHE_TEST_DATA "/golden/data/models/"

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-st-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static void drop_dir(void)
{
    cr_assert_eq(lathe_dir_remove(dir), LATHE_OK);
}

TestSuite(st_writer, .init = make_dir, .fini = drop_dir);

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* Declares all tensors of a set, largest index first, and writes them in pieces of 100 bytes. */
static void copy_set(const lathe_safetensors *set, int64_t max_shard_bytes)
{
    lathe_st_writer *w = NULL;
    cr_assert_eq(lathe_st_writer_create(dir, "model", max_shard_bytes, &w), LATHE_OK);
    const int64_t n = lathe_safetensors_count(set);
    for (int64_t i = 0; i < n; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, n - 1 - i);
        cr_assert_eq(lathe_st_writer_add(w, t->name, &t->desc), LATHE_OK);
    }
    cr_assert_eq(lathe_st_writer_begin(w), LATHE_OK, "%s", lathe_error_message());
    for (int64_t i = 0; i < n; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, n - 1 - i);
        const int64_t bytes = lathe_desc_bytes(&t->desc);
        for (int64_t at = 0; at < bytes; at += 100)
            cr_assert_eq(lathe_st_writer_write(w, i, at, (const char *)t->data + at,
                                               bytes - at < 100 ? bytes - at : 100),
                         LATHE_OK, "%s", lathe_error_message());
    }
    cr_assert_eq(lathe_st_writer_finish(w), LATHE_OK, "%s", lathe_error_message());
    lathe_st_writer_destroy(w);
}

static void expect_same_bytes(const char *a, const char *b)
{
    lathe_map x, y;
    cr_assert_eq(lathe_map_open(a, &x), LATHE_OK);
    cr_assert_eq(lathe_map_open(b, &y), LATHE_OK);
    cr_expect_eq(x.bytes, y.bytes, "%s: %lld and %lld bytes", a, (long long)x.bytes,
                 (long long)y.bytes);
    cr_expect_eq(memcmp(x.data, y.data, (size_t)(x.bytes < y.bytes ? x.bytes : y.bytes)), 0, "%s",
                 a);
    lathe_map_close(&x);
    lathe_map_close(&y);
}

Test(st_writer, writes_the_bytes_of_the_python_package)
{
    static const char *const models[] = {MODELS "gpt2/model.safetensors",
                                         MODELS "qwen3/model.safetensors",
                                         MODELS "llama_untied/golden.safetensors"};
    for (int i = 0; i < 3; i++) {
        lathe_safetensors *set = NULL;
        cr_assert_eq(lathe_safetensors_open(models[i], &set), LATHE_OK);
        copy_set(set, 0);
        lathe_safetensors_close(set);
        expect_same_bytes(models[i], in_dir("model.safetensors"));
    }
}

Test(st_writer, shards_by_size_and_reads_back)
{
    lathe_safetensors *set = NULL, *back = NULL;
    cr_assert_eq(lathe_safetensors_open(MODELS "gpt2", &set), LATHE_OK);
    copy_set(set, 0);
    copy_set(set, 40000);
    cr_assert_not(lathe_path_exists(in_dir("model.safetensors")),
                  "the older single file would be read first");
    cr_assert_eq(lathe_safetensors_open(dir, &back), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_safetensors_count(back), lathe_safetensors_count(set));
    int64_t files = 0;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *a = lathe_safetensors_at(set, i), *b = lathe_safetensors_at(back, i);
        cr_assert_str_eq(a->name, b->name);
        cr_assert_eq(memcmp(a->data, b->data, (size_t)lathe_desc_bytes(&a->desc)), 0);
        cr_assert_eq((uintptr_t)b->data % 4, 0, "data of %s is not aligned", b->name);
        files += strstr(b->file, "-00002-of-") != NULL;
    }
    cr_assert(files > 0);
    lathe_safetensors_close(back);
    copy_set(set, 0);
    cr_assert_not(lathe_path_exists(in_dir("model.safetensors.index.json")));
    lathe_safetensors_close(set);
}

Test(st_writer, refuses_misuse_and_leaves_nothing)
{
    const lathe_desc desc = lathe_desc_1d(LATHE_F32, 4);
    const float four[4] = {1, 2, 3, 4};
    lathe_st_writer *w = NULL;
    cr_assert_eq(lathe_st_writer_create(dir, "model", 0, &w), LATHE_OK);
    cr_assert_eq(lathe_st_writer_add(w, "a", &desc), LATHE_OK);
    cr_assert_eq(lathe_st_writer_write(w, 0, 0, four, 16), LATHE_E_STATE);
    cr_assert_eq(lathe_st_writer_begin(w), LATHE_OK);
    cr_assert_eq(lathe_st_writer_add(w, "b", &desc), LATHE_E_STATE);
    cr_assert_eq(lathe_st_writer_write(w, 0, 4, four, 4), LATHE_E_ARG);
    cr_assert_eq(lathe_st_writer_write(w, 0, 0, four, 17), LATHE_E_ARG);
    cr_assert_eq(lathe_st_writer_write(w, 1, 0, four, 4), LATHE_E_STATE);
    cr_assert_eq(lathe_st_writer_write(w, 0, 0, four, 8), LATHE_OK);
    cr_assert_eq(lathe_st_writer_finish(w), LATHE_E_STATE);
    cr_assert_not_null(strstr(lathe_error_message(), "8 of 16"));
    lathe_st_writer_destroy(w);
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = -1;
    cr_assert_eq(lathe_dir_list(dir, &arena, &names, &n), LATHE_OK);
    cr_assert_eq(n, 0);
    lathe_arena_fini(&arena);

    cr_assert_eq(lathe_st_writer_create(dir, "model", 0, &w), LATHE_OK);
    cr_assert_eq(lathe_st_writer_add(w, "a", &desc), LATHE_OK);
    cr_assert_eq(lathe_st_writer_add(w, "a", &desc), LATHE_OK);
    cr_assert_eq(lathe_st_writer_begin(w), LATHE_E_ARG);
    lathe_st_writer_destroy(w);
    cr_assert_eq(lathe_st_writer_create("/proc/self/nothing/folder", "model", 0, &w), LATHE_OK);
    cr_assert_eq(lathe_st_writer_begin(w), LATHE_E_IO);
    lathe_st_writer_destroy(w);
}
