/* SHA-256 by OpenSSL, and FNV-1a for tables. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* OpenSSL's own SHA-256, not its EVP layer: the same code for the CPU's instructions, and nothing that is
 * fetched, allocated or can fail. */
struct lathe_sha256 {
    SHA256_CTX context;
};

lathe_status lathe_sha256_create(lathe_sha256 **out)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: SHA-256 state");
    (void)SHA256_Init(&(*out)->context);
    return LATHE_OK;
}

void lathe_sha256_update(lathe_sha256 *hash, const void *data, int64_t bytes)
{
    if (bytes > 0)
        (void)SHA256_Update(&hash->context, data, (size_t)bytes);
}

void lathe_sha256_finish(lathe_sha256 *hash, char out_hex[65])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[SHA256_DIGEST_LENGTH];
    (void)SHA256_Final(raw, &hash->context);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        out_hex[2 * i] = digits[raw[i] >> 4];
        out_hex[2 * i + 1] = digits[raw[i] & 15];
    }
    out_hex[64] = '\0';
    lathe_sha256_destroy(hash);
}

void lathe_sha256_destroy(lathe_sha256 *hash)
{
    free(hash);
}

/* Reads rather than maps: a file that shrinks meanwhile gives an error, not a signal. */
lathe_status lathe_sha256_file(const char *path, char out_hex[65])
{
    enum { CHUNK = 256 * 1024 };
    out_hex[0] = '\0';
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return lathe_error(LATHE_E_IO, "%s: cannot open: %s", path, strerror(errno));
    lathe_sha256 *hash = NULL;
    char *chunk = malloc(CHUNK);
    lathe_status status = lathe_sha256_create(&hash);
    if (status == LATHE_OK && chunk == NULL)
        status = lathe_error(LATHE_E_NOMEM, "%s: out of memory", path);
    while (status == LATHE_OK) {
        const ssize_t n = read(fd, chunk, CHUNK);
        if (n == 0)
            break;
        if (n > 0)
            lathe_sha256_update(hash, chunk, n);
        else if (errno != EINTR)
            status = lathe_error(LATHE_E_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    if (status == LATHE_OK) {
        lathe_sha256_finish(hash, out_hex);
        hash = NULL;
    }
    lathe_sha256_destroy(hash);
    free(chunk);
    (void)close(fd);
    return status;
}

/* FNV-1a; the mix is MurmurHash3's 64-bit finaliser, so that low bits depend on all bytes. */
uint64_t lathe_hash64(const void *data, int64_t bytes)
{
    const unsigned char *at = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 33);
}
