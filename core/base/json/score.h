/* Reads the score of a Unigram token from its decimal digits as Hugging Face's tokenizers does. */
#ifndef LATHE_BASE_SCORE_H
#define LATHE_BASE_SCORE_H

#include <stdint.h>

/** Reads the number in text[0, n), a checked JSON number, with the rounding of Rust's serde_json
 *  without its feature float_roundtrip: the digits as a 64-bit integer (digits that do not fit are
 *  dropped), multiplied or divided by a power of ten. The result may differ from the nearest double
 *  by a few units in the last place, and this decides which of two segmentations with equal sums is
 *  taken. Overflow gives an infinity.
 *  Source  serde_json 1.0, de.rs: parse_any_number, parse_decimal, f64_from_parts. */
double lathe_score_read(const char *text, int64_t n);

#endif
