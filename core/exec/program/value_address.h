/* Addresses of values that outlive a run: parameters, masters, gradients and planes. */
#ifndef LATHE_EXEC_VALUE_ADDRESS_H
#define LATHE_EXEC_VALUE_ADDRESS_H

#include "exec/program/gather_uses.h"

/** Sets *out to the address of a value, in the window if it is gathered; NULL: it has no memory in
 *  the store. LATHE_E_STATE: ranks divide it, and the program does not gather it. */
lathe_status lathe__value_address(const lathe_gather_uses *gathers, const lathe_store *store,
                                  const lathe_ir_value *v, void **out);
/** Sets out [LATHE_MAX_PLANES] to the addresses of the planes of a value of kind PLANES; NULL
 *  beyond the last. Errors as above. */
lathe_status lathe__planes_address(const lathe_gather_uses *gathers, const lathe_store *store,
                                   const lathe_ir_value *v, const void **out);

#endif
