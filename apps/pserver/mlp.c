/* SPDX-License-Identifier: BSD-3-Clause */
/** Output and gradient of a perceptron with one hidden layer. The training thread. */
#include "mlp.h"
#include <string.h>

double mlp_output(const struct mlp *m, const float *x, float *active)
{
	double output = 0.0;
	for (size_t u = 0; u < m->units; u++) {
		const float *row = m->rows + u * MLP_ROW(m->inputs);
		float sum = row[m->inputs];
		for (size_t i = 0; i < m->inputs; i++)
			sum += row[i] * x[i];
		active[u] = sum > 0.0f ? sum : 0.0f;
		output += (double)row[m->inputs + 1] * active[u];
	}
	return output;
}

void mlp_gradient(const struct mlp *m, const float *x, const float *active, float slope, float *grads, float *grad_x)
{
	memset(grad_x, 0, m->inputs * sizeof *grad_x);
	for (size_t u = 0; u < m->units; u++) {
		if (active[u] == 0.0f)
			continue;
		const float *row = m->rows + u * MLP_ROW(m->inputs);
		float *g = grads + u * MLP_ROW(m->inputs);
		float inner = slope * row[m->inputs + 1];
		g[m->inputs + 1] += slope * active[u];
		g[m->inputs] += inner;
		for (size_t i = 0; i < m->inputs; i++) {
			g[i] += inner * x[i];
			grad_x[i] += inner * row[i];
		}
	}
}
