/* SHA-256 (OpenSSL) and a fast non-cryptographic 64-bit hash for tables. */
#ifndef LATHE_BASE_HASH_H
#define LATHE_BASE_HASH_H

#include "lathe/status.h"

typedef struct lathe_sha256 lathe_sha256;

lathe_status lathe_sha256_create(lathe_sha256 **out);
void lathe_sha256_update(lathe_sha256 *hash, const void *data, int64_t bytes);
/** Writes 64 hexadecimal digits and a NUL, and destroys the hash. */
void lathe_sha256_finish(lathe_sha256 *hash, char out_hex[65]);
void lathe_sha256_destroy(lathe_sha256 *hash);

/** SHA-256 of bytes, as 64 hexadecimal digits. */
lathe_status lathe_sha256_bytes(const void *data, int64_t bytes, char out_hex[65]);

/** SHA-256 of a file, as 64 hexadecimal digits. */
lathe_status lathe_sha256_file(const char *path, char out_hex[65]);

/** A range of a file, and the caller's memory for its bytes. */
typedef struct lathe_file_part {
    int64_t offset, bytes;
    void *to;
} lathe_file_part;

/** Like lathe_sha256_file, and reads the parts into memory; they are in file order and do not
 *  overlap. The caller must compare the hash to know that the bytes are right. LATHE_E_IO: the file
 *  ends before the last part does. */
lathe_status lathe_sha256_file_parts(const char *path, const lathe_file_part *parts,
                                     int64_t n_parts, char out_hex[65]);

/** 64-bit hash of bytes: FNV-1a with a final mix. Same value on every machine. */
uint64_t lathe_hash64(const void *data, int64_t bytes);

#endif
