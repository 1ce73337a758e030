/* Tools as harmony writes them: a TypeScript namespace with a type for each function. */
#ifndef LATHE_RENDERERS_HARMONY_TOOLS_H
#define LATHE_RENDERERS_HARMONY_TOOLS_H

#include "lathe/host.h"
#include "lathe/renderer.h"

/** Writes the namespace "functions" of the conversation's tools into *out, which is from malloc and
 *  the caller frees; NULL where there are no tools.
 *  Errors  LATHE_E_UNSUPPORTED: the template has no text for a tool, or one that depends on how
 *          Python writes values. */
lathe_status harmony_tools(const lathe_host *host, const lathe_conversation *conversation,
                           char **out, int64_t *out_bytes);

#endif
