/* The texts with which a trace file begins and ends. */
#ifndef LATHE_BASE_TRACE_TEXT_H
#define LATHE_BASE_TRACE_TEXT_H

#define LATHE__TRACE_OPENING "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
#define LATHE__TRACE_CLOSING "\n]}\n"

#endif
