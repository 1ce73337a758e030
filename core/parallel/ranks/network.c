/* Costs of exchanges inside islands and across them. */
#include "parallel/ranks/network.h"

int32_t lathe_network_inside(const lathe_network *network)
{
    return network->n_ranks / network->n_islands;
}

lathe_network_cost lathe_network_exchange(const lathe_network *network, int32_t op, int32_t inside,
                                          int32_t islands, double bytes)
{
    const double within = lathe_link_bytes(op, bytes, inside);
    const double across = lathe_link_bytes(op, bytes / inside, islands);
    lathe_network_cost cost = {.sent = within};
    cost.seconds = lathe_link_seconds(&network->link, lathe_link_rounds(op, inside), within);
    if (islands < 2)
        return cost;
    cost.sent += across;
    cost.across = across;
    cost.seconds += lathe_link_seconds(&network->island_link, lathe_link_rounds(op, islands),
                                       across * lathe_network_inside(network));
    return cost;
}
