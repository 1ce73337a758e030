/* Memory for jansson's parser, which does not survive a malloc that fails (2.14 asserts in
 * lex_scan_string).
 *
 * Between begin and end the calling thread's jansson gets what malloc gives, and when malloc gives
 * nothing, address space of our own; end says that this happened. So the parser never sees a
 * failure, and its caller always does. What was made in between must be gone by end in that case.
 */
#ifndef LATHE_BASE_JSON_MEMORY_H
#define LATHE_BASE_JSON_MEMORY_H

#include "lathe/status.h"

/** text_bytes: what will be parsed; bounds the reserve, which is mapped only when it is needed. */
void lathe_json_memory_begin(int64_t text_bytes);

/** 1: malloc has failed since begin. Before lathe_json_memory_end. */
int32_t lathe_json_memory_failed(void);

/** Bytes that jansson holds of what it took since begin, malloc's share included. */
int64_t lathe_json_memory_live(void);

void lathe_json_memory_end(void);

#endif
