/* Opens the rewards that the configuration of a run names. */
#ifndef LATHE_REWARD_REWARD_OPEN_H
#define LATHE_REWARD_REWARD_OPEN_H

#include "config/config.h"
#include "reward/rewards.h"

/** Makes an instance of each reward plugin of the file: *out[*out_n] in `arena`, in the order of
 *  lathe_config_rewards; a reward model has no component. The caller frees the instances, after an
 *  error too. LATHE_E_CONFIG: what the plugins refused, with its place in the file, in `collected`
 *  if it is not NULL. */
lathe_status lathe_reward_instances(const lathe_config *config, lathe_diags *collected,
                                    lathe_arena *arena, lathe_instance **out, int32_t *out_n);

/** Reports the thread's message as an error at the place of reward `index`, or of its key with
 * which the message begins; in `collected` if it is not NULL. Returns LATHE_E_CONFIG. */
lathe_status lathe_reward_refuse(const lathe_config *config, int32_t index, lathe_diags *collected);

/** Makes the rewards of these instances, which must outlive them. A reward model scores nothing
 *  until lathe_rewards_set_model. */
lathe_status lathe_rewards_open(const lathe_config *config, lathe_instance *instances,
                                lathe_rewards **out);

#endif
