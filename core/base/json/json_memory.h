/* Memory for jansson's parser, which crashes if malloc fails (2.14 asserts in lex_scan_string).
 *
 * Between begin and end, jansson on the calling thread allocates with malloc. If malloc fails, it
 * gets memory from a reserve of address space, and lathe_json_memory_failed reports this. So the
 * parser never sees the failure, but its caller does. In that case everything allocated since begin
 * must be freed before end.
 */
#ifndef LATHE_JSON_MEMORY_H
#define LATHE_JSON_MEMORY_H

#include "lathe/status.h"

/** text_bytes: size of the text to parse; limits the reserve, which is mapped only when needed. */
void lathe_json_memory_begin(int64_t text_bytes);

/** 1: malloc has failed since begin. Call it before lathe_json_memory_end. */
int32_t lathe_json_memory_failed(void);

/** Bytes that jansson has allocated since begin and not freed, malloc's overhead included. */
int64_t lathe_json_memory_live(void);

void lathe_json_memory_end(void);

#endif
