/* SPDX-License-Identifier: BSD-3-Clause */
/** Files written by io_uring and by plain calls: contents, names, a disk that is full. Frames: pack and unpack. */
#include "apps/libps/psv_disk.h"
#include "apps/libps/psv_frame.h"
#include "no_io_uring.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILES = 30, LARGE = 3 << 20 };

static char path[64];
static int dir;

static void begin(void)
{
	const char *tmp = getenv("TMPDIR");
	snprintf(path, sizeof path, "%.40s/psv-disk-XXXXXX", tmp ? tmp : "/tmp");
	cr_assert(mkdtemp(path) != NULL);
	dir = open(path, O_RDONLY | O_DIRECTORY);
	cr_assert(dir >= 0);
}

static void end(void)
{
	char command[128];
	close(dir);
	snprintf(command, sizeof command, "rm -r %s", path);
	cr_assert(system(command) == 0);
}

static size_t length_of(int file)
{
	return file == 7 ? LARGE : (size_t)file * 777;
}

static char *bytes_of(int file)
{
	char *bytes = malloc(length_of(file) + 1);
	cr_assert(bytes != NULL);
	for (size_t i = 0; i < length_of(file); i++)
		bytes[i] = (char)(i * 31 + i / 251 + (size_t)file);
	return bytes;
}

static void check_file(int file)
{
	char name[32], *want = bytes_of(file), *got = malloc(LARGE + 1);
	snprintf(name, sizeof name, "file%d", file);
	int fd = openat(dir, name, O_RDONLY);
	cr_assert(got && fd >= 0);
	ssize_t n = read(fd, got, LARGE + 1);
	cr_assert(n == (ssize_t)length_of(file) && memcmp(want, got, (size_t)n) == 0);
	close(fd);
	strcat(name, PSV_DISK_SUFFIX);
	cr_assert(faccessat(dir, name, F_OK, 0) != 0);
	free(want);
	free(got);
}

static void write_files(bool async)
{
	struct psv_disk *disk = psv_disk_open(dir);
	struct far_err err;
	cr_assert(disk && psv_disk_async(disk) == async);
	for (int i = 0; i < FILES; i++) {
		char name[32];
		snprintf(name, sizeof name, "file%d", i);
		cr_assert(psv_disk_put(disk, name, bytes_of(i), length_of(i), &err) == FAR_OK, "%s", err.text);
	}
	cr_assert(psv_disk_finish(disk, &err) == FAR_OK, "%s", err.text);
	cr_assert(psv_disk_async(disk) == async);
	psv_disk_close(disk);
	for (int i = 0; i < FILES; i++)
		check_file(i);
}

/* The third file is longer than a file may be: it fails, by its name, and those before and after it are written. */
static void too_long(void)
{
	struct rlimit limit = {10 * 777, 10 * 777};
	struct psv_disk *disk = psv_disk_open(dir);
	enum far_status status = FAR_OK;
	struct far_err err;
	int failed = 0;
	signal(SIGXFSZ, SIG_IGN);
	cr_assert(disk && setrlimit(RLIMIT_FSIZE, &limit) == 0);
	for (int i = 0; i < 10; i++) {
		char name[32];
		snprintf(name, sizeof name, "file%d", i);
		status = psv_disk_put(disk, name, bytes_of(i), length_of(i), &err);
		cr_assert(status == FAR_OK || ++failed == 1);
		if (status)
			cr_assert(status == FAR_RESOURCE && err.code == EFBIG && strstr(err.text, "write file7"));
	}
	status = psv_disk_finish(disk, &err);
	cr_assert(status == FAR_OK || ++failed == 1);
	cr_assert(failed == 1);
	cr_assert(faccessat(dir, "file7", F_OK, 0) != 0);
	cr_assert(!psv_disk_async(disk));
	psv_disk_close(disk);
	check_file(0);
	check_file(6);
}

Test(psv_disk, writes_files, .init = begin, .fini = end)
{
	write_files(has_io_uring());
}

Test(psv_disk, writes_files_without_io_uring, .init = begin, .fini = end)
{
	if (!no_io_uring())
		cr_skip("the kernel takes no seccomp filter");
	cr_assert(!has_io_uring());
	write_files(false);
}

Test(psv_disk, file_that_is_too_long, .init = begin, .fini = end)
{
	too_long();
}

Test(psv_disk, file_that_is_too_long_without_io_uring, .init = begin, .fini = end)
{
	if (!no_io_uring())
		cr_skip("the kernel takes no seccomp filter");
	too_long();
}

Test(psv_disk, bad_directories_and_names, .init = begin, .fini = end)
{
	char name[80];
	struct far_err err;
	struct psv_disk *disk = psv_disk_open(dir);
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = 0;
	cr_assert(psv_disk_put(disk, name, bytes_of(1), 777, &err) == FAR_INVALID);
	cr_assert(psv_disk_put(disk, "no/such", bytes_of(1), 777, &err) == FAR_SYSTEM && err.code == ENOENT);
	cr_assert(psv_disk_write(dir, "no/such", "x", 1, &err) == FAR_SYSTEM && err.code == ENOENT);
	cr_assert(psv_disk_finish(disk, &err) == FAR_OK);
	psv_disk_close(disk);
	psv_disk_close(NULL);
}

/* ---- Frames ---- */

