/* Computes CRC-32C (Castagnoli), the checksum of TFRecord files and other formats. */
#ifndef LATHE_BASE_CRC32C_H
#define LATHE_BASE_CRC32C_H

#include <stdint.h>

/** CRC-32C of bytes: reflected polynomial 0x1edc6f41, initial value and final XOR all ones. */
uint32_t lathe_crc32c(const void *data, int64_t bytes);

#endif
