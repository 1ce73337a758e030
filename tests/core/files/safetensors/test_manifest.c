/* Manifests: a folder verifies until one of its files is truncated, changed or removed; the error
 * names the file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "files/safetensors/manifest.h"

static char dir[64];

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    cr_assert_eq(lathe_file_write_atomic(path, text, (int64_t)strlen(text)), LATHE_OK);
}

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-manifest-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    char path[128];
    snprintf(path, sizeof path, "%s/state", dir);
    cr_assert_eq(lathe_dir_create(path), LATHE_OK);
    put("config.json", "{}");
    put("empty", "");
    put("state/optimizer.bin", "0123456789");
}

static void drop_dir(void)
{
    cr_assert_eq(lathe_dir_remove(dir), LATHE_OK);
}

TestSuite(manifest, .init = make_dir, .fini = drop_dir);

static void expect_damage(const char *name, const char *why)
{
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_E_CORRUPT);
    cr_assert_not_null(strstr(lathe_error_message(), name), "%s", lathe_error_message());
    cr_assert_not_null(strstr(lathe_error_message(), why), "%s", lathe_error_message());
}

Test(manifest, verifies_what_it_wrote_and_keeps_the_meta_data)
{
    cr_assert_eq(lathe_manifest_write(dir, "{\"step\": 7}"), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_OK, "%s", lathe_error_message());
    char *meta = NULL;
    cr_assert_eq(lathe_manifest_meta(dir, &meta), LATHE_OK);
    cr_assert_str_eq(meta, "{\"step\":7}");
    free(meta);
    cr_assert_eq(lathe_manifest_write(dir, NULL), LATHE_OK, "a manifest does not list itself");
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_OK);
    cr_assert_eq(lathe_manifest_meta(dir, &meta), LATHE_OK);
    cr_assert_null(meta);
    put("notes.txt", "not listed, not looked at");
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_OK);
}

Test(manifest, holds_the_known_hash)
{
    put("abc", "abc");
    cr_assert_eq(lathe_manifest_write(dir, NULL), LATHE_OK);
    char path[128], *text = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    cr_assert_eq(lathe_file_read(path, 0, &text, &n), LATHE_OK);
    /* FIPS 180-2, B.1 */
    cr_assert_not_null(
        strstr(text, "\"abc\": {\"bytes\": 3, \"sha256\": "
                     "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"}"));
    cr_assert_not_null(strstr(text, "\"state/optimizer.bin\""));
    free(text);
}

Test(manifest, names_the_damaged_file)
{
    cr_assert_eq(lathe_manifest_write(dir, NULL), LATHE_OK);
    put("state/optimizer.bin", "01234");
    expect_damage("state/optimizer.bin", "truncated");
    put("state/optimizer.bin", "0123456780");
    expect_damage("state/optimizer.bin", "changed");
    put("state/optimizer.bin", "0123456789");
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_OK);
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", dir);
    cr_assert_eq(unlink(path), 0);
    expect_damage("config.json", "missing");
}

/* Writes a manifest of this text with the matching last lines. */
static void put_sealed(const char *text)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&b, text);
    cr_assert_eq(lathe_manifest_seal(&b), LATHE_OK);
    put("manifest.json", b.data);
    lathe_buffer_fini(&b);
}

Test(manifest, refuses_a_manifest_that_is_none)
{
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_E_NOT_FOUND);
    put("manifest.json", "{\"format\": \"lathe-manifest\", \"ver");
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_E_CORRUPT);
    put_sealed("{\"format\": \"lathe-manifest\", \"version\": 1, \"files\": {},\n");
    expect_damage("manifest.json", "not a lathe-manifest of version 2");
    put_sealed("{\"format\": \"lathe-manifest\", \"version\": 2, \"files\": "
               "{\"../config.json\": {\"bytes\": 2, \"sha256\": \"00\"}},\n");
    expect_damage("../config.json", "malformed");
    put_sealed("{\"format\": \"lathe-manifest\", \"version\": 2, \"files\": {},\n");
    cr_assert_eq(lathe_manifest_verify(dir), LATHE_OK, "%s", lathe_error_message());
}

/* Flips each bit of the last lines and of its own hash, and every seventh of the rest. */
Test(manifest, sees_flipped_bits_of_itself)
{
    char path[128], *text = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_manifest_write(dir, "{\"step\": 7, \"note\": \"a\"}"), LATHE_OK);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    cr_assert_eq(lathe_file_read(path, 0, &text, &n), LATHE_OK);
    for (int64_t i = 0; i < 8 * n; i += i < 8 * (n - 100) ? 7 : 1) {
        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
        FILE *f = fopen(path, "w");
        cr_assert(f && fwrite(text, 1, (size_t)n, f) == (size_t)n && fclose(f) == 0);
        cr_assert_eq(lathe_manifest_verify(dir), LATHE_E_CORRUPT, "bit %lld", (long long)i);
        cr_assert_not_null(strstr(lathe_error_message(), "manifest.json"), "%s",
                           lathe_error_message());
        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
    }
    free(text);
}

static void count_damage(void *arg, const char *message)
{
    (void)message;
    ++*(int *)arg;
}

Test(manifest, a_survey_names_every_damaged_file)
{
    int n = 0;
    int64_t bytes = 0;
    cr_assert_eq(lathe_manifest_write(dir, NULL), LATHE_OK);
    cr_assert_eq(lathe_manifest_survey(dir, 1, count_damage, &n, &bytes), LATHE_OK);
    cr_assert(n == 0 && bytes == 12, "%d, %lld bytes", n, (long long)bytes);
    put("config.json", "[]");                /* same length as before */
    put("state/optimizer.bin", "012345678"); /* shorter */
    cr_assert_eq(lathe_manifest_survey(dir, 1, count_damage, &n, NULL), LATHE_E_CORRUPT);
    cr_assert_eq(n, 2);
    n = 0;
    cr_assert_eq(lathe_manifest_survey(dir, 0, count_damage, &n, NULL), LATHE_E_CORRUPT);
    cr_assert_eq(n, 1, "without hashes only the length tells");
}
