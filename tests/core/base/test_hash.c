/* SHA-256 against FIPS 180-4 examples, and the table hash. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"

static const char abc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
static const char empty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

Test(sha256, known_answers)
{
    lathe_sha256 *hash = NULL;
    char hex[65];
    cr_assert_eq(lathe_sha256_create(&hash), LATHE_OK);
    lathe_sha256_update(hash, "a", 1);
    lathe_sha256_update(hash, "bc", 2);
    lathe_sha256_finish(hash, hex);
    cr_assert_str_eq(hex, abc);
    cr_assert_eq(lathe_sha256_create(&hash), LATHE_OK);
    lathe_sha256_finish(hash, hex);
    cr_assert_str_eq(hex, empty);
    lathe_sha256_destroy(NULL);
}

Test(sha256, of_a_file)
{
    char hex[65];
    char path[] = "/tmp/lathe-hash-XXXXXX";
    cr_assert_eq(close(mkstemp(path)), 0);
    cr_assert_eq(lathe_sha256_file(path, hex), LATHE_OK);
    cr_assert_str_eq(hex, empty);
    (void)unlink(path);
    cr_assert_eq(lathe_sha256_file("/proc/self/nothing", hex), LATHE_E_NOT_FOUND);
    cr_assert_eq(lathe_sha256_file("/dev/null", hex), LATHE_E_CONFIG); /* not a regular file */
    cr_assert_str_eq(hex, "");
}

/* FNV-1a of "" is the offset basis, of "a" 0xaf63dc4c8601ec8c (Noll's test vectors); this applies
 * the mix to them by its definition. */
static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 33);
}

Test(hash64, is_fnv1a_mixed)
{
    cr_assert_eq(lathe_hash64("", 0), mix(0xcbf29ce484222325u));
    cr_assert_eq(lathe_hash64("a", 1), mix(0xaf63dc4c8601ec8cu));
    cr_assert_neq(lathe_hash64("ab", 2), lathe_hash64("ba", 2));
}
