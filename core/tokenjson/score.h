/* The score of a Unigram token, as Hugging Face's tokenizers reads it from its decimal digits. */
#ifndef LATHE_TOKENJSON_SCORE_H
#define LATHE_TOKENJSON_SCORE_H

#include <stdint.h>

/** The number in text[0, n), a checked JSON number, with the rounding of Rust's serde_json without
 *  its feature float_roundtrip: digits as a 64-bit integer (what does not fit is dropped), times or
 *  over a power of ten. That is up to a few units in the last place from the nearest double, and
 *  which of two segmentations with equal sums wins depends on it. Overflow gives an infinity.
 *  Source  serde_json 1.0, de.rs: parse_any_number, parse_decimal, f64_from_parts. */
double lathe__score_read(const char *text, int64_t n);

#endif
