/* Hashes that are remembered: which files they are believed of, and what is kept between processes.
 */
#include "files/safetensors/known_hashes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/lathe_known_XXXXXX";
static char path[128], cache[128], kept[160];

static const char hex[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void setup(void)
{
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/large", dir);
    snprintf(kept, sizeof kept, "%s/cache/hashes", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    cr_assert_eq(setenv("LATHE_CACHE", cache, 1), 0);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(truncate(path, 2 << 20), 0);
}

static void teardown(void)
{
    (void)unlink(path);
    (void)unlink(kept);
    (void)rmdir(cache);
    (void)rmdir(dir);
}

TestSuite(known_hashes, .init = setup, .fini = teardown, .timeout = 60);

/* The entry of the file as if its last change was long ago. */
static struct stat old_entry(void)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    st.st_ctim.tv_sec -= 100;
    return st;
}

Test(known_hashes, are_those_of_an_unchanged_file_alone)
{
    char got[65];
    const struct stat st = old_entry();
    cr_expect_not(lathe__known_hash(&st, got));
    lathe__known_hash_add(&st, &st, hex);
    cr_assert(lathe__known_hash(&st, got));
    cr_expect_str_eq(got, hex);
    struct stat other = st;
    other.st_size++;
    cr_expect_not(lathe__known_hash(&other, got));
    other = st;
    other.st_mtim.tv_nsec ^= 1;
    cr_expect_not(lathe__known_hash(&other, got));
    other = st;
    other.st_ctim.tv_nsec ^= 1;
    cr_expect_not(lathe__known_hash(&other, got));
    other = st;
    other.st_ino++;
    cr_expect_not(lathe__known_hash(&other, got));
    other = st;
    other.st_dev++;
    cr_expect_not(lathe__known_hash(&other, got));
}

/* A file that changed while it was hashed, or so lately that the next change may look the same. */
Test(known_hashes, of_a_file_in_change_are_not_remembered)
{
    char got[65];
    struct stat st = old_entry(), after = st;
    after.st_size++;
    lathe__known_hash_add(&st, &after, hex);
    cr_expect_not(lathe__known_hash(&st, got));
    cr_assert_eq(stat(path, &st), 0);
    lathe__known_hash_add(&st, &st, hex);
    cr_expect_not(lathe__known_hash(&st, got));
}

Test(known_hashes, are_kept_for_the_next_process)
{
    char got[65];
    const struct stat st = old_entry();
    struct stat small = st;
    small.st_ino++;
    small.st_size = 100;
    lathe__known_hash_add(&st, &st, hex);
    lathe__known_hash_add(&small, &small, hex);
    lathe__known_hashes_keep();
    lathe__known_hashes_forget();
    cr_assert(lathe__known_hash(&st, got));
    cr_expect_str_eq(got, hex);
    cr_expect_not(lathe__known_hash(&small, got), "a small file is hashed faster");
}

/* Every cut and a changed digit of the file in the cache make it as good as none. */
Test(known_hashes, of_a_damaged_cache_are_not_believed)
{
    char got[65], text[512];
    const struct stat st = old_entry();
    lathe__known_hash_add(&st, &st, hex);
    lathe__known_hashes_keep();
    FILE *file = fopen(kept, "rb");
    cr_assert_not_null(file);
    const size_t n = fread(text, 1, sizeof text, file);
    (void)fclose(file);
    cr_assert(n > 64 && n < sizeof text);
    for (size_t i = 0; i <= n; i++) {
        file = fopen(kept, "wb");
        cr_assert_not_null(file);
        char changed[512];
        memcpy(changed, text, n);
        if (i < n)
            changed[i] ^= 1;
        cr_assert_eq(fwrite(changed, 1, n, file), n);
        cr_assert_eq(fclose(file), 0);
        lathe__known_hashes_forget();
        cr_expect_eq(lathe__known_hash(&st, got), i == n, "byte %zu", i);
        cr_assert_eq(truncate(kept, (off_t)i), 0);
        lathe__known_hashes_forget();
        cr_expect_eq(lathe__known_hash(&st, got), i == n, "cut to %zu", i);
    }
}

Test(known_hashes, without_a_cache_are_those_of_the_process)
{
    char got[65];
    const struct stat st = old_entry();
    cr_assert_eq(setenv("LATHE_CACHE", "off", 1), 0);
    lathe__known_hash_add(&st, &st, hex);
    lathe__known_hashes_keep();
    cr_assert(lathe__known_hash(&st, got));
    lathe__known_hashes_forget();
    cr_expect_not(lathe__known_hash(&st, got));
}
