"""Configurations of Qwen3-MoE; see family_cases/__init__.py."""
from family_cases import LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "qwen3_moe"
MOE = dict(TINY, hidden_size=32, moe_intermediate_size=12, num_experts=5, num_experts_per_tok=2)
GOLDEN = {
    "qwen3_moe": (80, dict(MOE, num_hidden_layers=3, head_dim=16, norm_topk_prob=True, tie_word_embeddings=True)),
    "qwen3_moe_step": (81, dict(MOE, moe_intermediate_size=20, num_experts=7, num_experts_per_tok=3, decoder_sparse_step=2,
                                use_sliding_window=True, sliding_window=6, attention_bias=True, output_router_logits=True,
                                router_aux_loss_coef=0.3)),
}
SIX = {
    "one expert of three, tied": dict(MOE, num_experts=3, num_experts_per_tok=1, tie_word_embeddings=True),
    "all of four experts, normed weights, linear": dict(MOE, num_experts=4, num_experts_per_tok=4, norm_topk_prob=True,
                                                        rope_parameters=LINEAR),
    "layers with MLP, one key head, heads of 6": dict(MOE, num_hidden_layers=4, mlp_only_layers=[0, 2], num_key_value_heads=1,
                                                      head_dim=6, norm_topk_prob=True),
    "every third layer, auxiliary loss, llama3": dict(MOE, num_hidden_layers=3, decoder_sparse_step=3, output_router_logits=True,
                                                      router_aux_loss_coef=0.7, rope_parameters=LLAMA3),
    "64 narrow experts, biases, a window": dict(MOE, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=4,
                                                attention_bias=True, use_sliding_window=True, sliding_window=5),
    "experts wider than the MLP, large epsilon, yarn": dict(MOE, moe_intermediate_size=56, mlp_only_layers=[0], rms_norm_eps=0.1,
                                                            output_router_logits=True, rope_parameters=YARN),
}
SWEEP = {"qwen3_moe": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, use_sliding_window=False,
                           sliding_window=16, moe_intermediate_size=12, num_experts=5, num_experts_per_tok=2,
                           norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1], output_router_logits=False,
                           router_aux_loss_coef=0.001)}
OTHER = {"num_experts_per_tok": [1, 5], "decoder_sparse_step": [2, 3], "mlp_only_layers": [[0], [0, 2]],
         "moe_intermediate_size": [8], "num_experts": [4]}
