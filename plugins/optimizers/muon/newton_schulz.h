/* Muon's update of one matrix, as graph ops. */
#ifndef LATHE_MUON_NEWTON_SCHULZ_H
#define LATHE_MUON_NEWTON_SCHULZ_H

#include "lathe/optimizer.h"

typedef struct muon_matrix {
    double momentum;
    double update_scale; /* lr_mult times the factor for the shape */
    double decay;        /* lr_mult * weight decay */
    int nesterov;
    int32_t ns_steps;
    int32_t ns_dtype; /* LATHE_F32 or LATHE_BF16 */
} muon_matrix;

/** M = mu*M + (1-mu)*G;  U = nesterov ? mu*M + (1-mu)*G : M;  O = orthogonal(U);
 *  P = P - lr*(update_scale*O + decay*P)
 *
 *  momentum       f32 or bf16 [R,C]; bf16 is rounded to nearest: it moves by 1-mu a step
 *  param, grad    f32 [R,C]; G is grad times LATHE_SCALAR_GRAD_SCALE
 *  scalars        f32 [LATHE_N_SCALARS], lr = LATHE_SCALAR_LR
 *  orthogonal     U / max(|U|, 1e-7), then ns_steps times X = a*X + (b*A + c*A*A)*X, A = X X^T,
 *                 (a, b, c) = (3.4445, -4.7750, 2.0315): singular values go to about 0.7..1.2
 *
 *  A tall matrix (R > C) is multiplied from the other side, A = X^T X, which gives the transpose of
 *  the published iteration on the transpose, without transposing.
 *
 *  Errors  those of the graph.
 *  Source  Keller Jordan, "Muon", 2024; torch.optim.Muon.
 */
LATHE_MUST_USE lathe_status muon_emit(const muon_matrix *m, const lathe_graph_api *api,
                                      lathe_graph *g, lathe_val param, lathe_val grad,
                                      lathe_val momentum, lathe_val scalars);

#endif
