/* Patterns that name modules of a model: of optimizer.no_decay_modules, quant.include_modules and
 * the like. */
#ifndef LATHE_BASE_MODULE_PATTERN_H
#define LATHE_BASE_MODULE_PATTERN_H

/** Whether a pattern (fnmatch: *, ?, []) matches the whole name of a parameter. */
int lathe_name_matches(const char *pattern, const char *name);

/** Whether a pattern names the module that holds the parameter `name`
 *  ("model.layers.0.mlp.up_proj.weight"). A pattern without a dot or a wildcard may equal one part
 * of the module's path ("mlp"); any other pattern must match the whole path ("model.layers.0.*").
 */
int lathe_module_matches(const char *pattern, const char *name);

#endif
