"""Configurations of Qwen3.5-MoE; see family_cases/__init__.py."""
from family_cases import DYNAMIC, FULL, LINEAR, SWEPT, TINY, YARN

TYPE = "qwen3_5_moe_text"
DELTA = "linear_attention"
NO_MLP = {k: v for k, v in TINY.items() if k != "intermediate_size"}
MOE = dict(NO_MLP, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=6, linear_num_key_heads=2, linear_num_value_heads=4,
           moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=5, num_experts_per_tok=2)
# Seeds as in qwen3_next.py.
GOLDEN = {
    "qwen3_5_moe": (122, dict(MOE, layer_types=[DELTA, FULL], output_router_logits=True, router_aux_loss_coef=0.3)),
    "qwen3_5_moe_tied": (121, dict(MOE, layer_types=[FULL, DELTA], tie_word_embeddings=True, attention_bias=True, num_experts=7,
                                   num_experts_per_tok=3, moe_intermediate_size=16, linear_conv_kernel_dim=2, linear_num_key_heads=1,
                                   linear_num_value_heads=3, head_dim=8,
                                   rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5))),
}
SIX = {
    "linear layers alone, one expert of three, tied": dict(MOE, layer_types=[DELTA, DELTA], num_experts=3, num_experts_per_tok=1,
                                                           tie_word_embeddings=True),
    "attention alone, all of four experts, linear": dict(MOE, layer_types=[FULL, FULL], num_key_value_heads=1, num_experts=4,
                                                         num_experts_per_tok=4, rope_parameters=LINEAR),
    "every fourth layer attends, wide values and experts": dict(MOE, num_hidden_layers=4, linear_key_head_dim=12,
                                                                linear_value_head_dim=20, linear_num_key_heads=4,
                                                                linear_num_value_heads=4, moe_intermediate_size=56),
    "one head for keys, six for values, biases, dynamic": dict(MOE, layer_types=[DELTA, FULL], linear_num_key_heads=1,
                                                               linear_num_value_heads=6, attention_bias=True, rope_parameters=DYNAMIC),
    "a convolution of seven, auxiliary loss, large epsilon": dict(MOE, num_hidden_layers=3, layer_types=[FULL, DELTA, DELTA],
                                                                  linear_conv_kernel_dim=7, linear_key_head_dim=17,
                                                                  linear_value_head_dim=17, rms_norm_eps=0.1,
                                                                  output_router_logits=True, router_aux_loss_coef=0.7),
    "64 narrow experts, a narrow shared one, yarn": dict(MOE, layer_types=[DELTA, FULL], linear_conv_kernel_dim=1, num_experts=64,
                                                         num_experts_per_tok=8, moe_intermediate_size=4,
                                                         shared_expert_intermediate_size=3,
                                                         rope_parameters=dict(YARN, partial_rotary_factor=1.0)),
}
SWEEP = {"qwen3_5_moe_text": dict({k: v for k, v in SWEPT.items() if k != "intermediate_size"}, attention_bias=False,
                                  attention_dropout=0.0, rms_norm_eps=1e-6, head_dim=16, linear_conv_kernel_dim=4,
                                  linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
                                  layer_types=[DELTA, FULL, DELTA], moe_intermediate_size=12, shared_expert_intermediate_size=20,
                                  num_experts=5, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001)}
OTHER = {}
