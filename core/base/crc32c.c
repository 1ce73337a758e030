/* Computes CRC-32C (RFC 3720, section 12.1; polynomial 0x1edc6f41, reflected 0x82f63b78) four bits
 * at a time: 16 words of table instead of 256, and fast enough for records of some hundred bytes.
 */
#include "base/crc32c.h"

uint32_t lathe_crc32c(const void *data, int64_t bytes)
{
    /* table[i]: i shifted out of the reflected register four times */
    static const uint32_t table[16] = {0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u,
                                       0x417b1dbcu, 0x5125dad3u, 0x61c69362u, 0x7198540du,
                                       0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u,
                                       0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u};
    const uint8_t *p = data;
    uint32_t crc = 0xffffffffu;
    for (int64_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}
