/* SPDX-License-Identifier: BSD-3-Clause */
/** Keeps the curves of a training, and writes them with the commands that draw them to gnuplot. Main thread. */
#include "curves.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void curves_init(struct curves *c, double steps)
{
	memset(c, 0, sizeof *c);
	c->steps_each = fmax(1.0, ceil(steps / CURVES_POINTS));
}

void curves_fini(struct curves *c)
{
	free(c->tests);
}

void curves_step(struct curves *c, double loss, size_t rows)
{
	c->steps++;
	c->sum += loss;
	c->rows += (double)rows;
	if (fmod(c->steps, c->steps_each) != 0.0 || c->train_n == CURVES_POINTS)
		return;
	c->train[c->train_n++] = (struct curves_point){c->steps, c->sum / c->rows, NAN};
	c->sum = c->rows = 0.0;
}

int curves_test(struct curves *c, const double figures[REPORT_FIGURES])
{
	if (c->tests_n == c->tests_cap) {
		size_t cap = c->tests_cap ? 2 * c->tests_cap : 32;
		struct curves_point *bigger = reallocarray(c->tests, cap, sizeof *bigger);
		if (bigger == NULL)
			return -ENOMEM;
		c->tests = bigger;
		c->tests_cap = cap;
	}
	double rmse = figures[REPORT_TEST_RMSE];
	c->tests[c->tests_n++] = (struct curves_point){c->steps, isnan(rmse) ? figures[REPORT_TEST_LOGLOSS] : rmse,
						       figures[REPORT_TEST_AUC]};
	return 0;
}

static void data(FILE *f, const char *name, const struct curves_point *points, size_t n, bool root)
{
	fprintf(f, "$%s << EOD\n", name);
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%.0f %.9g %.9g\n", points[i].step, root ? sqrt(points[i].loss) : points[i].loss,
			points[i].auc);
	fprintf(f, "EOD\n");
}

int curves_draw(const struct curves *c, const char *title, bool ratings, const char *path)
{
	bool auc = c->tests_n && !isnan(c->tests[c->tests_n - 1].auc);
	FILE *f = popen("gnuplot -", "w");
	if (!f)
		return -1;
	data(f, "train", c->train, c->train_n, ratings);
	data(f, "test", c->tests, c->tests_n, false);
	fprintf(f,
		"set terminal svg size 800,480 font 'DejaVu Sans,13' background rgb 'white'\nset output '%s'\n"
		"set grid lc rgb '#dddddd'; set key outside above; set border %d\nset tics nomirror\n"
		"set title 'Training, %s'; set xlabel 'steps'; set ylabel '%s'; set xrange [0:*]\n",
		path, auc ? 11 : 3, title, ratings ? "RMSE" : "log loss");
	if (auc)
		fprintf(f, "set y2label 'AUC'; set y2tics\n");
	fprintf(f,
		"plot $train using 1:2 with lines lw 1.5 title 'training', "
		"$test using 1:2 with linespoints lw 2 pt 7 ps 0.5 title 'test'%s\n",
		auc ? ", '' using 1:3 axes x1y2 with linespoints lw 2 pt 7 ps 0.5 title 'test AUC (right)'" : "");
	return pclose(f) == 0 ? 0 : -1;
}
