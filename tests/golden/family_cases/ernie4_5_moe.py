"""Configurations of ERNIE 4.5's mixtures of experts; see family_cases/__init__.py."""
from family_cases import LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "ernie4_5_moe"
MOE = dict(TINY, hidden_size=32, moe_intermediate_size=12, moe_num_experts=6, moe_k=2, moe_num_shared_experts=1, num_hidden_layers=3)
GOLDEN = {
    "ernie4_5_moe": (95, dict(MOE, output_router_logits=True, router_aux_loss_coef=0.2)),
    "ernie4_5_moe_bias": (96, dict(MOE, use_bias=True, moe_layer_interval=2, moe_num_shared_experts=2, tie_word_embeddings=False)),
}
SIX = {
    "one expert of three, heads of 12": dict(MOE, moe_num_experts=3, moe_k=1, head_dim=12),
    "all of four, no shared expert, linear": dict(MOE, moe_num_experts=4, moe_k=4, moe_num_shared_experts=0, rope_parameters=LINEAR),
    "a sum below its least value, biases, gelu": dict(MOE, moe_norm_min=0.6, use_bias=True, hidden_act="gelu"),
    "every second layer of five up to the fourth, auxiliary loss": dict(MOE, num_hidden_layers=5, moe_layer_interval=2,
                                                                        moe_layer_end_index=3, moe_layer_start_index=0,
                                                                        output_router_logits=True, router_aux_loss_coef=0.7),
    "64 narrow experts, one key head, untied, llama3": dict(MOE, moe_num_experts=64, moe_k=8, moe_intermediate_size=4,
                                                            num_key_value_heads=1, tie_word_embeddings=False, rope_parameters=LLAMA3),
    "experts from the first layer on, large epsilon, yarn": dict(MOE, moe_layer_start_index=0, moe_num_shared_experts=3,
                                                                 rms_norm_eps=0.1, rope_parameters=YARN),
}
SWEEP = {"ernie4_5_moe": dict(SWEPT, attention_dropout=0.0, rms_norm_eps=1e-5, use_bias=False, moe_intermediate_size=12,
                              moe_num_experts=5, moe_k=2, moe_num_shared_experts=1, moe_layer_start_index=1, moe_layer_end_index=-1,
                              moe_layer_interval=1, moe_norm_min=1e-12, output_router_logits=False, router_aux_loss_coef=0.001)}
OTHER = {"moe_k": [1, 5], "moe_num_experts": [4], "moe_num_shared_experts": [0, 2], "moe_layer_start_index": [0, 2],
         "moe_layer_end_index": [1, 2], "moe_layer_interval": [2], "moe_norm_min": [0.0, 0.9]}
