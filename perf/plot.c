/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes the figures of a table and the commands that draw them to gnuplot. Main thread. */
#include "plot.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sizes in bytes. */
#define SIZE_TICS                                                                                                      \
	"'16' 16, '64' 64, '256' 256, '1 KiB' 2**10, '4 KiB' 2**12, '16 KiB' 2**14, '64 KiB' 2**16, '256 KiB' 2**18, " \
	"'1 MiB' 2**20, "                                                                                              \
	"'4 MiB' 2**22, '16 MiB' 2**24, '64 MiB' 2**26"

const char *plot_check(const char *path)
{
	if (strpbrk(path, "'\"\\\n"))
		return "--plot: the file's name has a quote, a backslash or a newline; give another one";
	if (system("command -v gnuplot >/dev/null 2>&1"))
		return "--plot needs gnuplot; install the package gnuplot-nox";
	bool there = access(path, F_OK) == 0;
	FILE *f = fopen(path, "a");
	if (!f)
		return "--plot: the file cannot be written; give one in a directory of yours";
	fclose(f);
	if (!there) /* a measurement that is interrupted leaves none */
		unlink(path);
	return NULL;
}

static double number(const struct table *t, unsigned row, const char *column)
{
	return strtod(table_get(t, row, column), NULL);
}

static void draw_load(const struct table *t, FILE *f)
{
	fprintf(f, "$d << EOD\n");
	for (unsigned i = 0; i < t->rows; i++)
		fprintf(f, "%g %g %g %g %d\n", number(t, i, "rate") / 1e3, number(t, i, "p50_ns") / 1e3,
			number(t, i, "p99_ns") / 1e3, number(t, i, "p999_ns") / 1e3, number(t, i, "unsent") > 0);
	fprintf(f,
		"EOD\nset title 'Latency against load, %s, %s, %s bytes, open loop'\n"
		"set xlabel 'thousand calls per second that should begin'\n"
		"set ylabel 'time from when a call should begin, µs'\n"
		"set logscale y; set format y '%%.10g'; set xrange [0:*]; set offsets graph 0, graph 0.03, 0, 0\n"
		"plot $d using 1:2 title 'p50' lw 2 pt 7 ps 0.5, '' using 1:3 title 'p99' lw 2 pt 7 ps 0.5, "
		"'' using 1:4 title 'p99.9' lw 2 pt 7 ps 0.5, "
		"'' using ($5 > 0 ? $1 : NaN):2 with points title 'saturated' pt 2 ps 1.2 lc rgb 'black'\n",
		table_get(t, 0, "api"), table_get(t, 0, "nic"), table_get(t, 0, "bytes"));
}

/* A curve for each depth. */
static void draw_bandwidth(const struct table *t, FILE *f)
{
	unsigned curves = 0;
	char plot[2048] = "plot";
	for (unsigned i = 0; i < t->rows; i++) {
		const char *depth = table_get(t, i, "depth");
		bool seen = false;
		for (unsigned k = 0; k < i; k++)
			seen |= strcmp(depth, table_get(t, k, "depth")) == 0;
		if (seen)
			continue;
		fprintf(f, "$d%u << EOD\n", curves);
		for (unsigned k = i; k < t->rows; k++)
			if (strcmp(depth, table_get(t, k, "depth")) == 0)
				fprintf(f, "%s %g\n", table_get(t, k, "bytes"), number(t, k, "bytes_per_s") / 1e9);
		fprintf(f, "EOD\n");
		size_t n = strlen(plot);
		snprintf(plot + n, sizeof plot - n, "%s $d%u using 1:2 title '%s in flight' lw 2 pt 7 ps 0.5",
			 curves ? "," : "", curves, depth);
		curves++;
	}
	fprintf(f,
		"set title 'Bandwidth against size, %s, the receiver reads every byte'\n"
		"set xlabel 'size of a message'; set ylabel 'GB/s'\n"
		"set logscale x 2; set yrange [0:*]; set xtics (" SIZE_TICS ")\n%s\n",
		table_get(t, 0, "nic"), plot);
}

static void draw_peers(const struct table *t, FILE *f)
{
	fprintf(f, "$d << EOD\n");
	for (unsigned i = 0; i < t->rows; i++)
		fprintf(f, "%s %g %g\n", table_get(t, i, "peers"), number(t, i, "p50_ns") / 1e3,
			number(t, i, "p99_ns") / 1e3);
	fprintf(f,
		"EOD\nset title 'Round trip against attached peers, %s, one of them active'\n"
		"set xlabel 'peers of the server'; set ylabel 'round trip, µs'\n"
		"set logscale x 2; set yrange [0:*]\n"
		"plot $d using 1:2 title 'p50' lw 2 pt 7 ps 0.5, '' using 1:3 title 'p99' lw 2 pt 7 ps 0.5\n",
		table_get(t, 0, "nic"));
}

int plot_draw(const struct table *t, const char *path)
{
	const char *what = table_get(t, 0, "measurement");
	FILE *f = popen("gnuplot -", "w");
	if (!f)
		return -1;
	fprintf(f,
		"set terminal svg size 800,480 font 'DejaVu Sans,13' background rgb 'white'\nset output '%s'\n"
		"set grid lc rgb '#dddddd'; set key outside above; set border 3\n"
		"set tics nomirror; set style data linespoints\n",
		path);
	if (strcmp(what, "load") == 0)
		draw_load(t, f);
	else if (strcmp(what, "bandwidth") == 0)
		draw_bandwidth(t, f);
	else
		draw_peers(t, f);
	return pclose(f) == 0 ? 0 : -1;
}
