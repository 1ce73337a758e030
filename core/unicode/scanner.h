/* Pre-tokenizers by hand: what the regular expressions of GPT-2, Llama 3 and Qwen2 match, without a
 * regular expression. */
#ifndef LATHE_UNICODE_SCANNER_H
#define LATHE_UNICODE_SCANNER_H

#include <stdint.h>

enum { LATHE_SCAN_NONE = 0, LATHE_SCAN_GPT2, LATHE_SCAN_LLAMA3, LATHE_SCAN_QWEN2, LATHE_N_SCANS };

/** The regular expression that a scanner stands for, or NULL for LATHE_SCAN_NONE. */
const char *lathe__scan_pattern(int32_t scan);
/** The scanner of exactly this text of a regular expression, or LATHE_SCAN_NONE. */
int32_t lathe__scan_of(const char *pattern);

/** Where the piece that begins at text[at] ends; at < n. The text is valid UTF-8 from end to end.
 *  `classes` is lathe__char_classes(). A whole text costs time linear in its length. */
int64_t lathe__scan(int32_t scan, const uint8_t *classes, const uint8_t *text, int64_t n,
                    int64_t at);

#endif
