/* Removes a member of a JSON object and keeps the other bytes of the text as they are. */
#ifndef LATHE_JSON_CUT_H
#define LATHE_JSON_CUT_H

#include <stdint.h>

/** Finds the bytes [*from, *to) of a text, an object in valid JSON, without which the object lacks
 *  the member: the member, and the comma before or after it. Returns 1, or 0 if there is no such
 *  member; key: as it is in the text, without quotes. */
int lathe_json_cut(const char *text, int64_t bytes, const char *key, int64_t *from, int64_t *to);

#endif
