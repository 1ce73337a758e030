/* Pre-tokenizers written by hand: they match what the regular expressions of GPT-2, Llama 3 and
 * Qwen2 match. */
#ifndef LATHE_TOKENIZER_SCANNER_H
#define LATHE_TOKENIZER_SCANNER_H

#include <stdint.h>

enum { LATHE_SCAN_NONE = 0, LATHE_SCAN_GPT2, LATHE_SCAN_LLAMA3, LATHE_SCAN_QWEN2, LATHE_N_SCANS };

/** The regular expression that a scanner implements, or NULL for LATHE_SCAN_NONE. */
const char *lathe__scan_pattern(int32_t scan);
/** The scanner that implements exactly this regular expression, or LATHE_SCAN_NONE. */
int32_t lathe__scan_of(const char *pattern);

/** Returns the end of the piece that begins at text[at]; at < n. The whole text is valid UTF-8.
 *  `classes` is lathe__char_classes(). Scanning a whole text takes time linear in its length. */
int64_t lathe__scan(int32_t scan, const uint8_t *classes, const uint8_t *text, int64_t n,
                    int64_t at);

#endif
