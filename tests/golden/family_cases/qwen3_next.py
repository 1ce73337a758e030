"""Configurations of Qwen3-Next; see family_cases/__init__.py."""
from family_cases import FULL, LINEAR, SWEPT, TINY, YARN

TYPE = "qwen3_next"
DELTA = "linear_attention"
MOE = dict(TINY, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=6, linear_num_key_heads=2, linear_num_value_heads=4,
           moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=5, num_experts_per_tok=2)
# Seeds with which the numbers of transformers are sharp enough for the tests: the gradients of the LoRA golden, in fp32, are within
# 1e-5 of those in fp64, and the log-probabilities of the text, decoded token by token with the cache, within 1e-4 of those without.
GOLDEN = {
    "qwen3_next": (110, dict(MOE, layer_types=[DELTA, FULL], output_router_logits=True, router_aux_loss_coef=0.2)),
    "qwen3_next_mlp": (111, dict(MOE, num_hidden_layers=3, layer_types=[FULL, DELTA, DELTA], tie_word_embeddings=True,
                                 attention_bias=True, norm_topk_prob=False, mlp_only_layers=[1], linear_conv_kernel_dim=2,
                                 linear_num_key_heads=3, linear_num_value_heads=3, head_dim=8,
                                 rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5))),
}
SIX = {
    "linear layers alone, one expert of three, tied": dict(MOE, layer_types=[DELTA, DELTA], num_experts=3, num_experts_per_tok=1,
                                                           tie_word_embeddings=True),
    "attention alone, all of four experts, linear": dict(MOE, layer_types=[FULL, FULL], num_key_value_heads=1, num_experts=4,
                                                         num_experts_per_tok=4, rope_parameters=LINEAR),
    "every fourth layer attends, wide values, MLPs": dict(MOE, num_hidden_layers=4, linear_key_head_dim=12, linear_value_head_dim=20,
                                                          linear_num_key_heads=4, linear_num_value_heads=4, mlp_only_layers=[0, 2]),
    "one head for keys, six for values, biases": dict(MOE, layer_types=[DELTA, FULL], linear_num_key_heads=1, linear_num_value_heads=6,
                                                      attention_bias=True, norm_topk_prob=False),
    "three key heads of nine, auxiliary loss, large epsilon": dict(MOE, num_hidden_layers=3, layer_types=[FULL, DELTA, DELTA],
                                                                   linear_num_key_heads=3, linear_num_value_heads=9,
                                                                   linear_key_head_dim=7, linear_value_head_dim=5, rms_norm_eps=0.1,
                                                                   output_router_logits=True, router_aux_loss_coef=0.7),
    "every second layer has experts, 64 narrow ones, yarn": dict(MOE, layer_types=[DELTA, FULL], linear_conv_kernel_dim=1,
                                                                 decoder_sparse_step=2, num_experts=64, num_experts_per_tok=8,
                                                                 moe_intermediate_size=4, shared_expert_intermediate_size=3,
                                                                 rope_parameters=dict(YARN, partial_rotary_factor=1.0)),
}
SWEEP = {"qwen3_next": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, head_dim=16,
                            linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
                            linear_num_value_heads=4, layer_types=[DELTA, FULL, DELTA], moe_intermediate_size=12,
                            shared_expert_intermediate_size=20, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True,
                            decoder_sparse_step=1, mlp_only_layers=[1], output_router_logits=False, router_aux_loss_coef=0.001)}
OTHER = {}
