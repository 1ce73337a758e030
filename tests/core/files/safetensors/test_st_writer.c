/* The safetensors writer: the bytes of the Python package, shards, refusals. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"
#include "files/safetensors/safetensors.h"
#include "files/safetensors/st_writer.h"

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

/* A dtype and a rank that Lathe does not have, and one that it reads as another: 2 U32 in five
 * dimensions, 4 exponents, an odd number of bytes before them. */
static const char foreign[] =
    "{\"wide\":{\"dtype\":\"U32\",\"shape\":[1,1,1,1,2],\"data_offsets\":[0,8]},"
    "\"five\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[8,12]},"
    "\"half\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[12,18]},"
    "\"scale\":{\"dtype\":\"F8_E8M0\",\"shape\":[2,2],\"data_offsets\":[18,22]}}";

static void write_foreign(const char *path)
{
    static const char data[22] = "ABCDEFGHIJKLMNOPQRSTU";
    const uint64_t n = sizeof foreign - 1;
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(&n, 8, 1, file) == 1 && fwrite(foreign, n, 1, file) == 1 &&
              fwrite(data, sizeof data, 1, file) == 1 && fclose(file) == 0);
}

Test(st_writer, copies_tensors_of_any_dtype_and_rank)
{
    static const char *const names[] = {"wide", "five", "half", "scale"};
    lathe_safetensors *set = NULL, *copy = NULL;
    lathe_st_writer *w = NULL;
    write_foreign(in_dir("foreign.safetensors"));
    cr_expect_eq(lathe_safetensors_open(in_dir("foreign.safetensors"), &set), LATHE_E_UNSUPPORTED);
    cr_assert_eq(lathe_safetensors_open_all(in_dir("foreign.safetensors"), &set), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert_eq(lathe_st_writer_create(dir, "model", 0, &w), LATHE_OK);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(lathe_st_writer_add_copy(w, lathe_safetensors_find(set, names[i])), LATHE_OK);
    cr_assert_eq(lathe_st_writer_begin(w), LATHE_OK);
    for (int i = 0; i < 4; i++) {
        const lathe_st_tensor *t = lathe_safetensors_find(set, names[i]);
        cr_assert_eq(lathe_st_writer_write(w, i, 0, t->data, lathe_desc_bytes(&t->desc)), LATHE_OK);
    }
    cr_assert_eq(lathe_st_writer_finish(w), LATHE_OK, "%s", lathe_error_message());
    lathe_st_writer_destroy(w);
    cr_assert_eq(lathe_safetensors_open_all(in_dir("model.safetensors"), &copy), LATHE_OK, "%s",
                 lathe_error_message());
    for (int i = 0; i < 4; i++) {
        const lathe_st_tensor *a = lathe_safetensors_find(set, names[i]);
        const lathe_st_tensor *b = lathe_safetensors_find(copy, names[i]);
        cr_expect_eq((a->header == NULL), (i == 2), "%s", names[i]);
        cr_expect(a->header == NULL || strcmp(a->header, b->header) == 0, "%s", names[i]);
        cr_expect_eq(memcmp(a->data, b->data, (size_t)lathe_desc_bytes(&a->desc)), 0);
        cr_expect(i >= 2 || b->offset % 4 == 0, "%s is at %lld", names[i], (long long)b->offset);
    }
    lathe_safetensors_close(set);
    lathe_safetensors_close(copy);
}
