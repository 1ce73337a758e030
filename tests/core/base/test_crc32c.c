/* CRC-32C against the published vectors. */
#include "base/crc32c.h"

#include <criterion/criterion.h>
#include <string.h>

/* RFC 3720, appendix B.4. */
Test(crc32c, agrees_with_rfc_3720)
{
    uint8_t bytes[32];
    memset(bytes, 0, sizeof bytes);
    cr_expect_eq(lathe_crc32c(bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    cr_expect_eq(lathe_crc32c(bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    cr_expect_eq(lathe_crc32c(bytes, 32), 0x46dd794eu);
    cr_expect_eq(lathe_crc32c("123456789", 9), 0xe3069283u);
    cr_expect_eq(lathe_crc32c("", 0), 0u);
}
