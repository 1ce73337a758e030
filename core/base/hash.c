/* Computes SHA-256 with OpenSSL, and FNV-1a hashes for tables. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/hash.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"

/* Uses OpenSSL's SHA-256 directly, not through EVP: it runs the same CPU-specific code, and
 * needs no algorithm look-up, no allocation and no error handling. */
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

lathe_status lathe_sha256_bytes(const void *data, int64_t bytes, char out_hex[65])
{
    lathe_sha256 *hash = NULL;
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, data, bytes);
    lathe_sha256_finish(hash, out_hex);
    return LATHE_OK;
}

/* The state of a read: the next bytes are the rest of a part, read into its memory, or the bytes
 * before a part, read into the chunk. */
typedef struct reading {
    const lathe_file_part *parts;
    int64_t n_parts, part, at; /* part: the first not yet read whole */
    char *chunk;
} reading;

enum { CHUNK = 256 * 1024 };

static char *next_place(reading *r, int64_t *out_bytes)
{
    while (r->part < r->n_parts && r->at == r->parts[r->part].offset + r->parts[r->part].bytes)
        r->part++;
    const lathe_file_part *p = r->part < r->n_parts ? &r->parts[r->part] : NULL;
    const int64_t inside = p ? r->at - p->offset : -1;
    int64_t bytes = CHUNK;
    if (inside >= 0)
        bytes = p->bytes - inside;
    else if (p)
        bytes = -inside;
    *out_bytes = bytes < CHUNK ? bytes : CHUNK;
    return inside >= 0 ? (char *)p->to + inside : r->chunk;
}

static lathe_status hash_file(int fd, const char *path, lathe_sha256 *hash, reading *r)
{
    for (;;) {
        int64_t bytes;
        char *to = next_place(r, &bytes);
        const ssize_t n = read(fd, to, (size_t)bytes);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return lathe_error(LATHE_E_IO, "%s: cannot read: %s", path, strerror(errno));
        lathe_sha256_update(hash, to, n);
        r->at += n > 0 ? n : 0;
    }
    return r->part == r->n_parts
               ? LATHE_OK
               : lathe_error(LATHE_E_IO,
                             "%s: the file ends before the last byte that was to be read", path);
}

/* Reads rather than maps: a file that shrinks meanwhile gives an error, not a signal. */
lathe_status lathe_sha256_file_parts(const char *path, const lathe_file_part *parts,
                                     int64_t n_parts, char out_hex[65])
{
    out_hex[0] = '\0';
    int fd = -1;
    int64_t size = 0;
    LATHE_TRY(lathe_file_open(path, &fd, &size));
    lathe_sha256 *hash = NULL;
    reading r = {.parts = parts, .n_parts = n_parts, .chunk = malloc(CHUNK)};
    lathe_status status = lathe_sha256_create(&hash);
    if (status != LATHE_OK)
        goto out;
    if (r.chunk == NULL) {
        status = lathe_error(LATHE_E_NOMEM, "%s: out of memory", path);
        goto out;
    }
    if ((status = hash_file(fd, path, hash, &r)) != LATHE_OK)
        goto out;
    lathe_sha256_finish(hash, out_hex);
    hash = NULL;
out:
    lathe_sha256_destroy(hash);
    free(r.chunk);
    (void)close(fd);
    return status;
}

lathe_status lathe_sha256_file(const char *path, char out_hex[65])
{
    return lathe_sha256_file_parts(path, NULL, 0, out_hex);
}

/* FNV-1a, then the 64-bit finaliser of MurmurHash3, so that the low bits depend on all bytes. */
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