/* Bytes that a codec makes shorter, or cannot. */
static char *pattern(size_t n, bool random)
{
	char *bytes = malloc(n + 1);
	uint64_t x = 1;
	cr_assert(bytes != NULL);
	for (size_t i = 0; i < n; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		bytes[i] = (char)(random ? x >> 56 : i / 64);
	}
	return bytes;
}

static void round_trip(size_t n, bool random)
{
	struct psv_packer p = {0};
	struct far_err err;
	char *bytes = pattern(n, random), *again;
	for (int turn = 0; turn < 2; turn++) { /* a packer is used again */
		cr_assert(psv_packer_begin(&p, &err) == FAR_OK);
		for (size_t at = 0, part; at < n; at += part) {
			part = n - at < 300001 ? n - at : 300001;
			cr_assert(psv_packer_put(&p, bytes + at, part, &err) == FAR_OK);
		}
		cr_assert(psv_packer_end(&p, &err) == FAR_OK && p.bytes == n);
		size_t frames = (n + PSV_FRAME_PLAIN_MAX - 1) / PSV_FRAME_PLAIN_MAX;
		if (n == 0 || random || psv_codec_best == PSV_CODEC_PLAIN)
			cr_assert(p.out_n == n + frames * sizeof(struct psv_frame));
		else
			cr_assert(p.out_n < n / 2 + frames * sizeof(struct psv_frame));
		cr_assert(psv_unpack(p.out ? p.out : "", p.out_n, p.crc, n, &again, &err) == FAR_OK, "%s", err.text);
		cr_assert(memcmp(again, bytes, n) == 0);
		free(again);
	}
	psv_packer_free(&p);
	free(bytes);
}

Test(psv_frame, unpacks_what_was_packed)
{
	static const size_t lengths[] = {0, 1000, PSV_FRAME_PLAIN_MAX - 1, PSV_FRAME_PLAIN_MAX,
					 3 * PSV_FRAME_PLAIN_MAX + 7};
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		round_trip(lengths[i], true);
		round_trip(lengths[i], false);
	}
}

Test(psv_frame, each_damaged_bit_is_found)
{
	for (int random = 0; random < 2; random++) {
		struct psv_packer p = {0};
		struct far_err err;
		char *bytes = pattern(2000, random), *again;
		cr_assert(psv_packer_begin(&p, NULL) == FAR_OK && psv_packer_put(&p, bytes, 2000, NULL) == FAR_OK &&
			  psv_packer_end(&p, NULL) == FAR_OK);
		for (size_t bit = 0; bit < 8 * p.out_n; bit++) {
			p.out[bit / 8] ^= (char)(1 << bit % 8);
			cr_assert(psv_unpack(p.out, p.out_n, p.crc, 2000, &again, &err) == FAR_INVALID && !again);
			p.out[bit / 8] ^= (char)(1 << bit % 8);
		}
		for (size_t cut = 0; cut < p.out_n; cut++)
			cr_assert(psv_unpack(p.out, cut, p.crc, 2000, &again, &err) == FAR_INVALID && !again);
		psv_packer_free(&p);
		free(bytes);
	}
}

/* A frame with a right CRC and something else that is wrong. */
static enum far_status unpack_frame(struct psv_frame f, const char *data, struct far_err *err)
{
	char bytes[256], *plain = NULL;
	f.crc = psv_crc32c(psv_crc32c(0, &f, offsetof(struct psv_frame, crc)), data, f.bytes);
	memcpy(bytes, &f, sizeof f);
	memcpy(bytes + sizeof f, data, f.bytes);
	enum far_status status =
		psv_unpack(bytes, sizeof f + f.bytes, psv_crc32c(0, &f, sizeof f), f.plain, &plain, err);
	free(plain);
	return status;
}

Test(psv_frame, malformed_frames)
{
	/* zstd: 200 times the byte 7, in one block. */
	static const char zstd[] = "\x28\xb5\x2f\xfd\x20\xc8\x43\x06\x00\x07";
	struct far_err err;
	bool has = psv_codec_best == PSV_CODEC_ZSTD;
	cr_assert(unpack_frame((struct psv_frame){5, 5, PSV_CODEC_PLAIN, 0}, "12345", &err) == FAR_OK);
	cr_assert(unpack_frame((struct psv_frame){5, 6, PSV_CODEC_PLAIN, 0}, "12345", &err) == FAR_INVALID);
	cr_assert(unpack_frame((struct psv_frame){5, 0, PSV_CODEC_ZSTD, 0}, "12345", &err) == FAR_INVALID);
	cr_assert(unpack_frame((struct psv_frame){5, PSV_FRAME_PLAIN_MAX + 1, PSV_CODEC_ZSTD, 0}, "12345", &err) ==
		  FAR_INVALID);
	cr_assert(unpack_frame((struct psv_frame){5, 5, 2, 0}, "12345", &err) == FAR_UNSUPPORTED &&
		  strstr(err.text, "codec 2"));
	enum far_status status = unpack_frame((struct psv_frame){10, 200, PSV_CODEC_ZSTD, 0}, zstd, &err);
	cr_assert(status == (has ? FAR_OK : FAR_UNSUPPORTED));
	cr_assert(has || strstr(err.text, "built without libzstd"));
	status = unpack_frame((struct psv_frame){10, 201, PSV_CODEC_ZSTD, 0}, zstd, &err);
	cr_assert(status == (has ? FAR_INVALID : FAR_UNSUPPORTED));
}
